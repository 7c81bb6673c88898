//! Queue pairs that are connected out of band: the programs exchange number and address, and the queue pairs connect to each other.
//! A number names one queue pair at a time. Only queue pairs of the RoCE personality connect so; iWARP has a connection manager.

use core::net::IpAddr;
use std::sync::Arc;

use verbena_nic::{Personality, QpState, QpType};
use verbena_wire::number::Qpn;

use super::QueuePair;
use crate::core::Core;
use crate::error::Error;
use crate::oob::handshake::{ExpectedPeer, OobHandshake};

/// The peer of an out-of-band connection, as the program was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OobPeer {
    /// Our address as the peer was told.
    pub local: IpAddr,
    /// The peer's address.
    pub address: IpAddr,
    /// The peer's queue pair number.
    pub number: Qpn,
}

/// The number of a callable queue pair, and its connection state.
#[derive(Debug)]
pub(super) struct Callable {
    core: Arc<Core>,
    pub(super) number: Qpn,
    pub(super) handshake: Arc<OobHandshake>,
}

impl Callable {
    pub(super) fn new(core: &Arc<Core>, qp_type: QpType) -> Result<Callable, Error> {
        let number = core.oob.qpn_allocator.allocate(core)?;
        match OobHandshake::new(core, number, qp_type) {
            Ok(found) => Ok(Callable {
                core: core.clone(),
                number,
                handshake: found,
            }),
            Err(error) => {
                core.oob
                    .qpn_allocator
                    .release(number, core.config.reuse_delay);
                Err(error)
            }
        }
    }

    /// Registers the queue pair: calls are answered from now on.
    pub(super) fn publish(&self) {
        self.core
            .oob
            .requests
            .add(self.number, self.handshake.clone());
    }
}

impl Drop for Callable {
    fn drop(&mut self) {
        if !self.core.is_alive() {
            return;
        }
        self.core.oob.requests.remove(self.number);
        self.handshake.end();
        let rests = self.core.config.reuse_delay;
        self.core.oob.qpn_allocator.release(self.number, rests);
    }
}

impl QueuePair {
    /// The number that peers can call, if it has one.
    pub fn oob_qpn(&self) -> Option<Qpn> {
        self.oob.as_ref().map(|callable| callable.number)
    }

    /// Sets its peer and moves it to `Rtr`: one of the two calls the other, and they are connected when both programs have done this.
    /// Requests posted before wait, but not longer than the peer may be absent.
    ///
    /// The queue pair must be in `Init`; it is in `Rtr` afterwards, and [`modify`](QueuePair::modify) to `Rts` lets it send.
    pub fn set_peer(&self, peer: OobPeer) -> Result<(), Error> {
        self.core.check()?;
        let qp = self.qp.init().wc_qpn;
        let callable = self.oob.as_ref().ok_or(Error::NoOobNumber { qp })?;
        // A GID is always 16 bytes: IPv4-mapped addresses stand for IPv4.
        let peer = OobPeer {
            local: peer.local.to_canonical(),
            address: peer.address.to_canonical(),
            ..peer
        };
        if !self.core.local_addresses.all()?.contains(&peer.local) {
            return Err(Error::NotLocalAddress {
                address: peer.local,
            });
        }
        let local = (peer.local, 0).into();
        self.core
            .check_owner(local, Some((peer.address, 0).into()))?;
        let state = self.state();
        let by_hand = self.qp.init().personality == Personality::Roce;
        if !by_hand || state != QpState::Init || !self.modify(QpState::Rtr) {
            return Err(Error::NotConnectable { qp, state });
        }
        callable.handshake.set_peer(ExpectedPeer {
            local: peer.local,
            peer: peer.address,
            number: peer.number,
            options: self.options(&[]),
        });
        self.core
            .oob
            .requests
            .ready(&self.core.config, callable.number);
        Ok(())
    }
}
