//! One communication identifier of InfiniBand's connection manager: the messages that make and end a connection, and their repetition.
//! A message that is not answered is repeated until its retries are used up, and a repeated message of the peer gets the same answer again; neither
//! has a second effect. Which identifier a message is for, and which service a request asks for, is decided by the caller.

use core::time::Duration;

use verbena_stream::Time;
use verbena_wire::roce::MadHeader;
use verbena_wire::roce::cm::{CmMessage, Drep, Dreq, Mra, Rej, RejReason, Rep, Req, Rtu};
use verbena_wire::roce::{Psn, Qpn};

/// A management datagram.
pub type Mad = [u8; MadHeader::MAD_LEN];

/// The message that an MRA or a REJ is about.
const OF_REQ: u8 = 0;
const OF_REP: u8 = 1;
/// The time that an MRA asks for, as an exponent: 4.096 µs times two to the power of 24 is 69 s.
const MRA_TIMEOUT: u8 = 24;

/// The states of a communication identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// A REQ was sent.
    ReqSent,
    /// A REQ arrived, and the program decides.
    Deciding,
    /// A REP was sent.
    RepSent,
    /// The connection is established.
    Established,
    /// A DREQ was sent.
    DreqSent,
    /// The connection has ended; messages that are repeated are still answered.
    TimeWait,
    /// It has ended without a connection.
    Ended,
}

/// What changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The program accepts.
    Accept,
    /// The program rejects, or gives up.
    Reject,
    /// The program disconnects.
    Disconnect,
    /// A REP arrived.
    Rep,
    /// An RTU arrived, or the first packet of the connection.
    Rtu,
    /// A REJ arrived.
    Rej,
    /// A DREQ arrived.
    Dreq,
    /// A DREP arrived.
    Drep,
    /// A message was not answered after all its retries.
    TimedOut,
}

impl State {
    /// Every state, for tables.
    pub const ALL: [State; 7] = [
        State::ReqSent,
        State::Deciding,
        State::RepSent,
        State::Established,
        State::DreqSent,
        State::TimeWait,
        State::Ended,
    ];

    /// The state after `event`; `None` if it has no effect.
    pub fn next(self, event: Event) -> Option<State> {
        use Event as E;
        use State as S;
        Some(match (self, event) {
            (S::ReqSent, E::Rep) | (S::RepSent, E::Rtu) => S::Established,
            (S::Deciding, E::Accept) => S::RepSent,
            (S::ReqSent | S::Deciding | S::RepSent, E::Reject | E::Rej)
            | (S::ReqSent | S::RepSent, E::TimedOut) => S::Ended,
            // The peer has given up a connection that it did not see established.
            (S::Established, E::Rej) => S::TimeWait,
            (S::RepSent | S::Established, E::Disconnect) => S::DreqSent,
            (S::RepSent | S::Established | S::DreqSent, E::Dreq)
            | (S::DreqSent, E::Drep | E::TimedOut) => S::TimeWait,
            _ => return None,
        })
    }
}

impl Event {
    /// Every event, for tables.
    pub const ALL: [Event; 9] = [
        Event::Accept,
        Event::Reject,
        Event::Disconnect,
        Event::Rep,
        Event::Rtu,
        Event::Rej,
        Event::Dreq,
        Event::Drep,
        Event::TimedOut,
    ];
}

/// What a message of the peer, or the time, means for the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing. There may be a message to send.
    Nothing,
    /// The peer accepted.
    Accepted(Accepted),
    /// The peer rejected.
    Rejected {
        /// Why.
        reason: RejReason,
        /// The peer's private data.
        private: Vec<u8>,
    },
    /// The peer is ready: the connection is established.
    Established,
    /// The connection has ended.
    Disconnected,
    /// The peer does not answer.
    Unreachable,
}

/// What a REP says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// PSN of the first packet that this side sends.
    pub starting_psn: Psn,
    /// Reads and atomics of this side that the peer serves at once.
    pub responder_resources: u8,
    /// Reads and atomics that the peer wants outstanding.
    pub initiator_depth: u8,
    /// Retries at a receiver that is not ready.
    pub rnr_retry_count: u8,
    /// The peer's private data.
    pub private: Vec<u8>,
}

/// How often and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CmTimers {
    /// The time before a message is repeated for the first time; it doubles with each repetition.
    pub first: Duration,
    /// The longest time between two repetitions.
    pub longest: Duration,
    /// Repetitions of a message.
    pub retries: u8,
}

impl Default for CmTimers {
    /// A message that is lost costs a tenth of a second, and a peer that does not answer 4.7 seconds.
    fn default() -> CmTimers {
        CmTimers {
            first: Duration::from_millis(100),
            longest: Duration::from_millis(800),
            retries: 7,
        }
    }
}

/// A communication identifier with its peer.
#[derive(Debug, Clone)]
pub struct CommunicationId {
    state: State,
    local_id: u32,
    /// Zero until the peer's is known.
    remote_id: u32,
    /// The peer's queue pair, once it is known.
    remote_qpn: Option<Qpn>,
    transaction: u64,
    timers: CmTimers,
    /// The last message, which is repeated to a peer that repeats its own.
    last: Mad,
    /// It is to be sent now.
    due: bool,
    repeat: Option<Repeat>,
}

/// The repetition of a message that is not answered.
#[derive(Debug, Clone, Copy)]
struct Repeat {
    at: Time,
    /// The time since it was sent last.
    interval: Duration,
    /// How often it is repeated still.
    left: u8,
}

impl CommunicationId {
    /// Sends a request. Its `local_id` is the new identifier; the transaction must be new, too.
    pub fn connect(req: &Req<'_>, transaction: u64, timers: CmTimers, now: Time) -> Self {
        let mut id = CommunicationId {
            state: State::ReqSent,
            local_id: req.local_id,
            remote_id: 0,
            remote_qpn: None,
            transaction,
            timers,
            last: CmMessage::Req(*req).emit(transaction),
            due: true,
            repeat: None,
        };
        id.expect_answer(now);
        id
    }

    /// A request arrived, and the program is to decide.
    pub fn listen(req: &Req<'_>, transaction: u64, local_id: u32, timers: CmTimers) -> Self {
        let mra = Mra {
            local_id,
            remote_id: req.local_id,
            message: OF_REQ,
            service_timeout: MRA_TIMEOUT,
            private: &[],
        };
        CommunicationId {
            state: State::Deciding,
            local_id,
            remote_id: req.local_id,
            remote_qpn: Some(req.qpn),
            transaction,
            timers,
            // For a peer that repeats its request while the program decides.
            last: CmMessage::Mra(mra).emit(transaction),
            due: false,
            repeat: None,
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// This side's identifier.
    pub fn local_id(&self) -> u32 {
        self.local_id
    }

    /// The peer's identifier; zero until it is known.
    pub fn remote_id(&self) -> u32 {
        self.remote_id
    }

    /// The message to send now, if there is one.
    pub fn poll(&mut self) -> Option<Mad> {
        core::mem::take(&mut self.due).then_some(self.last)
    }

    /// Accepts the request; the identifiers of `rep` are filled in. False if it is too late.
    pub fn accept(&mut self, rep: &Rep<'_>, now: Time) -> bool {
        if !self.enter(Event::Accept) {
            return false;
        }
        let (local_id, remote_id) = (self.local_id, self.remote_id);
        self.send(CmMessage::Rep(Rep {
            local_id,
            remote_id,
            ..*rep
        }));
        self.expect_answer(now);
        true
    }

    /// Rejects the request, or gives up the own one. False if there is nothing to reject.
    pub fn reject(&mut self, reason: RejReason, private: &[u8]) -> bool {
        let message = match self.state {
            State::Deciding => OF_REQ,
            _ => OF_REP,
        };
        if !self.enter(Event::Reject) {
            return false;
        }
        self.send(CmMessage::Rej(Rej {
            local_id: self.local_id,
            remote_id: self.remote_id,
            message,
            reason,
            info: &[],
            private,
        }));
        true
    }

    /// Ends the connection. False if there is none.
    pub fn disconnect(&mut self, transaction: u64, private: &[u8], now: Time) -> bool {
        let Some(remote_qpn) = self.remote_qpn else {
            return false;
        };
        if !self.enter(Event::Disconnect) {
            return false;
        }
        self.transaction = transaction;
        self.send(CmMessage::Dreq(Dreq {
            local_id: self.local_id,
            remote_id: self.remote_id,
            remote_qpn,
            private,
        }));
        self.expect_answer(now);
        true
    }

    /// The first packet of the connection arrived: the peer is ready, although its RTU has not come.
    pub fn handle_data(&mut self) -> Outcome {
        match self.enter(Event::Rtu) {
            true => Outcome::Established,
            false => Outcome::Nothing,
        }
    }

    /// A message for this identifier arrived, from the right peer.
    pub fn handle(&mut self, message: &CmMessage<'_>, transaction: u64, now: Time) -> Outcome {
        match message {
            CmMessage::Req(req) => {
                // Repeated: the answer is repeated, too. A new one for an old identifier gets nothing.
                let is_ours = req.local_id == self.remote_id && transaction == self.transaction;
                if is_ours && matches!(self.state, State::Deciding | State::RepSent | State::Ended)
                {
                    self.due = true;
                }
                Outcome::Nothing
            }
            CmMessage::Mra(mra) if mra.message == OF_REQ || mra.message == OF_REP => {
                self.handle_mra(mra.service_timeout, now);
                Outcome::Nothing
            }
            CmMessage::Rep(rep) => self.handle_rep(rep, transaction),
            CmMessage::Rtu(_) => self.handle_data(),
            CmMessage::Rej(rej) => {
                if !self.enter(Event::Rej) {
                    return Outcome::Nothing;
                }
                if self.state == State::TimeWait {
                    return Outcome::Disconnected;
                }
                Outcome::Rejected {
                    reason: rej.reason,
                    private: rej.private.to_vec(),
                }
            }
            CmMessage::Dreq(dreq) => self.handle_dreq(dreq, transaction),
            CmMessage::Drep(_) => match self.enter(Event::Drep) {
                true => Outcome::Disconnected,
                false => Outcome::Nothing,
            },
            _ => Outcome::Nothing,
        }
    }

    fn handle_mra(&mut self, exponent: u8, now: Time) {
        if let Some(repeat) = &mut self.repeat
            && matches!(self.state, State::ReqSent | State::RepSent)
        {
            let wait = Duration::from_nanos(4096 << u64::from(exponent.min(31)));
            repeat.at = now + wait.max(repeat.interval);
        }
    }

    fn handle_rep(&mut self, rep: &Rep<'_>, transaction: u64) -> Outcome {
        let is_repeated = self.state == State::Established && rep.local_id == self.remote_id;
        if is_repeated && transaction == self.transaction {
            // The RTU was lost.
            self.due = true;
        }
        if transaction != self.transaction || !self.enter(Event::Rep) {
            return Outcome::Nothing;
        }
        self.remote_id = rep.local_id;
        self.remote_qpn = Some(rep.qpn);
        self.send(CmMessage::Rtu(Rtu {
            local_id: self.local_id,
            remote_id: self.remote_id,
            private: &[],
        }));
        Outcome::Accepted(Accepted {
            qpn: rep.qpn,
            starting_psn: rep.starting_psn,
            responder_resources: rep.responder_resources,
            initiator_depth: rep.initiator_depth,
            rnr_retry_count: rep.rnr_retry_count,
            private: rep.private.to_vec(),
        })
    }

    fn handle_dreq(&mut self, dreq: &Dreq<'_>, transaction: u64) -> Outcome {
        let was_established = self.enter(Event::Dreq);
        if was_established || self.state == State::TimeWait {
            self.transaction = transaction;
            self.send(CmMessage::Drep(Drep {
                local_id: self.local_id,
                remote_id: dreq.local_id,
                private: &[],
            }));
        }
        match was_established {
            true => Outcome::Disconnected,
            false => Outcome::Nothing,
        }
    }

    /// When [`handle_timeout`](CommunicationId::handle_timeout) is to be called.
    pub fn deadline(&self) -> Option<Time> {
        self.repeat.map(|repeat| repeat.at)
    }

    /// Repeats the message that was not answered, or gives up.
    pub fn handle_timeout(&mut self, now: Time) -> Outcome {
        let Some(repeat) = self.repeat.filter(|repeat| repeat.at <= now) else {
            return Outcome::Nothing;
        };
        if let Some(left) = repeat.left.checked_sub(1) {
            let interval = (repeat.interval * 2).min(self.timers.longest);
            self.due = true;
            self.repeat = Some(Repeat {
                at: now + interval,
                interval,
                left,
            });
            return Outcome::Nothing;
        }
        let was_ending = self.state == State::DreqSent;
        self.enter(Event::TimedOut);
        match was_ending {
            true => Outcome::Disconnected,
            false => Outcome::Unreachable,
        }
    }

    fn enter(&mut self, event: Event) -> bool {
        let Some(next) = self.state.next(event) else {
            return false;
        };
        self.state = next;
        self.repeat = None;
        true
    }

    fn send(&mut self, message: CmMessage<'_>) {
        self.last = message.emit(self.transaction);
        self.due = true;
    }

    fn expect_answer(&mut self, now: Time) {
        self.repeat = Some(Repeat {
            at: now + self.timers.first,
            interval: self.timers.first,
            left: self.timers.retries,
        });
    }
}

#[cfg(test)]
mod tests;
