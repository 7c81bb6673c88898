//! One TCP connection of a capture: both directions in order. A stream gets an answer only after everything that the answer's sender had
//! acknowledged, so that neither loss nor reordering in the capture looks like a violation of the peers. Connections that are neither MPA
//! nor, at the ports of targets, iSCSI are not followed.

use std::collections::VecDeque;
use std::net::SocketAddr;

use verbena_wire::mpa::Kind;

use super::Options;
use super::conversation::Conversation;
use super::iscsi::{self, Exchange};
use super::reassembly::Reassembly;
use super::record::{Dir, Out};
use super::segment::Segment;
use super::stream::Stream;

/// Bytes of one connection that may wait for others. Above this, the others are taken as lost.
pub const MAX_WAITING_BYTES: usize = 4 << 20;
/// Segments of one connection that may wait for what they acknowledge.
pub const MAX_WAITING_SEGMENTS: usize = 1024;

/// A TCP connection.
#[derive(Debug)]
pub struct Flow {
    /// Initiator and responder, once known; until then in the order of the first segment.
    ends: [SocketAddr; 2],
    reassembly: [Option<Reassembly>; 2],
    /// Segments that acknowledge bytes not seen yet.
    waiting: VecDeque<PendingSegment>,
    state: State,
}

#[derive(Debug)]
struct PendingSegment {
    dir: Dir,
    seq: u32,
    ack: Option<u32>,
    payload: Vec<u8>,
    fin: bool,
}

#[derive(Debug)]
enum State {
    /// The TCP handshake was not seen; only a segment that begins with a Request or a login shows which end is the initiator.
    Midway,
    /// The initiator's first bytes, as long as they could be a Request or a login.
    Probing(Vec<u8>),
    Followed(Conversation),
    /// Another protocol.
    Foreign,
}

impl Flow {
    /// The connection of this segment.
    pub fn new(segment: &Segment<'_>) -> Flow {
        let (ends, orders) = match (segment.syn, segment.ack) {
            (true, None) => (
                [segment.from, segment.to],
                [Some(Reassembly::new(segment.seq.wrapping_add(1))), None],
            ),
            (true, Some(ack)) => (
                [segment.to, segment.from],
                [ack, segment.seq.wrapping_add(1)].map(|seq| Some(Reassembly::new(seq))),
            ),
            _ => ([segment.from, segment.to], [None, None]),
        };
        let state = if segment.syn {
            State::Probing(Vec::new())
        } else {
            State::Midway
        };
        Flow {
            ends,
            reassembly: orders,
            waiting: VecDeque::new(),
            state,
        }
    }

    /// Whether this segment opens a new connection between the same ends.
    pub fn is_replaced_by(&self, segment: &Segment<'_>) -> bool {
        let opens = segment.syn && segment.ack.is_none();
        // A retransmitted SYN of this connection has the number before its first byte.
        let again = self.dir(segment) == Dir::ToResponder
            && self.reassembly[0]
                .as_ref()
                .is_some_and(|order| order.begins_at(segment.seq.wrapping_add(1)));
        opens && !again
    }

    /// Takes a segment; `number` is the next stream's, and is incremented if this becomes one.
    pub fn handle(
        &mut self,
        segment: &Segment<'_>,
        number: &mut usize,
        options: Options,
        out: &mut Out<'_>,
    ) {
        if matches!(self.state, State::Foreign) {
            return;
        }
        if matches!(self.state, State::Midway) && !segment.payload.is_empty() {
            self.recognise(segment, options);
        }
        self.learn(segment);
        let dir = self.dir(segment);
        if !segment.syn && (!segment.payload.is_empty() || segment.fin) {
            self.waiting.push_back(PendingSegment {
                dir,
                seq: segment.seq,
                ack: segment.ack,
                payload: segment.payload.to_vec(),
                // The end of a truncated packet is unknown.
                fin: segment.fin && !segment.truncated,
            });
            self.process_due(number, options, out);
        }
        if let (true, State::Followed(talk)) = (segment.rst, &mut self.state) {
            talk.reset(dir);
        }
        if self.is_stuck() {
            self.give_up(out);
        }
    }

    /// Called at the end of the capture; returns the stream, if this is one.
    pub fn finish(mut self, out: &mut Out<'_>) -> Option<Conversation> {
        self.give_up(out);
        match self.state {
            State::Followed(talk) => Some(talk),
            _ => None,
        }
    }

    /// Whether it is known to be another protocol.
    pub fn is_foreign(&self) -> bool {
        matches!(self.state, State::Foreign)
    }

    fn dir(&self, segment: &Segment<'_>) -> Dir {
        if segment.from == self.ends[0] {
            Dir::ToResponder
        } else {
            Dir::ToInitiator
        }
    }

    /// A connection whose beginning is not in the capture starts at a segment that begins with a Request or an iSCSI header.
    fn recognise(&mut self, segment: &Segment<'_>, options: Options) {
        let (payload, first) = (segment.payload, Reassembly::new(segment.seq));
        let there = options.is_target(segment.to.port());
        let back = options.is_target(segment.from.port());
        // Without a login the digests are unknown, unless they were given as an option.
        let is_iscsi = |dir| options.digests.is_some() && iscsi::is_header(dir, payload);
        let begins = payload.starts_with(Kind::Request.key());
        if begins || (there && (iscsi::is_login(payload) || is_iscsi(Dir::ToResponder))) {
            self.ends = [segment.from, segment.to];
            self.reassembly = [Some(first), None];
            self.state = State::Probing(Vec::new());
        } else if back && is_iscsi(Dir::ToInitiator) {
            self.ends = [segment.to, segment.from];
            self.reassembly = [None, Some(first)];
            self.state = State::Probing(Vec::new());
        } else {
            self.set_foreign();
        }
    }

    /// The other direction's first number follows from the first acknowledgement.
    fn learn(&mut self, segment: &Segment<'_>) {
        let dir = self.dir(segment);
        if matches!(self.state, State::Midway) {
            return;
        }
        if segment.syn && self.reassembly[dir.index()].is_none() {
            let first = segment.seq.wrapping_add(1);
            self.reassembly[dir.index()] = Some(Reassembly::new(first));
        }
        let reverse = &mut self.reassembly[dir.reverse().index()];
        if let (None, Some(ack)) = (&reverse, segment.ack) {
            *reverse = Some(Reassembly::new(ack));
        }
    }

    /// Takes every waiting segment that is due, until none is left.
    fn process_due(&mut self, number: &mut usize, options: Options, out: &mut Out<'_>) {
        while let Some(at) = self.waiting.iter().position(|w| self.is_due(w)) {
            let Some(next) = self.waiting.remove(at) else {
                return;
            };
            self.take(&next, number, options, out);
        }
    }

    fn is_due(&self, waiting: &PendingSegment) -> bool {
        let reverse = &self.reassembly[waiting.dir.reverse().index()];
        match (reverse, waiting.ack) {
            (Some(order), Some(ack)) => order.has_reached(ack),
            _ => true,
        }
    }

    fn take(
        &mut self,
        next: &PendingSegment,
        number: &mut usize,
        options: Options,
        out: &mut Out<'_>,
    ) {
        let Some(order) = &mut self.reassembly[next.dir.index()] else {
            return;
        };
        let mut bytes = Vec::new();
        order.take(next.seq, &next.payload, next.fin, &mut bytes);
        let finished = order.is_finished();
        let target = options.is_target(self.ends[1].port());
        let speaks_first = next.dir == Dir::ToInitiator && !bytes.is_empty();
        if let (State::Probing(_), true, Some(_)) =
            (&self.state, speaks_first && target, options.digests)
        {
            // The middle of a session, where either side may send first.
            self.follow_iscsi(number, options);
        }
        if let State::Probing(start) = &mut self.state {
            if next.dir == Dir::ToResponder {
                start.append(&mut bytes);
            }
            // A responder that sends first does not use MPA (RFC 5044 §7.1.2).
            let silent = bytes.is_empty();
            let ended = finished && next.dir == Dir::ToResponder;
            self.detect_protocol(silent, ended, number, options, out);
        } else if let State::Followed(talk) = &mut self.state
            && !bytes.is_empty()
        {
            talk.feed(next.dir, &bytes, out);
        }
        if let (true, State::Followed(talk)) = (finished, &mut self.state) {
            talk.fin(next.dir, out);
        }
    }

    /// Decides on the protocol as soon as the first bytes allow.
    fn detect_protocol(
        &mut self,
        silent: bool,
        ended: bool,
        number: &mut usize,
        options: Options,
        out: &mut Out<'_>,
    ) {
        let State::Probing(start) = &mut self.state else {
            return;
        };
        let key = Kind::Request.key();
        let target = options.is_target(self.ends[1].port());
        let login = iscsi::is_login(start) || (options.digests.is_some() && !start.is_empty());
        if target && login {
            let start = core::mem::take(start);
            self.follow_iscsi(number, options);
            if let State::Followed(talk) = &mut self.state {
                talk.feed(Dir::ToResponder, &start, out);
            }
            return;
        }
        if start.starts_with(key) {
            let start = core::mem::take(start);
            let mut stream = Box::new(Stream::new(*number, self.ends, options));
            *number += 1;
            stream.feed(Dir::ToResponder, &start, out);
            self.state = State::Followed(Conversation::Mpa(stream));
        } else if !silent || ended || !key.starts_with(start) {
            self.set_foreign();
        }
    }

    fn follow_iscsi(&mut self, number: &mut usize, options: Options) {
        let exchange = Exchange::new(*number, self.ends, options);
        *number += 1;
        self.state = State::Followed(Conversation::Iscsi(Box::new(exchange)));
    }

    fn set_foreign(&mut self) {
        self.state = State::Foreign;
        self.reassembly = [None, None];
        self.waiting = VecDeque::new();
    }

    fn is_stuck(&self) -> bool {
        let waiting: usize = self.waiting.iter().map(|w| w.payload.len()).sum();
        let behind: usize = self
            .reassembly
            .iter()
            .flatten()
            .map(Reassembly::buffered)
            .sum();
        self.waiting.len() > MAX_WAITING_SEGMENTS || waiting + behind > MAX_WAITING_BYTES
    }

    /// Takes the missing bytes as lost.
    fn give_up(&mut self, out: &mut Out<'_>) {
        let missing = self.missing();
        if let (State::Followed(talk), Some((dir, bytes))) = (&mut self.state, missing) {
            talk.handle_loss(dir, bytes, out);
        }
        if self.is_stuck() && !matches!(self.state, State::Followed(_)) {
            self.set_foreign();
        }
        self.reassembly = [None, None];
        self.waiting = VecDeque::new();
    }

    /// The direction with a gap, and its size.
    fn missing(&self) -> Option<(Dir, u64)> {
        let gap = |dir: Dir| Some((dir, self.reassembly[dir.index()].as_ref()?.gap()?));
        let unseen = || {
            self.waiting.iter().find_map(|w| {
                let reverse = w.dir.reverse();
                let order = self.reassembly[reverse.index()].as_ref()?;
                let bytes = order.missing_before(w.ack?);
                (bytes > 0).then_some((reverse, bytes))
            })
        };
        gap(Dir::ToResponder)
            .or_else(|| gap(Dir::ToInitiator))
            .or_else(unseen)
    }
}
