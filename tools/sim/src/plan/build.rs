//! Builds plans: regions with fixed roles, and one method per kind of work that finds a valid place for it.
//! Every access is inside its region and, unless asked otherwise, its rights. Nothing races: write regions are only written, read regions only
//! read, counters only used by atomics.

use core::time::Duration;

use verbena_wire::rdmap::{AtomicOp, Immediate};
use verbena_wire::{Stag, To};

use super::{Gate, Plan, Posting, Supply};
use crate::peer::{RegionSpec, Rights};
use crate::rng::Rng;
use crate::work::{TaggedAddr, Work};

/// The regions of each side, by role.
const WRITE_REGION: usize = 0;
const READ_REGION: usize = 1;
const COUNTERS: usize = 2;
const ECHO: usize = 3;
const SINK: usize = 4;
/// Small regions that Sends may invalidate.
const SPARE: usize = 5;
const SPARES: usize = 8;

const COUNTER_WORDS: usize = 4;

/// An STag that is never registered.
const UNREGISTERED: TaggedAddr = TaggedAddr {
    stag: Stag::new(0xdead_be00),
    to: To::new(0),
};

/// Builds a plan.
#[derive(Debug)]
pub struct Builder {
    rng: Rng,
    plan: Plan,
    /// Next unused byte of each side's echo and sink.
    echo: [usize; 2],
    sink: [usize; 2],
    /// Next spare region that each side may ask the other to invalidate.
    spare: [usize; 2],
    serial: u64,
    gate: Gate,
    gap: Duration,
}

impl Builder {
    /// A plan without work, with regions of about `size` bytes.
    pub fn new(mut rng: Rng, size: usize) -> Builder {
        let mut plan = Plan::default();
        for (k, side) in plan.sides.iter_mut().enumerate() {
            side.regions = regions(&mut rng, k, size);
            side.depth = usize::MAX;
        }
        Builder {
            rng,
            plan,
            echo: [0; 2],
            sink: [0; 2],
            spare: [0; 2],
            serial: 0,
            gate: Gate::Open,
            gap: Duration::ZERO,
        }
    }

    /// The random generator of the plan.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Sets the limit of unfinished work requests of a side.
    pub fn depth(&mut self, side: usize, depth: usize) {
        self.plan.sides[side].depth = depth.max(1);
    }

    /// Sets the condition and delay of the next posting.
    pub fn after(&mut self, gate: Gate, gap: Duration) {
        (self.gate, self.gap) = (gate, gap);
    }

    /// Posts all receives at once, before anything is sent.
    pub fn supply_all(self) -> Plan {
        self.supply(|_, _| (Gate::Open, Duration::ZERO))
    }

    /// Posts a receive for every message, when `when` says for each side and receive.
    pub fn supply(mut self, mut when: impl FnMut(&mut Rng, usize) -> (Gate, Duration)) -> Plan {
        for side in 0..2 {
            let sends = self.plan.sides[1 - side].works.iter();
            let lens: Vec<usize> = sends
                .filter(|p| p.work.wants_receive())
                .map(|p| match &p.work {
                    Work::Send { payload, .. } => payload.len(),
                    _ => 0,
                })
                .collect();
            for (k, len) in lens.into_iter().enumerate() {
                let spare = if self.rng.coin() {
                    0
                } else {
                    self.rng.len(0, 64)
                };
                let (gate, gap) = when(&mut self.rng, k);
                self.plan.sides[side].receives.push(Supply {
                    capacity: (len + spare) as u32,
                    gate,
                    gap,
                });
            }
        }
        self.plan
    }

    fn push(&mut self, side: usize, work: Work, bad: bool) -> usize {
        let gate = core::mem::replace(&mut self.gate, Gate::Open);
        let gap = core::mem::take(&mut self.gap);
        let works = &mut self.plan.sides[side].works;
        works.push(Posting {
            work,
            gate,
            gap,
            bad,
        });
        works.len()
    }

    /// A payload with a serial number, so that a wrong one is recognized.
    fn payload(&mut self, len: usize) -> Vec<u8> {
        self.serial += 1;
        let mut bytes = self.rng.bytes(len);
        for (to, from) in bytes.iter_mut().zip(self.serial.to_be_bytes()) {
            *to = from;
        }
        bytes
    }

    /// A random place in a region of the other side for `len` bytes; the length is reduced to fit.
    fn random_addr(&mut self, side: usize, region: usize, len: usize) -> (TaggedAddr, usize) {
        let spec = &self.plan.sides[side].regions[region];
        let (at, size) = (spec.at, spec.bytes.len());
        let len = len.min(size);
        let offset = self.rng.len(0, size - len);
        (shift(at, offset), len)
    }

    /// RDMA Write into the write region of the other side.
    pub fn write(&mut self, side: usize, len: usize) -> usize {
        let (at, len) = self.random_addr(1 - side, WRITE_REGION, len);
        let payload = self.payload(len);
        let immediate = None;
        let work = Work::Write {
            at,
            payload,
            immediate,
        };
        self.push(side, work, false)
    }

    /// RDMA Write with immediate data.
    pub fn write_imm(&mut self, side: usize, len: usize) -> usize {
        let (at, len) = self.random_addr(1 - side, WRITE_REGION, len);
        let payload = self.payload(len);
        let immediate = Some(self.immediate());
        let work = Work::Write {
            at,
            payload,
            immediate,
        };
        self.push(side, work, false)
    }

    fn immediate(&mut self) -> Immediate {
        self.serial += 1;
        Immediate {
            data: self.serial.to_be_bytes(),
        }
    }

    /// A Send, solicited or not at random.
    pub fn send(&mut self, side: usize, len: usize) -> usize {
        let solicited = self.rng.coin();
        self.send_as(side, len, solicited, false, false)
    }

    /// A Send of a given kind; it invalidates only if a spare region is left.
    pub fn send_as(
        &mut self,
        side: usize,
        len: usize,
        solicited: bool,
        invalidate: bool,
        immediate: bool,
    ) -> usize {
        let payload = self.payload(len);
        let spare = self.spare[side];
        let invalidate = (invalidate && spare < SPARES).then(|| {
            self.spare[side] += 1;
            self.plan.sides[1 - side].regions[SPARE + spare].at.stag
        });
        let immediate = immediate.then(|| self.immediate());
        let work = Work::Send {
            payload,
            solicited,
            invalidate,
            immediate,
        };
        self.push(side, work, false)
    }

    /// RDMA Read from the read region of the other side into the own sink; none when the sink is used up.
    pub fn read(&mut self, side: usize, len: usize, v2: bool) -> usize {
        let (source, len) = self.random_addr(1 - side, READ_REGION, len);
        self.read_from(side, source, len, v2)
    }

    fn read_from(&mut self, side: usize, source: TaggedAddr, len: usize, v2: bool) -> usize {
        let spec = &self.plan.sides[side].regions[SINK];
        let left = spec.bytes.len() - self.sink[side];
        let sink = shift(spec.at, self.sink[side]);
        let len = len.min(left);
        // The gap between two sinks is checked like a guard.
        self.sink[side] += (len + 5).min(left);
        let work = Work::Read {
            source,
            sink,
            len: len as u32,
            v2,
        };
        self.push(side, work, false)
    }

    /// RDMA Write, then a Read of the same bytes, which must return them (RFC 5040 §5.5).
    pub fn write_then_read(&mut self, side: usize, len: usize, v2: bool) -> usize {
        let spec = &self.plan.sides[1 - side].regions[ECHO];
        let left = spec.bytes.len() - self.echo[side];
        let at = shift(spec.at, self.echo[side]);
        let len = len.min(left);
        self.echo[side] += (len + 3).min(left);
        let payload = self.payload(len);
        let immediate = None;
        let work = Work::Write {
            at,
            payload,
            immediate,
        };
        self.push(side, work, false);
        self.read_from(side, at, len, v2)
    }

    /// An atomic on one of the other side's counters.
    pub fn atomic(&mut self, side: usize) -> usize {
        let counters = self.plan.sides[1 - side].regions[COUNTERS].at;
        let at = shift(counters, 8 * self.rng.len(0, COUNTER_WORDS - 1));
        let op = match self.rng.below(4) {
            0 => AtomicOp::CmpSwap {
                swap: self.rng.draw(),
                swap_mask: u64::MAX,
                compare: 0,
                compare_mask: self.rng.pick(&[0, 1, u64::MAX]),
            },
            1 => AtomicOp::FetchAdd {
                add: self.rng.draw(),
                mask: 0x8000_0000_8000_0000,
            },
            _ => AtomicOp::FetchAdd { add: 1, mask: 0 },
        };
        self.push(side, Work::Atomic { at, op }, false)
    }

    /// A zero-length Write by the initiator that lets the responder of a client/server stream send.
    pub fn first_write(&mut self) {
        let at = TaggedAddr {
            stag: Stag::new(0),
            to: To::new(0),
        };
        let work = Work::Write {
            at,
            payload: Vec::new(),
            immediate: None,
        };
        self.push(0, work, false);
    }

    /// RDMA Write to an STag that does not exist, which the other side must refuse.
    pub fn write_unregistered(&mut self, side: usize) -> usize {
        let payload = self.payload(200);
        let work = Work::Write {
            at: UNREGISTERED,
            payload,
            immediate: None,
        };
        self.push(side, work, true)
    }

    /// Work that the other side must refuse: a bad STag, a missing right, or a byte too many.
    pub fn refused(&mut self, side: usize, reads: bool) -> usize {
        let regions = &self.plan.sides[1 - side].regions;
        let (read_region, write_region) = (regions[READ_REGION].at, regions[WRITE_REGION].at);
        let end = shift(write_region, regions[WRITE_REGION].bytes.len());
        let payload = self.payload(600);
        let sink = self.plan.sides[side].regions[SINK].at;
        let source = self.rng.pick(&[UNREGISTERED, write_region]);
        let at = self.rng.pick(&[UNREGISTERED, read_region, end]);
        let work = if reads && self.rng.coin() {
            Work::Read {
                source,
                sink,
                len: 64,
                v2: false,
            }
        } else {
            Work::Write {
                at,
                payload,
                immediate: None,
            }
        };
        self.push(side, work, true)
    }
}

fn shift(at: TaggedAddr, offset: usize) -> TaggedAddr {
    let to = To::new(at.to.get() + offset as u64);
    TaggedAddr { to, ..at }
}

fn regions(rng: &mut Rng, side: usize, size: usize) -> Vec<RegionSpec> {
    let write = Rights {
        remote_write: true,
        ..Rights::default()
    };
    let read = Rights {
        remote_read: true,
        ..Rights::default()
    };
    let count = Rights {
        remote_atomic: true,
        ..Rights::default()
    };
    let echo = Rights {
        remote_read: true,
        ..write
    };
    let sink = Rights {
        local_write: true,
        ..Rights::default()
    };
    let roles = [
        (size, write),
        (size, read),
        (8 * COUNTER_WORDS, count),
        (size, echo),
        (2 * size, sink),
    ];
    let spares = core::iter::repeat_n((32, Rights::default()), SPARES);
    let all = roles.into_iter().chain(spares).enumerate();
    all.map(|(k, (len, rights))| {
        let index = (0x100 * (side as u32 + 1)) + k as u32;
        let key = rng.below(256) as u8;
        // Addresses at both ends of the space and in between, always a multiple of eight.
        let top = (u64::MAX - 2 * len as u64) & !7;
        let to = rng.pick(&[0, 0x1000, 0x7fff_dead_0000, top]);
        RegionSpec {
            at: TaggedAddr {
                stag: Stag::from_parts(index, key).unwrap_or_else(|| unreachable!("a small index")),
                to: To::new(to),
            },
            bytes: rng.bytes(len),
            rights,
        }
    })
    .collect()
}
