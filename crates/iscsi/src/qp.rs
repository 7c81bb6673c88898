//! A queue pair in iSCSI mode (M12): SCSI commands with their buffers in, responses out, and everything between done by the adapter.
//! It promises that data moves only between the wire and the buffers of the command that the target names, after all checks, and
//! that every command ends once: with its response, when it is taken back, or with the queue pair. It refuses to know sockets: bytes are handed in.
//!
//! | comes | checks | good | bad |
//! | --- | --- | --- | --- |
//! | R2T | the seven of M12, and what was agreed on | data leaves from the buffers, header up | whole PDU up |
//! | Data-In | the seven of M12 | data into the buffers, header up | whole PDU up |
//! | response, or Data-In with status | sequence and tag | the command ends, response up | dropped |
//! | anything else | | whole PDU up | |
//!
//! *Up* is into the next receive. With none posted nothing is read until one is. Digests that are wrong, PDUs longer than we
//! declared and memory of our own that is gone end the stream: at error recovery level 0 nothing else can be done (RFC 7143 §7.1).

mod answers;
mod burst;
mod cancel;
mod command;
mod deliver;
mod end;
mod execute;
mod expect;
mod frame;
mod head;
mod inner;
mod intake;
mod post;
mod queues;
mod segments;
mod transmit;

pub use inner::{Counters, Gap};

use std::cell::RefCell;

use parking_lot::Mutex;
use verbena_nic::{Carrier, Desk, OnFailure, Outbox, QpState, Receiving, Sending};
use verbena_nic::{Upper, UpperInit};

use crate::terms::Terms;
use inner::Inner;
use queues::Queues;

/// A queue pair in iSCSI mode.
///
/// It sits behind one short lock and is run by whoever comes first. Whoever posts calls [`try_transmit`](Qp::try_transmit)
/// afterwards: one that finds somebody at work leaves its requests and goes, and that one sends them.
#[derive(Debug)]
pub struct Qp {
    init: Init,
    queues: Mutex<Queues>,
    desk: Desk<Inner>,
}

/// What it is made of.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) upper: UpperInit,
    pub(crate) on_failure: OnFailure,
}

/// What of it changes while it lives, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Where it stands.
    pub state: QpState,
    /// Why it failed or its send queue stopped, in one sentence; the first cause.
    pub cause: Option<String>,
    /// What it has done.
    pub counters: Counters,
    /// Send requests that have not completed, commands among them.
    pub sends: usize,
    /// Commands without a response.
    pub commands: usize,
    /// Receives that have not completed.
    pub receives: usize,
    /// The first gap in the target's status numbers, if there was one.
    pub gap: Option<Gap>,
}

impl Qp {
    /// A fresh one in `Reset`. `on_failure` says what a command that cannot be executed does to it: options 1 and 2 of M12.
    pub fn new(upper: UpperInit, on_failure: OnFailure) -> Qp {
        let queues = Queues::new(&upper.limits);
        Qp {
            init: Init { upper, on_failure },
            queues: Mutex::new(queues),
            desk: Desk::new(Inner::new()),
        }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.init.upper.number
    }

    /// What it was made of.
    pub fn init(&self) -> &UpperInit {
        &self.init.upper
    }

    /// Where it stands.
    pub fn state(&self) -> QpState {
        self.queues.lock().state
    }

    /// Everything that changes, at one moment.
    pub fn view(&self) -> View {
        self.desk.look(|inner| {
            let queues = self.queues.lock();
            let failed = matches!(queues.state, QpState::Sqe | QpState::Err);
            View {
                state: queues.state,
                cause: inner.cause.clone().filter(|_| failed),
                counters: inner.counters,
                sends: queues.sends_outstanding,
                commands: queues.commands_outstanding,
                receives: queues.receives.len() + usize::from(inner.claimed.is_some()),
                gap: inner.gap,
            }
        })
    }

    /// A stream to a target is there, nothing has been said on it. False if the queue pair is not fresh.
    pub fn attach(&self) -> bool {
        let mut queues = self.queues.lock();
        let fresh = queues.state == QpState::Reset;
        if fresh {
            queues.state = QpState::Rts;
        }
        fresh
    }

    /// Login is over: from here on the queue pair is in iSCSI mode, on these terms. Called before the first command is posted
    /// and when the last login response was received: a target says nothing by itself in between that would be misread.
    pub fn begin(&self, terms: Terms, out: &mut Outbox) {
        self.attend(out, |inner, _, _, _| inner.begin(terms));
    }

    /// Option 1 of M12: the send queue goes on after a command that could not be executed. False if it had not stopped.
    pub fn restart_sends(&self) -> bool {
        let mut queues = self.queues.lock();
        let stopped = queues.state == QpState::Sqe;
        if stopped {
            queues.state = QpState::Rts;
        }
        stopped
    }

    /// Ends it: everything that waits is flushed, and the stream is closed.
    pub fn fail(&self, cause: &str, out: &mut Outbox) {
        self.attend(out, |inner, init, queues, out| {
            inner.end(init, queues, cause, out);
        });
    }

    /// Reads from the carrier, straight into the buffers of commands, and acts on what came: once, or twice if that was a head alone
    /// whose data has a place. `Dry` also if bytes came, but fewer than were asked for: another read so soon would find nothing.
    pub fn receive(&self, carrier: &mut impl Carrier, out: &mut Outbox) -> Receiving {
        self.attend(out, |inner, init, queues, out| {
            let first = inner.pull(init, queues, carrier, out);
            let Receiving::Some(head) = first else {
                return first;
            };
            if !inner.is_at_data(head) {
                return first;
            }
            match inner.pull(init, queues, carrier, out) {
                Receiving::Some(data) => Receiving::Some(head + data),
                second => second,
            }
        })
    }

    /// So many commands are under way that several answers may be waited for at once.
    pub fn awaits_several(&self) -> bool {
        self.desk
            .look(|inner| inner.commands.answers().several().is_some())
    }

    /// Whoever is about to sleep looks again in a moment, whatever comes: the carrier is told to expect several answers at once, if so
    /// many commands are under way. True if it was, and then [`scatter`](Qp::scatter) follows. The caller transmits afterwards.
    pub fn gather(&self, carrier: &mut impl Carrier, out: &mut Outbox) -> bool {
        self.attend(out, |inner, _, _, _| inner.gather(carrier))
    }

    /// The carrier is told to expect no more than is certain to come. The caller transmits afterwards.
    pub fn scatter(&self, carrier: &mut impl Carrier, out: &mut Outbox) {
        self.attend(out, |inner, _, _, _| {
            if inner.expects_much() {
                inner.say_expected(carrier);
            }
        });
    }

    /// Sends what may be sent, unless somebody is at work already: `None` then, and that one does.
    pub fn try_transmit(&self, carrier: &mut impl Carrier, out: &mut Outbox) -> Option<Sending> {
        let mut last = None;
        self.desk.ring(|inner| {
            last = Some(inner.push(&self.init, &self.queues, carrier, out));
        });
        last
    }

    /// The connection is over: the target closed it, or it broke.
    pub fn handle_closed(&self, cause: &str, out: &mut Outbox) {
        self.attend(out, |inner, init, queues, out| {
            inner.lost(init, queues, cause, out);
        });
    }

    /// The connection can be closed: nothing more will be said on it.
    pub fn wants_close(&self) -> bool {
        self.queues.lock().state == QpState::Err
    }

    /// Does `work` under the lock; the caller transmits afterwards, as does whoever rang meanwhile and found us here.
    fn attend<R>(
        &self,
        out: &mut Outbox,
        work: impl FnOnce(&mut Inner, &Init, &Mutex<Queues>, &mut Outbox) -> R,
    ) -> R {
        let out = RefCell::new(out);
        self.desk.serve(
            |inner| work(inner, &self.init, &self.queues, &mut out.borrow_mut()),
            // Who rang left its requests in the queues, where the transmit that follows finds them.
            |_| (),
        )
    }
}

impl Upper for Qp {
    fn fail_overflowed(&self, out: &mut Outbox) {
        self.fail("a completion queue overflowed", out);
    }

    fn retire(&self) -> bool {
        let retired = core::mem::replace(&mut self.queues.lock().retired, true);
        if !retired {
            // Nothing of it completes any more; what it registered goes.
            self.fail("it was destroyed", &mut Outbox::new());
        }
        !retired
    }
}

#[cfg(test)]
mod tests;
