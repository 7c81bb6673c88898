//! The communication identifiers of an engine: which one a message is for, what follows for the program, and when each is called again.
//! Changes are made under the table's lock; messages to send and calls to make are collected here and made after the lock is released.
//! Identifiers that peers can cause are limited in number, in all and for each source; those that have ended are kept for a while, so that
//! repeated messages have no second effect.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};

use verbena_nic::Qp;
use verbena_roce::cm::{Accepted, CommunicationId, Outcome, State};
use verbena_stream::Time;
use verbena_wire::roce::cm::{CmMessage, RejReason, Rep, Req};

use super::entry::{Ends, Entry, IncomingRequest, Outgoing, OutgoingRequest, Parting, Role};
use super::failures::{gone, rejection};
use super::request::FirstPacketGuard;
use crate::accept::acceptor::Acceptor;
use crate::accept::shares::{Shares, Source};
use crate::connection::Done;
use crate::error::Error;

/// How long an identifier that has ended answers repeated messages.
const CLOSED_LIFETIME: Duration = Duration::from_secs(10);
/// Identifiers that have ended and are kept.
const MAX_CLOSED: usize = 1024;
/// Calls that wait for the shard, of those that any peer can cause; peers repeat what is dropped.
const MAX_ACTIONS: usize = 4096;
/// One source may have this part of the requests that are not established.
const SOURCE_SHARE: usize = 4;

/// What an [`Action`] runs.
pub(super) type Call = Box<dyn FnOnce() + Send>;

/// What is done on the shard, without any lock.
pub(super) enum Action {
    /// Shows a request to the program that listens.
    Present {
        local_id: u32,
        acceptor: Weak<Acceptor>,
    },
    /// The peer has accepted: the queue pair gets its machines, and then the peer an RTU.
    Attach { local_id: u32, rep: Accepted },
    /// Tells the program the result.
    Report {
        done: Done,
        result: Result<Vec<u8>, Error>,
    },
    /// The connection of a queue pair has ended.
    Ended { qp: Weak<Qp>, by_peer: bool },
    /// Runs code of the adapter.
    Run(Call),
    /// Runs code of the program, which may panic.
    Call(Call),
}

/// All identifiers.
pub(super) struct Table {
    ids: HashMap<u32, Entry>,
    /// Requests of peers by the peer's address and identifier.
    by_peer: HashMap<(IpAddr, u32), u32>,
    /// By the number of the queue pair in the function.
    by_qp: HashMap<u32, u32>,
    timers: BTreeSet<(Time, u32)>,
    /// Requests of peers that are not established. A source address in them may be forged.
    half_open: Shares<u32>,
    /// The places that one source may have.
    source_limit: usize,
    /// Identifiers that have ended, the oldest first.
    closed: VecDeque<u32>,
    outgoing: Vec<Outgoing>,
    actions: VecDeque<Action>,
}

impl Table {
    /// At most `half_open` requests of peers wait at a time.
    pub(super) fn new(half_open: usize) -> Table {
        Table {
            ids: HashMap::new(),
            by_peer: HashMap::new(),
            by_qp: HashMap::new(),
            timers: BTreeSet::new(),
            half_open: Shares::new(half_open),
            source_limit: (half_open / SOURCE_SHARE).max(1),
            closed: VecDeque::new(),
            outgoing: Vec::new(),
            actions: VecDeque::new(),
        }
    }

    /// This identifier is in use.
    pub(super) fn contains(&self, local_id: u32) -> bool {
        self.ids.contains_key(&local_id)
    }

    /// The messages that are to be sent.
    pub(super) fn take_outgoing(&mut self) -> Vec<Outgoing> {
        core::mem::take(&mut self.outgoing)
    }

    /// Has the shard make this call; it is dropped if too many wait.
    pub(super) fn push(&mut self, action: Action) {
        if self.actions.len() < MAX_ACTIONS {
            self.actions.push_back(action);
        }
    }

    /// Has the shard run code of the adapter.
    pub(super) fn push_run(&mut self, run: impl FnOnce() + Send + 'static) {
        self.push(Action::Run(Box::new(run)));
    }

    /// Has the shard run code of the program.
    pub(super) fn push_call(&mut self, call: impl FnOnce() + Send + 'static) {
        self.push(Action::Call(Box::new(call)));
    }

    /// The next call that is to be made on the shard.
    pub(super) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When the shard is to call [`Table::expire`] or make calls.
    pub(super) fn wakeup(&self, now: Time) -> Option<Time> {
        match self.actions.is_empty() {
            false => Some(now),
            true => self.timers.first().map(|(when, _)| *when),
        }
    }

    /// Adds a request of this side; the identifier was made by [`Table::new_id`] under the same lock.
    pub(super) fn ask(
        &mut self,
        id: CommunicationId,
        ends: Ends,
        transaction: u64,
        outgoing: OutgoingRequest,
        (now, limit): (Time, Time),
    ) {
        let (local_id, number) = (id.local_id(), outgoing.options.qp.number());
        let qpn = outgoing.qpn;
        let role = Role::Requesting(Box::new(outgoing));
        let mut entry = Entry::new(id, ends, transaction, role, now);
        entry.qp = Some((qpn, number));
        entry.limit = Some(limit);
        entry.flush(&mut self.outgoing);
        self.ids.insert(local_id, entry);
        self.set_qp(number, local_id);
        self.schedule(local_id);
    }

    /// This identifier is the queue pair's from now on: the end of an earlier connection is not reported to it.
    fn set_qp(&mut self, number: u32, local_id: u32) {
        let before = self.by_qp.insert(number, local_id);
        let Some(entry) = before.and_then(|before| self.ids.get_mut(&before)) else {
            return;
        };
        if let Role::Closing { qp } = &mut entry.role {
            *qp = Weak::new();
        }
        if let Some(parting) = &mut entry.parting {
            parting.qp = Weak::new();
        }
    }

    /// The identifier of a request that has come before.
    pub(super) fn find_request(&self, from: IpAddr, remote_id: u32) -> Option<u32> {
        self.by_peer.get(&(from, remote_id)).copied()
    }

    /// Adds a request of a peer, for the program to decide. When too many wait, it is dropped if its source has its share, and otherwise takes
    /// the place of another source's, which is rejected.
    pub(super) fn add_request(
        &mut self,
        id: CommunicationId,
        ends: Ends,
        transaction: u64,
        asked: IncomingRequest,
        acceptor: Weak<Acceptor>,
        (now, limit): (Time, Time),
    ) {
        let (local_id, from) = (id.local_id(), ends.peer.ip());
        let source = Source::of(from);
        // Calls for requests that were displaced wait, too.
        if self.half_open.count(source) >= self.source_limit || self.actions.len() >= MAX_ACTIONS {
            return;
        }
        let Some((place, displaced)) = self.half_open.enter(source) else {
            return;
        };
        self.half_open.wait_for_peer(source, place, Some(local_id));
        self.half_open.wait_for_program(source, place);
        if let Some(displaced) = displaced {
            self.give_up(displaced, now);
        }
        self.by_peer.insert((from, id.remote_id()), local_id);
        let role = Role::Deciding(Box::new(asked));
        let mut entry = Entry::new(id, ends, transaction, role, now);
        entry.limit = Some(limit);
        entry.place = Some(place);
        self.ids.insert(local_id, entry);
        self.schedule(local_id);
        self.actions
            .push_back(Action::Present { local_id, acceptor });
    }

    /// Ends what waits for the peer or for the program, and tells the peer.
    fn give_up(&mut self, local_id: u32, now: Time) {
        self.step(local_id, now, |id| {
            id.reject(RejReason::TIMEOUT, &[]);
            Outcome::Unreachable
        });
    }

    /// A message that names an identifier of ours, or a request that was repeated; false if there is none for it.
    pub(super) fn handle(
        &mut self,
        from: IpAddr,
        transaction: u64,
        message: &CmMessage<'_>,
        now: Time,
    ) -> bool {
        let Some((sender, named)) = ids_of(message) else {
            return false;
        };
        // A peer that gives up its request before it was answered does not know our identifier.
        let local_id = match named {
            0 => self.find_request(from, sender),
            named => Some(named),
        };
        let is_refusal = matches!(message, CmMessage::Rej(_) | CmMessage::Mra(_));
        let entry = local_id.and_then(|id| self.ids.get(&id));
        let Some(entry) = entry.filter(|e| e.is_from_peer(from, sender, transaction, is_refusal))
        else {
            return false;
        };
        if let CmMessage::Dreq(dreq) = message
            && entry.qp.is_none_or(|(qpn, _)| qpn != dreq.remote_qpn)
        {
            return false;
        }
        let local_id = entry.id.local_id();
        if let (CmMessage::Dreq(_), Some(entry)) = (message, self.ids.get_mut(&local_id)) {
            entry.part(now);
        }
        self.step(local_id, now, |id| id.handle(message, transaction, now));
        true
    }

    /// The first packet of a connection has arrived, which counts as the peer's confirmation.
    pub(super) fn handle_first_packet(&mut self, local_id: u32, now: Time) {
        self.step(local_id, now, CommunicationId::handle_data);
    }

    /// The queue pair with this number in the function has a connection, or is being connected.
    pub(super) fn has_qp(&self, qp: u32) -> bool {
        self.by_qp.contains_key(&qp)
    }

    /// A connection was ended here, and the peer has not confirmed it.
    pub(super) fn has_closing(&self) -> bool {
        let mut roles = self.ids.values().map(|entry| &entry.role);
        roles.any(|role| matches!(role, Role::Closing { .. }))
    }

    /// Calls what is due.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some((when, local_id)) = self.timers.first().copied() {
            if when > now {
                return;
            }
            self.timers.pop_first();
            let Some(entry) = self.ids.get_mut(&local_id) else {
                continue;
            };
            entry.timer = None;
            if let Some(over) = entry.check_parting(now) {
                if let Some(qp) = over {
                    entry.flush(&mut self.outgoing);
                    self.forget_qp(local_id);
                    let by_peer = true;
                    self.actions.push_back(Action::Ended { qp, by_peer });
                }
                self.schedule(local_id);
                continue;
            }
            if entry.limit.take_if(|limit| *limit <= now).is_none() {
                self.step(local_id, now, |id| id.handle_timeout(now));
                continue;
            }
            match entry.role {
                Role::Closed => self.remove(local_id),
                Role::Requesting(_) | Role::Deciding(_) => self.give_up(local_id, now),
                _ => self.schedule(local_id),
            }
        }
    }

    /// Changes an identifier, records what follows, sends its message, and sets its timer.
    fn step(
        &mut self,
        local_id: u32,
        now: Time,
        change: impl FnOnce(&mut CommunicationId) -> Outcome,
    ) {
        let Some(entry) = self.ids.get_mut(&local_id) else {
            return;
        };
        match change(&mut entry.id) {
            Outcome::Nothing => {}
            Outcome::Accepted(rep) => {
                entry.holds = true;
                entry.limit = None;
                self.actions.push_back(Action::Attach { local_id, rep });
            }
            Outcome::Established => self.establish(local_id),
            outcome => self.end(local_id, outcome, now),
        }
        if let Some(entry) = self.ids.get_mut(&local_id) {
            entry.flush(&mut self.outgoing);
            self.schedule(local_id);
        }
    }

    /// The peer has confirmed.
    fn establish(&mut self, local_id: u32) {
        let Some(entry) = self.ids.get_mut(&local_id) else {
            return;
        };
        match core::mem::replace(&mut entry.role, Role::Closed) {
            Role::Accepted {
                qp,
                done,
                private_data,
                ..
            } => {
                entry.role = Role::Connected { qp };
                let result = Ok(private_data);
                self.actions.push_back(Action::Report { done, result });
            }
            other => entry.role = other,
        }
        self.release_share(local_id);
    }

    /// There is no connection, or none any more.
    fn end(&mut self, local_id: u32, outcome: Outcome, now: Time) {
        let Some(entry) = self.ids.get_mut(&local_id) else {
            return;
        };
        let peer = entry.ends.peer;
        let was_connected = outcome == Outcome::Disconnected;
        let error = match outcome {
            Outcome::Rejected { reason, private } => rejection(peer, reason, private),
            Outcome::Unreachable => Error::Timeout {
                peer,
                limit: now.since(entry.begun),
            },
            _ => gone(peer),
        };
        let mut report = |done, result| self.actions.push_back(Action::Report { done, result });
        let ended = match core::mem::replace(&mut entry.role, Role::Closed) {
            Role::Requesting(outgoing) => {
                report(outgoing.done, Err(error));
                None
            }
            // The thread that attaches it finds that it has ended.
            Role::Attaching => {
                entry.role = Role::Attaching;
                return;
            }
            Role::Accepted {
                qp,
                done,
                private_data,
                ..
            } => {
                let result = match was_connected {
                    // The peer has had a connection, although its RTU was lost.
                    true => Ok(private_data),
                    false => Err(error),
                };
                report(done, result);
                Some((qp, true))
            }
            Role::Connected { qp } => Some((qp, true)),
            Role::Closing { qp } => Some((qp, false)),
            Role::Deciding(_) | Role::Closed => None,
        };
        // Behind the acknowledgements, if the connection waits for them.
        if let Some((qp, by_peer)) = ended.filter(|_| entry.parting.is_none()) {
            self.actions.push_back(Action::Ended { qp, by_peer });
        }
        self.close(local_id, now);
    }

    /// What the peer asks for, if the program has not decided yet.
    pub(super) fn asked(&self, local_id: u32) -> Option<(Ends, &IncomingRequest)> {
        let entry = self.ids.get(&local_id)?;
        match &entry.role {
            Role::Deciding(asked) if entry.id.state() == State::Deciding => {
                Some((entry.ends, asked))
            }
            _ => None,
        }
    }

    /// The program accepts: its queue pair has its machines, and the REP can be sent. Gives `done` back if it is too late.
    pub(super) fn accept(
        &mut self,
        local_id: u32,
        rep: &Rep<'_>,
        (qp, first_packet): (&Arc<Qp>, Option<FirstPacketGuard>),
        done: Done,
        now: Time,
    ) -> Result<(), Done> {
        let Some(entry) = self.ids.get_mut(&local_id) else {
            return Err(done);
        };
        let private_data = match &mut entry.role {
            Role::Deciding(asked) if entry.id.accept(rep, now) => {
                core::mem::take(&mut asked.private_data)
            }
            _ => return Err(done),
        };
        entry.role = Role::Accepted {
            qp: Arc::downgrade(qp),
            done,
            private_data,
            _first_packet: first_packet,
        };
        // From here on the repetitions of the REP limit it.
        entry.limit = None;
        if let Some(place) = entry.place {
            let source = Source::of(entry.ends.peer.ip());
            self.half_open.wait_for_peer(source, place, None);
        }
        entry.qp = Some((rep.qpn, qp.number()));
        entry.flush(&mut self.outgoing);
        self.set_qp(qp.number(), local_id);
        self.schedule(local_id);
        Ok(())
    }

    /// Rejects a request that waits for the program; no effect on one that was answered.
    pub(super) fn reject(
        &mut self,
        local_id: u32,
        reason: RejReason,
        private_data: &[u8],
        now: Time,
    ) {
        let Some(entry) = self.ids.get_mut(&local_id) else {
            return;
        };
        if matches!(entry.role, Role::Deciding(_)) && entry.id.reject(reason, private_data) {
            entry.flush(&mut self.outgoing);
            entry.role = Role::Closed;
            self.close(local_id, now);
            self.schedule(local_id);
        }
    }

    /// Takes the request of this side, whose queue pair is attached now. `None` if it has ended.
    pub(super) fn begin_attach(&mut self, local_id: u32) -> Option<(Ends, OutgoingRequest)> {
        let entry = self.ids.get_mut(&local_id)?;
        match core::mem::replace(&mut entry.role, Role::Attaching) {
            Role::Requesting(outgoing) => Some((entry.ends, *outgoing)),
            other => {
                entry.role = other;
                None
            }
        }
    }

    /// The queue pair is attached, or could not be; true if there is a connection.
    pub(super) fn finish_attach(
        &mut self,
        local_id: u32,
        qp: &Arc<Qp>,
        is_attached: bool,
        now: Time,
    ) -> bool {
        let Some(entry) = self.ids.get_mut(&local_id) else {
            return false;
        };
        let weak = Arc::downgrade(qp);
        let is_connected = is_attached && entry.id.state() == State::Established;
        if is_connected {
            entry.holds = false;
            entry.role = Role::Connected { qp: weak };
        } else {
            // The program has ended it meanwhile, or the peer, or there is nothing to attach it to.
            entry.role = Role::Closing { qp: weak };
            entry.disconnect(now);
        }
        entry.flush(&mut self.outgoing);
        if matches!(entry.id.state(), State::TimeWait | State::Ended) {
            self.end(local_id, Outcome::Disconnected, now);
        }
        self.schedule(local_id);
        is_connected
    }

    /// The program has ended the connection of this queue pair, or its attempt; with `forget`, nothing more is reported to the queue pair.
    /// False if there is none.
    pub(super) fn disconnect(&mut self, qp: u32, forget: bool, now: Time) -> bool {
        let Some(local_id) = self.by_qp.get(&qp).copied() else {
            return false;
        };
        let Some(entry) = self.ids.get_mut(&local_id) else {
            return false;
        };
        let mut was_there = true;
        let closed = || Err(Error::Closed);
        match core::mem::replace(&mut entry.role, Role::Closed) {
            Role::Requesting(outgoing) => {
                let (done, result) = (outgoing.done, closed());
                self.actions.push_back(Action::Report { done, result });
                let qp = Arc::downgrade(&outgoing.options.qp);
                if entry.disconnect(now) {
                    entry.role = Role::Closing { qp };
                } else {
                    entry.id.reject(RejReason::TIMEOUT, &[]);
                }
            }
            Role::Accepted { qp, done, .. } => {
                let result = closed();
                self.actions.push_back(Action::Report { done, result });
                entry.disconnect(now);
                entry.role = Role::Closing { qp };
            }
            Role::Connected { qp } => {
                entry.disconnect(now);
                entry.role = Role::Closing { qp };
            }
            Role::Attaching => {
                entry.role = Role::Attaching;
                entry.disconnect(now);
            }
            other => {
                entry.role = other;
                was_there = false;
            }
        }
        if let Role::Closing { qp } = &mut entry.role
            && forget
        {
            *qp = Weak::new();
        }
        entry.flush(&mut self.outgoing);
        let has_ended = matches!(entry.role, Role::Closed);
        if has_ended {
            self.close(local_id, now);
        }
        self.schedule(local_id);
        was_there
    }

    /// Ends every connection.
    pub(super) fn disconnect_all(&mut self, now: Time) {
        let qps: Vec<u32> = self.by_qp.keys().copied().collect();
        for qp in qps {
            self.disconnect(qp, true, now);
        }
    }

    /// The engine stops: every connection is ended with one DREQ, and the calls that are still owed are returned.
    pub(super) fn stop(&mut self, now: Time) -> Vec<Done> {
        self.disconnect_all(now);
        for entry in self.ids.values_mut() {
            if entry.parting.take().is_some() {
                entry.flush(&mut self.outgoing);
            }
        }
        let actions = core::mem::take(&mut self.actions).into_iter();
        let owed = actions.filter_map(|action| match action {
            Action::Report { done, .. } => Some(done),
            _ => None,
        });
        let owed = owed.collect();
        self.ids.clear();
        self.by_peer.clear();
        self.timers.clear();
        self.closed.clear();
        owed
    }

    fn close(&mut self, local_id: u32, now: Time) {
        self.release_share(local_id);
        let Some(entry) = self.ids.get_mut(&local_id) else {
            return;
        };
        entry.holds = false;
        entry.limit = Some(now + CLOSED_LIFETIME);
        if entry.parting.is_none() {
            self.forget_qp(local_id);
        }
        self.closed.push_back(local_id);
        while self.closed.len() > MAX_CLOSED {
            if let Some(oldest) = self.closed.pop_front() {
                self.remove(oldest);
            }
        }
    }

    /// The queue pair of this identifier has it no longer.
    fn forget_qp(&mut self, local_id: u32) {
        if let Some((_, number)) = self.ids.get(&local_id).and_then(|entry| entry.qp)
            && self.by_qp.get(&number) == Some(&local_id)
        {
            self.by_qp.remove(&number);
        }
    }

    fn remove(&mut self, local_id: u32) {
        self.forget_qp(local_id);
        if let Some(mut entry) = self.ids.remove(&local_id) {
            if let Some(Parting { qp, .. }) = entry.parting.take() {
                let by_peer = true;
                self.actions.push_back(Action::Ended { qp, by_peer });
            }
            if let Some(timer) = entry.timer {
                self.timers.remove(&(timer, local_id));
            }
            let key = (entry.ends.peer.ip(), entry.id.remote_id());
            if self.by_peer.get(&key) == Some(&local_id) {
                self.by_peer.remove(&key);
            }
        }
        while let Some(oldest) = self.closed.front()
            && !self.ids.contains_key(oldest)
        {
            self.closed.pop_front();
        }
    }

    fn release_share(&mut self, local_id: u32) {
        if let Some(entry) = self.ids.get_mut(&local_id)
            && let Some(place) = entry.place.take()
        {
            self.half_open
                .leave(Source::of(entry.ends.peer.ip()), place);
        }
    }

    /// Sets the timer of an identifier to what is due next.
    fn schedule(&mut self, local_id: u32) {
        let Some(entry) = self.ids.get_mut(&local_id) else {
            return;
        };
        let check = entry.parting.as_ref().map(|parting| parting.check);
        let all = [entry.id.deadline(), entry.limit, check];
        let next = all.into_iter().flatten().min();
        if next == entry.timer {
            return;
        }
        if let Some(before) = core::mem::replace(&mut entry.timer, next) {
            self.timers.remove(&(before, local_id));
        }
        if let Some(next) = next {
            self.timers.insert((next, local_id));
        }
    }
}

/// The identifiers of the sender and of the receiver that a message names; `None` for one that begins something.
pub(super) fn ids_of(message: &CmMessage<'_>) -> Option<(u32, u32)> {
    Some(match message {
        CmMessage::Req(Req { local_id, .. }) => (*local_id, 0),
        CmMessage::Mra(mra) => (mra.local_id, mra.remote_id),
        CmMessage::Rej(rej) => (rej.local_id, rej.remote_id),
        CmMessage::Rep(rep) => (rep.local_id, rep.remote_id),
        CmMessage::Rtu(rtu) => (rtu.local_id, rtu.remote_id),
        CmMessage::Dreq(dreq) => (dreq.local_id, dreq.remote_id),
        CmMessage::Drep(drep) => (drep.local_id, drep.remote_id),
        CmMessage::SidrReq(_) | CmMessage::SidrRep(_) | CmMessage::Lap(_) | CmMessage::Apr(_) => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests;
