//! Queue pairs of upper-layer protocols (ULPs), beside RDMA's on one adapter (M12): the extension point that other crates implement.
//! They have a number that no other queue pair has, hold the objects they use, and count towards the function's limits. The adapter
//! calls them when a completion queue overflowed and when they are destroyed; the owner of their connection (`verbena-engine`, a test)
//! calls them when bytes can move, when a deadline passed, and when memory that they wait for became valid (V5). A queue pair makes no
//! call in the other direction: what it has to report is in its completion queues and in the outbox (docs/upper-protocols.md).

use core::fmt;
use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_mem::{Access, Gather, MemAccess, Pd, Placement, Refusal, Tpt};
use verbena_stream::Time;

use crate::carrier::Carrier;
use crate::cq::Cq;
use crate::profile::services::Service;
use crate::qp::{Limits, Receiving, Sending};
use crate::srq::Srq;
use crate::state::QpState;
use crate::wr::Sge;

/// A queue pair of an upper-layer protocol on one connection.
///
/// All calls come from any thread and may come from several at once: the implementation serializes what has to be in order, the bytes
/// of each direction above all. No call may block, and none may be made back into the adapter's API with its locks held.
///
/// | call | when |
/// | --- | --- |
/// | [`handle_connected`](UlpQp::handle_connected) | once, before any other: the connection is established |
/// | [`receive`](UlpQp::receive) | bytes may have arrived, or a receive was posted while reading was held |
/// | [`try_transmit`](UlpQp::try_transmit) | after each `receive` and each post, and when the connection takes bytes again |
/// | [`handle_timeout`](UlpQp::handle_timeout) | the time of [`deadline`](UlpQp::deadline) has come |
/// | [`fail`](UlpQp::fail) | the adapter ends; `try_transmit` follows |
/// | [`retire`](UlpQp::retire) | the queue pair is destroyed; no call follows that would have an effect |
pub trait UlpQp: fmt::Debug + Send + Sync {
    /// Its number, from its [`UlpInit`].
    fn number(&self) -> u32;

    /// Its state. In `Err` nothing more is sent or received, and the connection is closed at the next `try_transmit`.
    fn state(&self) -> QpState;

    /// The connection is established, and no byte was moved on it: the queue pair may send and receive.
    fn handle_connected(&self);

    /// Names the places for the next bytes, has the carrier read into them, and processes what came. A call makes few reads, since it is
    /// repeated while it returns [`Receiving::Some`]. After [`Receiving::Held`] it is called again when a receive was posted, or when
    /// memory became valid for which the queue pair was registered ([`UlpInit::wait_for_memory`]). Returns [`Receiving::Ended`] when no
    /// more bytes will be read; the connection is closed then.
    fn receive(&self, carrier: &mut dyn Carrier, now: Time, out: &mut Outbox) -> Receiving;

    /// Writes what may be sent to the carrier. `None` if another thread is transmitting: that thread sends what was posted meanwhile.
    /// After [`Sending::Blocked`] it is called again when the connection takes bytes, after [`Sending::Ended`] the connection is closed.
    fn try_transmit(
        &self,
        carrier: &mut dyn Carrier,
        now: Time,
        out: &mut Outbox,
    ) -> Option<Sending>;

    /// Moves it to `Err`: outstanding requests complete as flushed. Without effect if it is in `Err`.
    fn fail(&self, cause: &str, out: &mut Outbox);

    /// One of its completion queues lost entries: it fails.
    fn fail_overflowed(&self, out: &mut Outbox) {
        self.fail("a completion queue overflowed", out);
    }

    /// It is destroyed: nothing completes any more, and its memory is not accessed any more. False if it was destroyed before.
    fn retire(&self, out: &mut Outbox) -> bool;

    /// It has sends or requests that have not completed, for which a shutdown waits (N8).
    fn is_busy(&self) -> bool;

    /// What it shows of itself beside its state (N1).
    fn ulp_view(&self) -> UlpView {
        UlpView::default()
    }

    /// When [`handle_timeout`](UlpQp::handle_timeout) is to be called, if nothing else happens before. Asked after each of the other
    /// calls; an earlier deadline replaces a later one.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// The deadline has passed. `receive` is not called for this, `try_transmit` is.
    fn handle_timeout(&self, _now: Time, _out: &mut Outbox) {}

    /// It supports wake-up coalescing: [`awaits_several`](UlpQp::awaits_several) may return true.
    fn can_coalesce(&self) -> bool {
        false
    }

    /// Enough answers are outstanding that it pays to wait for several at once.
    fn awaits_several(&self) -> bool {
        false
    }

    /// Called before a thread sleeps for a bounded time: announces to the carrier ([`Carrier::expect_at_least`]) the bytes of several
    /// answers. True if it did; then [`restore_low_water`](UlpQp::restore_low_water) follows. `try_transmit` follows in any case.
    fn raise_low_water(&self, _carrier: &mut dyn Carrier, _out: &mut Outbox) -> bool {
        false
    }

    /// Sets the carrier's low-water mark back to what is certain to come. `try_transmit` follows.
    fn restore_low_water(&self, _carrier: &mut dyn Carrier, _out: &mut Outbox) {}
}

/// A queue pair of an upper-layer protocol to create, its parts named by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewUlp {
    /// Its service (V2).
    pub service: Service,
    /// Its domain.
    pub pd: Pd,
    /// The completion queue of its sends.
    pub send_cq: u32,
    /// The completion queue of its receives; may be the same.
    pub recv_cq: u32,
    /// The shared receive queue of its domain that it takes receives from.
    pub srq: Option<u32>,
    /// Its limits.
    pub limits: Limits,
}

/// What a queue pair of an upper-layer protocol shows of itself, for `verbena devinfo PID` (N1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UlpView {
    /// Its protocol, in one word.
    pub protocol: &'static str,
    /// Why it failed, in one sentence; the first cause.
    pub cause: Option<String>,
    /// Sends that have not completed, if it tells.
    pub sends: Option<usize>,
    /// Receives of its own that have not completed, if it tells.
    pub receives: Option<usize>,
}

impl Default for UlpView {
    fn default() -> UlpView {
        UlpView {
            protocol: "other",
            cause: None,
            sends: None,
            receives: None,
        }
    }
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
    /// Where its receives come from, if it has no receive queue of its own. `receive` is called when the queue has a receive for which
    /// [`Srq::take`] has made it wait; it leaves with [`Srq::leave`] when it ends.
    pub srq: Option<Arc<Srq>>,
    /// The memory it works on.
    pub tpt: Arc<Tpt>,
    /// Its limits.
    pub limits: Limits,
}

impl UlpInit {
    /// The access of this queue pair to a piece of memory.
    pub fn access(&self, sge: &Sge, needs: Access) -> MemAccess {
        MemAccess {
            stag: sge.stag,
            at: sge.addr,
            len: sge.len.into(),
            pd: self.pd,
            qp: self.number,
            needs,
        }
    }

    /// Checked memory to read into, for [`Targets::place`](verbena_mem::Targets::place) or a copy. Held for one call: invalidating
    /// the registration waits for it.
    pub fn place(&self, sge: &Sge) -> Result<Placement<'_>, Refusal> {
        self.tpt.place_local(&self.access(sge, Access::LOCAL_WRITE))
    }

    /// Checked memory to send from, for [`Sources::gather`](verbena_mem::Sources::gather) or a copy. Held for one call.
    pub fn gather(&self, sge: &Sge) -> Result<Gather<'_>, Refusal> {
        self.tpt.gather_local(&self.access(sge, Access::LOCAL_READ))
    }

    /// True if this failure of [`place`](UlpInit::place) or [`gather`](UlpInit::gather) is memory whose registration is pending (V5):
    /// the queue pair was registered, and is called again when it is valid. False after [`Refusal::Pending`]: it became valid meanwhile.
    pub fn wait_for_memory(&self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::Pending { stag } => self.tpt.wait(*stag, self.number),
            _ => false,
        }
    }
}
