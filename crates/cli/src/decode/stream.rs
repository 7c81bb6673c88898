//! One MPA stream seen by a bystander: startup frames, then both directions of FPDUs, judged as their receivers would.
//! It promises a record for everything it understood and the first broken rule of the stream by name.
//! It refuses to guess: behind a violation, a Terminate or a loss a direction is only counted.

mod books;
mod follow;
mod startup;

use std::net::SocketAddr;
use std::time::Duration;

use verbena_stream::ledger::Ledger;
use verbena_wire::mpa::Phase;

use super::Options;
use super::record::{Dir, Record};
use super::summary::Summary;
use follow::Follower;
pub(super) use follow::SHOWN;
use startup::Frames;

/// A stream under observation.
#[derive(Debug)]
pub struct Stream {
    summary: Summary,
    options: Options,
    frames: Frames,
    sides: [Side; 2],
    /// The book of the side that receives this direction. Present from the agreement on.
    books: Option<[Ledger; 2]>,
}

/// One direction.
#[derive(Debug)]
struct Side {
    state: State,
    /// Bytes not consumed yet.
    stage: Vec<u8>,
    /// Where the stage's first byte stands in the direction.
    offset: u64,
    fin: bool,
}

#[derive(Debug)]
enum State {
    /// The startup frame is to come, or to be answered.
    Startup,
    /// FPDUs.
    Running(Box<Follower>),
    /// Nothing more is understood.
    Over,
}

/// Where records go, and the time they carry.
pub struct Out<'a> {
    /// When the packet at hand was captured.
    pub time: Duration,
    /// What has been found.
    pub records: &'a mut Vec<Record>,
}

impl Out<'_> {
    /// Something is amiss in a direction of a stream.
    pub fn trouble(&mut self, kind: &'static str, at: (usize, Dir), offset: u64, message: String) {
        let record = Record::trouble(self.time, at, kind, offset, message);
        self.records.push(record);
    }
}

impl Stream {
    /// A stream whose initiator has just begun to send a Request.
    pub fn new(number: usize, ends: [SocketAddr; 2], options: Options) -> Stream {
        let side = || Side {
            state: State::Startup,
            stage: Vec::new(),
            offset: 0,
            fin: false,
        };
        Stream {
            summary: Summary::new(number, ends),
            options,
            frames: Frames::default(),
            sides: [side(), side()],
            books: None,
        }
    }

    /// Takes the next bytes of a direction.
    pub fn feed(&mut self, dir: Dir, bytes: &[u8], out: &mut Out<'_>) {
        self.summary.bytes[dir.index()] += bytes.len() as u64;
        let side = &mut self.sides[dir.index()];
        if matches!(side.state, State::Over) {
            return;
        }
        side.stage.extend_from_slice(bytes);
        self.startup(dir, out);
        self.follow(dir, out);
        // A frame of this direction may have opened the other one.
        if !self.sides[dir.reverse().index()].stage.is_empty() {
            self.follow(dir.reverse(), out);
        }
    }

    /// The sender of this direction is done.
    pub fn fin(&mut self, dir: Dir, out: &mut Out<'_>) {
        let side = &mut self.sides[dir.index()];
        if core::mem::replace(&mut side.fin, true) {
            return;
        }
        self.judge_end(dir, out);
        let reverse = &self.sides[dir.reverse().index()];
        self.summary.fin(dir, reverse.fin);
    }

    /// The sender of this direction reset the connection.
    pub fn reset(&mut self, dir: Dir) {
        self.summary.reset(dir);
    }

    /// The capture does not hold the next bytes of this direction: decoding ends here.
    pub fn lose(&mut self, dir: Dir, bytes: u64, out: &mut Out<'_>) {
        if self.summary.lost.is_some() {
            return;
        }
        self.summary.lost = Some((dir, bytes));
        let over = self.sides.iter().all(|s| matches!(s.state, State::Over));
        if !over {
            let message = format!("the capture lost {bytes} bytes; decoding of this stream ends");
            let side = &self.sides[dir.index()];
            let offset = side.offset + side.stage.len() as u64;
            out.trouble("Lost", (self.summary.stream, dir), offset, message);
        }
        for dir in [Dir::ToResponder, Dir::ToInitiator] {
            self.stop(dir);
        }
    }

    /// The stream in retrospect.
    pub fn summary(mut self) -> Summary {
        for (side, unfinished) in self.sides.iter().zip(&mut self.summary.unfinished) {
            *unfinished = side.stage.len();
        }
        self.summary
    }

    /// Rules broken so far.
    pub fn violations(&self) -> u64 {
        self.summary.violations
    }

    /// A direction breaks a rule, and is read no further.
    fn violate(&mut self, dir: Dir, offset: u64, message: String, out: &mut Out<'_>) {
        self.stop(dir);
        self.summary.violate(dir, offset, message, out);
    }

    /// Nothing more is read from this direction.
    fn stop(&mut self, dir: Dir) {
        let side = &mut self.sides[dir.index()];
        side.state = State::Over;
        side.stage = Vec::new();
    }
}

impl Side {
    fn consume(&mut self, bytes: usize) {
        self.stage.drain(..bytes.min(self.stage.len()));
        self.offset += bytes as u64;
    }
}

/// The phase in which a direction with or without markers begins.
fn first_phase(markers: bool) -> Option<Phase> {
    markers.then_some(Phase::START)
}
