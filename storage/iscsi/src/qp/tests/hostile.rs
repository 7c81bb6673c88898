//! Random input from target and consumer: no panic, no byte written outside a command's buffers, nothing that grows without bound, and
//! everything that was posted completes once when the connection ends.

use std::collections::HashMap;

use proptest::prelude::*;
use verbena_storage_wire::iscsi::{DataIn, FromInitiator, Lengths, Residual, ScsiResponse, pad};

use super::*;

/// One step: an operation and three parameters.
type Step = (u8, u32, u32, u16);

/// Buffers of commands: each in the middle of a zone of its own.
const ZONE: usize = 4096;
const INSIDE: usize = 1024;
const ROOM: u32 = 2048;
/// The last bytes of each receive's slot, which belong to no receive.
const GUARD: usize = 24;

struct Hostile {
    rig: Rig,
    terms: Terms,
    /// Tags that the target has seen.
    tags: Vec<u32>,
    /// The zone of a command, by its tag.
    zones: HashMap<u32, usize>,
    posted: HashMap<u64, usize>,
    next: u64,
    receives: u64,
    /// Zones that commands read into.
    open: Vec<usize>,
    /// Ids of commands, ended or not.
    names: Vec<CommandId>,
}

impl Hostile {
    fn new(switches: u32, split: Split) -> Hostile {
        let bit = |n: u32| switches >> n & 1 != 0;
        let terms = Terms {
            header_digest: bit(0),
            data_digest: bit(1),
            immediate_data: bit(2),
            initial_r2t: bit(3),
            max_send: if bit(4) { 300 } else { 8192 },
            first_burst: if bit(5) { 700 } else { 65_536 },
            max_burst: if bit(6) { 1000 } else { 262_144 },
            max_r2t: 1 + (switches >> 8 & 3) as u16,
            max_recv: 8192,
        };
        let on_failure = if bit(7) {
            OnFailure::Anticipatory
        } else {
            OnFailure::Reactive
        };
        let rig = Rig::new(Setup {
            terms,
            on_failure,
            split,
            ..Setup::default()
        });
        rig.memory.write(0, &pattern(0, SIZE));
        Hostile {
            rig,
            terms,
            tags: vec![0, u32::MAX, 0x100],
            zones: HashMap::new(),
            posted: HashMap::new(),
            next: 0,
            receives: 1,
            open: Vec::new(),
            names: vec![CommandId(u32::MAX)],
        }
    }

    fn step(&mut self, (what, a, b, c): Step) {
        match what % 16 {
            0..3 => self.post(a, b),
            3..5 => {
                for _ in 0..1 + a % 4 {
                    self.receive(c);
                }
            }
            5 => self.nop(a % 2 == 0, c),
            6 => {
                let _ = self.rig.qp.restart_sends();
                let name = self.names[a as usize % self.names.len()];
                let there = self.rig.qp.command_state(name).is_some();
                let taken = self.rig.qp.cancel(name, &mut self.rig.out);
                assert_eq!(taken, there);
                assert!(!self.rig.qp.cancel(name, &mut self.rig.out));
            }
            7 => self.feed(&pattern(a as usize, usize::from(c % 600))),
            8 => {
                self.rig.send_some(a as usize % 3000);
            }
            _ => {
                let mut pdu = self.pdu(what, a, b, c);
                if a >> 24 == 0 {
                    let at = b as usize % pdu.len();
                    pdu[at] ^= 1 << (a % 8);
                }
                self.feed(&pdu);
            }
        }
        self.transmit();
        self.check();
    }

    fn post(&mut self, a: u32, b: u32) {
        let zone = a as usize % (SIZE / ZONE);
        let direction = match a >> 16 & 3 {
            0 => Direction::None,
            1 => Direction::Write,
            _ => Direction::Read,
        };
        // A zone that was read into is not used for writes: its content depends on the target.
        let taken = self.open.contains(&zone);
        if direction == Direction::Write && taken {
            return;
        }
        let len = match direction {
            Direction::None => 0,
            _ => b % (ROOM + 1),
        };
        let first = len / 3;
        let at = zone * ZONE + INSIDE;
        let data = [
            self.rig.sge(at, first),
            self.rig.sge(at + first as usize, len - first),
        ];
        let wr = Rig::wr(self.next, direction, &data);
        if let Ok(name) = self.rig.qp.post_command(&wr, &mut self.rig.out) {
            self.names.push(name);
            if direction == Direction::Read {
                self.open.push(zone);
            }
            self.posted.insert(self.next, zone);
        }
        self.next += 1;
    }

    fn receive(&mut self, c: u16) {
        let len = [1000, 1000, 1000, 48, 5][usize::from(c % 5)];
        if self.rig.qp.view().receives < 100 {
            self.rig.receive_of(len);
            self.receives += 1;
        }
    }

    fn nop(&mut self, immediate: bool, c: u16) {
        let mut bhs = [0; 48];
        bhs[0] = if immediate { 0x40 } else { 0 };
        bhs[1] = 0x80;
        bhs[16..24].copy_from_slice(&[0xff; 8]);
        let data = pattern(0, usize::from(c % 300));
        let wr = PduWr {
            id: self.next,
            flags: Flags::SIGNALED,
            bhs,
            data: &data,
        };
        if self.rig.qp.post_pdu(&wr, &mut self.rig.out).is_ok() {
            self.posted.insert(self.next, usize::MAX);
        }
        self.next += 1;
    }

    /// A PDU of the target, for a known command or not.
    fn pdu(&mut self, what: u8, a: u32, b: u32, c: u16) -> Vec<u8> {
        let newest = self.tags.len() - 1;
        let at = if a & 1 == 0 { newest } else { a as usize >> 8 };
        let itt = self.tags[at % self.tags.len()] ^ u32::from(a >> 16 & 31 == 31);
        let (offset, len) = match b % 4 {
            0 => (b >> 8, u32::from(c)),
            _ => (b >> 8 & 0x3ff, u32::from(c) % 800),
        };
        let target = &mut self.rig.target;
        // Sometimes a wrong StatSN.
        let skip = u32::from(b >> 28 == 7);
        match what % 16 {
            9..12 => {
                let status = (what % 16 == 11).then_some(0);
                let stat_sn = match status {
                    Some(_) => target.status() + skip,
                    None => 0,
                };
                let data = pattern(a as usize, len as usize);
                let header = DataIn {
                    is_final: status.is_some(),
                    status,
                    stat_sn,
                    residual: Residual::None,
                    ..target.data_in_header(itt, offset, data.len())
                };
                target.pdu(&header.emit(), &data)
            }
            12..14 => target.r2t(itt, b, offset, len),
            14 => {
                let data = pattern(3, usize::from(c % 100));
                let header = ScsiResponse {
                    data_len: data.len() as u32,
                    stat_sn: target.status() + skip,
                    itt,
                    ..target.response_header(itt)
                };
                // Building its header consumed a StatSN as well.
                target.stat_sn = target.stat_sn.wrapping_sub(1);
                target.pdu(&header.emit(), &data)
            }
            _ => target.nop(),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.rig.inbox.extend_from_slice(bytes);
        self.rig.read();
        if self.rig.inbox.len() > 1 << 20 {
            self.rig.inbox.clear();
        }
    }

    /// Transmits, and parses what was sent.
    fn transmit(&mut self) {
        self.rig.transmit();
        for sent in self.rig.take_pdus() {
            match sent.pdu {
                FromInitiator::ScsiCommand(pdu) => {
                    self.tags.push(pdu.itt);
                    if pdu.write {
                        let at = find(&self.rig, pdu.itt);
                        if let Some(at) = at {
                            self.zones.insert(pdu.itt, at);
                            self.assert_own(pdu.itt, 0, &sent.data);
                        }
                    }
                }
                FromInitiator::DataOut(pdu) => self.assert_own(pdu.itt, pdu.offset, &sent.data),
                _ => {}
            }
        }
    }

    /// Data sent for a write is its own.
    fn assert_own(&self, itt: u32, offset: u32, data: &[u8]) {
        if let Some(at) = self.zones.get(&itt) {
            let at = at + offset as usize;
            assert!(offset as usize + data.len() <= ROOM as usize);
            assert!(data == &pattern(0, SIZE)[at..at + data.len()]);
        }
    }

    fn check(&self) {
        let bytes = self.rig.bytes();
        let before = pattern(0, SIZE);
        for zone in 0..SIZE / ZONE {
            let (start, inner) = (zone * ZONE, zone * ZONE + INSIDE);
            let end = inner + ROOM as usize;
            assert!(
                bytes[start..inner] == before[start..inner],
                "before a buffer"
            );
            assert!(
                bytes[end..start + ZONE] == before[end..start + ZONE],
                "behind it"
            );
            if !self.open.contains(&zone) {
                assert!(
                    bytes[inner..end] == before[inner..end],
                    "no read command has it"
                );
            }
        }
        for slot in 0..SLOTS {
            let guard = self.rig.receives.read((slot + 1) * SLOT - GUARD, GUARD);
            assert_eq!(guard, [0; GUARD]);
        }
        self.rig.qp.lock.read(|inner| {
            let most = 128 * usize::from(self.terms.max_r2t) + 1;
            assert!(inner.bursts.len() <= most);
            assert!(inner.frames.len() <= 20);
        });
    }

    /// The connection ends: everything that was posted has completed once.
    fn end(mut self) {
        self.rig.qp.handle_closed("the end", &mut self.rig.out);
        let mut sends: Vec<u64> = self.rig.sent().iter().map(|(id, _)| *id).collect();
        sends.sort_unstable();
        let mut posted: Vec<u64> = self.posted.keys().copied().collect();
        posted.sort_unstable();
        assert_eq!(sends, posted);
        let ups: Vec<u64> = self.rig.received().iter().map(|up| up.id).collect();
        let all: Vec<u64> = (1..self.receives).collect();
        assert_eq!(ups, all, "in posting order");
        let view = self.rig.qp.view();
        assert_eq!((view.sends, view.commands, view.receives), (0, 0, 0));
        assert_eq!(self.rig.tpt.len(), 2);
    }
}

/// Where the data of a command begins in the memory.
fn find(rig: &Rig, itt: u32) -> Option<usize> {
    let stag = Some(verbena_wire::Stag::new(itt));
    rig.qp.lock.read(|inner| {
        let mut slots = (0..200).filter_map(|slot| inner.commands.get(slot));
        let command = slots.find(|command| command.stag == stag)?;
        Some((command.data[0].addr - rig.memory.at()) as usize)
    })
}

fn splits() -> impl Strategy<Value = Split> {
    prop_oneof![Just(Split::Whole), any::<u32>().prop_map(Split::Cut),]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_steps_break_no_invariant(
        switches: u32,
        way in splits(),
        steps in proptest::collection::vec(any::<Step>(), 0..80),
    ) {
        let mut hostile = Hostile::new(switches, way);
        for step in steps {
            hostile.step(step);
        }
        hostile.end();
    }

    /// A valid exchange with some bytes changed.
    #[test]
    fn flipped_bits_break_no_invariant(
        switches in 0u32..4,
        way in splits(),
        flips in proptest::collection::vec((any::<u16>(), 0u8..8), 0..6),
    ) {
        let mut hostile = Hostile::new(switches | 0xff00, way);
        for step in 0..6u32 {
            hostile.receive(0);
            hostile.receive(0);
            hostile.post(step | (step % 3) << 16, 2000);
        }
        hostile.transmit();
        let tags: Vec<u32> = hostile.tags[3..].to_vec();
        let mut wire = Vec::new();
        for (at, tag) in tags.iter().enumerate() {
            let bytes = pattern(at, 700);
            let target = &mut hostile.rig.target;
            match at % 3 {
                0 => {}
                1 => wire.extend(target.r2t(*tag, 9, 100, 700)),
                _ => wire.extend(target.data_in(*tag, 33, &bytes)),
            }
            wire.extend(target.response(*tag));
        }
        for (at, bit) in flips {
            let at = usize::from(at) % wire.len();
            wire[at] ^= 1 << bit;
        }
        hostile.feed(&wire);
        hostile.transmit();
        hostile.check();
        hostile.end();
    }
}

/// Repeated R2Ts do not accumulate while the carrier accepts nothing, and the longest header fits the stage.
#[test]
fn repeated_r2ts_do_not_accumulate() {
    let mut rig = Rig::new(Setup {
        terms: Terms {
            immediate_data: false,
            max_send: 512,
            ..Terms::DEFAULT
        },
        ..Setup::default()
    });
    let data = [rig.sge(0, 60_000)];
    let (_, itt) = rig.command(1, Direction::Write, &data);
    rig.take_pdus();
    for ttt in 0..5000 {
        if rig.qp.view().receives < 2 {
            rig.receive(50);
            rig.received();
        }
        let r2t = rig.target.r2t(itt, ttt, 0, 60_000);
        rig.feed(&r2t);
        // The carrier accepts nothing.
        rig.send_some(0);
    }
    rig.qp.lock.read(|inner| {
        assert!(inner.bursts.len() <= 1);
        assert!(inner.frames.len() <= 20);
    });
    let lengths = Lengths { ahs: 1020, data: 0 };
    assert!(
        lengths.total(true, true) + pad(3) as usize <= 8192,
        "a head fits"
    );
}
