//! One turn of a connection: the result of connecting, completions, the peer's words, and credits that are due. A turn is bounded, and a
//! peer that violates the protocol is disconnected. The program's bytes are not moved here.

use std::sync::atomic::Ordering;

use verbena::low::{Data, Flags, SendOp, SendWr, Wc, WcOp};
use verbena::{Access, Status};

use super::{CONTROL_SENDS, Flow, Link, Phase, RECEIVE_ID};
use crate::control_message::{self, ControlMessage};
use crate::credit::Violation;
use crate::error::Error;
use crate::hello::Hello;

/// Completions per poll.
const MAX_PER_POLL: usize = 32;
/// Limit on polls per turn: a peer may send as fast as it likes.
const MAX_POLLS: usize = 32;
/// Limit on mappings of the peer.
const MAX_MAPPINGS: usize = 1024;

impl Link {
    /// Handles what has arrived; false if there is more.
    pub(super) fn turn(&self, flow: &mut Flow) -> bool {
        // Loaded before polling: completions from before the end are in the queue by then.
        let lost = self.events.lost.load(Ordering::Acquire);
        self.take_connect_result(flow);
        let mut some = [Wc::default(); MAX_PER_POLL];
        let mut emptied = false;
        for _ in 0..MAX_POLLS {
            let n = self.cq.poll(&mut some);
            for wc in &some[..n] {
                self.handle_completion(flow, wc);
            }
            if n < MAX_PER_POLL {
                emptied = true;
                break;
            }
        }
        flow.lost |= lost && emptied;
        self.send_due_credit(flow);
        self.flush_tail_if_few(flow);
        emptied
    }

    fn take_connect_result(&self, flow: &mut Flow) {
        if !matches!(flow.phase, Phase::Connecting) {
            return;
        }
        let Some(answer) = self.events.connect_result.lock().take() else {
            return;
        };
        // On the accepting side the peer's hello came with the request.
        let joined = match answer {
            Ok(_) if flow.peer.is_some() => Ok(()),
            Ok(said) => Hello::from_bytes(&said).map(|hello| flow.set_peer(&hello)),
            Err(error) => Err(Error::of_connect(error)),
        };
        flow.phase = match joined {
            Ok(()) => Phase::Connected,
            Err(error) => Phase::Failed(error),
        };
        if matches!(flow.phase, Phase::Failed(_)) {
            // There is no connection if it has ended by itself.
            let _ = self.qp.disconnect();
        }
    }

    fn handle_completion(&self, flow: &mut Flow, wc: &Wc) {
        if wc.status != Status::Success {
            flow.lost = true;
            return;
        }
        if wc.id & RECEIVE_ID == 0 {
            flow.sends -= 1;
            flow.buffered.1 += wc.id;
            if flow.buffered.0 == flow.buffered.1 {
                // Restart at the front, so that further pages of the buffer are not touched before they are needed.
                flow.buffered = (0, 0);
            }
            return;
        }
        let slot = (wc.id & !RECEIVE_ID) as usize;
        let received = match wc.op {
            WcOp::ReceiveWriteImm if flow.peer_ended => Err(Violation("it has sent after the end")),
            WcOp::ReceiveWriteImm if wc.immediate != Some(wc.len) => {
                Err(Violation("it has announced another length than it wrote"))
            }
            WcOp::ReceiveWriteImm => flow.incoming.arrive(wc.len.into()),
            _ => self.handle_control(flow, slot, wc.len as usize),
        };
        if received.is_err() || self.post_receive(slot).is_err() {
            flow.lost = true;
            // There is no connection if it has ended by itself.
            let _ = self.qp.disconnect();
        }
    }

    fn handle_control(&self, flow: &mut Flow, slot: usize, len: usize) -> Result<(), Violation> {
        let mut bytes = [0; control_message::MAX_LEN];
        let part = bytes
            .get_mut(..len)
            .ok_or(Violation("its control message is too long"))?;
        let read = self
            .control_buffer
            .read_at(slot * control_message::MAX_LEN, part);
        read.map_err(|_| Violation("its control message is too long"))?;
        let word =
            ControlMessage::from_bytes(part).ok_or(Violation("its control message is invalid"))?;
        match word {
            ControlMessage::Credit { read, messages } => {
                let (outgoing, _) = flow
                    .peer
                    .as_mut()
                    .ok_or(Violation("it sent credit too early"))?;
                outgoing.credit(read, messages)
            }
            ControlMessage::End => {
                flow.peer_ended = true;
                Ok(())
            }
            ControlMessage::Map { offset, memory } => {
                flow.incoming.take_message();
                let room = flow.maps.len() < MAX_MAPPINGS;
                if !room || !memory.access().contains(Access::REMOTE_WRITE) {
                    return Err(Violation(
                        "it maps too many ranges, or memory that is not writable",
                    ));
                }
                flow.maps.retain(|(at, _)| *at != offset);
                flow.maps.push((offset, memory));
                Ok(())
            }
            ControlMessage::Unmap { offset } => {
                flow.incoming.take_message();
                flow.maps.retain(|(at, _)| *at != offset);
                Ok(())
            }
        }
    }

    /// Sends a credit if one is due.
    pub(super) fn send_due_credit(&self, flow: &mut Flow) {
        let can = matches!(flow.phase, Phase::Connected)
            && !flow.lost
            && flow.sends < self.options.sends + CONTROL_SENDS;
        if can && flow.incoming.is_credit_due() {
            let (read, messages) = flow.incoming.take_credit();
            self.send_control(flow, ControlMessage::Credit { read, messages });
        }
    }

    /// Sends a word; the caller has checked that there is room for it.
    pub(super) fn send_control(&self, flow: &mut Flow, word: ControlMessage) {
        let (bytes, len) = word.to_bytes();
        let send = SendWr {
            id: 0,
            op: SendOp::Send {
                invalidate: None,
                immediate: None,
            },
            flags: Flags::SIGNALED,
            data: Data::Inline(&bytes[..len]),
        };
        flow.sends += 1;
        if self.qp.post_send(&[send]).is_err() {
            flow.sends -= 1;
            flow.lost = true;
        }
    }
}
