//! The target over iSER (RFC 7145, M22): tgtd on our libraries in place of an adapter's; with libiscsi on them, too, and with our own
//! initiator. tgtd does not invalidate STags: the initiator closes the memory of each command itself.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use verbena::Device;
use verbena_storage::iscsi::Terms;
use verbena_storage::session::{Options, discover};
use verbena_storage::{Address, Blocks, BufferRef, Done, Extent, Failure, Request, Unit};

use crate::target::{Carrier, INITIATOR, Target, Tgt};
use crate::tool::{Folder, bytes, iscsi};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 512;
/// Time limit of one request on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs each test with tgtd in both personalities of the adapter.
macro_rules! both {
    ($($name:ident)*) => {
        mod roce {
            $(#[test]
            fn $name() {
                super::on(super::Carrier::Iser, super::$name);
            })*
        }
        mod iwarp {
            $(#[test]
            fn $name() {
                super::on(super::Carrier::Iwarp, super::$name);
            })*
        }
    };
}

both! {
    targets_and_units_are_found
    written_data_is_in_backing_file
    our_initiator_finds_targets_and_units
    concurrent_requests_match_the_model
    one_touch_requests_match_the_model
    immediate_data_matches_the_model
    cancelled_requests_end_once
    commands_of_the_page_work
    refused_requests_leave_session_usable
    data_written_over_tcp_reads_over_rdma
    killed_target_fails_requests_in_time
    session_resumes_after_target_restart
}

fn on(carrier: fn(PathBuf) -> Carrier, test: fn(Tgt)) {
    let verbena = PathBuf::from(env!("CARGO_BIN_EXE_verbena"));
    if let Some(tgt) = Tgt::start(carrier(verbena)) {
        test(tgt);
    }
}

fn targets_and_units_are_found(mut tgt: Tgt) {
    let target = tgt.target();
    tgt.lun(&target, 1, 8 * MIB);
    let (well, said) = tgt.client(&["iscsi-inq", "-i", INITIATOR, &tgt.url("", &target, 1)]);
    assert!(
        well && said.contains("DIRECT_ACCESS"),
        "{said}{}",
        tgt.log()
    );
    let (well, said) = tgt.client(&[
        "iscsi-readcapacity16",
        "-i",
        INITIATOR,
        &tgt.url("", &target, 1),
    ]);
    assert!(well && said.contains("Total size:8388608"), "{said}");
}

fn written_data_is_in_backing_file(mut tgt: Tgt) {
    let target = tgt.target();
    let file = tgt.lun(&target, 1, 64 * MIB);
    let url = tgt.url("", &target, 1);
    for test in ["ALL.Write10.Simple", "ALL.Read10.Simple"] {
        let (_, said) = tgt.client(&[
            "iscsi-test-cu",
            "-i",
            INITIATOR,
            "-d",
            "-f",
            "-t",
            test,
            &url,
        ]);
        assert!(said.contains("Simple ...passed"), "{said}{}", tgt.log());
    }
    assert_ne!(std::fs::read(&file).unwrap(), vec![0; 64 << 20]);
}

/// Options of our initiator, with its own name.
fn options() -> Options {
    Options {
        initiator: INITIATOR.to_owned(),
        ..Options::default()
    }
}

fn open(tgt: &Tgt, target: &Target, options: Options) -> Unit {
    let address: Address = tgt.url("", target, 1).parse().unwrap();
    let device = Device::open().unwrap();
    Unit::open(&device, &address, options).unwrap_or_else(|why| panic!("{why}\n{}", tgt.log()))
}

/// Waits until this number of requests has completed.
fn finish(unit: &mut Unit, wanted: usize) -> Vec<Done> {
    let (mut done, end) = (Vec::new(), Instant::now() + TIMEOUT);
    while done.len() < wanted {
        assert!(Instant::now() < end, "{} of {wanted} are done", done.len());
        unit.wait(&[], Some(Duration::from_millis(100))).unwrap();
        unit.poll(&mut done).unwrap();
    }
    done
}

/// Executes one request; returns its result.
fn run(unit: &mut Unit, request: Request) -> Result<(), Failure> {
    unit.submit(0, request).unwrap();
    finish(unit, 1).remove(0).result
}

fn extent(lba: u64, len: usize) -> Extent {
    Extent {
        lba,
        blocks: (len / BLOCK) as u32,
    }
}

/// Pseudo-random bytes.
fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut dice = TestRng(seed);
    let words = (0..len.div_ceil(8)).flat_map(|_| dice.next_u64().to_le_bytes());
    words.take(len).collect()
}

/// Reproducible pseudo-random numbers.
struct TestRng(u64);

impl TestRng {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next_u64() % limit as u64) as usize
    }
}

fn our_initiator_finds_targets_and_units(mut tgt: Tgt) {
    let target = tgt.target();
    tgt.lun(&target, 1, 8 * MIB);
    let portal: Address = format!("iser://{}", tgt.portal()).parse().unwrap();
    let device = Device::open().unwrap();
    let found = discover(&device, &portal, &options()).unwrap();
    let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, [target.name.as_str()], "{}", tgt.log());
    let mut unit = open(&tgt, &target, options());
    assert_eq!(unit.identity().vendor, "IET");
    let geometry = unit.geometry();
    assert_eq!((geometry.bytes(), geometry.block_size), (8 * MIB, 512));
    assert_eq!(geometry.maximal, 512 << 10, "tgtd's buffers");
    assert!(unit.session().settled().iser.is_some());
    unit.session().ping().unwrap();
    unit.close().unwrap();
}

/// tgtd frees a connection at the TIMEWAIT_EXIT event, which iWARP connection managers do not raise.
#[test]
fn target_frees_ended_iser_session() {
    on(Carrier::Iser, |mut tgt| {
        let target = tgt.target();
        tgt.lun(&target, 1, MIB);
        let unit = open(&tgt, &target, options());
        assert_eq!(tgt.sessions(), 1, "{}", tgt.shown());
        unit.close().unwrap();
        verbena_testing::wait_until("the session is freed", || tgt.sessions() == 0);
    });
}

/// By default tgtd reads all data by RDMA.
fn concurrent_requests_match_the_model(mut tgt: Tgt) {
    let target = tgt.target();
    let terms = match_the_model(&mut tgt, &target, options(), 1500);
    assert_eq!(terms.unsolicited(512), (0, 0), "{terms:?}");
}

/// Small writes go with their commands, and of long ones the first 16 KiB.
fn immediate_data_matches_the_model(mut tgt: Tgt) {
    let target = tgt.target();
    tgt.set(&target, "ImmediateData", "Yes");
    tgt.set(&target, "FirstBurstLength", "16384");
    let terms = match_the_model(&mut tgt, &target, options(), 300);
    assert_eq!(terms.unsolicited(1 << 20), (16384, 16384), "{terms:?}");
}

/// M9: tgtd moves the data of a command by one RDMA Write or Read.
fn one_touch_requests_match_the_model(mut tgt: Tgt) {
    let target = tgt.target();
    let options = Options {
        iser_one_touch: true,
        ..options()
    };
    match_the_model(&mut tgt, &target, options, 300);
}

/// Requests of one block to 512 KiB at depth 64. Returns the parameters of the login.
fn match_the_model(tgt: &mut Tgt, target: &Target, options: Options, requests: usize) -> Terms {
    let size = 32 << 20;
    let file = tgt.lun(target, 1, size as u64);
    let mut unit = open(tgt, target, options);
    let terms = unit.session().settled().terms;
    let (depth, longest) = (unit.depth(), 512 << 10);
    assert_eq!(depth, 64);
    let before = unit.session().transferred();
    let memory = unit.memory(depth * longest).unwrap();
    let (mut model, source) = (vec![0; size], random_bytes(2 * longest, 7));
    let mut dice = TestRng(11);
    let mut shots: Vec<Option<(usize, usize, bool)>> = vec![None; depth];
    let (mut left, mut read, mut written, mut deepest) = (requests, 0, 0, 0);
    let mut done = Vec::new();
    loop {
        for at in 0..depth {
            if left == 0 || shots[at].is_some() {
                continue;
            }
            let top = BLOCK << dice.below(11);
            let len = (top / 2 + dice.below(top)).next_multiple_of(BLOCK);
            let len = len.min(longest);
            let lba = dice.below((size - len) / BLOCK + 1);
            let begin = lba * BLOCK;
            let meets =
                |(other, n, _): &(usize, usize, bool)| begin < other + n && *other < begin + len;
            if shots.iter().flatten().any(meets) {
                continue;
            }
            let (slot, write) = (at * longest, dice.below(2) == 0);
            let (place, extent) = (BufferRef::new(&memory, slot), extent(lba as u64, len));
            let request = if write {
                let from = dice.below(longest);
                let bytes = &source[from..from + len];
                model[begin..begin + len].copy_from_slice(bytes);
                memory.write_at(slot, bytes).unwrap();
                written += len;
                Request::Write {
                    at: extent,
                    from: place,
                    fua: dice.below(8) == 0,
                }
            } else {
                memory.write_at(slot, &source[..len]).unwrap();
                read += len;
                Request::Read {
                    at: extent,
                    into: place,
                }
            };
            unit.submit(at as u64, request).unwrap();
            shots[at] = Some((begin, len, write));
            left -= 1;
        }
        let under_way = shots.iter().flatten().count();
        deepest = deepest.max(under_way);
        if under_way == 0 && left == 0 {
            break;
        }
        done.append(&mut finish(&mut unit, 1));
        for one in done.drain(..) {
            assert_eq!(one.result, Ok(()), "{}", tgt.log());
            let (begin, len, write) = shots[one.id as usize].take().unwrap();
            if !write {
                let mut got = vec![0; len];
                memory.read_at(one.id as usize * longest, &mut got).unwrap();
                assert!(got == model[begin..begin + len], "{len} bytes at {begin}");
            }
        }
    }
    assert!(deepest > 32, "{deepest} at once");
    let moved = unit.session().transferred();
    let by = |now: u64, before: u64| (now - before) as usize;
    assert_eq!(by(moved.placed, before.placed), read);
    assert_eq!(by(moved.gathered, before.gathered), written);
    assert_eq!(moved.copied, 0);
    unit.close().unwrap();
    assert!(std::fs::read(&file).unwrap() == model);
    terms
}

/// Each ends with the target's result or as cancelled. tgtd answers "task does not exist" for commands that it has not begun to execute; then
/// the connection is replaced.
fn cancelled_requests_end_once(mut tgt: Tgt) {
    let target = tgt.target();
    tgt.lun(&target, 1, 8 * MIB);
    let mut unit = open(&tgt, &target, options());
    let (depth, len) = (32, 64 << 10);
    let memory = unit.memory(depth * len).unwrap();
    for round in 0..8 {
        for id in 0..depth {
            let place = BufferRef::new(&memory, id * len);
            let at = extent((id * len / BLOCK) as u64, len);
            let request = match id % 2 {
                0 => Request::Read { at, into: place },
                _ => Request::Write {
                    at,
                    from: place,
                    fua: false,
                },
            };
            unit.submit(id as u64, request).unwrap();
        }
        for id in (round % 3..depth).step_by(3) {
            unit.cancel(id as u64);
        }
        let mut ids = Vec::new();
        for one in finish(&mut unit, depth) {
            let cancelled = one.result == Err(Failure::Cancelled) && one.id % 3 == round as u64 % 3;
            assert!(one.result == Ok(()) || cancelled, "{one:?}");
            ids.push(one.id);
        }
        ids.sort_unstable();
        assert!(ids.iter().copied().eq(0..depth as u64), "{ids:?}");
    }
    unit.close().unwrap();
}

/// The commands of docs/storage.md, "Over RDMA".
fn commands_of_the_page_work(mut tgt: Tgt) {
    let target = tgt.target();
    let file = tgt.lun(&target, 1, 8 * MIB);
    let folder = Folder::new("iser-page");
    let data = random_bytes(5_000_001, 21);
    let (from, to) = (folder.with("in", &data), folder.file("out"));
    let url = &tgt.url("", &target, 1);
    let run = |words: &[&str]| {
        let name = ["--initiator", INITIATOR];
        iscsi(&[words, &name[..]].concat()).expect_success()
    };
    run(&[
        "write", url, "--offset", "777", "--input", &from, "--verify",
    ]);
    assert!(std::fs::read(&file).unwrap()[777..777 + data.len()] == data);
    // tgtd insists on its requests for data, so that nothing is sent before them.
    let again = folder.with("again", &random_bytes(5_000_001, 22));
    run(&[
        "write",
        url,
        "--offset",
        "777",
        "--input",
        &again,
        "--unsolicited",
        "--verify",
    ]);
    assert!(std::fs::read(&file).unwrap()[777..777 + data.len()] == bytes(&again)[..]);
    run(&["write", url, "--offset", "777", "--input", &from]);
    let range = ["--offset", "777", "--length", "5000001", "--one-touch"];
    run(&[&["read", url, "--output", &to][..], &range].concat());
    assert!(bytes(&to) == data);
    let load = ["--rw", "randwrite", "--destructive", "--seconds", "1"];
    let said = run(&[&["bench", url][..], &load].concat());
    assert!(said.contains("requests/s"), "{said}");
}

fn refused_requests_leave_session_usable(mut tgt: Tgt) {
    let target = tgt.target();
    let file = tgt.lun(&target, 1, MIB);
    tgt.read_only(&target, 1);
    let mut unit = open(&tgt, &target, options());
    assert!(unit.geometry().read_only);
    let memory = unit.memory(BLOCK).unwrap();
    let place = || BufferRef::new(&memory, 0);
    memory.write_at(0, &[1; BLOCK]).unwrap();
    let write = Request::Write {
        at: extent(0, BLOCK),
        from: place(),
        fua: false,
    };
    assert_eq!(run(&mut unit, write), Err(Failure::ReadOnly));
    let beyond = Request::Read {
        at: extent(MIB / BLOCK as u64, BLOCK),
        into: place(),
    };
    let refused = run(&mut unit, beyond);
    assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
    let last = Request::Read {
        at: extent(MIB / BLOCK as u64 - 1, BLOCK),
        into: place(),
    };
    assert_eq!(run(&mut unit, last), Ok(()));
    assert_eq!(std::fs::read(&file).unwrap(), vec![0; 1 << 20]);
}

fn data_written_over_tcp_reads_over_rdma(mut tgt: Tgt) {
    let target = tgt.target();
    let file = tgt.lun(&target, 1, 4 * MIB);
    let (portal, other) = tgt.also_over_tcp(&file);
    let address = format!("iscsi://{portal}/{}/1", other.name);
    let device = Device::open().unwrap();
    let mut tcp = Unit::open(&device, &address.parse().unwrap(), options()).unwrap();
    let mut rdma = open(&tgt, &target, options());
    let (bytes, len) = (random_bytes(512 << 10, 3), 512 << 10);
    let [there, here] = [&mut tcp, &mut rdma].map(|unit| unit.memory(len).unwrap());
    there.write_at(0, &bytes).unwrap();
    let write = Request::Write {
        at: extent(100, len),
        from: BufferRef::new(&there, 0),
        fua: false,
    };
    assert_eq!(run(&mut tcp, write), Ok(()));
    let read = Request::Read {
        at: extent(100, len),
        into: BufferRef::new(&here, 0),
    };
    assert_eq!(run(&mut rdma, read), Ok(()));
    let mut got = vec![0; len];
    here.read_at(0, &mut got).unwrap();
    assert!(got == bytes);
}

fn killed_target_fails_requests_in_time(mut tgt: Tgt) {
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    let mut unit = open(
        &tgt,
        &target,
        Options {
            reconnect: Duration::from_millis(500),
            ..options()
        },
    );
    let memory = unit.memory(BLOCK).unwrap();
    tgt.kill();
    for id in 0..8 {
        let into = BufferRef::new(&memory, 0);
        let at = extent(id, BLOCK);
        unit.submit(id, Request::Read { at, into }).unwrap();
    }
    let done = finish(&mut unit, 8);
    for one in done {
        assert!(matches!(one.result, Err(Failure::Lost(_))), "{one:?}");
    }
}

fn session_resumes_after_target_restart(mut tgt: Tgt) {
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    let mut unit = open(&tgt, &target, options());
    let memory = unit.memory(BLOCK).unwrap();
    memory.write_at(0, &[5; BLOCK]).unwrap();
    let place = || BufferRef::new(&memory, 0);
    let at = extent(9, BLOCK);
    let (from, fua) = (place(), true);
    assert_eq!(run(&mut unit, Request::Write { at, from, fua }), Ok(()));
    tgt.restart();
    memory.write_at(0, &[0; BLOCK]).unwrap();
    let into = place();
    assert_eq!(run(&mut unit, Request::Read { at, into }), Ok(()));
    let mut got = [0; BLOCK];
    memory.read_at(0, &mut got).unwrap();
    assert_eq!(got, [5; BLOCK]);
}
