//! Many requests at once on one disk, of all lengths, in any order: reads return what was written, and nothing was copied.

use verbena_storage::session::Options;
use verbena_storage::{Blocks, BufferRef, Extent, Failure, Request, Unit};

use crate::target::{Carrier, Tgt};
use crate::tool::{TestRng, open, random_bytes, wait_some};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 512;
/// The longest request.
const LONGEST: u64 = 4 * MIB;
const DEPTH: usize = 64;

/// An outstanding request.
struct PendingRequest {
    start: usize,
    len: usize,
    write: bool,
}

/// Lengths from one block up, as many short as long ones.
fn length(dice: &mut TestRng) -> u64 {
    let top = BLOCK << dice.below(14);
    (top / 2 + dice.below(top) / 2)
        .next_multiple_of(BLOCK)
        .clamp(BLOCK, LONGEST)
}

/// Reads and writes random extents; outstanding ones do not overlap.
fn run_requests(unit: &mut Unit, model: &mut [u8], requests: usize, dice: &mut TestRng) {
    let slot = LONGEST as usize;
    let memory = unit.memory(DEPTH * slot).unwrap();
    let source = random_bytes(2 * slot, dice.next_u64());
    let mut shots: Vec<Option<PendingRequest>> = (0..DEPTH).map(|_| None).collect();
    let (mut left, mut done, mut deepest) = (requests, Vec::new(), 0);
    loop {
        for (at, slot_of) in (0..DEPTH).map(|at| (at, at * slot)) {
            if left == 0 || shots[at].is_some() {
                continue;
            }
            let len = length(dice);
            let start = dice.below((model.len() as u64 - len) / BLOCK + 1) * BLOCK;
            let extent = Extent {
                lba: start / BLOCK,
                blocks: (len / BLOCK) as u32,
            };
            let (start, len) = (start as usize, len as usize);
            let meets =
                |shot: &PendingRequest| start < shot.start + shot.len && shot.start < start + len;
            if shots.iter().flatten().any(meets) {
                continue;
            }
            let write = dice.below(2) == 0;
            let place = BufferRef::new(&memory, slot_of);
            let request = if write {
                let from = dice.below(slot as u64) as usize;
                model[start..start + len].copy_from_slice(&source[from..from + len]);
                memory.write_at(slot_of, &source[from..from + len]).unwrap();
                Request::Write {
                    at: extent,
                    from: place,
                    fua: dice.below(8) == 0,
                }
            } else {
                memory.write_at(slot_of, &source[..len]).unwrap();
                Request::Read {
                    at: extent,
                    into: place,
                }
            };
            unit.submit(at as u64, request).unwrap();
            shots[at] = Some(PendingRequest { start, len, write });
            left -= 1;
        }
        let under_way = shots.iter().flatten().count();
        deepest = deepest.max(under_way);
        if under_way == 0 && left == 0 {
            break;
        }
        wait_some(unit, &mut done);
        for one in done.drain(..) {
            let at = one.id as usize;
            let shot = shots[at].take().expect("it was under way");
            one.result.unwrap();
            if !shot.write {
                let mut found = vec![0; shot.len];
                memory.read_at(at * slot, &mut found).unwrap();
                let expected = &model[shot.start..shot.start + shot.len];
                assert!(
                    found == expected,
                    "{} bytes at {} differ",
                    shot.len,
                    shot.start
                );
            }
        }
    }
    assert!(deepest > DEPTH / 2, "only {deepest} at once");
}

#[test]
fn random_extents_at_depth_read_back_unchanged() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, 128 * MIB);
    let options = Options {
        depth: DEPTH,
        ..Options::default()
    };
    let mut unit = open(&tgt.url("", &target, 1), options);
    let mut model = vec![0; 128 << 20];
    run_requests(&mut unit, &mut model, 600, &mut TestRng(7));
    unit.close().unwrap();
    assert!(
        std::fs::read(file).unwrap() == model,
        "the disk's file differs"
    );
}

#[test]
fn payload_of_reads_is_placed_and_not_copied() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, 16 * MIB);
    let mut unit = open(&tgt.url("", &target, 1), Options::default());
    let memory = unit.memory(LONGEST as usize).unwrap();
    let before = unit.session().transferred();
    let (mut done, mut bytes) = (Vec::new(), 0);
    for lba in (0..16).map(|at| at * MIB / BLOCK) {
        let at = Extent {
            lba,
            blocks: (MIB / BLOCK) as u32,
        };
        let into = BufferRef::new(&memory, 0);
        unit.submit(1, Request::Read { at, into }).unwrap();
        wait_some(&mut unit, &mut done);
        assert_eq!(done.drain(..).next().unwrap().result, Ok(()));
        bytes += MIB;
    }
    let after = unit.session().transferred();
    assert_eq!(
        after.placed - before.placed + after.copied - before.copied,
        bytes
    );
    assert_eq!(after.copied, before.copied, "{before:?} {after:?}");
}

#[test]
fn refusal_of_unit_carries_sense_text() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    tgt.lun(&target, 2, MIB);
    tgt.read_only(&target, 2);
    let mut done = Vec::new();
    let mut ask = |lun, request: fn(BufferRef) -> Request| {
        let mut unit = open(&tgt.url("", &target, lun), Options::default());
        let memory = unit.memory(512).unwrap();
        unit.submit(3, request(BufferRef::new(&memory, 0))).unwrap();
        wait_some(&mut unit, &mut done);
        let result = done.pop().unwrap().result;
        unit.close().unwrap();
        result
    };
    // Without the checks of the library's sweeps: this is the target's own answer.
    let beyond = ask(1, |into| Request::Read {
        at: Extent {
            lba: 2048,
            blocks: 1,
        },
        into,
    });
    let Err(Failure::Refused(words)) = beyond else {
        panic!("{beyond:?}")
    };
    assert!(
        words.contains("illegal request: logical block address out of range"),
        "{words}"
    );
    let fixed = ask(2, |from| Request::Write {
        at: Extent { lba: 0, blocks: 1 },
        from,
        fua: false,
    });
    assert_eq!(fixed, Err(Failure::ReadOnly));
    let nothing = ask(1, |into| Request::Read {
        at: Extent { lba: 0, blocks: 0 },
        into,
    });
    assert_eq!(nothing, Ok(()), "no blocks are no mistake");
}
