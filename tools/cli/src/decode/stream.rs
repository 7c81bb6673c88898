//! One observed MPA stream: startup frames, then FPDUs in both directions, checked as their receivers would. There is a record for
//! everything that was parsed, and for the first violation of the stream. After a violation, a Terminate or a loss only the bytes of a
//! direction are counted.

mod accounting;
mod follow;
mod startup;

use std::net::SocketAddr;

use verbena_stream::accounting::Accounting;
use verbena_wire::mpa::Phase;

use super::Options;
use super::record::{Dir, Out};
use super::summary::Summary;
use follow::Follower;
pub(super) use follow::SHOWN;
use startup::Frames;

/// An observed stream.
#[derive(Debug)]
pub struct Stream {
    summary: Summary,
    options: Options,
    frames: Frames,
    sides: [Side; 2],
    /// The accounting of the receiver of each direction, from the Reply on.
    accounting: Option<[Accounting; 2]>,
}

/// One direction.
#[derive(Debug)]
struct Side {
    state: State,
    /// Bytes not consumed yet.
    stage: Vec<u8>,
    /// The offset of the stage's first byte in the direction.
    offset: u64,
    fin: bool,
}

#[derive(Debug)]
enum State {
    /// The startup frame is expected, or not answered yet.
    Startup,
    /// FPDUs.
    Running(Box<Follower>),
    /// The direction is no longer parsed.
    Over,
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
            accounting: None,
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
        // A frame of this direction may have started FPDUs in the other one.
        if !self.sides[dir.reverse().index()].stage.is_empty() {
            self.follow(dir.reverse(), out);
        }
    }

    /// The sender of this direction has closed it.
    pub fn fin(&mut self, dir: Dir, out: &mut Out<'_>) {
        let side = &mut self.sides[dir.index()];
        if core::mem::replace(&mut side.fin, true) {
            return;
        }
        self.check_end(dir, out);
        let reverse = &self.sides[dir.reverse().index()];
        self.summary.fin(dir, reverse.fin);
    }

    /// The sender of this direction reset the connection.
    pub fn reset(&mut self, dir: Dir) {
        self.summary.reset(dir);
    }

    /// The next bytes of this direction are not in the capture: decoding ends here.
    pub fn handle_loss(&mut self, dir: Dir, bytes: u64, out: &mut Out<'_>) {
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

    /// The summary of the stream.
    pub fn summary(mut self) -> Summary {
        for (side, unfinished) in self.sides.iter().zip(&mut self.summary.unfinished) {
            *unfinished = side.stage.len();
        }
        self.summary
    }

    /// Violations so far.
    pub fn violations(&self) -> u64 {
        self.summary.violations
    }

    /// A direction violates a rule, and is parsed no further.
    fn report_violation(&mut self, dir: Dir, offset: u64, message: String, out: &mut Out<'_>) {
        self.stop(dir);
        self.summary.report_violation(dir, offset, message, out);
    }

    /// Stops parsing a direction.
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

/// The initial marker phase of a direction.
fn first_phase(markers: bool) -> Option<Phase> {
    markers.then_some(Phase::START)
}
