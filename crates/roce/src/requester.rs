//! The requester of a connection: gives requests their packet sequence numbers, sends and repeats their packets, and completes them in
//! order as acknowledgements and responses arrive.
//! A request completes once, after all before it. Only an answer to a packet that was sent and is not acknowledged has an effect; every
//! other one is counted and ignored. A lost packet is repeated together with all behind it (go-back-N).

mod responses;
mod retry;

use std::collections::VecDeque;

use verbena_stream::Time;
use verbena_wire::roce::{Nak, Operation, Packet, Psn, Qpn, Reth, Service, Tail};
use verbena_wire::{Stag, To};

use crate::congestion::CongestionWindow;
use crate::message::Message;
use crate::settings::{Mtu, Settings};
use retry::{Retry, Verdict};

/// Packet sequence numbers that may be unacknowledged at once: a quarter of the number space, so that old and new are told apart.
pub const MAX_OUTSTANDING: u32 = 1 << 22;
/// An acknowledgement is requested at least every so many packets.
const ACK_EVERY: u32 = 32;
/// The number space of messages (MSN, SSN).
const MESSAGE_MASK: u32 = 0x00ff_ffff;

/// Why a request cannot be sent now, or ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// Too many packets are unacknowledged: try again when some are.
    #[error("{MAX_OUTSTANDING} packets may be unacknowledged at once")]
    Full,
    /// The message has more packets than may be unacknowledged.
    #[error("a message has at most {MAX_OUTSTANDING} packets of the path MTU")]
    TooLong,
    /// The service has no such request, or the peer serves none.
    #[error("the service or the peer does not support this request")]
    Unsupported,
    /// The requester has failed.
    #[error("the requester has failed")]
    Failed,
}

/// Why the oldest request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The peer does not answer.
    RetryExceeded,
    /// The peer had no receive for too long.
    RnrRetryExceeded,
    /// The peer refuses.
    Nak(Nak),
}

/// What an arrived packet, or the time, means for the caller. Requests with a smaller number than [`Requester::completed`] are complete in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseStep {
    /// Nothing but what [`Requester::completed`] says.
    Progress,
    /// It answers nothing that is outstanding, or not correctly.
    Ignored,
    /// The payload belongs into the sink of a Read.
    Sink {
        /// The request.
        request: u64,
        /// Bytes from the start of the response.
        offset: u32,
        /// This was the last packet.
        is_last: bool,
    },
    /// An atomic operation is complete.
    Atomic {
        /// The request.
        request: u64,
        /// The word's value before it.
        original: u64,
    },
    /// The oldest request failed, and nothing more is sent.
    Failed(Failure),
}

/// A packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutRequest {
    /// The request.
    pub request: u64,
    /// The packet without its payload.
    pub packet: Packet<'static>,
    /// Where its payload begins in that of the request.
    pub offset: u32,
    /// Bytes of payload.
    pub len: u32,
}

/// The states of a requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Packets are sent.
    Flowing,
    /// The peer had no receive: nothing is sent for a while.
    Waiting,
    /// A request failed: nothing is sent any more.
    Failed,
}

/// What changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An acknowledgement, or a response.
    Ack,
    /// A NAK for a missing packet.
    SequenceNak,
    /// A NAK of a receiver that is not ready, within the retries.
    RnrNak,
    /// The wait for the receiver is over.
    WaitOver,
    /// Retries are used up, or the peer refuses.
    Failure,
}

impl State {
    /// Every state, for tables.
    pub const ALL: [State; 3] = [State::Flowing, State::Waiting, State::Failed];

    /// The state after `event`.
    pub fn next(self, event: Event) -> State {
        match (self, event) {
            (State::Failed, _) | (_, Event::Failure) => State::Failed,
            (_, Event::RnrNak) => State::Waiting,
            (State::Waiting, Event::WaitOver) => State::Flowing,
            (state, Event::Ack | Event::SequenceNak | Event::WaitOver) => state,
        }
    }
}

impl Event {
    /// Every event, for tables.
    pub const ALL: [Event; 5] = [
        Event::Ack,
        Event::SequenceNak,
        Event::RnrNak,
        Event::WaitOver,
        Event::Failure,
    ];
}

/// A request that is not complete.
#[derive(Debug, Clone, Copy)]
struct Request {
    message: Message,
    first: Psn,
    psns: u32,
    /// Of these, acknowledged or answered.
    done: u32,
}

/// The next packet to send: a request that is not complete, and a packet of it. Behind the last request if everything was sent.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    request: usize,
    at: u32,
}

/// Counters of a requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets sent, repetitions included.
    pub packets: u64,
    /// Packets sent again.
    pub repeated: u64,
    /// Answers that were ignored.
    pub ignored: u64,
    /// NAKs for missing packets.
    pub sequence_naks: u64,
    /// NAKs of a receiver that was not ready.
    pub rnr_naks: u64,
    /// Repetitions after silence.
    pub timeouts: u64,
}

/// The requesting role of a connection.
#[derive(Debug, Clone)]
pub struct Requester {
    service: Service,
    mtu: Mtu,
    dest_qpn: Qpn,
    initiator_depth: u8,
    state: State,
    /// The oldest first.
    requests: VecDeque<Request>,
    /// Requests that are complete; the oldest that is not has this number.
    completed: u64,
    /// PSN of the next request.
    next: Psn,
    /// PSN behind the newest packet that was sent.
    sent: Psn,
    cursor: Cursor,
    /// Reads and atomics that were sent and are not answered: the PSN behind the response to each. A long Read is several of them, and a
    /// repetition ends where the first did, because the responder knows no other.
    reads: VecDeque<Psn>,
    window: CongestionWindow,
    /// A loss before this PSN has been accounted for in the window.
    recovery: Option<Psn>,
    /// The PSN to which it went back because a response was missing, until there is progress.
    response_missing: Option<Psn>,
    /// Messages that the peer has receives for, by their number; `None` if it does not count them.
    credit_limit: Option<u32>,
    retry: Retry,
    counters: Counters,
}

impl Requester {
    /// A requester with nothing sent.
    pub fn new(settings: &Settings) -> Requester {
        Requester {
            service: settings.service,
            mtu: settings.mtu,
            dest_qpn: settings.dest_qpn,
            initiator_depth: settings.initiator_depth,
            state: State::Flowing,
            requests: VecDeque::new(),
            completed: 0,
            next: settings.send_psn,
            sent: settings.send_psn,
            cursor: Cursor::default(),
            reads: VecDeque::new(),
            window: CongestionWindow::new(settings.is_lossy, settings.mtu),
            recovery: None,
            response_missing: None,
            credit_limit: None,
            retry: Retry::new(settings),
            counters: Counters::default(),
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Requests that are complete, in the order in which they began.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Requests that began and are not complete.
    pub fn outstanding(&self) -> usize {
        self.requests.len()
    }

    /// Its counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The end of the wait for a receive of the peer, and the retries that are left; `None` for no limit.
    pub fn rnr_wait(&self) -> Option<(Time, Option<u8>)> {
        let until = self.retry.wait_end()?;
        Some((until, self.retry.rnr_retries_left()))
    }

    /// Since when packets are unacknowledged without progress.
    pub fn unanswered_since(&self) -> Option<Time> {
        self.retry.since()
    }

    /// PSN of the next request.
    pub fn next_psn(&self) -> Psn {
        self.next
    }

    /// Packets of a request that began are to be sent, now or later.
    pub fn has_unsent(&self) -> bool {
        self.cursor.request < self.requests.len()
    }

    /// Packets that were sent are not acknowledged, and are repeated if they stay so.
    pub fn awaits_ack(&self) -> bool {
        self.state == State::Flowing && self.acked().is_before(self.sent)
    }

    /// A packet that the peer must acknowledge and that changes nothing there: a Write of length zero with the number before the next one is the
    /// repetition of the last packet, whatever that was. The acknowledgement has no effect here. `None` while requests are outstanding, which
    /// draw answers by themselves, and for a service without acknowledgements.
    pub fn keep_alive(&self) -> Option<Packet<'static>> {
        let is_idle = self.state == State::Flowing && self.requests.is_empty();
        if !is_idle || self.service == Service::Uc {
            return None;
        }
        let nothing = Reth {
            va: To::new(0),
            rkey: Stag::new(0),
            len: 0,
        };
        let write = Operation::WriteOnly(Service::Rc, nothing, None);
        let mut packet = Packet::new(write, self.dest_qpn, self.next.previous());
        packet.ack_request = true;
        Some(packet)
    }

    /// PSN of the oldest packet that is not acknowledged.
    fn acked(&self) -> Psn {
        match self.requests.front() {
            Some(front) => front.first.plus(front.done),
            None => self.next,
        }
    }

    /// PSN of the next packet to send.
    fn cursor_psn(&self) -> Psn {
        match self.requests.get(self.cursor.request) {
            Some(request) => request.first.plus(self.cursor.at),
            None => self.next,
        }
    }

    /// Begins a request, which gets the number that is returned. Its packets come out of [`poll`](Requester::poll).
    pub fn begin(&mut self, message: Message) -> Result<u64, BeginError> {
        if self.state == State::Failed {
            return Err(BeginError::Failed);
        }
        let is_supported = match (self.service, &message) {
            (Service::Rc, message) => !message.wants_response() || self.initiator_depth > 0,
            (Service::Uc, Message::Send { tail, .. }) => !matches!(tail, Tail::Invalidate(_)),
            (Service::Uc, message) => !message.wants_response(),
        };
        if !is_supported {
            return Err(BeginError::Unsupported);
        }
        let psns = message.psns(self.mtu);
        if psns > MAX_OUTSTANDING {
            return Err(BeginError::TooLong);
        }
        if self.next.minus(self.acked()) + psns > MAX_OUTSTANDING {
            return Err(BeginError::Full);
        }
        let number = self.completed + self.requests.len() as u64;
        self.requests.push_back(Request {
            message,
            first: self.next,
            psns,
            done: 0,
        });
        self.next = self.next.plus(psns);
        Ok(number)
    }

    /// The next packet to send; `None` if there is none, or it may not be sent yet.
    pub fn poll(&mut self, now: Time) -> Option<OutRequest> {
        let Cursor { request: index, at } = self.cursor;
        let request = *self.requests.get(index)?;
        let psn = request.first.plus(at);
        if self.state != State::Flowing || !self.may_send(&request, index) {
            return None;
        }
        let wants_response = request.message.wants_response();
        let psns = if wants_response {
            self.response_psns(&request, at)
        } else {
            1
        };
        let is_last = at + psns == request.psns;
        let segment = request.message.segment(self.service, self.mtu, at, psns);
        self.cursor = if is_last {
            Cursor {
                request: index + 1,
                at: 0,
            }
        } else {
            Cursor {
                request: index,
                at: at + psns,
            }
        };
        self.counters.packets += 1;
        let end = psn.plus(psns);
        if wants_response && !psn.is_before(self.sent) {
            self.reads.push_back(end);
        }
        if psn.is_before(self.sent) {
            self.counters.repeated += 1;
        }
        if self.sent.is_before(end) {
            let was_idle = self.sent == self.acked();
            self.sent = end;
            self.retry.handle_sent(psn, was_idle, now);
        }
        let number = self.completed + index as u64;
        let mut packet = Packet::new(segment.operation, self.dest_qpn, psn);
        packet.solicited = segment.solicited;
        if self.service == Service::Uc {
            if is_last {
                self.pop_front();
            }
        } else {
            let is_full = self.in_flight() >= self.window.get();
            packet.ack_request = is_last || is_full || at % ACK_EVERY == ACK_EVERY - 1;
        }
        Some(OutRequest {
            request: number,
            packet,
            offset: segment.offset,
            len: segment.len,
        })
    }

    /// Packets that were sent and not acknowledged, and those of responses that were requested.
    fn in_flight(&self) -> u32 {
        self.cursor_psn().minus(self.acked())
    }

    /// Reads and atomics before the cursor that are not answered.
    fn unanswered_reads(&self) -> usize {
        let cursor = self.cursor_psn();
        let sent = self.reads.iter().take_while(|end| !cursor.is_before(**end));
        sent.count()
    }

    /// Packets of the response that are requested with the packet `at` of a Read or atomic. The peer sends them all at once, so a new request
    /// is for no more than the window has room for.
    fn response_psns(&self, request: &Request, at: u32) -> u32 {
        let psn = request.first.plus(at);
        let rest = request.psns - at;
        if !psn.is_before(self.sent) {
            return rest.min(self.room());
        }
        let end = self.reads.iter().find(|end| psn.is_before(**end));
        end.map_or(rest, |end| end.minus(psn))
    }

    /// Packets that the window has room for.
    fn room(&self) -> u32 {
        self.window.get().saturating_sub(self.in_flight())
    }

    fn may_send(&self, request: &Request, index: usize) -> bool {
        if self.service == Service::Uc {
            return true;
        }
        let (in_flight, room) = (self.in_flight(), self.room());
        if room == 0 {
            return false;
        }
        if request.message.wants_response() {
            let at = self.cursor.at;
            let fits = if request.first.plus(at).is_before(self.sent) {
                room >= self.response_psns(request, at) || in_flight == 0
            } else {
                // Not a request for every packet of room.
                room >= (request.psns - at).min(self.window.get() / 4)
            };
            return fits && self.unanswered_reads() < usize::from(self.initiator_depth);
        }
        let Some(limit) = self.credit_limit else {
            return true;
        };
        // The peer counts messages from 1.
        let number = (self.completed + index as u64 + 1) as u32 & MESSAGE_MASK;
        let beyond = number.wrapping_sub(limit) & MESSAGE_MASK;
        let has_credit = beyond == 0 || beyond > MESSAGE_MASK / 2;
        // Without credit one request at a time is tried, so that the peer says when it has receives again.
        !request.message.consumes_receive() || has_credit || in_flight == 0
    }

    fn fail(&mut self, failure: Failure) -> ResponseStep {
        self.state = self.state.next(Event::Failure);
        ResponseStep::Failed(failure)
    }

    /// When [`handle_timeout`](Requester::handle_timeout) is to be called.
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Failed => None,
            State::Waiting => self.retry.wait_end(),
            State::Flowing if self.service == Service::Uc => None,
            State::Flowing => self.retry.deadline(),
        }
    }

    /// Checks the deadlines.
    pub fn handle_timeout(&mut self, now: Time) -> ResponseStep {
        match self.state {
            State::Failed => ResponseStep::Ignored,
            State::Waiting => {
                if self.retry.wait_end().is_some_and(|end| now >= end) {
                    self.state = self.state.next(Event::WaitOver);
                    let is_idle = self.acked() == self.sent;
                    self.retry.handle_wait_over(is_idle, now);
                }
                ResponseStep::Progress
            }
            State::Flowing => {
                if self.retry.deadline().is_none_or(|deadline| now < deadline) {
                    return ResponseStep::Progress;
                }
                self.counters.timeouts += 1;
                if self.retry.handle_silence(now) == Verdict::GiveUp {
                    return self.fail(Failure::RetryExceeded);
                }
                self.response_missing = None;
                self.recovery = Some(self.sent);
                self.window.handle_timeout();
                self.go_back();
                ResponseStep::Progress
            }
        }
    }
}

#[cfg(test)]
mod tests;
