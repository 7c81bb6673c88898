//! The requester of docs/extensions.md: numbers this side's requests, counts acknowledgements, and waits after RNR.
//! Every request is counted once, an impossible acknowledgement is a [`Violation`], and after READY the numbering continues where
//! the responder stopped. The caller keeps the requests until they are acknowledged.

use core::time::Duration;
use serde::{Deserialize, Serialize};

use verbena_wire::Rsn;
use verbena_wire::ext::RnrTimer;

use crate::time::Time;
use crate::violation::Violation;

/// Requests that may be unacknowledged at once: a quarter of the number space, so that serial arithmetic is unambiguous.
pub const MAX_UNACKNOWLEDGED: u32 = 1 << 22;
const _: () = assert!(MAX_UNACKNOWLEDGED < 1 << 23);

/// Shortest wait for a receiver with `rnr_retry` 1 to 6.
pub const MIN_RNR_WAIT: Duration = Duration::from_millis(100);

/// How long to wait for a receiver that is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RnrRetry {
    /// Fail at once (`rnr_retry` 0).
    Never,
    /// Wait this many times the responder's timer (`rnr_retry` 1 to 6).
    Times(u8),
    /// Wait for ever (`rnr_retry` 7).
    #[default]
    Forever,
}

impl RnrRetry {
    /// From the verbs' three-bit value; larger values mean for ever.
    pub fn from_verbs(value: u8) -> RnrRetry {
        match value {
            0 => RnrRetry::Never,
            1..=6 => RnrRetry::Times(value),
            _ => RnrRetry::Forever,
        }
    }

    fn deadline(self, timer: RnrTimer, now: Time) -> Option<Time> {
        match self {
            RnrRetry::Never => Some(now),
            RnrRetry::Times(n) => Some(now + (timer.duration() * u32::from(n)).max(MIN_RNR_WAIT)),
            RnrRetry::Forever => None,
        }
    }
}

/// The state of the requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Requests may be sent.
    Flowing,
    /// The responder had no receive; no request is sent until it is ready.
    Paused,
    /// The wait exceeded its deadline.
    GaveUp,
}

/// Events of the requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An acknowledgement.
    Ack,
    /// Receiver not ready.
    Rnr,
    /// Receiver ready.
    Ready,
    /// The deadline of the wait has passed.
    Deadline,
}

impl State {
    /// Every state, for tables.
    pub const ALL: [State; 3] = [State::Flowing, State::Paused, State::GaveUp];

    /// The state after `event`; `None` if the peer may not send that now.
    pub fn next(self, event: Event) -> Option<State> {
        match (self, event) {
            (state, Event::Ack) => Some(state),
            (State::Flowing, Event::Rnr) => Some(State::Paused),
            (State::Paused, Event::Ready) => Some(State::Flowing),
            (State::Paused, Event::Deadline) => Some(State::GaveUp),
            (State::GaveUp, Event::Ready) => Some(State::GaveUp),
            (state, Event::Deadline) => Some(state),
            (State::Paused | State::GaveUp, Event::Rnr) | (State::Flowing, Event::Ready) => None,
        }
    }
}

impl Event {
    /// Every event, for tables.
    pub const ALL: [Event; 4] = [Event::Ack, Event::Rnr, Event::Ready, Event::Deadline];
}

/// The requesting role. Invariant: `acked <= next`, and while paused `acked <= stopped <= next`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Requester {
    state: State,
    /// The peer acknowledges. Without that, a request counts as executed when it is sent.
    tracked: bool,
    /// All requests before this one are executed.
    acked: Rsn,
    /// The number of the next request.
    next: Rsn,
    /// The newest request has frames that are not made yet.
    unfinished: bool,
    /// Where the responder stopped, in every state but flowing.
    stopped: Rsn,
    retry: RnrRetry,
    deadline: Option<Time>,
    /// The peer repeated its last acknowledgement: it closes, and executes nothing more.
    closing: bool,
    /// The request of the last RNR and its deadline: an RNR for the same request without progress keeps the deadline.
    waited: Option<(Rsn, Option<Time>)>,
    /// When the request at which the responder stopped was refused first. Not moved with a connection.
    #[serde(skip)]
    paused_since: Option<Time>,
}

impl Requester {
    /// Nothing sent yet; `tracked` if the peer acknowledges.
    pub fn new(tracked: bool, retry: RnrRetry) -> Requester {
        Requester {
            state: State::Flowing,
            tracked,
            acked: Rsn::ZERO,
            next: Rsn::ZERO,
            unfinished: false,
            stopped: Rsn::ZERO,
            retry,
            deadline: None,
            closing: false,
            waited: None,
            paused_since: None,
        }
    }

    /// Sets how long to wait for a receiver that is not ready; a wait that has begun keeps its deadline.
    pub fn set_retry(&mut self, retry: RnrRetry) {
        self.retry = retry;
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// All requests before this one are executed.
    pub fn acked(&self) -> Rsn {
        self.acked
    }

    /// The number the next request gets.
    pub fn next(&self) -> Rsn {
        self.next
    }

    /// Requests sent and not acknowledged.
    pub fn unacknowledged(&self) -> u32 {
        self.next.minus(self.acked)
    }

    /// The peer has announced an orderly close: no request beyond [`acked`](Requester::acked) will be executed.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// A request may be sent now.
    pub fn may_send(&self) -> bool {
        self.state == State::Flowing && self.unacknowledged() < MAX_UNACKNOWLEDGED
    }

    /// The request that found no receive for longer than allowed; all before it were executed.
    pub fn given_up(&self) -> Option<Rsn> {
        (self.state == State::GaveUp).then_some(self.stopped)
    }

    /// When the responder first refused the request that waits now.
    pub fn paused_since(&self) -> Option<Time> {
        self.paused_since
    }

    /// When the wait for the receiver ends.
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Numbers the request that is sent now.
    pub fn number_request(&mut self) -> Rsn {
        let rsn = self.next;
        self.next = rsn.next();
        if !self.tracked {
            self.acked = self.next;
        }
        rsn
    }

    /// Numbers the request that begins now; until it is [`finish_request`](Requester::finish_request), the peer cannot have executed it.
    pub(crate) fn begin_request(&mut self) -> Rsn {
        self.unfinished = true;
        self.number_request()
    }

    /// The last frame of the newest request is made.
    pub(crate) fn finish_request(&mut self) {
        self.unfinished = false;
    }

    /// The response to request `rsn` is complete, which acknowledges it and all before it.
    pub(crate) fn handle_response(&mut self, rsn: Rsn) -> Result<(), Violation> {
        if self.tracked {
            let closing = self.closing;
            let handled = self.handle_ack(rsn.next());
            // Only an ACK message announces a close, not a response whose request an ACK has covered already.
            self.closing = closing;
            handled
        } else {
            Ok(())
        }
    }

    /// The highest acknowledgement that can be true.
    fn highest(&self) -> Rsn {
        match self.state {
            State::Flowing if self.unfinished => self.newest(),
            State::Flowing => self.next,
            State::Paused | State::GaveUp => self.stopped,
        }
    }

    /// ACK(n) can be true.
    pub(crate) fn is_valid_ack(&self, n: Rsn) -> bool {
        n.minus(self.acked) <= self.highest().minus(self.acked)
    }

    /// ACK(n): all before n are executed.
    pub fn handle_ack(&mut self, n: Rsn) -> Result<(), Violation> {
        self.check("ACK", n, self.highest())?;
        self.closing |= n == self.acked;
        self.acked = n;
        // Numbers wrap: only an RNR without progress in between belongs to the same wait.
        self.waited = self.waited.filter(|(rsn, _)| !rsn.is_before(n));
        Ok(())
    }

    /// RNR(n): the responder discards n and all later requests.
    pub fn handle_rnr(&mut self, n: Rsn, timer: RnrTimer, now: Time) -> Result<(), Violation> {
        let next = self.step("RNR", Event::Rnr)?;
        if self.next == self.acked {
            return Err(Violation::OutOfPlace("RNR"));
        }
        self.check("RNR", n, self.newest())?;
        self.state = next;
        self.stopped = n;
        self.deadline = match self.waited {
            Some((rsn, deadline)) if rsn == n => deadline,
            _ => {
                self.paused_since = Some(now);
                self.retry.deadline(timer, now)
            }
        };
        self.waited = Some((n, self.deadline));
        Ok(())
    }

    /// READY(n): the caller answers with RESUME(n) and sends again from n.
    pub fn handle_ready(&mut self, n: Rsn) -> Result<(), Violation> {
        let next = self.step("READY", Event::Ready)?;
        if n != self.stopped {
            return Err(Violation::Impossible {
                kind: "READY",
                low: self.stopped,
                high: self.stopped,
                got: n,
            });
        }
        self.state = next;
        if next == State::Flowing {
            self.next = n;
            self.unfinished = false;
            self.deadline = None;
        }
        Ok(())
    }

    /// Checks the deadline; true if it has passed.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        let due = self.deadline.is_some_and(|d| now >= d);
        if due && let Some(next) = self.state.next(Event::Deadline) {
            self.state = next;
            self.deadline = None;
        }
        due
    }

    /// The request numbered last.
    fn newest(&self) -> Rsn {
        Rsn::wrapping(self.next.get().wrapping_sub(1))
    }

    fn step(&self, kind: &'static str, event: Event) -> Result<State, Violation> {
        self.state.next(event).ok_or(Violation::OutOfPlace(kind))
    }

    /// `acked <= n <= high`, in serial arithmetic.
    fn check(&self, kind: &'static str, n: Rsn, high: Rsn) -> Result<(), Violation> {
        if n.minus(self.acked) <= high.minus(self.acked) {
            return Ok(());
        }
        Err(Violation::Impossible {
            kind,
            low: self.acked,
            high,
            got: n,
        })
    }
}

#[cfg(test)]
mod tests;
