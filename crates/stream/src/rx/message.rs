//! The end of a frame: which message is complete, and the resulting change of the ledger.
//! A message is delivered once, when its last frame is complete, and not while requests are discarded. Acknowledgements and
//! responses are sent by the transmit side.

use serde::{Deserialize, Serialize};
use verbena_wire::Stag;
use verbena_wire::ddp::{Header, Tagged, Untagged};
use verbena_wire::ext::{Control, ReadV2Request};
use verbena_wire::rdmap::{
    AtomicRequest, AtomicResponse, Dialect, Immediate, Opcode, ReadRequest, Terminate,
};

use super::{First, Rx};
use crate::delivery::Delivery;
use crate::ledger::Ledger;
use crate::reads::{Asked, ReadOut};
use crate::requester;
use crate::time::Time;
use crate::violation::Violation;

/// What a segment has besides, or instead of, payload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Cargo {
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
pub(super) enum Fate {
    /// A Write into memory.
    Live,
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
    pub(super) send: Fate,
    pub(super) write: Fate,
    pub(super) immediate: Option<Immediate>,
    /// Length of the Write delivered last, if nothing was delivered after it.
    last_write: Option<u32>,
}

impl Default for Messages {
    fn default() -> Messages {
        Messages {
            send: Fate::Discard,
            write: Fate::Discard,
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
        ledger: &mut Ledger,
    ) -> Result<Option<Delivery>, Violation> {
        let was = core::mem::replace(&mut self.first, First::Past);
        if let Cargo::Payload = self.segment.cargo {
            return self.deliver_payload(was, ledger);
        }
        let cargo = core::mem::replace(&mut self.segment.cargo, Cargo::Payload);
        let delivery = match cargo {
            Cargo::Payload => return Ok(None),
            Cargo::Discarded => Delivery::Discarded(self.segment.header.opcode()),
            Cargo::Immediate(data) => self.deliver_immediate(data, ledger),
            Cargo::Terminate(terminate, dialect) => Delivery::Terminate(terminate, dialect),
            Cargo::Control(control) => return self.deliver_control(control, now, ledger),
            Cargo::AtomicResponse(response) => {
                let Some(read) = finish_read(ledger)? else {
                    return Ok(None);
                };
                Delivery::AtomicDone(read, response)
            }
            Cargo::ReadRequest(header, request) => {
                let rsn = self.owe_read(ledger)?;
                Delivery::ReadRequest {
                    rsn,
                    header,
                    request,
                }
            }
            Cargo::ReadV2Request(header, request) => {
                let rsn = self.owe_read(ledger)?;
                Delivery::ReadV2Request {
                    rsn,
                    header,
                    request,
                }
            }
            Cargo::AtomicRequest(header, request) => {
                let rsn = self.owe_read(ledger)?;
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
        was: First,
        ledger: &mut Ledger,
    ) -> Result<Option<Delivery>, Violation> {
        let header = self.segment.header;
        if !header.last() {
            return Ok(None);
        }
        match header {
            _ if matches!(was, First::Rtr(_)) => Ok(Some(Delivery::Rtr)),
            Header::Tagged(h) if h.opcode == Opcode::Write => Ok(self.deliver_write(&h, ledger)),
            Header::Untagged(h) if h.opcode.is_send() => Ok(self.deliver_send(&h, ledger)),
            _ => Ok(finish_read(ledger)?.map(|read| match read.asked {
                Asked::Rtr => Delivery::Rtr,
                _ => Delivery::ReadDone(read),
            })),
        }
    }

    fn deliver_write(&mut self, h: &Tagged, ledger: &mut Ledger) -> Option<Delivery> {
        if self.messages.write == Fate::Discard {
            return Some(Delivery::Discarded(h.opcode));
        }
        let len = self.message_len();
        let rsn = ledger.responder.deliver(len);
        self.messages.last_write = (self.messages.write == Fate::Live).then_some(len);
        if self.messages.write == Fate::Drop {
            return Some(Delivery::Discarded(h.opcode));
        }
        Some(Delivery::Write {
            rsn,
            stag: h.stag,
            len,
        })
    }

    fn deliver_send(&mut self, h: &Untagged, ledger: &mut Ledger) -> Option<Delivery> {
        // A discarded message has no effect: an Immediate that is sent again still follows its Write.
        if self.messages.send == Fate::Discard {
            return Some(Delivery::Discarded(h.opcode));
        }
        self.messages.last_write = None;
        let len = self.message_len();
        let rsn = ledger.responder.deliver(len);
        if self.messages.send == Fate::Drop {
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

    fn deliver_immediate(&mut self, data: Immediate, ledger: &mut Ledger) -> Delivery {
        let opcode = self.segment.header.opcode();
        if self.messages.send == Fate::Discard {
            return Delivery::Discarded(opcode);
        }
        let write_len = self.messages.last_write.take();
        let rsn = ledger.responder.deliver(0);
        if self.messages.send == Fate::Drop {
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
        ledger: &mut Ledger,
    ) -> Result<Option<Delivery>, Violation> {
        Ok(Some(match control {
            Control::Caps(caps) => Delivery::Caps(caps),
            Control::Ack(n) => {
                ledger.requester.handle_ack(n)?;
                Delivery::Acked(n)
            }
            Control::Rnr { rsn, timer } => {
                ledger.requester.handle_rnr(rsn, timer, now)?;
                ledger.reads_out.rewind(rsn)?;
                Delivery::Rnr(rsn)
            }
            Control::Ready(n) => {
                ledger.requester.handle_ready(n)?;
                // The wait was already given up, and nothing will be sent again.
                if ledger.requester.state() != requester::State::Flowing {
                    return Ok(None);
                }
                Delivery::Ready(n)
            }
            Control::Resume(n) => {
                ledger.responder.handle_resume(n)?;
                self.order.drop_requests();
                Delivery::Resumed(n)
            }
            Control::Active { psn } => Delivery::Active(psn),
            Control::Path { rsn, to } => Delivery::Path(rsn, to),
        }))
    }

    fn owe_read(&mut self, ledger: &mut Ledger) -> Result<verbena_wire::Rsn, Violation> {
        self.messages.last_write = None;
        let rsn = ledger.responder.deliver(0);
        ledger.reads_in.push(rsn)?;
        Ok(rsn)
    }

    fn message_len(&self) -> u32 {
        self.segment.offset.saturating_add(self.segment.len)
    }
}

impl Messages {
    /// A whole Send arrived.
    pub(super) fn sent(&mut self) {
        self.last_write = None;
    }

    /// A segment of a Write arrived, up to `len` bytes of the message.
    pub(super) fn written(&mut self, len: u32, last: bool) {
        self.write = Fate::Live;
        if last {
            self.last_write = Some(len);
        }
    }

    /// Drops the unfinished message, which counts.
    pub(super) fn drop_current(&mut self, opcode: Opcode) {
        if opcode == Opcode::Write {
            self.write = Fate::Drop;
        } else {
            self.send = Fate::Drop;
        }
    }
}

/// A response is complete: it acknowledges its request and all before it.
fn finish_read(ledger: &mut Ledger) -> Result<Option<ReadOut>, Violation> {
    let Some(read) = ledger.reads_out.pop() else {
        return Ok(None);
    };
    if read.asked != Asked::Rtr {
        ledger.requester.handle_response(read.rsn)?;
    }
    Ok(Some(read))
}
