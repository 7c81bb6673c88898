//! Targets that go away and units that are reset while requests are outstanding: nothing acknowledged is lost, and every request completes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbena_storage::session::Options;
use verbena_storage::{Blocks, BufferRef, Error, Extent, Failure, Request, Unit};

use crate::target::{Carrier, Tgt};
use crate::tool::{TestRng, iscsi, open, wait_some};

const MIB: u64 = 1 << 20;
/// Bytes of a numbered page.
const PAGE: usize = 4096;
const PAGES: usize = 1024;
const DEPTH: usize = 32;

/// The contents of a page with this number and edition, which repeat in it.
fn page(number: usize, edition: u64) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE);
    while page.len() < PAGE {
        page.extend_from_slice(&(number as u64).to_le_bytes());
        page.extend_from_slice(&edition.to_le_bytes());
    }
    page
}

/// Writes numbered pages at depth until it is told to end, whatever fails in between.
struct PageWriter {
    /// The last acknowledged edition of each page, and the last one sent.
    editions: Vec<(u64, u64)>,
    acknowledged: u64,
    failed: Vec<Failure>,
}

impl PageWriter {
    fn new() -> PageWriter {
        PageWriter {
            editions: vec![(0, 0); PAGES],
            acknowledged: 0,
            failed: Vec::new(),
        }
    }

    /// `between` is called after completions, and may act on the unit.
    fn write(&mut self, unit: &mut Unit, mut between: impl FnMut(&mut Unit, u64) -> bool) {
        let memory = unit.memory(DEPTH * PAGE).unwrap();
        let (mut under_way, mut done) = (vec![None; DEPTH], Vec::new());
        let (mut dice, mut over) = (TestRng(11), false);
        loop {
            for slot in 0..DEPTH {
                let number = dice.below(PAGES as u64) as usize;
                if over || under_way[slot].is_some() || under_way.contains(&Some(number)) {
                    continue;
                }
                let edition = self.editions[number].1 + 1;
                self.editions[number].1 = edition;
                memory
                    .write_at(slot * PAGE, &page(number, edition))
                    .unwrap();
                let at = Extent {
                    lba: (number * PAGE / 512) as u64,
                    blocks: (PAGE / 512) as u32,
                };
                let from = BufferRef::new(&memory, slot * PAGE);
                unit.submit(
                    slot as u64,
                    Request::Write {
                        at,
                        from,
                        fua: false,
                    },
                )
                .unwrap();
                under_way[slot] = Some(number);
            }
            if under_way.iter().all(Option::is_none) {
                return;
            }
            wait_some(unit, &mut done);
            for one in done.drain(..) {
                let number = under_way[one.id as usize].take().expect("under way");
                match one.result {
                    Ok(()) => {
                        self.editions[number].0 = self.editions[number].1;
                        self.acknowledged += 1;
                    }
                    Err(failure) => self.failed.push(failure),
                }
            }
            over |= between(unit, self.acknowledged);
        }
    }

    /// Checks that every acknowledged page is there, or a later edition that was not acknowledged.
    fn check(&self, disk: &[u8]) {
        for (number, (kept, sent)) in self.editions.iter().enumerate() {
            let found = &disk[number * PAGE..][..PAGE];
            let mut editions = *kept..=*sent;
            let there = |edition| match edition {
                0 => found.iter().all(|byte| *byte == 0),
                _ => found == page(number, edition),
            };
            assert!(
                editions.any(there),
                "page {number}: not of the editions {kept} to {sent}"
            );
        }
    }
}

#[test]
fn no_acknowledged_write_is_lost_with_its_target() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, PAGES as u64 * PAGE as u64);
    let url = tgt.url("", &target, 1);
    let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let scribe = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let options = Options {
                depth: DEPTH,
                login: Duration::from_secs(5),
                ..Options::default()
            };
            let mut unit = open(&url, options);
            let mut scribe = PageWriter::new();
            scribe.write(&mut unit, |_, acknowledged| {
                count.store(acknowledged, Ordering::Relaxed);
                over.load(Ordering::Relaxed)
            });
            // The session reads the same.
            let memory = unit.memory(PAGE).unwrap();
            let mut done = Vec::new();
            let at = Extent { lba: 0, blocks: 1 };
            unit.submit(
                1,
                Request::Read {
                    at,
                    into: BufferRef::new(&memory, 0),
                },
            )
            .unwrap();
            wait_some(&mut unit, &mut done);
            assert_eq!(done[0].result, Ok(()));
            unit.close().unwrap();
            scribe
        });
        // The target is started on this thread, since it ends with the thread that started it.
        for _ in 0..3 {
            let goal = count.load(Ordering::Relaxed) + 2000;
            let end = Instant::now() + Duration::from_secs(30);
            while count.load(Ordering::Relaxed) < goal && !writer.is_finished() {
                assert!(Instant::now() < end, "nothing is written: {}", tgt.log());
                std::thread::yield_now();
            }
            tgt.kill();
            tgt.restart();
        }
        let goal = count.load(Ordering::Relaxed) + 1000;
        let end = Instant::now() + Duration::from_secs(30);
        while count.load(Ordering::Relaxed) < goal && !writer.is_finished() && Instant::now() < end
        {
            std::thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert!(scribe.acknowledged >= 7000, "{}", scribe.acknowledged);
    assert_eq!(scribe.failed, [], "writes may be repeated, and were");
    scribe.check(&std::fs::read(file).unwrap());
}

#[test]
fn absent_target_fails_requests_in_bounded_time() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    let url = tgt.url("", &target, 1);
    let options = Options {
        depth: DEPTH,
        login: Duration::from_secs(5),
        reconnect: Duration::from_secs(2),
        ..Options::default()
    };
    let mut unit = open(&url, options);
    let memory = unit.memory(DEPTH * PAGE).unwrap();
    tgt.kill();
    let begun = Instant::now();
    let request = |slot: usize| Request::Write {
        at: Extent {
            lba: 8 * slot as u64,
            blocks: 8,
        },
        from: BufferRef::new(&memory, slot * PAGE),
        fua: false,
    };
    for slot in 0..DEPTH {
        unit.submit(slot as u64, request(slot)).unwrap();
    }
    let (mut ended, mut done) = (0, Vec::new());
    while ended < DEPTH {
        wait_some(&mut unit, &mut done);
        for one in done.drain(..) {
            assert!(matches!(one.result, Err(Failure::Lost(_))), "{one:?}");
            ended += 1;
        }
    }
    let took = begun.elapsed();
    assert!(
        took > Duration::from_secs(1),
        "it was tried again for a while: {took:?}"
    );
    let late = unit.submit(0, request(0));
    assert!(matches!(late, Err(Error::Lost(_))), "{late:?}");

    let sentence = iscsi(&["ping", &url]).expect_error();
    assert!(sentence.contains("cannot reach"), "{sentence}");
}

#[test]
fn a_reset_during_requests_loses_none_of_them() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, PAGES as u64 * PAGE as u64);
    let url = tgt.url("", &target, 1);
    let mut unit = open(
        &url,
        Options {
            depth: DEPTH,
            ..Options::default()
        },
    );
    let lun = unit.lun();
    let tsih = unit.session().settled().tsih;
    let (mut scribe, mut resets) = (PageWriter::new(), 0);
    scribe.write(&mut unit, |unit, acknowledged| {
        if acknowledged / 500 > resets {
            resets += 1;
            match resets % 2 {
                // Our own reset, and one of another initiator, which the unit reports by a unit attention.
                0 => unit.session().reset_unit(lun).unwrap(),
                _ => assert_eq!(
                    iscsi(&["reset", &url]).expect_success(),
                    "unit 1 was reset\n"
                ),
            }
        }
        resets >= 6
    });
    let now = unit.session().settled().tsih;
    assert_eq!(
        now, tsih,
        "the session is the same: it did not log in again"
    );
    unit.close().unwrap();
    assert_eq!(scribe.failed, []);
    scribe.check(&std::fs::read(file).unwrap());
}

/// Requests that are cancelled at any time complete once, as done or as cancelled, and the data of those done is there.
#[test]
fn cancelled_requests_leave_others_unaffected() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, PAGES as u64 * PAGE as u64);
    let mut unit = open(
        &tgt.url("", &target, 1),
        Options {
            depth: DEPTH,
            ..Options::default()
        },
    );
    let (mut scribe, mut dice, mut asked) = (PageWriter::new(), TestRng(5), 0);
    scribe.write(&mut unit, |unit, acknowledged| {
        asked += u64::from(unit.cancel(dice.below(DEPTH as u64)));
        // How many are under way when they are to be cancelled depends on the load of the machine.
        acknowledged >= 5000 && asked > 100
    });
    let other = |failure: &&Failure| **failure != Failure::Cancelled;
    assert_eq!(scribe.failed.iter().find(other), None);
    // Nothing is left of it: the session works, and has room for as many as before.
    let memory = unit.memory(PAGE).unwrap();
    for id in 0..DEPTH as u64 {
        let (at, into) = (Extent { lba: id, blocks: 1 }, BufferRef::new(&memory, 0));
        unit.submit(id, Request::Read { at, into }).unwrap();
    }
    let (mut ended, mut done) = (0, Vec::new());
    while ended < DEPTH {
        wait_some(&mut unit, &mut done);
        ended += done.len();
        assert!(done.drain(..).all(|one| one.result.is_ok()));
    }
    unit.close().unwrap();
    scribe.check(&std::fs::read(file).unwrap());
}

#[test]
fn ping_over_lost_connection_fails() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    let mut unit = open(&tgt.url("", &target, 1), Options::default());
    unit.session().ping().unwrap();
    // The session is restored automatically, possibly within the same ping.
    tgt.kill();
    tgt.restart();
    let lost = unit.session().ping();
    assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
    let end = Instant::now() + Duration::from_secs(20);
    let mut done = Vec::new();
    while unit.session().ping().is_err() {
        assert!(Instant::now() < end, "it does not come back");
        unit.poll(&mut done).unwrap();
        unit.wait(&[], Some(Duration::from_millis(20))).unwrap();
    }
    unit.close().unwrap();
}

/// Every other long read is cancelled as soon as it was sent: the target has not executed most of them.
#[test]
fn long_reads_are_cancelled_in_flight() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, DEPTH as u64 * MIB);
    let content: Vec<u8> = (0..DEPTH)
        .flat_map(|slot| vec![slot as u8 + 1; MIB as usize])
        .collect();
    std::fs::write(file, &content).unwrap();
    let options = Options {
        depth: DEPTH,
        ..Options::default()
    };
    let mut unit = open(&tgt.url("", &target, 1), options);
    let tsih = unit.session().settled().tsih;
    let memory = unit.memory(DEPTH * MIB as usize).unwrap();
    let (mut done, mut cancelled) = (Vec::new(), 0);
    for round in 0..10 {
        for slot in 0..DEPTH {
            let at = Extent {
                lba: slot as u64 * MIB / 512,
                blocks: (MIB / 512) as u32,
            };
            let offset = slot * MIB as usize;
            memory.write_at(offset, &vec![0; MIB as usize]).unwrap();
            let into = BufferRef::new(&memory, offset);
            let request = Request::Read { at, into };
            unit.submit(slot as u64, request).unwrap();
        }
        for slot in (round % 2..DEPTH).step_by(2) {
            assert!(unit.cancel(slot as u64));
        }
        let mut under_way = [true; DEPTH];
        while under_way.contains(&true) {
            wait_some(&mut unit, &mut done);
            for one in done.drain(..) {
                let slot = one.id as usize;
                assert!(core::mem::replace(&mut under_way[slot], false), "once");
                let mut bytes = vec![0; MIB as usize];
                memory.read_at(slot * MIB as usize, &mut bytes).unwrap();
                match one.result {
                    Ok(()) => assert!(bytes.iter().all(|byte| *byte == slot as u8 + 1)),
                    Err(Failure::Cancelled) => {
                        assert_eq!(slot % 2, round % 2, "its owner wanted it");
                        cancelled += 1;
                    }
                    Err(failure) => panic!("{failure}"),
                }
            }
        }
    }
    assert!(cancelled > 0, "the target was faster every time");
    let now = unit.session().settled().tsih;
    assert_eq!(now, tsih, "others went on: it did not log in again");
    unit.close().unwrap();
}
