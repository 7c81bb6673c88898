//! Queue pairs that are connected out of band: the programs exchange number and address, and the queue pairs connect to each other.
//! A number names one queue pair at a time, also after a migration. Only queue pairs of the RoCE personality connect so; iWARP has a
//! connection manager.

use core::net::IpAddr;
use std::sync::Arc;

use verbena_nic::{Personality, QpState, QpType};
use verbena_sync::locks::Mutex;
use verbena_wire::number::Qpn;
use verbena_wire::roce::PORT;

use super::QueuePair;
use crate::config::Wire;
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

/// A number that no other queue pair of its function gets while this exists.
#[derive(Debug)]
pub(super) struct ReservedNumber {
    core: Arc<Core>,
    number: Qpn,
}

impl ReservedNumber {
    pub(super) fn allocate(core: &Arc<Core>) -> Result<ReservedNumber, Error> {
        let number = core.oob.qpn_allocator.allocate(core)?;
        let core = core.clone();
        Ok(ReservedNumber { core, number })
    }

    pub(super) fn number(&self) -> Qpn {
        self.number
    }
}

impl Drop for ReservedNumber {
    fn drop(&mut self) {
        if self.core.is_alive() {
            let rests = self.core.config.reuse_delay;
            self.core.oob.qpn_allocator.release(self.number, rests);
        }
    }
}

/// The number of a queue pair in packets of RoCEv2, for one that peers cannot call; allocated at its first use.
#[derive(Debug, Clone, Default)]
pub(super) struct RoceNumber(Arc<Mutex<Option<ReservedNumber>>>);

impl RoceNumber {
    pub(super) fn get(&self, core: &Arc<Core>) -> Result<Qpn, Error> {
        let mut reserved = self.0.lock();
        if let Some(reserved) = &*reserved {
            return Ok(reserved.number());
        }
        let new = ReservedNumber::allocate(core)?;
        let number = new.number();
        *reserved = Some(new);
        Ok(number)
    }
}

/// The number of a callable queue pair, and its connection state.
#[derive(Debug)]
pub(super) struct Callable {
    // Dropped before the number is free.
    route: Route,
    reserved: ReservedNumber,
}

/// Calls to a number are answered while this exists.
#[derive(Debug)]
struct Route {
    core: Arc<Core>,
    number: Qpn,
    handshake: Arc<OobHandshake>,
}

impl Callable {
    pub(super) fn new(core: &Arc<Core>, qp_type: QpType) -> Result<Callable, Error> {
        let reserved = ReservedNumber::allocate(core)?;
        let (core, number) = (core.clone(), reserved.number);
        let handshake = OobHandshake::new(&core, number, qp_type)?;
        let route = Route {
            core,
            number,
            handshake,
        };
        Ok(Callable { route, reserved })
    }

    pub(super) fn number(&self) -> Qpn {
        self.reserved.number
    }

    pub(super) fn handshake(&self) -> &OobHandshake {
        &self.route.handshake
    }

    /// Registers the queue pair: calls are answered from now on.
    pub(super) fn publish(&self) {
        let Route {
            core,
            number,
            handshake,
        } = &self.route;
        core.oob.requests.add(*number, handshake.clone());
    }

    /// Calls are not answered any more; the number stays reserved.
    fn withdraw(self) -> ReservedNumber {
        drop(self.route);
        self.reserved
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        if self.core.is_alive() {
            self.core.oob.requests.remove(self.number);
            self.handshake.end();
        }
    }
}

/// The number of a queue pair that was migrated (V1): it stays in its completions, and peers cannot connect to it any more.
#[derive(Debug)]
pub(super) struct MovedNumber {
    number: Qpn,
    /// In its function, and in those of this process that it came from: a number names one queue pair.
    reserved: Vec<ReservedNumber>,
}

impl MovedNumber {
    /// Reserves the number in the function to which a queue pair migrates, from `origin` if that is in this process.
    pub(super) fn reserve(
        core: &Arc<Core>,
        number: Qpn,
        origin: Option<&QueuePair>,
    ) -> Result<MovedNumber, Error> {
        let mut reserved = Vec::new();
        if !origin.is_some_and(|origin| origin.reserves_number_in(core)) {
            if !core.oob.qpn_allocator.adopt(number) {
                let number = number.get();
                return Err(Error::NumberInUse { number });
            }
            let core = core.clone();
            reserved.push(ReservedNumber { core, number });
        }
        Ok(MovedNumber { number, reserved })
    }

    /// The migration is done: the number of its origin stays reserved as long as this one.
    pub(super) fn take_from(&mut self, origin: &mut QueuePair) {
        let callable = origin.oob.take().map(Callable::withdraw);
        let moved = origin.moved_number.take().map(|moved| moved.reserved);
        self.reserved.extend(callable);
        self.reserved.extend(moved.into_iter().flatten());
    }
}

impl QueuePair {
    /// Its number for out-of-band connections, if it has one. It stays when the queue pair is migrated, but peers cannot connect to it then.
    pub fn oob_qpn(&self) -> Option<Qpn> {
        let moved = self.moved_number.as_ref().map(|moved| moved.number);
        self.oob.as_ref().map(Callable::number).or(moved)
    }

    /// Checks that peers can connect to it by number.
    pub fn check_oob(&self) -> Result<(), Error> {
        self.callable().map(|_| ())
    }

    fn callable(&self) -> Result<&Callable, Error> {
        if let Some(moved) = &self.moved_number {
            let (qp, number) = (self.number(), moved.number.get());
            return Err(Error::NumberMoved { qp, number });
        }
        let qp = self.qp.init().wc_qpn;
        self.oob.as_ref().ok_or(Error::NoOobNumber { qp })
    }

    /// Its number is reserved in this function.
    fn reserves_number_in(&self, core: &Arc<Core>) -> bool {
        let callable = self.oob.iter().map(|callable| &callable.reserved);
        let moved = self.moved_number.iter().flat_map(|moved| &moved.reserved);
        callable
            .chain(moved)
            .any(|reserved| Arc::ptr_eq(&reserved.core, core))
    }

    /// Sets its peer and moves it to `Rtr`: one of the two calls the other, and they are connected when both programs have done this.
    /// Requests posted before wait, but not longer than the peer may be absent.
    ///
    /// The queue pair must be in `Init`; it is in `Rtr` afterwards, and [`modify`](QueuePair::modify) to `Rts` lets it send.
    pub fn set_peer(&self, peer: OobPeer) -> Result<(), Error> {
        self.core.check()?;
        let qp = self.qp.init().wc_qpn;
        let callable = self.callable()?;
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
        let over_roce = self.core.config.wire_to(peer.address) == Wire::Roce;
        if over_roce {
            let to = (peer.address, PORT).into();
            self.core.security.check_roce(to)?;
        }
        let by_hand = self.qp.init().personality == Personality::Roce;
        if !by_hand || state != QpState::Init || self.modify(QpState::Rtr).is_err() {
            return Err(Error::NotConnectable { qp, state });
        }
        if over_roce {
            let settings = self.roce_settings(peer.number);
            self.attach_roce(peer.local, peer.address, settings)?;
            callable.handshake().use_roce();
            let (requests, number) = (&self.core.oob.requests, callable.number());
            requests.ready(&self.core.config, number);
            return Ok(());
        }
        callable.handshake().set_peer(ExpectedPeer {
            local: peer.local,
            peer: peer.address,
            number: peer.number,
            options: self.options(&[]),
        });
        self.core
            .oob
            .requests
            .ready(&self.core.config, callable.number());
        Ok(())
    }
}
