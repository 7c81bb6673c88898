//! A queue pair in iSCSI mode (M12): the consumer posts SCSI commands with their buffers and receives responses; R2Ts, data and sequence
//! numbers are handled by the adapter. Data is placed only into buffers of the command that the initiator task tag identifies, after all
//! checks. Every command ends exactly once: with its response, by cancellation, or with the queue pair. The carrier moves the bytes.
//!
//! | PDU | checks | passed | failed |
//! | --- | --- | --- | --- |
//! | R2T | the seven of M12, and the negotiated limits | data is sent from the buffers, header delivered | whole PDU delivered |
//! | Data-In | the seven of M12 | data is placed in the buffers, header delivered | whole PDU delivered |
//! | SCSI Response, or Data-In with status | StatSN and tag | the command ends, response delivered | dropped |
//! | any other | | whole PDU delivered | |
//!
//! Delivery is into the next receive; with none posted, reading stops until one is. A wrong digest, a PDU longer than we declared, or
//! buffers that are no longer accessible end the connection, as error recovery level 0 requires (RFC 7143 §7.1).

mod answers;
mod burst;
mod cancel;
mod command;
mod commands;
mod deliver;
mod end;
mod execute;
mod frame;
mod head;
mod inner;
mod intake;
mod low_water;
mod post;
mod queues;
mod segments;
mod transmit;
mod verdict;

pub use inner::{Counters, Gap};

use std::cell::RefCell;

use parking_lot::Mutex;
use verbena_nic::{Carrier, CombiningLock, OnFailure, Outbox, QpState, Receiving, Sending};
use verbena_nic::{Time, UlpInit, UlpQp, UlpView};

use crate::terms::Terms;
use inner::Inner;
use queues::Queues;

/// A queue pair in iSCSI mode.
///
/// `queues` is behind a short lock for posting; everything else is run by one thread at a time under a combining lock. After posting, the
/// caller calls [`try_transmit`](Qp::try_transmit): if another thread holds the lock, that thread transmits the new requests.
#[derive(Debug)]
pub struct Qp {
    init: Init,
    queues: Mutex<Queues>,
    lock: CombiningLock<Inner>,
}

/// What it was created with.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) ulp: UlpInit,
    pub(crate) on_failure: OnFailure,
}

/// A snapshot of its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// State of the queue pair.
    pub state: QpState,
    /// Why it failed or its send queue stopped, in one sentence; the first cause.
    pub cause: Option<String>,
    /// Counters since creation.
    pub counters: Counters,
    /// Send requests that have not completed, commands among them.
    pub sends: usize,
    /// Commands without a response.
    pub commands: usize,
    /// Receives that have not completed.
    pub receives: usize,
    /// The first gap in the target's StatSN, if any.
    pub gap: Option<Gap>,
}

impl Qp {
    /// A new queue pair in `Reset`. `on_failure`: the effect of a command that cannot be executed, options 1 and 2 of M12.
    pub fn new(ulp: UlpInit, on_failure: OnFailure) -> Qp {
        let queues = Queues::new(&ulp.limits);
        Qp {
            init: Init { ulp, on_failure },
            queues: Mutex::new(queues),
            lock: CombiningLock::new(Inner::new()),
        }
    }

    /// Its number (QPN).
    pub fn number(&self) -> u32 {
        self.init.ulp.number
    }

    /// What it was created with.
    pub fn init(&self) -> &UlpInit {
        &self.init.ulp
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.queues.lock().state
    }

    /// A consistent snapshot.
    pub fn view(&self) -> View {
        self.lock.read(|inner| {
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

    /// The connection to the target is established and nothing was sent on it. False if the queue pair is not in `Reset`.
    pub fn attach(&self) -> bool {
        let mut queues = self.queues.lock();
        let fresh = queues.state == QpState::Reset;
        if fresh {
            queues.state = QpState::Rts;
        }
        fresh
    }

    /// The login is complete: enters the full feature phase with these parameters. Called after the last login response was received and
    /// before the first command is posted; a target sends nothing unsolicited in between that could be misread.
    pub fn begin(&self, terms: Terms, out: &mut Outbox) {
        self.with_lock(out, |inner, _, _, _| inner.begin(terms));
    }

    /// Option 1 of M12: resumes the send queue after a command that could not be executed. False if it was not stopped.
    pub fn restart_sends(&self) -> bool {
        let mut queues = self.queues.lock();
        let stopped = queues.state == QpState::Sqe;
        if stopped {
            queues.state = QpState::Rts;
        }
        stopped
    }

    /// Moves to `Err`: outstanding requests are flushed and the connection is to be closed.
    pub fn fail(&self, cause: &str, out: &mut Outbox) {
        self.with_lock(out, |inner, init, queues, out| {
            inner.end(init, queues, cause, out);
        });
    }

    /// Reads from the carrier, directly into the buffers of commands, and processes what came: one read, or two if the first returned only
    /// a header whose data is placed. `WouldBlock` also means that fewer bytes came than were asked for: an immediate further read would find none.
    pub fn receive(&self, carrier: &mut (impl Carrier + ?Sized), out: &mut Outbox) -> Receiving {
        self.with_lock(out, |inner, init, queues, out| {
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

    /// Enough commands are outstanding that it pays to wait for several answers at once.
    pub fn awaits_several(&self) -> bool {
        self.lock
            .read(|inner| inner.commands.answers().coalesced_bytes().is_some())
    }

    /// Called before sleeping for a bounded time: sets the carrier's low-water mark to several answers if enough commands are outstanding.
    /// True if it did; then [`restore_low_water`](Qp::restore_low_water) has to follow. The caller transmits afterwards.
    pub fn raise_low_water(&self, carrier: &mut (impl Carrier + ?Sized), out: &mut Outbox) -> bool {
        self.with_lock(out, |inner, _, _, _| inner.raise_low_water(carrier))
    }

    /// Sets the carrier's low-water mark back to what is certain to come. The caller transmits afterwards.
    pub fn restore_low_water(&self, carrier: &mut (impl Carrier + ?Sized), out: &mut Outbox) {
        self.with_lock(out, |inner, _, _, _| {
            if inner.has_low_water() {
                inner.update_low_water(carrier);
            }
        });
    }

    /// Transmits what may be sent. `None` if another thread holds the lock; that thread transmits.
    pub fn try_transmit(
        &self,
        carrier: &mut (impl Carrier + ?Sized),
        out: &mut Outbox,
    ) -> Option<Sending> {
        let mut last = None;
        self.lock.run_or_delegate(|inner| {
            last = Some(inner.push(&self.init, &self.queues, carrier, out));
        });
        last
    }

    /// The connection ended: closed by the target, or broken.
    pub fn handle_closed(&self, cause: &str, out: &mut Outbox) {
        self.with_lock(out, |inner, init, queues, out| {
            inner.handle_disconnect(init, queues, cause, out);
        });
    }

    /// Runs `work` under the combining lock. The caller transmits afterwards, also for threads whose `try_transmit` found the lock held.
    fn with_lock<R>(
        &self,
        out: &mut Outbox,
        work: impl FnOnce(&mut Inner, &Init, &Mutex<Queues>, &mut Outbox) -> R,
    ) -> R {
        let out = RefCell::new(out);
        self.lock.lock_and_run(
            |inner| work(inner, &self.init, &self.queues, &mut out.borrow_mut()),
            // Such a thread left its requests in the queues, where the transmit that follows finds them.
            |_| (),
        )
    }
}

impl UlpQp for Qp {
    fn number(&self) -> u32 {
        self.number()
    }

    fn state(&self) -> QpState {
        self.state()
    }

    fn handle_connected(&self) {
        self.attach();
    }

    fn receive(&self, carrier: &mut dyn Carrier, _: Time, out: &mut Outbox) -> Receiving {
        self.receive(carrier, out)
    }

    fn try_transmit(
        &self,
        carrier: &mut dyn Carrier,
        _: Time,
        out: &mut Outbox,
    ) -> Option<Sending> {
        self.try_transmit(carrier, out)
    }

    fn fail(&self, cause: &str, out: &mut Outbox) {
        self.fail(cause, out);
    }

    fn retire(&self, _: &mut Outbox) -> bool {
        let retired = core::mem::replace(&mut self.queues.lock().retired, true);
        if !retired {
            // No completions are raised any more; registrations of outstanding commands are removed.
            self.fail("it was destroyed", &mut Outbox::new());
        }
        !retired
    }

    fn is_busy(&self) -> bool {
        let view = self.view();
        view.sends > 0 || view.commands > 0
    }

    fn ulp_view(&self) -> UlpView {
        let view = self.view();
        UlpView {
            protocol: "iscsi",
            cause: view.cause,
            sends: Some(view.sends),
            receives: Some(view.receives),
        }
    }

    fn can_coalesce(&self) -> bool {
        true
    }

    fn awaits_several(&self) -> bool {
        self.awaits_several()
    }

    fn raise_low_water(&self, carrier: &mut dyn Carrier, out: &mut Outbox) -> bool {
        self.raise_low_water(carrier, out)
    }

    fn restore_low_water(&self, carrier: &mut dyn Carrier, out: &mut Outbox) {
        self.restore_low_water(carrier, out);
    }
}

#[cfg(test)]
mod tests;
