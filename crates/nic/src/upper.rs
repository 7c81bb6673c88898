//! Queue pairs of upper-layer drivers: siblings of RDMA's on one adapter, with a protocol of their own (M12).
//! The adapter promises them what it promises its own: a number that no other queue pair has, parts that stay while it lives, a share
//! of the limits. It refuses to know what they say: it tells them when a completion queue failed and when to go. When memory is there
//! that they wait for (V5), whoever has their streams tells them.

use core::fmt;
use std::sync::Arc;

use verbena_mem::{Pd, Tpt};

use crate::cq::Cq;
use crate::event::Outbox;
use crate::qp::Limits;

/// A queue pair of an upper-layer driver, as the adapter sees it.
pub trait Upper: fmt::Debug + Send + Sync {
    /// A completion queue of its lost entries: it fails.
    fn fail_overflowed(&self, out: &mut Outbox);

    /// It is destroyed: nothing completes any more. False if it was before.
    fn retire(&self) -> bool;
}

/// What such a queue pair is made of; fixed at creation.
#[derive(Debug, Clone)]
pub struct UpperInit {
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
