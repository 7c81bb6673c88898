//! A connection's queue pair as plain data, to be moved to another function or another process (V1).
//! Everything that is not done is moved along, at any byte of the stream, and a queue pair that cannot be moved stays as it was. The
//! peer takes no part in it, and the connection's descriptor is passed separately.
//!
//! | part | how it is moved |
//! | --- | --- |
//! | the stream: numbers, orders, the segment in progress, reads both ways | as it is |
//! | bytes that were received and are not parsed | as they are |
//! | frames that have not been sent | headers as they are; payload by its STag, looked up anew at the destination |
//! | requests and receives that are not done | as they were posted, with their progress |
//! | completions that have not been polled | pushed at the destination, under its new number |
//! | the queue of a channel (V6) | stays: a channel moves when its shared send queue has no requests for it |
//! | answers that are owed, with their snapshots, acknowledgements, timers | as they are; times are the machine's |
//! | counters | stay: a function counts its own traffic |

use serde::{Deserialize, Serialize};
use verbena_events::event::Outbox;
use verbena_sync::atomic::Ordering;
use verbena_wire::crc::crc32c;

use super::attributes::Authentication;
use super::inner::Inner;
use super::link_state::LinkState;
use super::receive_state::Blocked;
use super::register::Registration;
use super::{Limits, Qp, QpInit};
use crate::receive::Receive;
use crate::state::{Personality, QpState, QpType};
use crate::wc::Wc;
use crate::wr::SendOp;

/// An encoded image begins with this.
const MAGIC: [u8; 4] = *b"vbni";
/// The format of an image. It changes with every field: a process reads only images of its own format.
const VERSION: u16 = 5;
/// Magic, version, checksum.
const HEAD: usize = 4 + 2 + 4;
/// The largest image that is accepted.
const MAX_IMAGE: usize = 64 << 20;

/// The parts of a queue pair that its destination must have, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traits {
    /// RoCE or iWARP.
    pub personality: Personality,
    /// Reliable or unreliable.
    pub qp_type: QpType,
    /// Its limits.
    pub limits: Limits,
    /// Whether its requests may register memory.
    pub registration: Registration,
    /// Its receives come from a shared queue.
    pub shared_receives: bool,
}

/// A queue pair that is being moved.
#[derive(Debug, Serialize, Deserialize)]
pub struct Image {
    traits: Traits,
    inner: Inner,
    receives: Vec<Receive>,
    /// Completions that have not been polled.
    completions: Vec<Wc>,
}

/// Why a queue pair cannot be moved. It continues where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MigrateRefusal {
    /// It has no connection that could be moved.
    #[error(
        "it is in {0:?}, without an established connection; connect it first, or create a queue pair at the destination"
    )]
    State(QpState),
    /// Its peer has not shown the required nonce.
    #[error("its peer has not been authenticated; try again when its first message has arrived")]
    Unauthenticated,
    /// Its keys stay in this adapter.
    #[error(
        "it is encrypted (setting `tls`), and its keys do not leave the adapter; disconnect it and connect again at the destination"
    )]
    Encrypted,
    /// Its machines and its place at the UDP port stay in this adapter.
    #[error(
        "it is connected over RoCEv2, which is not moved; disconnect it and connect again at the destination, or use the setting `wire = tcp`"
    )]
    Roce,
    /// Its stream is put together from segments here.
    #[error(
        "its TCP is the adapter's own, which is not moved; disconnect it and connect again at the destination"
    )]
    Segments,
    /// Its stream passes through shared memory, which stays.
    #[error(
        "it passes through shared memory, and its peer did not return to TCP within a second; try again, or use the setting `same_host = off`"
    )]
    SharedMemory,
    /// Its shared receive queues, or those of its peer, are named by numbers of an XRC domain, which stays.
    #[error(
        "it is an XRC queue pair, and its domain stays in its adapter: disconnect it and connect another one at the destination"
    )]
    Xrc,
    /// V6: its sends come from a queue that stays.
    #[error(
        "it is a channel of shared send queue {ssq}, which {} and has {requests} requests for it; detach it there, and try again when they have completed",
        if *.attached { "accepts requests for it" } else { "accepts no more requests for it" }
    )]
    Channel {
        /// The queue.
        ssq: u32,
        /// The queue accepts requests for it.
        attached: bool,
        /// Requests that have not completed.
        requests: usize,
    },
    /// Faults for tests were decided that have not happened yet.
    #[error("injected faults wait to happen; try again without")]
    Faults,
    /// V5: it waits for memory that is pending here.
    #[error("it waits for memory whose registration is pending; try again when that is done")]
    Pending,
    /// It has come from as many functions as it may.
    #[error(
        "it has memory in {} functions already; disconnect it and connect again at the destination",
        crate::memory_scope::MAX_FORMER_FUNCTIONS
    )]
    TooManyMoves,
    /// M9: it is about to spend one-touch memory of this process.
    #[error("a message to one-touch memory is being completed; try again when it is done")]
    OneTouchInProgress,
    /// A request concerns windows or registrations, which do not leave the process.
    #[error(
        "request {id} binds, invalidates or registers memory of this process; try again when it has completed"
    )]
    Request {
        /// The program's id of it.
        id: u64,
    },
    /// It is too large.
    #[error("an image of {0} bytes, at most {MAX_IMAGE}")]
    Size(usize),
}

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// They do not begin with the magic number.
    #[error("not the image of a queue pair")]
    Magic,
    /// Another format.
    #[error("an image of version {got}, this process reads version {VERSION}")]
    Version {
        /// Its format.
        got: u16,
    },
    /// They were changed on the way.
    #[error("an image with a wrong checksum")]
    Checksum,
    /// The checksum is right, but the contents are invalid.
    #[error("an image with invalid contents")]
    Invalid,
}

impl Image {
    /// The format of images that this process writes and reads.
    pub const FORMAT_VERSION: u16 = VERSION;

    /// Its parts.
    pub fn traits(&self) -> Traits {
        self.traits
    }

    /// Completions that are moved along.
    pub fn completions(&self) -> usize {
        self.completions.len()
    }

    /// Those of sends, and those of receives.
    pub fn completions_by_queue(&self) -> (usize, usize) {
        let received = self
            .completions
            .iter()
            .filter(|wc| wc.op.is_receive())
            .count();
        (self.completions.len() - received, received)
    }

    /// Sends that have not completed, and completions of sends that were not polled.
    pub fn sends(&self) -> usize {
        self.inner.sends.len() + self.completions_by_queue().0
    }

    /// Sets the capacity of the send queue that it continues with. A channel of a shared send queue has none of its own (V6).
    pub fn set_send_limit(&mut self, sends: usize) {
        self.traits.limits.sends = sends;
    }

    /// As bytes, for another process on the same machine.
    pub fn encode(&self) -> Result<Vec<u8>, MigrateRefusal> {
        if self.inner.receive.touching().is_touching() || self.inner.responder.spends_one_touch() {
            return Err(MigrateRefusal::OneTouchInProgress);
        }
        let ours = |op: &SendOp| op.is_local() || matches!(op, SendOp::RegisterSend { .. });
        if let Some(wqe) = self.inner.sends.iter().find(|wqe| ours(&wqe.op)) {
            return Err(MigrateRefusal::Request { id: wqe.id });
        }
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        // Everything else in it can be encoded: only what was rejected above cannot.
        let bytes =
            postcard::to_extend(self, bytes).map_err(|_| MigrateRefusal::Size(usize::MAX))?;
        if bytes.len() > MAX_IMAGE {
            return Err(MigrateRefusal::Size(bytes.len()));
        }
        Ok(with_checksum(bytes))
    }

    /// Decodes an image. A process trusts it as it trusts the process that handed the connection over; only completeness
    /// and format are checked.
    pub fn decode(bytes: &[u8]) -> Result<Image, ImageError> {
        let (head, body) = bytes.split_at_checked(HEAD).ok_or(ImageError::Magic)?;
        if head[..4] != MAGIC {
            return Err(ImageError::Magic);
        }
        let got = u16::from_le_bytes([head[4], head[5]]);
        if got != VERSION {
            return Err(ImageError::Version { got });
        }
        if head[6..] != crc32c(body).to_le_bytes() {
            return Err(ImageError::Checksum);
        }
        let image: Image = postcard::from_bytes(body).map_err(|_| ImageError::Invalid)?;
        if image.is_sound() {
            Ok(image)
        } else {
            Err(ImageError::Invalid)
        }
    }

    /// A queue pair with these parts can continue with it. A channel of a shared send queue has no send queue of its own (V6).
    fn fits(&self, init: &QpInit) -> bool {
        let mut expected = self.traits;
        if init.send_cq.is_for_ssq() && self.sends() == 0 {
            expected.limits.sends = init.limits.sends;
        }
        expected == traits(init)
    }

    /// Its parts fit together.
    fn is_sound(&self) -> bool {
        let (inner, limits) = (&self.inner, self.traits.limits);
        inner.wire.stream().is_some()
            && inner.sends.invariants()
            && inner.responder.invariants()
            && inner.sends.len() <= limits.sends
            && self.receives.len() <= limits.receives
            && inner.transmit.invariants()
            && inner.receive.invariants()
    }
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32c(&bytes[HEAD..]);
    bytes[6..HEAD].copy_from_slice(&sum.to_le_bytes());
    bytes
}

impl Qp {
    /// Another queue pair continues with its image. It has no completions left, and those with its number are not its own from now on.
    pub fn set_moved(&self) {
        self.moved.store(true, Ordering::Release);
    }

    pub(crate) fn is_moved(&self) -> bool {
        self.moved.load(Ordering::Acquire)
    }

    /// Takes everything out of the queue pair, which is in `Reset` afterwards: it can be destroyed, or get its image back. `last` runs
    /// under the lock: from there on the holder of the image may use the connection's descriptor.
    pub fn export_image(
        &self,
        last: impl FnOnce(),
        out: &mut Outbox,
    ) -> Result<Image, MigrateRefusal> {
        let (inner, receives) = self.run_locked(out, |inner, init, out| {
            inner.check_migratable(init)?;
            last();
            Ok(inner.take_state(init, out))
        })?;
        let init = &self.init;
        let completions = if init.send_cq.is_for_ssq() {
            // V6: those of its sends are the shared send queue's, and stay in the queue that it completes in.
            init.recv_cq.take_received_entries(init.wc_qpn)
        } else {
            let mut completions = init.send_cq.take_qp_entries(init.wc_qpn);
            completions.extend(init.recv_cq.take_qp_entries(init.wc_qpn));
            completions
        };
        Ok(Image {
            traits: traits(init),
            inner,
            receives,
            completions,
        })
    }

    /// Continues with the contents of an image; the image is returned if it does not fit this queue pair, which must be new and
    /// have the traits of the image.
    pub fn import_image(&self, image: Image, out: &mut Outbox) -> Result<(), Box<Image>> {
        if !image.fits(&self.init) || self.state() != QpState::Reset {
            return Err(Box::new(image));
        }
        let Image {
            inner,
            receives,
            completions,
            ..
        } = image;
        self.run_locked(out, |own, init, out| {
            // These come first: no completion of the requests behind them was pushed yet.
            for wc in completions {
                let wc = Wc {
                    qpn: init.wc_qpn,
                    ..wc
                };
                let cq = if wc.op.is_receive() {
                    &init.recv_cq
                } else {
                    &init.send_cq
                };
                cq.push(wc, out);
            }
            self.tails.refill(inner.sends.len(), receives);
            own.restore_state(init, inner, out);
        });
        Ok(())
    }
}

fn traits(init: &QpInit) -> Traits {
    Traits {
        personality: init.personality,
        qp_type: init.qp_type,
        limits: init.limits,
        registration: init.registration,
        shared_receives: init.srq.is_some(),
    }
}

impl Inner {
    /// Checks that it can be moved.
    fn check_migratable(&self, init: &QpInit) -> Result<(), MigrateRefusal> {
        if !self.wire.is_movable() {
            return Err(MigrateRefusal::Roce);
        }
        let open = self.wire.stream().is_some_and(|s| s.state().is_open());
        if !open || !self.state.receives() || self.link != LinkState::Open {
            return Err(MigrateRefusal::State(self.state));
        }
        if self.authentication != Authentication::Done {
            return Err(MigrateRefusal::Unauthenticated);
        }
        // The queue was asked before; here, a request that it gave the channel since.
        if let Some(ssq) = init.send_cq.ssq().filter(|_| !self.sends.is_empty()) {
            return Err(MigrateRefusal::Channel {
                ssq,
                attached: true,
                requests: self.sends.len(),
            });
        }
        if init.qp_type.is_xrc() {
            return Err(MigrateRefusal::Xrc);
        }
        if self.has_pending_faults() {
            return Err(MigrateRefusal::Faults);
        }
        if self.receive.has_segments() {
            return Err(MigrateRefusal::Segments);
        }
        let waits = self.receive.blocked().is_some_and(Blocked::for_memory);
        if waits || self.responder.is_waiting() || init.tpt.has_pending() {
            return Err(MigrateRefusal::Pending);
        }
        Ok(())
    }

    /// Takes everything out but the counters.
    fn take_state(&mut self, init: &QpInit, out: &mut Outbox) -> (Inner, Vec<Receive>) {
        self.receive.leave_srq_waiters(init, out);
        let receives = core::iter::from_fn(|| self.heads.next_receive()).collect();
        self.heads.ended(self.sends.len());
        let (heads, counters) = (core::mem::take(&mut self.heads), self.counters);
        let mut gone = core::mem::replace(self, Inner::new(heads));
        self.counters = counters;
        gone.counters = Default::default();
        (gone, receives)
    }

    /// Continues with the contents of another queue pair.
    fn restore_state(&mut self, init: &QpInit, other: Inner, out: &mut Outbox) {
        let heads = core::mem::take(&mut self.heads);
        *self = Inner { heads, ..other };
        // It waited for a receive of the former shared receive queue, if it found none.
        let awaits = self.awaits_receive() && self.receive.claimed().is_none();
        if let Some(srq) = init.srq.as_ref().filter(|_| awaits)
            && let Some(receive) = srq.take(init.number, out)
        {
            self.receive.set_claimed(receive);
            self.receive_posted(init, out);
        }
        if self.receive.claimed().is_some() {
            self.receive.begin_srq_hold(init, self.now);
        }
    }
}

#[cfg(test)]
mod tests;
