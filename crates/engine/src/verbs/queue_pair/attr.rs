//! Attributes of a queue pair towards its peer: timeouts, retries, depths, initial PSNs.
//! A change takes effect at once where the connection allows it, otherwise with the next connection. Defaults come from the settings.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_nic::qp::Psns;
use verbena_nic::{Outbox, Qp};
use verbena_roce::Mtu;
use verbena_stream::RnrRetry;
use verbena_wire::ext::RnrTimer;

use crate::connection::Slot;

/// Attributes of a queue pair towards its peer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct QpAttr {
    /// How often a send is retried when the peer has no receive posted (`rnr_retry`).
    pub rnr_retry: RnrRetry,
    /// The delay that a peer is told when no receive is posted here (`min_rnr_timer`).
    pub rnr_timer: RnrTimer,
    /// How long a peer that owes an acknowledgement may be silent or absent; `None` is unlimited.
    pub peer_timeout: Option<Duration>,
    /// How long requests that a lost peer has not answered wait before they fail.
    pub grace: Duration,
    /// Reads and atomics served at once (IRD); the engine's setting if none. Used by the next connection.
    pub ird: Option<u16>,
    /// Reads and atomics outstanding at once (ORD); the engine's setting if none. On a connection it can only be lowered.
    pub ord: Option<u16>,
    /// Type of service (IPv4) or traffic class (IPv6) of sent packets. Used by the next connection.
    pub traffic_class: Option<u8>,
    /// The path MTU of a connection over RoCEv2; 1024 bytes if none.
    pub path_mtu: Option<Mtu>,
    /// How long a request over RoCEv2 may be unanswered before it is repeated (`timeout`). It is longer if the repetitions would take less than
    /// the setting `dead_after` together.
    pub ack_timeout: Option<Duration>,
    /// How often a request over RoCEv2 is repeated (`retry_cnt`); 7 if none.
    pub retry_count: Option<u8>,
    /// Initial packet sequence numbers, for out-of-band connections.
    pub psns: Option<Psns>,
}

impl QpAttr {
    /// Applies the attributes to the queue pair and its connection.
    pub(crate) fn apply(&self, qp: &Qp, slot: &Slot, out: &mut Outbox) {
        slot.set_peer_timeout(self.peer_timeout);
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
