//! The receive side of a stream: takes frames, returns where payload goes and which messages are complete.
//! It tells the caller where the next bytes go and is told how many were placed; between two calls it holds no payload.
//! Memory is checked by the caller, which reports an access that is not allowed as a [`Violation`].

mod ahead;
mod head;
mod message;
mod phase;
mod predict;

pub(crate) use ahead::Look;
pub(crate) use head::body_len;
pub use phase::{RxEvent, RxPhase};
pub use predict::{PredictedKind, Prediction, WriteRun};

use serde::{Deserialize, Serialize};
use verbena_wire::ddp::Header;
use verbena_wire::mpa::enhanced::RtrKinds;
use verbena_wire::{Msn, Qn, Rsn};

use crate::accounting::Accounting;
use crate::deframe::{Deframer, Next};
use crate::delivery::{Claim, Place, Run, Step};
use crate::order::Order;
use crate::terminate::Offender;
use crate::time::Time;
use crate::violation::Violation;
use message::{MessageOutcome, Messages, SegmentBody};

/// Size of the stage with checksums on: the longest frame.
pub const STAGE_WITH_CRC: usize = {
    // ULPDU, length field, pad and checksum, and a marker in every 512 bytes.
    let unmarked = u16::MAX as usize + 2 + 3 + 4;
    unmarked + 4 * (unmarked / 508 + 2)
};

/// Size of the stage with checksums off: the longest message that is not payload.
pub const STAGE_WITHOUT_CRC: usize = 512;

/// What is accepted on this stream beyond RFC 5040.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RxFeatures {
    /// RFC 7306: atomics and immediate data.
    pub rfc7306: bool,
    /// Control messages and strict order (docs/extensions.md).
    pub extensions: bool,
    /// Read V2, offered in this side's CAPS.
    pub read_v2: bool,
    /// Sends with immediate, offered in this side's CAPS.
    pub send_imm: bool,
    /// Numbers of shared receive queues, on an XRC target. Not moved: such a queue pair is not migrated.
    #[serde(skip)]
    pub xrc: bool,
    /// Atomic Write and Flush, offered in this side's CAPS.
    pub memory_placement: bool,
    /// Messages longer than their receive, which are dropped (unreliable connections).
    pub drop_overlong: bool,
}

/// What the first FPDU must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FirstFpdu {
    /// Any message.
    Any,
    /// CAPS.
    Caps,
    /// A ready-to-receive message of one of these kinds.
    Rtr(RtrKinds),
    /// It has arrived.
    Received,
}

/// The receive side of one stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rx {
    deframer: Deframer,
    order: Order,
    accepts: RxFeatures,
    first: FirstFpdu,
    phase: RxPhase,
    /// The segment being received.
    segment: Segment,
    messages: Messages,
}

/// How much of a Send has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendProgress {
    msn: Msn,
    /// Bytes of segments whose heads have arrived.
    begun: u32,
    /// Offset of the next byte to place; 0 between segments.
    placed: u32,
}

impl SendProgress {
    /// Another message, or more bytes of it.
    pub fn is_beyond(self, before: SendProgress) -> bool {
        let bytes = |progress: SendProgress| (progress.begun, progress.placed);
        self.msn != before.msn || bytes(self) > bytes(before)
    }
}

/// The segment being received, as its header described it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Segment {
    header: Header,
    body: SegmentBody,
    /// Payload bytes: what follows the header and any fixed-size body.
    len: u32,
    /// Offset of the payload in its message.
    offset: u32,
    place: Place,
    offender: Option<Offender>,
}

impl Rx {
    /// The receive side of a new stream.
    pub fn new(markers: bool, crc: bool, accepts: RxFeatures, first: FirstFpdu) -> Rx {
        Rx {
            deframer: Deframer::new(markers, crc),
            order: Order::new(accepts.extensions),
            accepts,
            first,
            phase: RxPhase::Head,
            segment: Segment {
                header: head::NO_HEADER,
                body: SegmentBody::Payload,
                len: 0,
                offset: 0,
                place: Place::Discard,
                offender: None,
            },
            messages: Messages::default(),
        }
    }

    /// Processes the stage and returns what is needed next. The first number is how many stage bytes were consumed.
    ///
    /// After [`Step::Place`] the caller copies payload, from the stage's new front or directly from the socket,
    /// and reports it with [`placed`](Rx::placed). After [`Step::Claim`] it answers with [`claim`](Rx::claim).
    pub fn handle(
        &mut self,
        stage: &[u8],
        now: Time,
        accounting: &mut Accounting,
    ) -> Result<(usize, Step), Violation> {
        accounting.responder.confirm();
        let mut used = 0;
        loop {
            let rest = stage.get(used..).unwrap_or_default();
            match self.phase {
                RxPhase::Head => match self.read_head(rest, accounting)? {
                    Ok(n) => used += n,
                    Err(need) => return Ok((used, Step::More(need))),
                },
                RxPhase::Claim => return Ok((used, self.claim_step())),
                RxPhase::Payload => match self.deframer.next_run(rest)? {
                    Next::Need(need) => return Ok((used, Step::More(need))),
                    Next::Passed(n) => used += n,
                    Next::Run(len) => return Ok((used, Step::Place(self.run(len)))),
                    Next::End => self.step(RxEvent::PayloadDone),
                },
                RxPhase::Trailer => match self.deframer.close(rest)? {
                    Err(need) => return Ok((used, Step::More(need))),
                    Ok(n) => {
                        used += n;
                        self.step(RxEvent::FrameDone);
                        if let Some(delivery) = self.deliver(now, accounting)? {
                            return Ok((used, Step::Deliver(delivery)));
                        }
                    }
                },
            }
        }
    }

    /// The payload that comes next, for a caller that can read directly into its place.
    pub fn pending(&mut self) -> Option<Run> {
        if self.phase != RxPhase::Payload {
            return None;
        }
        match self.deframer.next_run(&[]) {
            Ok(Next::Run(len)) => Some(self.run(len)),
            _ => None,
        }
    }

    /// The segment being received is the last of its message.
    pub(crate) fn in_last_segment(&self) -> bool {
        match &self.segment.header {
            Header::Tagged(h) => h.last,
            Header::Untagged(h) => h.last,
        }
    }

    /// The framing of the bytes that come next.
    pub(crate) fn deframer(&self) -> &Deframer {
        &self.deframer
    }

    /// Markers and checksums.
    pub(crate) fn framing(&self) -> (bool, bool) {
        (self.deframer.has_markers(), self.deframer.has_crc())
    }

    /// Payload may bypass the stage.
    pub(crate) fn reads_directly(&self) -> bool {
        !self.deframer.has_crc()
    }

    /// `n` bytes of the run were placed.
    pub fn placed(&mut self, n: u32) {
        self.deframer.advance(n as usize);
        self.segment.place = self.segment.place.forward(n);
    }

    /// Answers [`Step::Claim`]; returns the number for RNR when the peer must wait.
    pub fn claim(
        &mut self,
        claim: Claim,
        accounting: &mut Accounting,
    ) -> Result<Option<Rsn>, Violation> {
        if self.phase != RxPhase::Claim {
            return Ok(None);
        }
        self.step(RxEvent::Claimed);
        let mut rnr = None;
        let outcome = match claim {
            Claim::Granted { capacity } => MessageOutcome::Receive { capacity },
            Claim::Drop => MessageOutcome::Drop,
            Claim::NotReady { .. } => {
                rnr = accounting.responder.handle_no_receive();
                MessageOutcome::Discard
            }
        };
        self.set_outcome(outcome)?;
        Ok(rnr)
    }

    /// Drops the rest of the message (unreliable connections, when memory may not be accessed).
    pub fn drop_message(&mut self) {
        self.segment.place = Place::Discard;
        self.messages.drop_current(self.segment.header.opcode());
    }

    /// For an observer that saw this side send RNR(n): everything from n on is discarded here,
    /// an unfinished message included.
    pub fn observe_rnr(&mut self, n: Rsn, accounting: &mut Accounting) {
        accounting.responder.observe_rnr(n);
        accounting.reads_in.rewind(n);
        self.messages.send = MessageOutcome::Discard;
        self.messages.write = MessageOutcome::Discard;
    }

    /// The segment being received, for a Terminate.
    pub fn offender(&self) -> Option<Offender> {
        self.segment.offender
    }

    /// The stream ended with `staged` bytes unconsumed: fails if a frame or message is incomplete.
    pub fn handle_eof(&self, staged: usize) -> Result<(), Violation> {
        if self.phase != RxPhase::Head || self.deframer.is_mid_frame(staged) {
            return Err(Violation::CutFpdu);
        }
        if self.order.is_mid_message() {
            return Err(Violation::CutMessage);
        }
        Ok(())
    }

    /// No FPDU has arrived yet, and the first may be of any kind.
    pub fn accepts_any_first(&self) -> bool {
        self.first == FirstFpdu::Any
    }

    /// The first FPDU has been validated: a responder may send from now on (RFC 5044 §7.1.2).
    pub fn has_received_first(&self) -> bool {
        self.first == FirstFpdu::Received
    }

    /// The number of the message that needs a receive.
    pub(crate) fn claimed_msn(&self) -> Option<Msn> {
        match self.segment.header {
            Header::Untagged(h) if self.phase == RxPhase::Claim => Some(h.msn),
            _ => None,
        }
    }

    /// How much of an unfinished Send has arrived, if there is one.
    pub(crate) fn send_progress(&self) -> Option<SendProgress> {
        let in_segment = matches!(self.phase, RxPhase::Payload | RxPhase::Trailer);
        let placed = match self.segment.place {
            Place::Receive { offset } if in_segment => offset,
            _ => 0,
        };
        let lone = || match self.segment.header {
            Header::Untagged(h) if in_segment && h.qn == Qn::SEND => {
                let end = self.segment.offset.saturating_add(self.segment.len);
                Some((h.msn, end))
            }
            _ => None,
        };
        let (msn, begun) = self.order.open_send().or_else(lone)?;
        Some(SendProgress { msn, begun, placed })
    }

    fn claim_step(&self) -> Step {
        Step::Claim {
            msn: self.claimed_msn().unwrap_or(Msn::FIRST),
            opcode: self.segment.header.opcode(),
        }
    }

    fn run(&self, len: usize) -> Run {
        Run {
            place: self.segment.place,
            len: u32::try_from(len).unwrap_or(u32::MAX),
        }
    }

    fn step(&mut self, event: RxEvent) {
        if let Some(next) = self.phase.next(event) {
            self.phase = next;
        }
    }
}

/// Frames of any length fit the stage.
const _: () = {
    let unmarked = u16::MAX as usize + 2 + 3 + 4;
    assert!(STAGE_WITH_CRC >= unmarked + 4 * (unmarked / 508 + 1));
};

#[cfg(test)]
mod tests;
