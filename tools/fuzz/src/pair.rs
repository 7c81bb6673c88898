//! Two connected streams and a program for both: begin messages, carry bytes, post receives, answer reads, fail a stream.
//! Over a lossless link there must be no violation, every request must take effect exactly once and in order, and an acknowledgement
//! must never count a request that has not been executed. Bytes are carried unchanged from one end to the other.

mod end;
mod job;

use crate::source::{Source, bit};
use end::{End, Wire};
use job::Job;
use verbena_stream::startup::Rtr;
use verbena_stream::{Agreement, RnrRetry, Role, Settings};
use verbena_wire::ext::{Caps, Features, Personality, QpType, RnrTimer};
use verbena_wire::mpa::startup::Revision;

/// Steps per program.
const MAX_STEPS: usize = 400;
/// Frames per turn after the program has ended.
const BURST: usize = 8;
/// Turns after which two streams with nothing left to do must be idle.
const MAX_TURNS: usize = 20_000;

/// Runs one input.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let mut world = World::new(&mut source);
    for _ in 0..MAX_STEPS {
        if source.is_empty() {
            break;
        }
        world.step(&mut source);
        world.check();
    }
    world.settle();
}

struct World {
    ends: [End; 2],
    /// Bytes that each end has sent and the other has not yet received.
    wires: [Wire; 2],
    /// The program made one end fail the stream.
    failed: bool,
}

impl World {
    fn new(source: &mut Source<'_>) -> World {
        let [mode, size] = source.array();
        let extensions = bit(mode, 0);
        let rtr = match (extensions, mode >> 4 & 3) {
            (true, _) => [Rtr::Caps, Rtr::Caps],
            (_, 1) => [Rtr::Write, Rtr::AnyOf(kinds())],
            (_, 2) => [Rtr::Read, Rtr::AnyOf(kinds())],
            (_, 3) => [Rtr::Send, Rtr::AnyOf(kinds())],
            _ => [Rtr::None, Rtr::None],
        };
        let agreement = |role, rtr, markers_tx, markers_rx| Agreement {
            role,
            revision: Revision::Two,
            crc: bit(mode, 1),
            markers_tx,
            markers_rx,
            ird: 3,
            ord: 3,
            rtr,
            extensions,
            private_data: Vec::new(),
        };
        let (there, back) = (bit(mode, 2), bit(mode, 3));
        let settings = Settings {
            max_ulpdu: 128 + u16::from(size) * 8,
            rfc7306: true,
            rnr_retry: RnrRetry::Forever,
            drop_overlong: false,
            caps: caps(),
        };
        World {
            ends: [
                End::new(
                    &agreement(Role::Initiator, rtr[0], there, back),
                    settings,
                    false,
                ),
                End::new(
                    &agreement(Role::Responder, rtr[1], back, there),
                    settings,
                    rtr[0] == Rtr::Read,
                ),
            ],
            wires: [Wire::new(), Wire::new()],
            failed: false,
        }
    }

    fn step(&mut self, source: &mut Source<'_>) {
        let op = source.byte();
        let side = usize::from(bit(op, 7));
        let end = &mut self.ends[side];
        match op & 7 {
            0 => {
                let job = Job::read(source, end.submitted.len());
                end.submit(job);
            }
            1 => end.transmit(&mut self.wires[side]),
            2 => end.control(bit(op, 3), &mut self.wires[side]),
            3 => self.carry(1 - side, 1 + usize::from(source.byte())),
            4 => end.post(1 + usize::from(op >> 3 & 3)),
            5 => end.answer(&mut self.wires[side]),
            6 => end.drops = bit(op, 3),
            // Rarely: most programs run to their end.
            _ if op == 0x7f => {
                end.fail();
                self.failed = true;
            }
            _ => self.carry(1 - side, usize::MAX),
        }
    }

    /// Lets `n` bytes arrive at end `to`.
    fn carry(&mut self, to: usize, n: usize) {
        let wire = &mut self.wires[1 - to];
        let bytes: Vec<u8> = wire.drain(..n.min(wire.len())).collect();
        let [a, b] = &mut self.ends;
        let (receiver, sender) = if to == 0 { (a, b) } else { (b, a) };
        receiver.receive(&bytes, sender);
    }

    fn check(&self) {
        let [a, b] = &self.ends;
        a.check_against(b);
        b.check_against(a);
    }

    /// Both ends complete their outstanding work, until neither makes progress.
    fn settle(&mut self) {
        if !self.failed {
            // The initiator sends first (RFC 5044 §7.1.2): without a message of its own the responder could never send.
            let index = self.ends[0].submitted.len();
            self.ends[0].submit(Job::read(&mut Source::new(&[]), index));
        }
        for turn in 0.. {
            assert!(turn < MAX_TURNS, "the two ends exchange frames without end");
            let before = (self.progress(), self.wires.each_ref().map(Wire::len));
            for side in 0..2 {
                self.ends[side].post(1);
                self.ends[side].control(true, &mut self.wires[side]);
                for _ in 0..BURST {
                    self.ends[side].answer(&mut self.wires[side]);
                    self.ends[side].transmit(&mut self.wires[side]);
                }
                self.carry(1 - side, usize::MAX);
            }
            self.check();
            if before == (self.progress(), self.wires.each_ref().map(Wire::len)) {
                break;
            }
        }
        for side in 0..2 {
            self.ends[side].check_rest(&self.ends[1 - side], self.failed);
        }
    }

    fn progress(&self) -> [u64; 2] {
        self.ends.each_ref().map(|end| end.activity)
    }
}

fn kinds() -> verbena_wire::mpa::RtrKinds {
    verbena_wire::mpa::RtrKinds {
        send: true,
        write: true,
        read: true,
    }
}

fn caps() -> Caps {
    Caps {
        version: Caps::VERSION,
        max_ulpdu: 900,
        features: Features::READ_V2 | Features::SEND_IMM | Features::MEMORY_PLACEMENT,
        personality: Personality::Roce,
        qp_type: QpType::Rc,
        min_rnr_timer: RnrTimer::new(12).expect("in range"),
        ird: 3,
        nonce: 7,
        same_host: None,
        path: None,
    }
}
