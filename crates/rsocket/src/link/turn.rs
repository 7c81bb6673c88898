//! A turn at a connection: the answer of connecting, completions, words of the peer, and the credit that it is due.
//! It promises that a turn ends, and that a peer that breaks a rule is hung up on. It refuses to move the program's bytes.

use std::sync::atomic::Ordering;

use verbena::low::{BLANK, Data, Flags, SendOp, SendWr, Wc, WcOp};
use verbena::{Access, Status};

use super::{CONTROL, Flow, Link, Phase, RECEIVE};
use crate::credit::Offence;
use crate::error::Error;
use crate::hello::Hello;
use crate::word::{self, Word};

/// Completions taken at once.
const AT_ONCE: usize = 32;
/// Turns of this many completions before the caller looks at what it wanted: a peer may send as fast as it likes.
const ROUNDS: usize = 32;
/// Pieces of the peer's memory that are remembered.
const MAPS: usize = 1024;

impl Link {
    /// Takes what has come; false if there is more.
    pub(super) fn turn(&self, flow: &mut Flow) -> bool {
        // Before the completions: those that came before the end are there by then.
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
        // Whoever accepted knows the peer's hello since the request.
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
                // Begins again at the front: pages behind it are not taken before they are needed.
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

    /// Tells the peer what it may send, if that is due.
    pub(super) fn pay(&self, flow: &mut Flow) {
        let can = matches!(flow.phase, Phase::Joined)
            && !flow.lost
            && flow.sends < self.options.sends + CONTROL;
        if can && flow.incoming.owes() {
            let (read, messages) = flow.incoming.tell();
            self.say(flow, Word::Credit { read, messages });
        }
    }

    /// Sends a word; whoever calls has seen that there is room for it.
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
