//! The event loop: two actors, two links, one clock, and the programs that follow their plan.
//! A session and a random generator determine every step, and everything that happens is recorded. The loop moves bytes, time and
//! requests, and knows no protocol.

mod event;
mod program;
mod transcript;

pub use event::{Event, EventKind};
pub use transcript::Transcript;

use verbena_stream::{Role, Time};

use crate::actor::Actor;
use crate::clock::Clock;
use crate::link::Link;
use crate::peer::Peer;
use crate::rng::Rng;
use crate::session::Session;
use crate::work::Report;
use program::Program;

/// More rounds than any valid session needs. A session with an RNR for each of its receives sends nearly all of its
/// bytes again each time, in chunks of a few bytes: more than three million rounds are valid (seed 118719).
const MAX_ROUNDS: u64 = 12_000_000;

/// A simulated connection.
pub struct World<A> {
    clock: Clock,
    actors: [A; 2],
    links: [Link; 2],
    programs: [Program; 2],
    session: Session,
    reset: bool,
    close_requested: bool,
    wire_bytes: [Vec<u8>; 2],
    events: Vec<Event>,
}

impl World<Peer> {
    /// A simulation with the peer of this crate at both ends.
    pub fn of_peers(session: Session, rng: &mut Rng, start: Time) -> World<Peer> {
        let [a, b] = session.profiles.clone();
        let [ra, rb] = [0, 1].map(|k| session.plan.sides[k].regions.clone());
        let actors = [
            Peer::new(Role::Initiator, a, &ra, rng.fork(), start),
            Peer::new(Role::Responder, b, &rb, rng.fork(), start),
        ];
        World::new(session, actors, rng, start)
    }
}

impl<A: Actor> World<A> {
    /// A simulation of two actors: the initiator first.
    pub fn new(session: Session, actors: [A; 2], rng: &mut Rng, start: Time) -> World<A> {
        let mut clock = Clock::default();
        clock.advance_to(start);
        let links = [0, 1].map(|k| Link::new(session.links[k].clone(), rng.fork()));
        let programs = [0, 1].map(|k| Program::new(session.plan.sides[k].clone(), start));
        World {
            clock,
            actors,
            links,
            programs,
            session,
            reset: false,
            close_requested: false,
            wire_bytes: [Vec::new(), Vec::new()],
            events: Vec::new(),
        }
    }

    /// Runs until nothing happens any more.
    ///
    /// # Panics
    /// If the actors do not become idle.
    pub fn run(mut self) -> Transcript {
        self.run_until_idle();
        self.into_transcript()
    }

    /// Like [`run`](World::run), without consuming the world, so that the caller can inspect it.
    pub(crate) fn run_until_idle(&mut self) {
        let mut rounds = 0;
        loop {
            while self.round() {
                rounds += 1;
                assert!(rounds < MAX_ROUNDS, "livelock: {rounds} rounds");
            }
            rounds += 1;
            let Some(next) = self.next_moment() else {
                return;
            };
            self.clock.advance_to(next);
        }
    }

    /// One round at the current time; false when nothing moved.
    fn round(&mut self) -> bool {
        let mut moved = false;
        for side in 0..2 {
            moved |= self.act(side);
            moved |= self.arrive(side);
            moved |= self.expire(side);
            moved |= self.transmit(side);
            self.collect(side);
        }
        moved | self.close_when_done()
    }

    /// The program posts what its plan allows now.
    fn act(&mut self, side: usize) -> bool {
        let (now, mut moved) = (self.clock.now(), false);
        while let Some((id, capacity)) = self.programs[side].next_supply(now) {
            self.note(side, EventKind::Supplied(id));
            self.actors[side].supply(id, capacity, now);
            moved = true;
        }
        while let Some((id, work)) = self.programs[side].next_work(now) {
            self.note(side, EventKind::Posted(id));
            self.actors[side].post(id, work, now);
            self.collect(side);
            moved = true;
        }
        moved
    }

    /// One chunk arrives, or the end of the stream.
    fn arrive(&mut self, side: usize) -> bool {
        let now = self.clock.now();
        if let Some(bytes) = self.links[1 - side].arrive(now) {
            self.note(side, EventKind::Arrived(bytes.len()));
            self.actors[side].receive(&bytes, now);
            return true;
        }
        if self.links[1 - side].take_eof(now) {
            self.note(side, EventKind::Eof);
            self.actors[side].handle_eof(false, now);
            return true;
        }
        false
    }

    fn expire(&mut self, side: usize) -> bool {
        let now = self.clock.now();
        if self.actors[side].deadline().is_none_or(|d| d > now) {
            return false;
        }
        self.note(side, EventKind::Timeout);
        self.actors[side].handle_timeout(now);
        true
    }

    fn transmit(&mut self, side: usize) -> bool {
        let now = self.clock.now();
        let room = self.links[side].room();
        if room > 0 {
            let bytes = self.actors[side].transmit(room, now);
            assert!(bytes.len() <= room, "sent more than there was room for");
            if !bytes.is_empty() {
                self.send(side, &bytes, now);
                return true;
            }
        }
        if self.actors[side].wants_close() && !self.links[side].is_closed() {
            self.note(side, EventKind::Closed);
            self.links[side].close(now);
            return true;
        }
        false
    }

    fn send(&mut self, side: usize, bytes: &[u8], now: Time) {
        self.note(side, EventKind::Sent(bytes.len()));
        // Startup frames have no checksum: bits are flipped only behind them.
        let streaming = self.programs.iter().all(Program::is_established);
        self.wire_bytes[side].extend(bytes);
        self.links[side].send(bytes, streaming, now);
        let sent = self.links[0].sent() + self.links[1].sent();
        if !self.reset && self.session.reset_after.is_some_and(|n| sent >= n) {
            self.reset = true;
            for side in 0..2 {
                self.note(side, EventKind::Reset);
                self.links[side].cut();
                self.actors[side].handle_eof(true, now);
            }
        }
    }

    fn collect(&mut self, side: usize) {
        for report in self.actors[side].poll_reports() {
            self.programs[side].handle(&report, self.clock.now());
            self.note(side, EventKind::Report(report));
        }
    }

    /// When both programs have finished their plan, the initiator closes.
    fn close_when_done(&mut self) -> bool {
        if self.close_requested || !self.programs.iter().all(Program::is_done) {
            return false;
        }
        let due = |k: usize| self.session.plan.deliveries_to(k);
        if (0..2).any(|k| self.programs[k].received() < due(k)) {
            return false;
        }
        self.close_requested = true;
        self.actors[0].close(self.clock.now());
        true
    }

    fn next_moment(&self) -> Option<Time> {
        let links = self.links.iter().filter_map(Link::next_arrival);
        let deadlines = self.actors.iter().filter_map(Actor::deadline);
        let programs = self
            .programs
            .iter()
            .filter_map(|p| p.next_moment(self.clock.now()));
        links.chain(deadlines).chain(programs).min()
    }

    fn note(&mut self, side: usize, what: EventKind) {
        let at = self.clock.now();
        self.events.push(Event {
            at,
            side,
            kind: what,
        });
    }

    /// What has happened so far.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(crate) fn into_transcript(mut self) -> Transcript {
        self.collect(0);
        self.collect(1);
        let closed = self.links.iter().all(Link::is_closed);
        let reports = |side: usize| -> Vec<Report> {
            let of = self.events.iter().filter(|e| e.side == side);
            of.filter_map(|e| match &e.kind {
                EventKind::Report(report) => Some(report.clone()),
                _ => None,
            })
            .collect()
        };
        Transcript {
            reports: [reports(0), reports(1)],
            posted: [self.programs[0].posted(), self.programs[1].posted()],
            supplied: [self.programs[0].supplied(), self.programs[1].supplied()],
            images: [self.actors[0].image(), self.actors[1].image()],
            leftovers: [self.actors[0].leftovers(), self.actors[1].leftovers()],
            flipped: [0, 1].map(|k| self.links[k].flipped().to_vec()),
            sent: [0, 1].map(|k| self.links[k].sent()),
            wire_bytes: self.wire_bytes,
            session: self.session,
            reset: self.reset,
            stalled: !closed,
            end: self.clock.now(),
            events: self.events,
        }
    }
}

#[cfg(test)]
mod tests;
