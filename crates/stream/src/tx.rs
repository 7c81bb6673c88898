//! The transmit side of a stream: numbers messages, segments them, frames them.
//! One message is finished before the next begins; only control frames and a Terminate come between its segments. The caller
//! decides what is sent, and in which order.

mod control;

pub(crate) use control::ControlOut;

use serde::{Deserialize, Serialize};
use verbena_wire::ddp::{Header, Tagged, Untagged};
use verbena_wire::ext::Control;
use verbena_wire::mpa::fpdu::{MAX_ULPDU_WITH_MARKERS, Phase};
use verbena_wire::rdmap::{Opcode, Terminate};
use verbena_wire::{Mo, Msn, Qn, Rsn};

use crate::frame::{Frame, Plain};
use crate::outgoing::{Body, Message, Outgoing, Segment};

/// Queues with message numbers.
const QUEUES: usize = 6;

/// The smallest limit of a segment, whatever a peer asks for (RFC 5044 §4.5).
pub const MIN_ULPDU: u16 = 128;

/// The transmit side of one stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tx {
    phase: Option<Phase>,
    crc: bool,
    max_ulpdu: u16,
    next: [Msn; QUEUES],
    /// Messages begun so far: the serial of the next one.
    begun: u64,
    /// The message that is begun and not finished.
    open: Option<OpenMessage>,
}

/// An unfinished message.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct OpenMessage {
    serial: u64,
    is_request: bool,
    /// At least one frame of it was made.
    framed: bool,
}

impl Tx {
    pub(crate) fn new(markers: bool, crc: bool, max_ulpdu: u16) -> Tx {
        // RFC 5044 §4.3: a marker's pointer has 16 bits, and every marker must point to the start of its frame.
        let most = if markers {
            MAX_ULPDU_WITH_MARKERS as u16
        } else {
            u16::MAX
        };
        Tx {
            phase: markers.then_some(Phase::START),
            crc,
            max_ulpdu: max_ulpdu.clamp(MIN_ULPDU, most),
            next: [Msn::FIRST; QUEUES],
            begun: 0,
            open: None,
        }
    }

    pub(crate) fn limit_ulpdu(&mut self, peer: u16) {
        self.max_ulpdu = self.max_ulpdu.min(peer).max(MIN_ULPDU);
    }

    pub(crate) fn max_ulpdu(&self) -> u16 {
        self.max_ulpdu
    }

    pub(crate) fn phase(&self) -> Option<Phase> {
        self.phase
    }

    pub(crate) fn has_markers(&self) -> bool {
        self.phase.is_some()
    }

    /// A message was begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun > 0
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The peer discards requests: an unfinished one will not be finished.
    pub(crate) fn abandon_request(&mut self) {
        self.open = self.open.filter(|open| !open.is_request);
    }

    /// Removes an unfinished request so that a response can begin; false if frames of it were made, whose rest would have to come first.
    pub(crate) fn abandon_if_unsent(&mut self) -> bool {
        let cut = self.open.is_some_and(|open| open.is_request && open.framed);
        if !cut {
            self.abandon_request();
        }
        !cut
    }

    pub(crate) fn begin(&mut self, message: Message, rsn: Option<Rsn>) -> Outgoing {
        let serial = self.begun;
        self.begun += 1;
        self.open = Some(OpenMessage {
            serial,
            is_request: rsn.is_some(),
            framed: false,
        });
        Outgoing::new(message, rsn, serial)
    }

    /// A whole Send or Write as one plain frame, begun and finished at once; `None` if it needs more or other frames.
    #[inline]
    pub(crate) fn frame_single(&mut self, message: &Message) -> Option<Plain> {
        if !self.is_plain() || self.open.is_some() {
            return None;
        }
        let plain = match *message {
            Message::Write { stag, to, len } => {
                let header = Tagged {
                    last: true,
                    opcode: Opcode::Write,
                    stag,
                    to,
                };
                Plain::new(&header.emit(), len, self.max_ulpdu)?
            }
            Message::Send {
                invalidate: None,
                len,
                ..
            } => {
                let header = Untagged {
                    last: true,
                    opcode: message.opcode(),
                    ulp: 0,
                    qn: Qn::SEND,
                    msn: self.next[Qn::SEND.get() as usize],
                    mo: Mo::ZERO,
                };
                let plain = Plain::new(&header.emit(), len, self.max_ulpdu)?;
                self.number(Qn::SEND);
                plain
            }
            _ => return None,
        };
        self.begun += 1;
        Some(plain)
    }

    /// An acknowledgement as a plain frame; `None` with checksums or markers.
    pub(crate) fn ack(&mut self, n: Rsn) -> Option<Plain> {
        if !self.is_plain() {
            return None;
        }
        let header = Untagged {
            last: true,
            opcode: Opcode::Control,
            ulp: Control::Ack(n).ulp_word(),
            qn: Qn::CONTROL,
            msn: self.number(Qn::CONTROL),
            mo: Mo::ZERO,
        };
        // No longer than a header, which every limit allows.
        Plain::new(&header.emit(), 0, u16::MAX)
    }

    /// No checksums and no markers.
    pub(crate) fn is_plain(&self) -> bool {
        !self.crc && self.phase.is_none()
    }

    /// The message's next frame, and whether it is the last one; `None` if it is not the unfinished message.
    pub(crate) fn frame(&mut self, outgoing: &mut Outgoing) -> Option<(Frame, bool)> {
        self.open.filter(|open| open.serial == outgoing.serial())?;
        // Numbered with its first frame: a message that is given up before leaves no gap in the numbers.
        if let Some(qn) = outgoing.unnumbered() {
            outgoing.number(self.number(qn));
        }
        let segment = outgoing.segment(self.max_ulpdu)?;
        let last = segment.last;
        self.open = self.open.filter(|_| !last).map(|open| OpenMessage {
            framed: true,
            ..open
        });
        Some((self.wrap(&segment), last))
    }

    pub(crate) fn control(&mut self, control: &Control) -> Frame {
        let body = Body::of_control(control);
        self.control_frame(Opcode::Control, Qn::CONTROL, control.ulp_word(), body)
    }

    pub(crate) fn terminate(&mut self, terminate: &Terminate) -> Frame {
        let body = Body::of_terminate(terminate);
        self.control_frame(Opcode::Terminate, Qn::TERMINATE, 0, body)
    }

    /// A single-segment message that may be sent between any two frames.
    fn control_frame(&mut self, opcode: Opcode, qn: Qn, ulp: u32, body: Body) -> Frame {
        let header = Header::Untagged(Untagged {
            last: true,
            opcode,
            ulp,
            qn,
            msn: self.number(qn),
            mo: Mo::ZERO,
        });
        let segment = Segment {
            header: header.emit(),
            body,
            offset: 0,
            len: 0,
            last: true,
        };
        self.wrap(&segment)
    }

    fn number(&mut self, qn: Qn) -> Msn {
        let slot = &mut self.next[(qn.get() as usize).min(QUEUES - 1)];
        let msn = *slot;
        *slot = msn.next();
        msn
    }

    fn wrap(&mut self, segment: &Segment) -> Frame {
        let head: [&[u8]; 2] = [&segment.header, segment.body.bytes()];
        let frame = Frame::new(&head, segment.offset, segment.len, self.phase, self.crc);
        self.phase = frame.next_phase();
        frame
    }
}

#[cfg(test)]
mod tests;
