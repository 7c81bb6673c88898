//! One turn of a connection: the result of connecting, completions, the peer's words, and credits that are due. A turn is bounded, and a
//! peer that violates the protocol is disconnected. The program's bytes are not moved here.

use std::sync::atomic::Ordering;

use verbena::low::{BLANK, Data, Flags, SendOp, SendWr, Wc, WcOp};
use verbena::{Access, Status};

use super::{CONTROL, Flow, Link, Phase, RECEIVE};
use crate::credit::Offence;
use crate::error::Error;
use crate::hello::Hello;
use crate::word::{self, Word};

/// Completions per poll.
const AT_ONCE: usize = 32;
/// Limit on polls per turn: a peer may send as fast as it likes.
const ROUNDS: usize = 32;
/// Limit on mappings of the peer.
const MAPS: usize = 1024;

impl Link {
    /// Handles what has arrived; false if there is more.
    pub(super) fn turn(&self, flow: &mut Flow) -> bool {
        // Loaded before polling: completions from before the end are in the queue by then.
        let lost = self.news.lost.load(Ordering::Acquire);
        self.hear_answer(flow);
        let mut some = [BLANK; AT_ONCE];
        let mut emptied = false;
        for _ in 0..ROUNDS {
            let n = self.cq.poll(&mut some);
            for wc in &some[..n] {
                self.take(flow, wc);
            }
            if n < AT_ONCE {
                emptied = true;
                break;
            }
        }
        flow.lost |= lost && emptied;
        self.pay(flow);
        self.release_if_few(flow);
        emptied
    }

    fn hear_answer(&self, flow: &mut Flow) {
        if !matches!(flow.phase, Phase::Joining) {
            return;
        }
        let Some(answer) = self.news.answer.lock().take() else {
            return;
        };
        // On the accepting side the peer's hello came with the request.
        let joined = match answer {
            Ok(_) if flow.peer.is_some() => Ok(()),
            Ok(said) => Hello::from_bytes(&said).map(|hello| flow.meet(&hello)),
            Err(error) => Err(Error::of_connect(error)),
        };
        flow.phase = match joined {
            Ok(()) => Phase::Joined,
            Err(error) => Phase::Failed(error),
        };
        if matches!(flow.phase, Phase::Failed(_)) {
            self.qp.disconnect();
        }
    }

    fn take(&self, flow: &mut Flow, wc: &Wc) {
        if wc.status != Status::Success {
            flow.lost = true;
            return;
        }
        if wc.id & RECEIVE == 0 {
            flow.sends -= 1;
            flow.stock.1 += wc.id;
            if flow.stock.0 == flow.stock.1 {
                // Restart at the front, so that further pages of the buffer are not touched before they are needed.
                flow.stock = (0, 0);
            }
            return;
        }
        let slot = (wc.id & !RECEIVE) as usize;
        let heard = match wc.op {
            WcOp::ReceiveWriteImm if flow.peer_ended => Err(Offence("it has sent after the end")),
            WcOp::ReceiveWriteImm if wc.immediate != Some(wc.len) => {
                Err(Offence("it has announced another length than it wrote"))
            }
            WcOp::ReceiveWriteImm => flow.incoming.arrive(wc.len.into()),
            _ => self.hear(flow, slot, wc.len as usize),
        };
        if heard.is_err() || self.post_receive(slot).is_err() {
            flow.lost = true;
            self.qp.disconnect();
        }
    }

    fn hear(&self, flow: &mut Flow, slot: usize, len: usize) -> Result<(), Offence> {
        let mut bytes = [0; word::MOST];
        let part = bytes
            .get_mut(..len)
            .ok_or(Offence("its word is too long"))?;
        let read = self.words.read_at(slot * word::MOST, part);
        read.map_err(|_| Offence("its word is too long"))?;
        let word = Word::from_bytes(part).ok_or(Offence("its word is none"))?;
        match word {
            Word::Credit { read, messages } => {
                let (outgoing, _) = flow.peer.as_mut().ok_or(Offence("it speaks too early"))?;
                outgoing.credit(read, messages)
            }
            Word::End => {
                flow.peer_ended = true;
                Ok(())
            }
            Word::Map { offset, memory } => {
                flow.incoming.take_message();
                let room = flow.maps.len() < MAPS;
                if !room || !memory.access().contains(Access::REMOTE_WRITE) {
                    return Err(Offence("it maps too much, or what may not be written"));
                }
                flow.maps.retain(|(at, _)| *at != offset);
                flow.maps.push((offset, memory));
                Ok(())
            }
            Word::Unmap { offset } => {
                flow.incoming.take_message();
                flow.maps.retain(|(at, _)| *at != offset);
                Ok(())
            }
        }
    }

    /// Sends a credit if one is due.
    pub(super) fn pay(&self, flow: &mut Flow) {
        let can = matches!(flow.phase, Phase::Joined)
            && !flow.lost
            && flow.sends < self.options.sends + CONTROL;
        if can && flow.incoming.owes() {
            let (read, messages) = flow.incoming.tell();
            self.say(flow, Word::Credit { read, messages });
        }
    }

    /// Sends a word; the caller has checked that there is room for it.
    pub(super) fn say(&self, flow: &mut Flow, word: Word) {
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
