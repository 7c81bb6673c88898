//! The responder of docs/extensions.md: counts executed requests, schedules acknowledgements, and discards requests after one that
//! found no receive. Each request is executed exactly once however often it is discarded and sent again, and an
//! acknowledgement never covers a read that is not answered. The receive queue is the caller's: it reports that no receive was
//! posted, and later that one was.

use serde::{Deserialize, Serialize};
use verbena_wire::Rsn;

use crate::violation::Violation;

/// When an acknowledgement is sent without delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckPolicy {
    /// After this many requests.
    pub requests: u32,
    /// After this many bytes.
    pub bytes: u64,
}

impl Default for AckPolicy {
    fn default() -> AckPolicy {
        AckPolicy {
            requests: 64,
            bytes: 256 << 10,
        }
    }
}

/// The state of the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Requests are executed as they arrive.
    Open,
    /// A request found no receive; it and all after it are discarded.
    Waiting,
    /// A receive was posted and READY is queued.
    ReadyQueued,
    /// READY was sent; requests are discarded until RESUME.
    ReadySent,
}

/// Events of the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request found no receive.
    NoReceive,
    /// A receive was posted.
    Posted,
    /// READY has been framed.
    ReadySent,
    /// RESUME arrived.
    Resume,
}

impl State {
    /// Every state, for tables.
    pub const ALL: [State; 4] = [
        State::Open,
        State::Waiting,
        State::ReadyQueued,
        State::ReadySent,
    ];

    /// The state after `event`; `None` when it cannot happen.
    pub fn next(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Open, Event::NoReceive) => Some(State::Waiting),
            (State::Waiting, Event::Posted) => Some(State::ReadyQueued),
            (State::Open | State::ReadyQueued | State::ReadySent, Event::Posted) => Some(self),
            (State::ReadyQueued, Event::ReadySent) => Some(State::ReadySent),
            (State::ReadySent, Event::Resume) => Some(State::Open),
            (State::Waiting | State::ReadyQueued | State::ReadySent, Event::NoReceive)
            | (State::Open | State::Waiting | State::ReadySent, Event::ReadySent)
            | (State::Open | State::Waiting | State::ReadyQueued, Event::Resume) => None,
        }
    }
}

impl Event {
    /// Every event, for tables.
    pub const ALL: [Event; 4] = [
        Event::NoReceive,
        Event::Posted,
        Event::ReadySent,
        Event::Resume,
    ];
}

/// When an acknowledgement is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Nothing new to acknowledge.
    Nothing,
    /// With the next transmission, or when the caller flushes.
    Soon,
    /// At once.
    Now,
}

/// Whether the last delivered request counts as executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Last {
    /// It does, or none was delivered.
    Counted,
    /// The caller may still fail it.
    Unconfirmed,
    /// The caller executes it later.
    Deferred,
}

/// The responding role. Invariant: `acked <= executed <= next`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Responder {
    state: State,
    /// The number of the next request to execute.
    next: Rsn,
    last: Last,
    /// The acknowledgement sent last.
    acked: Rsn,
    bytes: u64,
    policy: AckPolicy,
}

impl Default for Responder {
    fn default() -> Responder {
        Responder::new()
    }
}

impl Responder {
    /// Nothing received yet.
    pub fn new() -> Responder {
        Responder {
            state: State::Open,
            next: Rsn::ZERO,
            last: Last::Counted,
            acked: Rsn::ZERO,
            bytes: 0,
            policy: AckPolicy::default(),
        }
    }

    /// Sets when acknowledgements are due, from now on.
    pub fn set_policy(&mut self, policy: AckPolicy) {
        self.policy = policy;
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Incoming requests are being discarded.
    pub fn is_discarding(&self) -> bool {
        self.state != State::Open
    }

    /// The number of the request that is next, or being received now.
    pub fn next(&self) -> Rsn {
        self.next
    }

    /// A request was delivered; returns its number.
    ///
    /// It counts as executed from the next call of [`confirm`](Responder::confirm): until then the caller may fail it.
    pub(crate) fn deliver(&mut self, len: u32) -> Rsn {
        self.confirm();
        self.last = Last::Unconfirmed;
        self.bytes = self.bytes.saturating_add(u64::from(len));
        self.next
    }

    /// The last delivered request was not failed, and counts as executed.
    pub(crate) fn confirm(&mut self) {
        if self.last == Last::Unconfirmed {
            self.last = Last::Counted;
            self.next = self.next.next();
        }
    }

    /// The last delivered request is executed later: until then neither it nor a later one counts.
    pub(crate) fn defer(&mut self) {
        if self.last == Last::Unconfirmed {
            self.last = Last::Deferred;
        }
    }

    /// The deferred request is executed or failed now.
    pub(crate) fn end_deferral(&mut self) {
        if self.last == Last::Deferred {
            self.last = Last::Unconfirmed;
        }
    }

    /// The highest acknowledgement that is true: it stops at the oldest read not answered.
    pub fn executed(&self, oldest_read: Option<Rsn>) -> Rsn {
        oldest_read.unwrap_or(self.next)
    }

    /// Whether an acknowledgement is due.
    pub fn due(&self, oldest_read: Option<Rsn>) -> Due {
        self.due_for(self.executed(oldest_read))
    }

    /// Whether one will be due if the last delivered request is not failed.
    pub(crate) fn will_be_due(&self, oldest_read: Option<Rsn>) -> Due {
        let next = match self.last {
            Last::Unconfirmed => self.next.next(),
            Last::Counted | Last::Deferred => self.next,
        };
        self.due_for(oldest_read.unwrap_or(next))
    }

    fn due_for(&self, executed: Rsn) -> Due {
        match executed.minus(self.acked) {
            0 => Due::Nothing,
            n if n >= self.policy.requests || self.bytes >= self.policy.bytes => Due::Now,
            _ => Due::Soon,
        }
    }

    /// Records that the acknowledgement is sent now, and returns it.
    pub fn acknowledge(&mut self, oldest_read: Option<Rsn>) -> Rsn {
        self.acked = self.executed(oldest_read);
        self.bytes = 0;
        self.acked
    }

    /// The acknowledgement sent last.
    pub(crate) fn acked(&self) -> Rsn {
        self.acked
    }

    /// A response was sent, which acknowledges its own request.
    pub(crate) fn acknowledged_by_response(&mut self, rsn: Rsn) {
        if rsn == self.next {
            // A request that is answered was not failed.
            self.confirm();
        }
        let implied = rsn.next();
        if self.acked.is_before(implied) {
            self.acked = implied;
        }
    }

    /// The request being received found no receive: returns its number, for RNR.
    pub(crate) fn handle_no_receive(&mut self) -> Option<Rsn> {
        self.confirm();
        self.state = self.state.next(Event::NoReceive)?;
        Some(self.next)
    }

    /// A receive was posted: returns the number for READY, if the peer waits for it.
    pub(crate) fn handle_posted(&mut self) -> Option<Rsn> {
        let was = self.state;
        self.state = was.next(Event::Posted)?;
        (was == State::Waiting).then_some(self.next)
    }

    /// READY is sent now: from here on the peer may resume.
    pub(crate) fn handle_ready_sent(&mut self) {
        if let Some(next) = self.state.next(Event::ReadySent) {
            self.state = next;
        }
    }

    /// The request `rsn` ends the stream: it and all later ones do not count as executed.
    pub(crate) fn fail_from(&mut self, rsn: Rsn) {
        self.last = Last::Counted;
        self.next = rsn;
    }

    /// For an observer that saw this side send RNR(n): what it delivered from n on was discarded here.
    pub fn observe_rnr(&mut self, n: Rsn) {
        self.last = Last::Counted;
        self.next = n;
        self.state = State::Waiting;
    }

    /// For an observer that saw this side send READY.
    pub fn observe_ready(&mut self) {
        self.state = State::ReadySent;
    }

    /// RESUME(n): the next request is n.
    pub(crate) fn handle_resume(&mut self, n: Rsn) -> Result<(), Violation> {
        let next = self
            .state
            .next(Event::Resume)
            .ok_or(Violation::OutOfPlace("RESUME"))?;
        if n != self.next {
            return Err(Violation::Impossible {
                kind: "RESUME",
                low: self.next,
                high: self.next,
                got: n,
            });
        }
        self.state = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
