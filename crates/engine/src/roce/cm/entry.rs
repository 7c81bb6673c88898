//! One communication identifier: what it is used for, and its messages that wait. The queue pair must have been attached before a message that
//! begins traffic leaves, and what it has sent must be acknowledged before the confirmation of the connection's end does.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Weak;

use verbena_nic::Qp;
use verbena_roce::Mtu;
use verbena_roce::cm::{CommunicationId, Mad};
use verbena_stream::Time;
use verbena_wire::roce::{Psn, Qpn, Service};

use super::request::FirstPacketGuard;
use crate::connection::{Done, Options};

/// The confirmation of a connection's end waits for acknowledgements of what this side has sent: how long until it looks again, and how often it
/// does. The peer may exit with the confirmation, and acknowledges what is repeated until then.
const PARTING_CHECK: Duration = Duration::from_millis(2);
const PARTING_CHECKS: u32 = 150;

/// The addresses of a connection, with the ports of `rdma_cm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// A message to send.
pub(super) struct Outgoing {
    pub(super) local: IpAddr,
    pub(super) peer: IpAddr,
    pub(super) mad: Box<Mad>,
}

/// A connection request of this side.
pub(super) struct OutgoingRequest {
    pub(super) options: Options,
    /// Our queue pair on the wire.
    pub(super) qpn: Qpn,
    pub(super) done: Done,
    pub(super) service: Service,
    pub(super) mtu: Mtu,
    /// PSN of the peer's first packet, as the REQ says.
    pub(super) receive_psn: Psn,
    pub(super) ird: u8,
    pub(super) ord: u8,
    pub(super) timeout: Option<Duration>,
}

/// A connection request of the peer.
#[derive(Debug, Clone)]
pub(super) struct IncomingRequest {
    pub(super) qpn: Qpn,
    pub(super) service: Service,
    pub(super) mtu: Mtu,
    pub(super) starting_psn: Psn,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) ack_timeout: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    /// The program's private data.
    pub(super) private_data: Vec<u8>,
}

/// What an identifier is used for.
pub(super) enum Role {
    /// This side waits for the answer to its request.
    Requesting(Box<OutgoingRequest>),
    /// The queue pair is being attached.
    Attaching,
    /// The program decides about a request.
    Deciding(Box<IncomingRequest>),
    /// The program has accepted, and the peer has not confirmed.
    Accepted {
        qp: Weak<Qp>,
        done: Done,
        private_data: Vec<u8>,
        /// Its first packet is as good as a confirmation.
        _first_packet: Option<FirstPacketGuard>,
    },
    /// A connection.
    Connected { qp: Weak<Qp> },
    /// This side has ended the connection, and the peer has not confirmed.
    Closing { qp: Weak<Qp> },
    /// It answers repeated messages only.
    Closed,
}

/// The peer has ended a connection whose queue pair has sent requests that are not acknowledged. They are repeated, and the end is reported,
/// when this is over.
pub(super) struct Parting {
    pub(super) qp: Weak<Qp>,
    pub(super) check: Time,
    checks_left: u32,
}

/// One identifier.
pub(super) struct Entry {
    pub(super) id: CommunicationId,
    pub(super) ends: Ends,
    pub(super) transaction: u64,
    /// Our queue pair: its number on the wire, and in the function.
    pub(super) qp: Option<(Qpn, u32)>,
    pub(super) role: Role,
    pub(super) begun: Time,
    /// When it is given up, or forgotten.
    pub(super) limit: Option<Time>,
    /// Its place among the timers.
    pub(super) timer: Option<Time>,
    /// Its messages wait until the queue pair is attached.
    pub(super) holds: bool,
    /// Its place among the requests that are not established.
    pub(super) place: Option<u64>,
    /// Its messages wait for acknowledgements.
    pub(super) parting: Option<Parting>,
}

impl Entry {
    pub(super) fn new(
        id: CommunicationId,
        ends: Ends,
        transaction: u64,
        role: Role,
        now: Time,
    ) -> Entry {
        Entry {
            id,
            ends,
            transaction,
            qp: None,
            role,
            begun: now,
            limit: None,
            timer: None,
            holds: false,
            place: None,
            parting: None,
        }
    }

    /// Whether a message with these identifiers and of this transaction is from the peer of this connection.
    pub(super) fn is_from_peer(
        &self,
        from: IpAddr,
        sender: u32,
        transaction: u64,
        is_refusal: bool,
    ) -> bool {
        let remote = self.id.remote_id();
        let known = match remote {
            // Only an answer to the request names it before the peer has an identifier.
            0 => transaction == self.transaction,
            remote => {
                sender == remote || (is_refusal && sender == 0 && transaction == self.transaction)
            }
        };
        known && from == self.ends.peer.ip()
    }

    pub(super) fn flush(&mut self, outgoing: &mut Vec<Outgoing>) {
        if self.holds || self.parting.is_some() {
            return;
        }
        if let Some(mad) = self.id.poll() {
            outgoing.push(Outgoing {
                local: self.ends.local.ip(),
                peer: self.ends.peer.ip(),
                mad: Box::new(mad),
            });
        }
    }

    /// The peer ends the connection: its confirmation waits until what this side has sent is acknowledged.
    pub(super) fn part(&mut self, now: Time) {
        let Role::Connected { qp } = &self.role else {
            return;
        };
        if qp.upgrade().is_some_and(|qp| qp.awaits_roce_ack()) {
            self.parting = Some(Parting {
                qp: qp.clone(),
                check: now + PARTING_CHECK,
                checks_left: PARTING_CHECKS,
            });
        }
    }

    /// Looks whether the confirmation still waits; `None` if it did not until now, and otherwise the queue pair if it no longer does.
    pub(super) fn check_parting(&mut self, now: Time) -> Option<Option<Weak<Qp>>> {
        let parting = self.parting.as_mut().filter(|p| p.check <= now)?;
        let waits = parting.qp.upgrade().is_some_and(|qp| qp.awaits_roce_ack());
        parting.check = now + PARTING_CHECK;
        parting.checks_left -= 1;
        if waits && parting.checks_left > 0 {
            return Some(None);
        }
        Some(self.parting.take().map(|parting| parting.qp))
    }

    pub(super) fn disconnect(&mut self, now: Time) -> bool {
        self.holds = false;
        self.id.disconnect(self.transaction, &[], now)
    }
}
