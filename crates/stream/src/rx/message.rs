//! The end of a frame: which message is complete, and the resulting change of the accounting.
//! A message is delivered once, when its last frame is complete, and not while requests are discarded. Acknowledgements and
//! responses are sent by the transmit side.

use serde::{Deserialize, Serialize};
use verbena_wire::Stag;
use verbena_wire::ddp::{Header, Tagged, Untagged};
use verbena_wire::ext::{Control, ReadV2Request};
use verbena_wire::rdmap::{
    AtomicRequest, AtomicResponse, Dialect, Immediate, Opcode, ReadRequest, Terminate,
};

use super::{FirstFpdu, Rx};
use crate::accounting::Accounting;
use crate::delivery::Delivery;
use crate::reads::{ReadOut, Requested};
use crate::requester;
use crate::time::Time;
use crate::violation::Violation;

/// What a segment has besides, or instead of, payload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum SegmentBody {
    Payload,
    Immediate(Immediate),
    ReadRequest(Untagged, ReadRequest),
    ReadV2Request(Untagged, ReadV2Request),
    AtomicRequest(Untagged, AtomicRequest),
    AtomicResponse(AtomicResponse),
    Terminate(Terminate, Dialect),
    Control(Control),
    Discarded,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MessageOutcome {
    /// A Write into memory.
    Write,
    /// Into a receive.
    Receive { capacity: u32 },
    /// Discarded, and sent again after RESUME: it does not count.
    Discard,
    /// Dropped for good: it counts.
    Drop,
}

/// State of the unfinished messages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Messages {
    pub(super) send: MessageOutcome,
    pub(super) write: MessageOutcome,
    pub(super) immediate: Option<Immediate>,
    /// Length of the Write delivered last, if nothing was delivered after it.
    last_write: Option<u32>,
}

impl Default for Messages {
    fn default() -> Messages {
        Messages {
            send: MessageOutcome::Discard,
            write: MessageOutcome::Discard,
            immediate: None,
            last_write: None,
        }
    }
}

impl Rx {
    /// The frame is complete: returns what is delivered by it.
    #[inline(never)]
    pub(super) fn deliver(
        &mut self,
        now: Time,
        accounting: &mut Accounting,
    ) -> Result<Option<Delivery>, Violation> {
        let was = core::mem::replace(&mut self.first, FirstFpdu::Received);
        if let SegmentBody::Payload = self.segment.body {
            return self.deliver_payload(was, accounting);
        }
        let cargo = core::mem::replace(&mut self.segment.body, SegmentBody::Payload);
        let delivery = match cargo {
            SegmentBody::Payload => return Ok(None),
            SegmentBody::Discarded => Delivery::Discarded(self.segment.header.opcode()),
            SegmentBody::Immediate(data) => self.deliver_immediate(data, accounting),
            SegmentBody::Terminate(terminate, dialect) => Delivery::Terminate(terminate, dialect),
            SegmentBody::Control(control) => return self.deliver_control(control, now, accounting),
            SegmentBody::AtomicResponse(response) => {
                let Some(read) = finish_read(accounting)? else {
                    return Ok(None);
                };
                Delivery::AtomicDone(read, response)
            }
            SegmentBody::ReadRequest(header, request) => {
                let rsn = self.register_read(accounting)?;
                Delivery::ReadRequest {
                    rsn,
                    header,
                    request,
                }
            }
            SegmentBody::ReadV2Request(header, request) => {
                let rsn = self.register_read(accounting)?;
                Delivery::ReadV2Request {
                    rsn,
                    header,
                    request,
                }
            }
            SegmentBody::AtomicRequest(header, request) => {
                let rsn = self.register_read(accounting)?;
                Delivery::AtomicRequest {
                    rsn,
                    header,
                    request,
                }
            }
        };
        Ok(Some(delivery))
    }

    fn deliver_payload(
        &mut self,
        was: FirstFpdu,
        accounting: &mut Accounting,
    ) -> Result<Option<Delivery>, Violation> {
        let header = self.segment.header;
        if !header.last() {
            return Ok(None);
        }
        match header {
            _ if matches!(was, FirstFpdu::Rtr(_)) => Ok(Some(Delivery::Rtr)),
            Header::Tagged(h) if h.opcode == Opcode::Write => {
                Ok(self.deliver_write(&h, accounting))
            }
            Header::Untagged(h) if h.opcode.is_send() => Ok(self.deliver_send(&h, accounting)),
            _ => Ok(finish_read(accounting)?.map(|read| match read.requested {
                Requested::Rtr => Delivery::Rtr,
                _ => Delivery::ReadDone(read),
            })),
        }
    }

    fn deliver_write(&mut self, h: &Tagged, accounting: &mut Accounting) -> Option<Delivery> {
        if self.messages.write == MessageOutcome::Discard {
            return Some(Delivery::Discarded(h.opcode));
        }
        let len = self.message_len();
        let rsn = accounting.responder.deliver(len);
        self.messages.last_write = (self.messages.write == MessageOutcome::Write).then_some(len);
        if self.messages.write == MessageOutcome::Drop {
            return Some(Delivery::Discarded(h.opcode));
        }
        Some(Delivery::Write {
            rsn,
            stag: h.stag,
            len,
        })
    }

    fn deliver_send(&mut self, h: &Untagged, accounting: &mut Accounting) -> Option<Delivery> {
        // A discarded message has no effect: an Immediate that is sent again still follows its Write.
        if self.messages.send == MessageOutcome::Discard {
            return Some(Delivery::Discarded(h.opcode));
        }
        self.messages.last_write = None;
        let len = self.message_len();
        let rsn = accounting.responder.deliver(len);
        if self.messages.send == MessageOutcome::Drop {
            return Some(Delivery::Discarded(h.opcode));
        }
        let carries = matches!(h.opcode, Opcode::SendImm { .. });
        Some(Delivery::Send {
            rsn,
            opcode: h.opcode,
            len,
            invalidate: h.opcode.invalidates().then(|| Stag::new(h.ulp)),
            immediate: self.messages.immediate.filter(|_| carries),
        })
    }

    fn deliver_immediate(&mut self, data: Immediate, accounting: &mut Accounting) -> Delivery {
        let opcode = self.segment.header.opcode();
        if self.messages.send == MessageOutcome::Discard {
            return Delivery::Discarded(opcode);
        }
        let write_len = self.messages.last_write.take();
        let rsn = accounting.responder.deliver(0);
        if self.messages.send == MessageOutcome::Drop {
            return Delivery::Discarded(opcode);
        }
        Delivery::Immediate {
            rsn,
            opcode,
            data,
            write_len,
        }
    }

    fn deliver_control(
        &mut self,
        control: Control,
        now: Time,
        accounting: &mut Accounting,
    ) -> Result<Option<Delivery>, Violation> {
        Ok(Some(match control {
            Control::Caps(caps) => Delivery::Caps(caps),
            Control::Ack(n) => {
                accounting.requester.handle_ack(n)?;
                Delivery::Acked(n)
            }
            Control::Rnr { rsn, timer } => {
                accounting.requester.handle_rnr(rsn, timer, now)?;
                accounting.reads_out.rewind(rsn)?;
                Delivery::Rnr(rsn)
            }
            Control::Ready(n) => {
                accounting.requester.handle_ready(n)?;
                // The wait was already given up, and nothing will be sent again.
                if accounting.requester.state() != requester::State::Flowing {
                    return Ok(None);
                }
                Delivery::Ready(n)
            }
            Control::Resume(n) => {
                accounting.responder.handle_resume(n)?;
                self.order.drop_requests();
                Delivery::Resumed(n)
            }
            Control::Active { psn } => Delivery::Active(psn),
            Control::Srq(number) => Delivery::Srq(number),
        }))
    }

    fn register_read(
        &mut self,
        accounting: &mut Accounting,
    ) -> Result<verbena_wire::Rsn, Violation> {
        self.messages.last_write = None;
        let rsn = accounting.responder.deliver(0);
        accounting.reads_in.push(rsn)?;
        Ok(rsn)
    }

    fn message_len(&self) -> u32 {
        self.segment.offset.saturating_add(self.segment.len)
    }
}

impl Messages {
    /// A whole Send arrived.
    pub(super) fn record_send(&mut self) {
        self.last_write = None;
    }

    /// A segment of a Write arrived, up to `len` bytes of the message.
    pub(super) fn record_write(&mut self, len: u32, last: bool) {
        self.write = MessageOutcome::Write;
        if last {
            self.last_write = Some(len);
        }
    }

    /// Drops the unfinished message, which counts.
    pub(super) fn drop_current(&mut self, opcode: Opcode) {
        if opcode == Opcode::Write {
            self.write = MessageOutcome::Drop;
        } else {
            self.send = MessageOutcome::Drop;
        }
    }
}

/// A response is complete: it acknowledges its request and all before it.
fn finish_read(accounting: &mut Accounting) -> Result<Option<ReadOut>, Violation> {
    let Some(read) = accounting.reads_out.pop() else {
        return Ok(None);
    };
    if read.requested != Requested::Rtr {
        accounting.requester.handle_response(read.rsn)?;
    }
    Ok(Some(read))
}
