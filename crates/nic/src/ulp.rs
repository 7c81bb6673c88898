//! Queue pairs of upper-layer protocols (ULPs), beside RDMA's on one adapter, (M12).
//! They have a number that no other queue pair has, hold the objects they use, and count towards the function's limits. The adapter
//! calls them when a completion queue overflowed and when they are destroyed. When memory that they wait for becomes valid (V5), they
//! are woken by the code that owns their streams.

use core::fmt;
use std::sync::Arc;

use verbena_mem::{Pd, Tpt};

use crate::cq::Cq;
use crate::qp::Limits;
use verbena_events::event::Outbox;

/// A queue pair of an upper-layer protocol, as seen by the adapter.
pub trait UlpQp: fmt::Debug + Send + Sync {
    /// One of its completion queues lost entries: it fails.
    fn fail_overflowed(&self, out: &mut Outbox);

    /// It is destroyed: nothing completes any more. False if it was destroyed before.
    fn retire(&self) -> bool;
}

/// The parts of such a queue pair; fixed at creation.
#[derive(Debug, Clone)]
pub struct UlpInit {
    /// Its number.
    pub number: u32,
    /// Its domain.
    pub pd: Pd,
    /// Where its sends complete.
    pub send_cq: Arc<Cq>,
    /// Where its receives complete.
    pub recv_cq: Arc<Cq>,
    /// The memory it works on.
    pub tpt: Arc<Tpt>,
    /// Its limits.
    pub limits: Limits,
}
