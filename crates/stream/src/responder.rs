//! The responding role of docs/extensions.md: counts executed requests, owes acknowledgements, refuses what finds no receive.
//! It promises that each request is executed exactly once however often it is refused and sent again,
//! and that an acknowledgement never covers a read that is not answered.
//! It refuses to know receive queues: it is told that none was there, and later that one is.

use serde::{Deserialize, Serialize};
use verbena_wire::Rsn;

use crate::violation::Violation;

/// When an acknowledgement is due at once, whatever else is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckPolicy {
    /// After so many requests.
    pub requests: u32,
    /// After so many bytes.
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

/// Where the responding role stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Requests are executed as they come.
    Open,
    /// A request found no receive; it and all after it are discarded.
    Waiting,
    /// A receive is there and READY waits to leave.
    Promised,
    /// The peer was told; requests are discarded until RESUME.
    Readied,
}

/// What can happen to the responding role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request found no receive.
    NoReceive,
    /// A receive was posted.
    Posted,
    /// READY has been framed.
    ReadySent,
    /// RESUME came.
    Resume,
}

impl State {
    /// Every state, for tables.
    pub const ALL: [State; 4] = [State::Open, State::Waiting, State::Promised, State::Readied];

    /// The state after `event`; `None` when it cannot happen.
    pub fn next(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Open, Event::NoReceive) => Some(State::Waiting),
            (State::Waiting, Event::Posted) => Some(State::Promised),
            (State::Open | State::Promised | State::Readied, Event::Posted) => Some(self),
            (State::Promised, Event::ReadySent) => Some(State::Readied),
            (State::Readied, Event::Resume) => Some(State::Open),
            (State::Waiting | State::Promised | State::Readied, Event::NoReceive)
            | (State::Open | State::Waiting | State::Readied, Event::ReadySent)
            | (State::Open | State::Waiting | State::Promised, Event::Resume) => None,
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

/// When an acknowledgement is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Nothing new to acknowledge.
    Nothing,
    /// With the next transmission, or at the end of the turn.
    Soon,
    /// At once.
    Now,
}

/// Whether the last delivered request counts as executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Last {
    /// It does, or none was delivered.
    Counted,
    /// Its owner has not yet had the chance to refuse it.
    Unconfirmed,
    /// Its owner has put it off.
    Deferred,
}

/// The responding role. Invariant: `acked <= executed <= next`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Responder {
    state: State,
    /// The number of the next request to execute.
    next: Rsn,
    last: Last,
    /// What we last told the peer.
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

    /// When acknowledgements are due, from now on.
    pub fn set_policy(&mut self, policy: AckPolicy) {
        self.policy = policy;
    }

    /// Where the role stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Incoming requests are thrown away for now.
    pub fn discarding(&self) -> bool {
        self.state != State::Open
    }

    /// The number of the request that is next, or being received now.
    pub fn next(&self) -> Rsn {
        self.next
    }

    /// A request was delivered; returns its number.
    ///
    /// It counts as executed from the next call of [`confirm`](Responder::confirm): until then its owner may refuse it.
    pub(crate) fn deliver(&mut self, len: u32) -> Rsn {
        self.confirm();
        self.last = Last::Unconfirmed;
        self.bytes = self.bytes.saturating_add(u64::from(len));
        self.next
    }

    /// Nobody refused the last delivered request.
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

    /// The request that was put off is executed now, or refused.
    pub(crate) fn take_up(&mut self) {
        if self.last == Last::Deferred {
            self.last = Last::Unconfirmed;
        }
    }

    /// The highest acknowledgement that is true: it stops at the oldest read not answered.
    pub fn executed(&self, oldest_read: Option<Rsn>) -> Rsn {
        oldest_read.unwrap_or(self.next)
    }

    /// Is an acknowledgement owed?
    pub fn due(&self, oldest_read: Option<Rsn>) -> Due {
        self.due_for(self.executed(oldest_read))
    }

    /// Will one be, if nobody refuses the last delivered request?
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

    /// The acknowledgement that is sent now.
    pub fn acknowledge(&mut self, oldest_read: Option<Rsn>) -> Rsn {
        self.acked = self.executed(oldest_read);
        self.bytes = 0;
        self.acked
    }

    /// What was acknowledged last.
    pub(crate) fn acked(&self) -> Rsn {
        self.acked
    }

    /// A response left that implies an acknowledgement of its own request.
    pub(crate) fn acknowledged_by_response(&mut self, rsn: Rsn) {
        if rsn == self.next {
            // Nobody refuses what is answered.
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

    /// A receive was posted: the number for READY, if the peer waits for it.
    pub(crate) fn handle_posted(&mut self) -> Option<Rsn> {
        let was = self.state;
        self.state = was.next(Event::Posted)?;
        (was == State::Waiting).then_some(self.next)
    }

    /// READY leaves now: from here on the peer may resume.
    pub(crate) fn handle_ready_sent(&mut self) {
        if let Some(next) = self.state.next(Event::ReadySent) {
            self.state = next;
        }
    }

    /// The request `rsn`, or the peer behind it, ends the stream: nothing from it on counts as executed.
    pub(crate) fn strike(&mut self, rsn: Rsn) {
        self.last = Last::Counted;
        self.next = rsn;
    }

    /// A bystander saw this side say RNR(n): whatever it delivered from n on was discarded here.
    pub fn observe_rnr(&mut self, n: Rsn) {
        self.last = Last::Counted;
        self.next = n;
        self.state = State::Waiting;
    }

    /// A bystander saw this side say READY.
    pub fn observe_ready(&mut self) {
        self.state = State::Readied;
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
