//! Two connections, a virtual clock, and a link that loses, repeats, delays and reorders from a seed. With `TCP_TRACE`, segments are printed.
//! The checkers are here: every byte exactly once and with its value, boundaries that do not change, windows that are respected.

use std::collections::{BTreeMap, BinaryHeap};

use core::cmp::Reverse;

use super::super::seq::distance;
use super::*;

/// Pseudo-random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True `per_mille` times in a thousand.
    pub(super) fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// The faults of a link, in thousandths of segments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) loss: u64,
    pub(super) repeat: u64,
    /// Segments that are delayed by up to eight times the delay of the link.
    pub(super) reorder: u64,
    /// One-way delay.
    pub(super) delay: Duration,
    /// Nanoseconds for a byte.
    pub(super) byte_time: u64,
    /// Bytes that wait for the link; those beyond are lost.
    pub(super) queue: u64,
}

/// One side: a connection, what its consumer does, and what it has seen.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) conn: Option<Connection>,
    config: TcpConfig,
    initial: u32,
    key: u64,
    /// Bytes that the consumer sends in all, and how many are queued.
    pub(super) total: u64,
    pub(super) queued: u64,
    /// Arrived bytes by offset.
    seen: Vec<bool>,
    pub(super) consumed: u64,
    /// The consumer closes when it has sent everything.
    pub(super) closes: bool,
    /// The longest message; lengths are random, except without a limit.
    longest: u64,
    /// In thousandths: how often the consumer takes what is there.
    pub(super) takes: u64,
    boundaries: BTreeMap<u64, u64>,
    tail_probes: u64,
    pub(super) out: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    at: Time,
    number: u64,
    to: usize,
    bytes: Vec<u8>,
}

/// The world.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Time,
    pub(super) sides: [Side; 2],
    pub(super) faults: Faults,
    random: Random,
    flying: BinaryHeap<Reverse<Flying>>,
    number: u64,
    free_at: [Time; 2],
    /// Segments that the link harmed in any way.
    pub(super) harmed: u64,
    /// Bytes that were sent again.
    pub(super) repeated: u64,
    /// Segments that would be delivered are kept back while this is set.
    pub(super) is_cut: bool,
    /// Boundaries may change, because the path did.
    pub(super) path_changes: bool,
}

fn byte(key: u64, offset: u64) -> u8 {
    let word = (offset ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> 56) as u8
}

impl Side {
    fn new(config: TcpConfig, initial: u32, key: u64, total: u64) -> Side {
        Side {
            conn: None,
            config,
            initial,
            key,
            total,
            queued: 0,
            seen: Vec::new(),
            consumed: 0,
            closes: true,
            longest: u64::MAX,
            takes: 1000,
            boundaries: BTreeMap::new(),
            tail_probes: 0,
            out: 0,
        }
    }

    pub(super) fn conn(&mut self) -> &mut Connection {
        self.conn.as_mut().expect("a connection")
    }

    pub(super) fn state(&self) -> Option<State> {
        self.conn.as_ref().map(Connection::state)
    }

    /// What the consumer does when it runs.
    fn consumer(&mut self, random: &mut Random, now: Time) {
        let Some(conn) = self.conn.as_mut() else {
            return;
        };
        let available = conn.in_order() - self.consumed;
        if available > 0 && random.happens(self.takes) {
            let len = if random.happens(500) {
                available
            } else {
                1 + random.below(available)
            };
            conn.consume(len);
            self.consumed += len;
        }
        if conn.state() == State::Closed {
            return;
        }
        while self.queued < self.total && self.queued - conn.released() < 1 << 20 {
            let longest = match self.config.framing {
                Framing::Messages => self.longest.min(conn.mss() as u64),
                Framing::Bytes => self.longest.min(100_000),
            };
            let len = if self.longest == u64::MAX {
                longest
            } else {
                1 + random.below(longest)
            };
            let len = len.min(self.total - self.queued);
            if conn.queue(len).is_err() {
                break;
            }
            self.queued += len;
        }
        // A close in `SynSent` gives the connection up.
        if self.closes && self.queued == self.total && conn.state() != State::SynSent {
            conn.close(now);
        }
    }
}

impl World {
    /// Two sides with these settings and initial sequence numbers; the first one connects.
    pub(super) fn new(seed: u64, configs: [TcpConfig; 2], initial: [u32; 2]) -> World {
        let [a, b] = configs;
        let mut world = World {
            now: Time::ZERO + Duration::from_secs(1000),
            sides: [
                Side::new(a, initial[0], seed, 0),
                Side::new(b, initial[1], !seed, 0),
            ],
            faults: Faults {
                delay: MS,
                queue: u64::MAX,
                ..Faults::default()
            },
            random: Random(seed),
            flying: BinaryHeap::new(),
            number: 0,
            free_at: [Time::ZERO; 2],
            harmed: 0,
            repeated: 0,
            is_cut: false,
            path_changes: false,
        };
        world.connect(0);
        world
    }

    /// A side opens its connection.
    pub(super) fn connect(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let ports = if at == 0 { (1000, 2000) } else { (2000, 1000) };
        let secrets = secrets(side.initial);
        side.conn = Some(Connection::connect(
            side.config.clone(),
            ports,
            secrets,
            self.now,
        ));
    }

    /// Bytes that each side sends, and the longest message.
    pub(super) fn sends(&mut self, totals: [u64; 2], longest: u64) {
        for (side, total) in self.sides.iter_mut().zip(totals) {
            side.total = total;
            side.longest = longest;
        }
    }

    /// Everything that can be sent now is put on the link.
    pub(super) fn flush(&mut self) {
        for at in 0..2 {
            self.sides[at].consumer(&mut self.random, self.now);
            while let Some(conn) = self.sides[at].conn.as_mut()
                && let Some(transmit) = conn.poll_transmit(self.now)
            {
                self.check_transmit(at, &transmit);
                self.sides[at].out += 1;
                self.send(at, &transmit);
            }
        }
    }

    fn check_transmit(&mut self, at: usize, transmit: &Transmit) {
        let (here, there) = pair(&mut self.sides, at);
        let Transmit { segment, payload } = transmit;
        if payload.is_empty() {
            return;
        }
        let conn = here.conn.as_mut().expect("a connection");
        conn.board.assert_invariants();
        let len = payload.end - payload.start;
        assert!(len <= conn.mss() as u64);
        // Only a tail loss probe may exceed the congestion window, and a segment that is alone.
        let probes = conn.counters().tail_probes;
        let is_probe = core::mem::replace(&mut here.tail_probes, probes) != probes;
        let (pipe, window) = (conn.board.pipe(), conn.congestion_window());
        assert!(is_probe || pipe <= window.max(len + 1), "{pipe} {window}");
        assert!(payload.end <= here.queued && payload.start >= here.conn().released());
        if let Some(peer) = there.conn.as_ref().filter(|peer| peer.handshake.is_done) {
            assert!(distance(payload.end) <= peer.rx.edge(), "beyond the window");
        }
        assert!(segment.header_len() <= segment::MAX_TCP_HEADER);
        let end = *here.boundaries.entry(payload.start).or_insert(payload.end);
        assert!(end == payload.end || self.path_changes, "another boundary");
    }

    fn send(&mut self, from: usize, transmit: &Transmit) {
        let Transmit { segment, payload } = transmit;
        if std::env::var("TCP_TRACE").is_ok() {
            eprintln!("{} {from} sends {payload:?} {segment:?}", self.now);
        }
        let mut bytes = segment.emit().to_vec();
        let key = self.sides[from].key;
        bytes.extend(payload.clone().map(|offset| byte(key, offset)));
        let faults = self.faults;
        let begins = self.free_at[from].max(self.now);
        let waiting = begins.since(self.now).as_nanos() as u64;
        if waiting > faults.queue.saturating_mul(faults.byte_time) {
            self.harmed += 1;
            return;
        }
        let len = bytes.len() as u64 + 40;
        self.free_at[from] = begins + Duration::from_nanos(len * faults.byte_time);
        if self.random.happens(faults.loss) {
            self.harmed += 1;
            return;
        }
        let copies = if self.random.happens(faults.repeat) {
            self.harmed += 1;
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut delay = faults.delay;
            if self.random.happens(faults.reorder) {
                self.harmed += 1;
                delay += faults.delay * self.random.below(8) as u32;
            }
            self.number += 1;
            let flying = Flying {
                at: self.free_at[from] + delay,
                number: self.number,
                to: 1 - from,
                bytes: bytes.clone(),
            };
            self.flying.push(Reverse(flying));
        }
    }

    /// Runs until the next event; false if there is none.
    pub(super) fn step(&mut self) -> bool {
        self.flush();
        let arrival = self.flying.peek().map(|flying| flying.0.at);
        let deadlines = self.sides.iter().filter_map(|side| side.conn.as_ref());
        let deadline = deadlines.filter_map(Connection::deadline).min();
        let wakes = self.sides.iter().any(|side| {
            side.conn
                .as_ref()
                .is_some_and(|conn| conn.in_order() > side.consumed)
        });
        let wake = wakes.then(|| self.now + MS);
        let Some(next) = [arrival, deadline, wake].into_iter().flatten().min() else {
            return false;
        };
        assert!(next >= self.now, "a deadline in the past that does nothing");
        self.now = next;
        for side in &mut self.sides {
            if let Some(conn) = side.conn.as_mut()
                && conn.deadline().is_some_and(|at| at <= self.now)
            {
                conn.handle_timeout(self.now);
                assert!(
                    conn.deadline().is_none_or(|at| at > self.now),
                    "a deadline that stays"
                );
            }
        }
        while let Some(Reverse(flying)) = self.flying.pop_if_due(self.now) {
            if !self.is_cut {
                self.deliver(flying.to, &flying.bytes);
            }
        }
        true
    }

    /// Runs until a condition holds.
    pub(super) fn run_until(&mut self, what: &str, mut holds: impl FnMut(&mut World) -> bool) {
        let mut steps = 0u64;
        while !holds(self) {
            assert!(self.step(), "nothing happens any more: {what}");
            steps += 1;
            assert!(steps < 2_000_000, "it never happens: {what}");
        }
    }

    /// Runs until nothing is left to do.
    pub(super) fn settle(&mut self) {
        let mut steps = 0u64;
        while self.step() {
            steps += 1;
            assert!(steps < 2_000_000, "it never ends: {}", self.describe());
        }
    }

    pub(super) fn deliver(&mut self, to: usize, bytes: &[u8]) {
        let (segment, payload) = Segment::parse(bytes).expect("a segment");
        let now = self.now;
        let (here, there) = pair(&mut self.sides, to);
        let key = there.key;
        let Some(conn) = here.conn.as_mut() else {
            let is_syn = segment.flags.syn && segment.ack.is_none();
            if is_syn {
                let secrets = secrets(here.initial);
                let config = here.config.clone();
                here.conn = Some(Connection::accept(config, &segment, secrets, now));
            }
            return;
        };
        if std::env::var("TCP_TRACE").is_ok() {
            eprintln!("{now} {to} receives {} {}", segment.seq, payload.len());
        }
        let received = conn.handle_segment(&segment, payload.len(), now);
        conn.rx.assert_invariants();
        conn.board.assert_invariants();
        for run in &received.runs {
            let data = &payload[run.payload.clone()];
            for (index, &value) in data.iter().enumerate() {
                let offset = run.offset + index as u64;
                assert_eq!(value, byte(key, offset), "the byte at {offset}");
                let at = usize::try_from(offset).unwrap();
                if here.seen.len() <= at {
                    here.seen.resize(at + 1, false);
                }
                assert!(!here.seen[at], "the byte at {offset} came twice");
                here.seen[at] = true;
            }
        }
        let in_order = usize::try_from(received.in_order).unwrap();
        let from = usize::try_from(here.consumed).unwrap();
        assert!(here.seen.len() >= in_order);
        assert!(here.seen[from..in_order].iter().all(|seen| *seen));
    }

    /// Everything was sent, has arrived, and both sides have ended.
    pub(super) fn assert_complete(&mut self) {
        let described = self.describe();
        for at in 0..2 {
            let (here, there) = pair(&mut self.sides, at);
            let reason = here.conn().close_reason();
            assert_eq!(reason, Some(CloseReason::Finished), "{described}");
            assert_eq!(there.seen.len() as u64, here.total);
            assert_eq!(there.conn().in_order(), here.total);
            assert!(there.conn().is_peer_finished());
            assert!(there.seen.iter().all(|seen| *seen));
        }
    }

    pub(super) fn retransmitted(&mut self) -> u64 {
        let count = |side: &mut Side| side.conn().counters().retransmitted;
        self.sides.iter_mut().map(count).sum()
    }

    /// Nothing is on the link.
    pub(super) fn is_link_empty(&self) -> bool {
        self.flying.is_empty()
    }
}

trait PopDue {
    fn pop_if_due(&mut self, now: Time) -> Option<Reverse<Flying>>;
}

impl PopDue for BinaryHeap<Reverse<Flying>> {
    fn pop_if_due(&mut self, now: Time) -> Option<Reverse<Flying>> {
        if self.peek()?.0.at <= now {
            self.pop()
        } else {
            None
        }
    }
}

fn pair(sides: &mut [Side; 2], at: usize) -> (&mut Side, &mut Side) {
    let [a, b] = sides;
    if at == 0 { (a, b) } else { (b, a) }
}

impl World {
    /// What the sides look like, for a failing test.
    pub(super) fn describe(&self) -> String {
        let side = |side: &Side| {
            let Some(conn) = &side.conn else {
                return format!("no connection, {} to send", side.total);
            };
            format!(
                "{:?} {:?}: queued {} of {}, una {}, next {}, right {}, pipe {}, window {}, in order {}, edge {}, consumed {}, \
                 recovery {:?}, {:?}, {:?}, {:?}",
                conn.state,
                conn.reason,
                side.queued,
                side.total,
                conn.board.una(),
                conn.board.next(),
                conn.peer.right,
                conn.board.pipe(),
                conn.congestion.window(),
                conn.in_order(),
                conn.rx.edge(),
                side.consumed,
                conn.recovery,
                conn.rtt,
                conn.timers,
                conn.counters,
            )
        };
        let [a, b] = &self.sides;
        format!("at {}\n{}\n{}", self.now, side(a), side(b))
    }
}
