//! The receiving direction of a queue pair on a TCP connection: which receive the next bytes are for, and when it is complete.
//! Receives are filled in posting order and completed in that order. A receive of a shared receive queue is taken only when bytes
//! have arrived for it, so an idle connection holds none.

use verbena_events::event::{Event, Outbox};
use verbena_mem::{Refusal, Targets};

use super::channel::{ChannelState, TcpChannel};
use super::{Acknowledgement, Fill, Inner, TcpQp, rest};
use crate::carrier::{Carrier, IoOutcome};
use crate::qp::Receiving;
use crate::receive::{PostError, Receive, ReceiveQueue};
use crate::wc::{Status, WcOp};
use crate::wr::ReceiveWr;

/// Bytes that are read before a receive of a shared receive queue is taken for them.
const STAGE: usize = 4096;

/// The receives of a queue pair.
#[derive(Debug)]
pub(super) struct Receives {
    /// Those posted to the queue pair itself.
    pub(super) queue: ReceiveQueue,
    /// The one that is being filled.
    filling: Option<Filling>,
    /// Bytes that wait for a receive of the shared receive queue.
    stage: Vec<u8>,
    /// The peer has closed its direction: receives are flushed, sends go on.
    pub(super) at_end: bool,
    /// The channel whose buffers they are.
    pub(super) channel: ChannelState,
}

#[derive(Debug)]
struct Filling {
    receive: Receive,
    done: u32,
}

impl Receives {
    pub(super) fn new(depth: usize, max_sge: usize, channel: Option<TcpChannel>) -> Receives {
        Receives {
            queue: ReceiveQueue::new(depth, max_sge),
            filling: None,
            stage: Vec::new(),
            at_end: false,
            channel: ChannelState::new(channel),
        }
    }

    /// Posts a receive to the queue pair itself.
    pub(super) fn post(&mut self, wr: &ReceiveWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        let posted = self.queue.post(wr);
        match posted {
            Ok(()) => self.channel.note_posted(self.queue.len()),
            Err(_) => self.channel.report_illegal_post(out),
        }
        posted
    }

    /// Receives that are posted to the queue pair, or being filled.
    pub(super) fn outstanding(&self) -> usize {
        self.queue.len() + usize::from(self.filling.is_some())
    }
}

/// Why reading stops.
#[derive(Debug)]
pub(super) enum Stop {
    /// No receive is posted.
    Held,
    WouldBlock,
    Eof,
    Broken,
    Unmapped,
    Refused(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

impl TcpQp {
    /// One read, into the receive that is being filled or into the stage.
    pub(super) fn read(
        &self,
        inner: &mut Inner,
        carrier: &mut dyn Carrier,
        out: &mut Outbox,
    ) -> Result<usize, Stop> {
        self.unstage(&mut inner.receives, out)?;
        let acknowledged = match self.attr.acknowledgement {
            Acknowledgement::Consumed => inner.sends.acknowledged(carrier),
            Acknowledgement::Accepted | Acknowledgement::Delivered => 0,
        };
        let receives = &mut inner.receives;
        let staged = self.init.srq.is_some() && receives.filling.is_none();
        let outcome = if staged {
            receives.stage.resize(STAGE, 0);
            let outcome = {
                let mut targets = Targets::new();
                targets.stage(&mut receives.stage);
                carrier.read(&mut targets)
            };
            receives.stage.truncate(match outcome {
                IoOutcome::Bytes(n) => n,
                _ => 0,
            });
            outcome
        } else {
            carrier.read(&mut self.next_targets(receives, out)?)
        };
        match outcome {
            IoOutcome::Bytes(n) => {
                self.complete_sends(inner.sends.answered(acknowledged), out);
                if staged {
                    self.unstage(&mut inner.receives, out)?;
                } else {
                    self.filled(&mut inner.receives, n, out);
                }
                Ok(n)
            }
            IoOutcome::WouldBlock => Err(Stop::WouldBlock),
            IoOutcome::Eof => Err(Stop::Eof),
            IoOutcome::Broken => Err(Stop::Broken),
            IoOutcome::Fault => Err(Stop::Unmapped),
        }
    }

    /// The peer has closed its direction.
    pub(super) fn reach_end(
        &self,
        inner: &mut Inner,
        carrier: &mut dyn Carrier,
        out: &mut Outbox,
    ) -> Receiving {
        inner.receives.at_end = true;
        let begun = &mut inner.receives.filling;
        if let Some(filling) = begun.take_if(|filling| filling.done > 0) {
            let (id, len) = (filling.receive.id, filling.done);
            self.complete(WcOp::Receive, id, Status::Success, len, out);
            inner.receives.channel.note_returned();
        }
        let qp = self.init.number;
        out.push(Event::Disconnected { qp });
        self.flush_receives(inner, Status::WrFlushErr, out);
        if self.attr.acknowledgement == Acknowledgement::Consumed {
            // What the peer's TCP had acknowledged when it closed in good order was read by its process (`Carrier::unacknowledged`). Later
            // sends can never be.
            let read = inner.sends.acknowledged(carrier);
            self.complete_sends(inner.sends.answered(read), out);
            self.end(inner, "the peer closed the connection", None, out);
            return Receiving::Ended;
        }
        Receiving::Held
    }

    /// Completes the receives that are left, once: the first with `status`, the others as flushed. Those of a shared receive queue stay
    /// in it for the other queue pairs, except the one that is being filled.
    pub(super) fn flush_receives(&self, inner: &mut Inner, status: Status, out: &mut Outbox) {
        let receives = &mut inner.receives;
        let mut queue = std::mem::replace(&mut receives.queue, ReceiveQueue::new(0, 0));
        let begun = receives.filling.take().map(|filling| filling.receive);
        receives.stage = Vec::new();
        if !inner.retired {
            let all = begun.into_iter().chain(std::iter::from_fn(|| queue.take()));
            for (at, receive) in all.enumerate() {
                let status = if at == 0 { status } else { Status::WrFlushErr };
                self.complete(WcOp::Receive, receive.id, status, 0, out);
                receives.channel.note_returned();
            }
            receives.channel.report_returned(out);
        }
        if let Some(srq) = &self.init.srq {
            if let Some(next) = srq.leave(self.init.number) {
                out.wake(next);
            }
            if !inner.retired {
                let qp = self.init.number;
                out.push(Event::LastWqe { qp });
            }
        }
    }

    /// Moves staged bytes into receives of the shared receive queue.
    fn unstage(&self, receives: &mut Receives, out: &mut Outbox) -> Result<(), Stop> {
        while !receives.stage.is_empty() {
            let filled = self.next_targets(receives, out)?.fill(&receives.stage);
            let moved = filled.map_err(|_| Stop::Unmapped)?;
            receives.stage.drain(..moved);
            self.filled(receives, moved, out);
        }
        Ok(())
    }

    /// Where the next bytes go: what is left of the receive that is being filled, or the next one.
    fn next_targets(&self, receives: &mut Receives, out: &mut Outbox) -> Result<Targets<'_>, Stop> {
        let filling = loop {
            if let Some(filling) = &receives.filling {
                break filling;
            }
            let taken = match &self.init.srq {
                Some(srq) => srq.take(self.init.number, out),
                None => receives.queue.take(),
            };
            let receive = taken.ok_or(Stop::Held)?;
            let waiting = || match &self.init.srq {
                Some(srq) => srq.len(),
                None => receives.queue.len(),
            };
            receives.channel.note_taken(waiting, out);
            if receive.capacity() == 0 {
                self.complete(WcOp::Receive, receive.id, Status::Success, 0, out);
                receives.channel.note_returned();
            } else {
                receives.filling = Some(Filling { receive, done: 0 });
            }
        };
        let mut targets = Targets::new();
        for piece in rest(&filling.receive.scatter, filling.done) {
            let placed = targets.place(self.init.place(&piece)?);
            // Not all of it fits: the rest is for the next read.
            if placed < piece.len as usize {
                break;
            }
        }
        Ok(targets)
    }

    /// `moved` bytes are in the receive.
    fn filled(&self, receives: &mut Receives, moved: usize, out: &mut Outbox) {
        let Some(filling) = &mut receives.filling else {
            return;
        };
        // Not more than the receive holds, which is a u32.
        filling.done += moved as u32;
        let is_complete = match self.attr.fill {
            Fill::Any => true,
            Fill::Whole => filling.done == filling.receive.capacity(),
        };
        if is_complete {
            let (id, len) = (filling.receive.id, filling.done);
            receives.filling = None;
            self.complete(WcOp::Receive, id, Status::Success, len, out);
            receives.channel.note_returned();
        }
    }
}
