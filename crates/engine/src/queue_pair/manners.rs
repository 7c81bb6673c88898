//! How a queue pair behaves towards its peer: patience, retries, depths, first numbers.
//! It promises that a change counts at once where the connection allows it, and for the next one else.
//! It refuses to know defaults; the settings have them.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_nic::qp::Psns;
use verbena_nic::{Outbox, Qp};
use verbena_stream::RnrRetry;
use verbena_wire::ext::RnrTimer;

use crate::connection::Slot;

/// How a queue pair behaves towards its peer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Manners {
    /// How often a peer that has no receive is asked again.
    pub rnr_retry: RnrRetry,
    /// How long a peer is told to wait when we have none.
    pub rnr_timer: RnrTimer,
    /// How long a peer that owes an acknowledgement may be silent, or absent; `None` is for ever.
    pub patience: Option<Duration>,
    /// How long requests that a lost peer owes an answer go on waiting before they fail.
    pub grace: Duration,
    /// Reads and atomics served at once; the engine's setting if not given. Counts for the next connection.
    pub ird: Option<u16>,
    /// Reads and atomics asked for at once; the engine's setting if not given. On a connection it can only fall.
    pub ord: Option<u16>,
    /// Type of service (IPv4) or traffic class (IPv6) of what is sent. Counts for the next connection.
    pub traffic_class: Option<u8>,
    /// For connections made by hand.
    pub psns: Option<Psns>,
}

impl Manners {
    /// Tells the queue pair and its connection.
    pub(crate) fn tell(&self, qp: &Qp, slot: &Slot, out: &mut Outbox) {
        slot.set_patience(self.patience);
        qp.set_rnr_retry(self.rnr_retry, out);
        qp.set_rnr_timer(self.rnr_timer, out);
        qp.set_grace(self.grace, out);
        if let Some(ord) = self.ord {
            qp.limit_reads(ord, out);
        }
        if let Some(psns) = self.psns {
            qp.set_psns(psns, out);
        }
    }
}
