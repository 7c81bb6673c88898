//! The carrier's low-water mark while long data comes.

use verbena_mem::{Sources, Targets};
use verbena_nic::{Carrier, IoOutcome};
use verbena_storage_wire::iscsi::BHS_LEN;

use super::*;
use crate::qp::low_water::{MAX_MARK, MIN_MARK};

const LONG: usize = 700_001;

/// A carrier that returns a limited number of bytes per read, and records the marks it is given.
struct MarkCarrier {
    input: Vec<u8>,
    marks: Vec<usize>,
    mark: usize,
}

impl Carrier for MarkCarrier {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        let mut io = MemoryCarrier::with_input(&self.input);
        let moved = io.read(targets);
        let left = io.input.len();
        self.input.drain(..self.input.len() - left);
        moved
    }

    fn write(&mut self, _: &Sources<'_>) -> IoOutcome {
        IoOutcome::WouldBlock
    }

    fn expect_at_least(&mut self, bytes: usize) {
        self.mark = bytes;
        self.marks.push(bytes);
    }
}

impl MarkCarrier {
    fn new() -> MarkCarrier {
        MarkCarrier {
            input: Vec::new(),
            marks: Vec::new(),
            mark: 1,
        }
    }

    /// Adds bytes and reads until there are no more.
    fn feed(&mut self, rig: &mut Rig, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.read_times(rig, usize::MAX);
        assert!(self.input.is_empty());
    }

    /// Reads at most `times` times.
    fn read_times(&mut self, rig: &mut Rig, mut times: usize) {
        while times > 0
            && let Receiving::Some(_) = rig.qp.receive(self, &mut rig.out)
        {
            times -= 1;
        }
    }
}

/// A queue pair with these parameters that accepts a long read in one PDU, with memory for it.
fn long(terms: Terms) -> (Rig, Buffer, [Sge; 1]) {
    let max_recv = 1 << 20;
    let rig = Rig::new(Setup {
        terms: Terms { max_recv, ..terms },
        ..Setup::default()
    });
    let memory = Buffer::new(&rig.tpt, LONG, PD, Access::ALL).unwrap();
    let data = [Sge {
        addr: memory.at(),
        len: LONG as u32,
        stag: memory.stag(),
    }];
    (rig, memory, data)
}

/// A socket that is readable only when as much is there as was expected must not delay the end of a PDU: a thread that is woken only then
/// gets all of it, with and without digests, and with any number of bytes per read.
#[test]
fn low_water_mark_never_exceeds_missing_bytes() {
    for digests in [(false, false), (true, false), (true, true)] {
        for step in [1000, 48, MIN_MARK, 100_000, MAX_MARK + 1, LONG + 200] {
            let (mut rig, memory, data) = long(Terms {
                header_digest: digests.0,
                data_digest: digests.1,
                ..Terms::DEFAULT
            });
            let mut carrier = MarkCarrier::new();
            let mut wire = Vec::new();
            rig.receive(4);
            for id in [1, 2] {
                let (_, itt) = rig.command(id, Direction::Read, &data);
                let bytes = pattern(id as usize, LONG);
                wire.extend(rig.target.data_in_status(itt, 0, &bytes));
            }
            rig.received();
            // Bytes read, and bytes that the target has sent.
            let (mut read, mut sent) = (0, 0);
            while read < wire.len() {
                sent = (sent + step).min(wire.len());
                if sent - read >= carrier.mark {
                    let bytes = wire[read..sent].to_vec();
                    read = sent;
                    carrier.feed(&mut rig, &bytes);
                } else {
                    assert!(sent < wire.len(), "it would sleep for ever");
                }
            }
            assert_eq!(rig.received().len(), 2);
            assert!(memory.read(0, LONG) == pattern(2, LONG));
            assert!(carrier.marks.iter().all(|mark| *mark <= MAX_MARK));
            assert_eq!(carrier.mark, 1, "a head is short");
            assert!(!carrier.marks.is_empty(), "{step} bytes at a time");
        }
    }
}

/// A turn ends after some reads, possibly with bytes left in the socket: a thread woken by the low-water mark must be woken for them. Data
/// of a cancelled command is read in small pieces, and short answers take a read each.
#[test]
fn unread_bytes_always_reach_the_low_water_mark() {
    const READS: usize = 16;
    for cancelled in [false, true] {
        let (mut rig, _memory, data) = long(Terms::DEFAULT);
        let (first_read, itt) = rig.command(1, Direction::Read, &data);
        let mut wire = rig.target.data_in_status(itt, 0, &pattern(1, LONG));
        for at in 0..24 {
            let data = [rig.sge(at * 64, 64)];
            let (_, itt) = rig.command(10 + at as u64, Direction::Read, &data);
            wire.extend(rig.target.data_in_status(itt, 0, &pattern(at, 64)));
        }
        let mut carrier = MarkCarrier::new();
        let (first, rest) = wire.split_at(LONG - 300_000);
        carrier.feed(&mut rig, first);
        assert_eq!(carrier.mark, MAX_MARK);
        if cancelled {
            rig.qp.cancel(first_read, &mut rig.out);
        }
        carrier.input.extend_from_slice(rest);
        let mut turns = 0;
        while !carrier.input.is_empty() {
            let there = carrier.input.len();
            assert!(there >= carrier.mark, "it would sleep on {there} bytes");
            carrier.read_times(&mut rig, READS);
            turns += 1;
        }
        assert!(turns > 1, "it never ended early");
        assert_eq!(carrier.mark, 1);
    }
}

/// Many short reads outstanding.
fn short(count: usize) -> (Rig, Vec<u32>) {
    let mut rig = Rig::new(Setup::default());
    rig.receive(2 * count);
    let itts = (0..count).map(|at| {
        let data = [rig.sge(at * 64, 64)];
        rig.command(at as u64, Direction::Read, &data).1
    });
    let itts = itts.collect();
    (rig, itts)
}

#[test]
fn gather_raises_the_mark_to_several_answers() {
    let (mut rig, itts) = short(16);
    let mut carrier = MarkCarrier::new();
    assert!(rig.qp.awaits_several());
    assert!(rig.qp.raise_low_water(&mut carrier, &mut rig.out));
    assert_eq!(carrier.mark, 4 * (BHS_LEN + 64));
    assert!(
        rig.qp.raise_low_water(&mut carrier, &mut rig.out),
        "it still does"
    );
    assert_eq!(carrier.marks.len(), 1, "it was told already");
    // A thread that sleeps without a timeout has to be woken by every byte.
    rig.qp.restore_low_water(&mut carrier, &mut rig.out);
    assert_eq!(carrier.mark, 1);
    rig.qp.restore_low_water(&mut carrier, &mut rig.out);
    assert_eq!(carrier.marks.len(), 2, "there is nothing to take back");
    // Bytes that come reset the mark as well.
    assert!(rig.qp.raise_low_water(&mut carrier, &mut rig.out));
    let answer = rig.target.data_in_status(itts[0], 0, &pattern(0, 64));
    carrier.feed(&mut rig, &answer);
    assert_eq!(carrier.mark, 1);
}

#[test]
fn gather_is_refused_for_few_answers() {
    let (mut rig, itts) = short(8);
    let mut carrier = MarkCarrier::new();
    assert!(rig.qp.raise_low_water(&mut carrier, &mut rig.out));
    let answer = rig.target.data_in_status(itts[0], 0, &pattern(0, 64));
    carrier.feed(&mut rig, &answer);
    assert!(!rig.qp.awaits_several());
    assert!(!rig.qp.raise_low_water(&mut carrier, &mut rig.out));
    assert_eq!(carrier.mark, 1);
}
