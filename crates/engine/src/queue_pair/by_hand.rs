//! Queue pairs that are connected by hand: the programs tell each other number and address, and the queue pairs find each other.
//! It promises that a number names one queue pair at a time, and that naming a peer is all that a program has to do.
//! It refuses queue pairs with iWARP's manners: their connections have a manager.

use core::net::IpAddr;
use std::sync::Arc;

use verbena_nic::{Personality, QpState, QpType};
use verbena_wire::number::Qpn;

use super::QueuePair;
use crate::core::Core;
use crate::error::Error;
use crate::life::{Expected, Life};

/// The peer of a queue pair that is connected by hand, as its program was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The address of ours that the peer was told.
    pub local: IpAddr,
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair.
    pub number: Qpn,
}

/// What makes a queue pair callable: a number, and who answers to it.
#[derive(Debug)]
pub(super) struct Callable {
    core: Arc<Core>,
    pub(super) number: Qpn,
    pub(super) life: Arc<Life>,
}

impl Callable {
    pub(super) fn new(core: &Arc<Core>, qp_type: QpType) -> Result<Callable, Error> {
        let number = core.numbers.take(core)?;
        match Life::new(core, number, qp_type) {
            Ok(life) => Ok(Callable {
                core: core.clone(),
                number,
                life,
            }),
            Err(error) => {
                core.numbers.give_back(number, core.config.reuse_delay);
                Err(error)
            }
        }
    }

    /// Its queue pair is there: it can be called from now on.
    pub(super) fn publish(&self) {
        self.core.calls.add(self.number, self.life.clone());
    }
}

impl Drop for Callable {
    fn drop(&mut self) {
        if !self.core.lives() {
            return;
        }
        self.core.calls.remove(self.number);
        self.life.end();
        let rests = self.core.config.reuse_delay;
        self.core.numbers.give_back(self.number, rests);
    }
}

impl QueuePair {
    /// The number that peers can call, if it has one.
    pub fn callable(&self) -> Option<Qpn> {
        self.callable.as_ref().map(|callable| callable.number)
    }

    /// Names its peer and makes it ready to receive: one of the two calls the other, and when both programs have done
    /// this the queue pairs are connected. Requests wait for that, but not longer than the peer may be absent.
    ///
    /// The queue pair must be in `Init`; it is in `Rtr` afterwards, and [`modify`](QueuePair::modify) to `Rts` lets it send.
    pub fn expect(&self, peer: Peer) -> Result<(), Error> {
        self.core.check()?;
        let qp = self.qp.init().name;
        let callable = self.callable.as_ref().ok_or(Error::NotCallable { qp })?;
        // As 16 bytes every address is one of version 6: those that stand for one of version 4 are meant so.
        let peer = Peer {
            local: peer.local.to_canonical(),
            address: peer.address.to_canonical(),
            ..peer
        };
        if !self.core.addresses()?.contains(&peer.local) {
            return Err(Error::NotOurs {
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
        callable.life.expect(Expected {
            local: peer.local,
            peer: peer.address,
            number: peer.number,
            options: self.options(&[]),
        });
        self.core.calls.ready(&self.core.config, callable.number);
        Ok(())
    }
}
