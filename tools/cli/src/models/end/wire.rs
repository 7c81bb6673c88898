//! Requests and completions of an end. A receive is posted again before its message is handled, and a failed completion is an error.

use verbena::Status;
use verbena::low::{Data, Flags, RecvWr, RemoteAddr, SendOp, SendWr, Stag, To, Wc};
use verbena_push::Channel;
use verbena_split_wire::push::{Body, Message, Parsed};

use super::{End, MESSAGE, PacketLocation};
use crate::models::{Error, TransferMode};

/// The ids of requests; a receive of a message has its slot added to `MESSAGE_RECV`.
pub(super) const PUSH: u64 = 1;
pub(super) const ANSWER: u64 = 2;
const READ: u64 = 3;
const SEND: u64 = 4;
const IMMEDIATE: u64 = 5;
const MESSAGE_RECV: u64 = 16;

impl End {
    /// Posts a receive for the message in this slot.
    pub(super) fn post_message_recv(&self, slot: usize) -> Result<(), Error> {
        let piece = self.message_buffers.sge(slot * MESSAGE, MESSAGE)?;
        let wr = RecvWr {
            id: MESSAGE_RECV + slot as u64,
            scatter: &[piece],
        };
        self.control.post_recv(&[wr]).map_err(post_error)
    }

    /// Posts a receive for the immediate data of a write.
    pub(super) fn post_immediate(&self) -> Result<(), Error> {
        let wr = RecvWr {
            id: IMMEDIATE,
            scatter: &[],
        };
        self.data.post_recv(&[wr]).map_err(post_error)
    }

    /// Sends a message.
    pub(super) fn send_message(&self, bytes: &[u8]) -> Result<(), Error> {
        let op = SendOp::Send {
            invalidate: None,
            immediate: None,
        };
        let wr = SendWr {
            id: SEND,
            op,
            flags: Flags::SIGNALED,
            data: Data::Inline(bytes),
        };
        self.control.post_send(&[wr]).map_err(post_error)
    }

    /// Writes the packet to the peer's memory.
    pub(super) fn post_write(
        &self,
        id: u64,
        (stag, to): (Stag, To),
        immediate: Option<u32>,
    ) -> Result<(), Error> {
        let remote = RemoteAddr { stag, to };
        let wr = SendWr {
            id,
            op: SendOp::Write { remote, immediate },
            flags: Flags::SIGNALED,
            data: Data::Gather(&[self.source()?]),
        };
        self.data.post_send(&[wr]).map_err(post_error)
    }

    /// Reads a packet from the peer's memory.
    pub(super) fn post_read(&self, (stag, to): (Stag, To)) -> Result<(), Error> {
        let op = SendOp::Read {
            remote: RemoteAddr { stag, to },
            local_invalidate: None,
        };
        let wr = SendWr {
            id: READ,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(&[self.sink.sge(0, self.size as usize)?]),
        };
        self.data.post_send(&[wr]).map_err(post_error)
    }

    /// Polls completions.
    pub(in crate::models) fn poll(&mut self) -> Result<(), Error> {
        let mut some = [Wc::default(); 16];
        let n = self.cq.poll(&mut some);
        some[..n]
            .iter()
            .try_for_each(|wc| self.handle_completion(wc))
    }

    fn handle_completion(&mut self, wc: &Wc) -> Result<(), Error> {
        if wc.status != Status::Success {
            let both = [&self.control, &self.data];
            let why = both.iter().find_map(|qp| qp.view().cause);
            let sentence = format!("{:?}: {}", wc.status, why.unwrap_or_default());
            return Err(Error::Failed(sentence));
        }
        match wc.id {
            PUSH => {
                if let Some(packet) = self.pushed.pop_front() {
                    self.session.handle_written(packet)?;
                }
                self.drive()
            }
            ANSWER => self.answer_written(),
            READ => {
                self.reads += 1;
                self.arrived = Some(PacketLocation::Sink);
                Ok(())
            }
            SEND => Ok(()),
            IMMEDIATE => {
                self.post_immediate()?;
                self.handle_immediate(wc.immediate.unwrap_or_default())
            }
            slot => {
                let slot = (slot - MESSAGE_RECV) as usize;
                let mut room = [0; MESSAGE];
                let bytes = &mut room[..(wc.len as usize).min(MESSAGE)];
                self.message_buffers.read_at(slot * MESSAGE, bytes)?;
                self.post_message_recv(slot)?;
                self.handle_message(bytes)
            }
        }
    }

    fn handle_immediate(&mut self, word: u32) -> Result<(), Error> {
        if self.inward != TransferMode::Push {
            self.arrived = Some(PacketLocation::Sink);
            return Ok(());
        }
        self.session.handle_immediate(Channel::Data, word)?;
        self.drive()
    }

    /// Handles a message: one of pulling or reading, or else the session's.
    fn handle_message(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let parsed = Message::parse(bytes).map_err(|e| Error::Failed(e.to_string()))?;
        let body = match parsed {
            Parsed::Known(message) => Some(message.body),
            Parsed::Unknown(_) => None,
        };
        match body {
            Some(Body::BufferRecvPool(pools)) if self.outward == TransferMode::Pull => {
                self.requested = pools.iter().next();
            }
            Some(Body::BufferRecvPool(pools)) if self.inward == TransferMode::Read => {
                self.announced = pools.iter().next();
            }
            Some(Body::BufferRdmaIndicate(_)) if self.inward == TransferMode::Pull => {
                self.arrived = Some(PacketLocation::Sink);
            }
            Some(Body::BufferRecvPoolUpdate(_)) if self.outward == TransferMode::Read => {
                self.released = true;
            }
            _ => {
                self.session.handle_message(Channel::Control, bytes)?;
                self.drive()?;
            }
        }
        Ok(())
    }
}

fn post_error(error: impl Into<verbena::Error>) -> Error {
    Error::Failed(error.into().to_string())
}
