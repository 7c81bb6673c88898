//! Completion queues with timestamps and with ignored overruns, the clock of the device, and vendor-specific options of a connection.
//! Timestamps are compared with each other and with the device's clock, not with durations.

use crate::common::*;
use core::ffi::c_int;
use core::ptr;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

fn extended(side: &Side, entries: u32, readers: u32, flags: u32) -> *mut ibv_cq_ex {
    let create = verbs_of(side.context).create_cq_ex.unwrap();
    let mut attr = ibv_cq_init_attr_ex {
        cqe: entries,
        wc_flags: readers.into(),
        comp_mask: IBV_CQ_INIT_ATTR_MASK_FLAGS,
        flags,
        ..ibv_cq_init_attr_ex::zeroed()
    };
    let cq = call!(create(side.context, &raw mut attr));
    assert!(!cq.is_null(), "{}", errno());
    cq
}

/// Two connected sides, the first of which completes in a queue of its own.
struct World {
    cq: *mut ibv_cq_ex,
    plain: *mut ibv_cq,
    a: Side,
    b: Side,
}

impl World {
    fn new(entries: u32, readers: u32, flags: u32) -> World {
        let wanted = SideParams::default();
        let (mut a, b) = (Side::new(wanted), Side::new(wanted));
        let cq = extended(&a, entries, readers, flags);
        a.destroy_qp();
        let plain = core::mem::replace(&mut a.cq, cq.cast());
        a.qp = a.another_qp();
        join(&a, &b);
        World { cq, plain, a, b }
    }

    /// One Write for each id.
    fn write(&self, ids: core::ops::Range<u64>) {
        let remote = |wr: &mut ibv_send_wr| rdma(wr, self.b.at(0), self.b.rkey());
        for id in ids {
            let code = self.a.send(id, IBV_WR_RDMA_WRITE, self.a.sge(0, 8), remote);
            assert_eq!(code, 0);
        }
    }

    /// The next completion and its timestamps, by the extended poll.
    #[track_caller]
    fn next(&self) -> (u64, u64, u64) {
        let end = std::time::Instant::now() + LONG;
        // SAFETY: the queue exists, and this thread alone polls it.
        unsafe {
            let cq = self.cq;
            let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
            loop {
                match ((*cq).start_poll.unwrap())(cq, &raw mut attr) {
                    0 => break,
                    code => assert_eq!(code, libc::ENOENT),
                }
                assert!(std::time::Instant::now() < end, "no completion came");
                std::thread::yield_now();
            }
            assert_eq!((*cq).status, IBV_WC_SUCCESS);
            let read = |reader: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>| {
                reader.map_or(0, |read| read(cq))
            };
            let stamps = (
                read((*cq).read_completion_ts),
                read((*cq).read_completion_wallclock_ns),
            );
            let id = (*cq).wr_id;
            ((*cq).end_poll.unwrap())(cq);
            (id, stamps.0, stamps.1)
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.a.destroy_qp();
        assert_eq!(call!(ibv_destroy_cq(self.cq.cast())), 0);
        self.a.cq = self.plain;
    }
}

/// The device's clock.
fn raw_clock(context: *mut ibv_context) -> u64 {
    let query = verbs_of(context).query_rt_values.unwrap();
    let mut values = ibv_values_ex::zeroed();
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    assert_eq!(call!(query(context, &raw mut values)), 0);
    assert_eq!(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
    assert_eq!(values.raw_clock.tv_sec, 0);
    values.raw_clock.tv_nsec as u64
}

fn wall_clock() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    since.as_nanos() as u64
}

const BOTH: u32 =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

#[test]
fn completions_have_the_time_of_both_clocks() {
    let world = World::new(16, BOTH, 0);
    let (mut raw, mut wall) = (raw_clock(world.a.context), wall_clock());
    for id in 1..=8 {
        world.write(id..id + 1);
        let (seen, at_raw, at_wall) = world.next();
        assert_eq!(seen, id);
        assert!(
            raw <= at_raw && at_raw <= raw_clock(world.a.context),
            "{raw} {at_raw}"
        );
        assert!(
            wall <= at_wall && at_wall <= wall_clock(),
            "{wall} {at_wall}"
        );
        (raw, wall) = (at_raw, at_wall);
    }
}

#[test]
fn each_completion_has_its_own_time() {
    let world = World::new(16, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, 0);
    world.write(1..4);
    let first = world.next();
    // The other reader was not requested.
    assert_eq!((first.0, first.2), (1, 0));
    let between = raw_clock(world.a.context);
    world.write(5..6);
    let rest: Vec<_> = (0..3).map(|_| world.next()).collect();
    assert_eq!(rest.iter().map(|at| at.0).collect::<Vec<_>>(), [2, 3, 5]);
    assert!(first.1 <= rest[0].1 && rest[0].1 <= rest[1].1);
    assert!(rest[2].1 >= between);
}

#[test]
fn ordinary_polls_skip_timestamps() {
    let world = World::new(16, BOTH, 0);
    let before = raw_clock(world.a.context);
    world.write(1..3);
    expect_completion(world.a.cq, 1, IBV_WC_SUCCESS);
    expect_completion(world.a.cq, 2, IBV_WC_SUCCESS);
    let between = raw_clock(world.a.context);
    world.write(3..4);
    let (id, raw, _) = world.next();
    assert_eq!(id, 3);
    assert!(
        before < between && between <= raw,
        "the third one's own: {between} {raw}"
    );
}

#[test]
fn clock_query_refuses_unknown_values() {
    let side = Side::new(SideParams::default());
    let query = verbs_of(side.context).query_rt_values.unwrap();
    let mut values = ibv_values_ex::zeroed();
    values.comp_mask = 1 << 5;
    values.raw_clock.tv_nsec = 7;
    assert_eq!(call!(query(side.context, &raw mut values)), libc::EINVAL);
    assert_eq!(values.raw_clock.tv_nsec, 7, "unchanged");
    assert_eq!(call!(query(side.context, ptr::null_mut())), libc::EINVAL);
    values.comp_mask = 0;
    assert_eq!(call!(query(side.context, &raw mut values)), 0);
    assert_eq!(values.raw_clock.tv_nsec, 7, "nothing was asked for");
}

#[test]
fn ignored_overrun_keeps_queue_pairs_alive() {
    const ENTRIES: u64 = 4;
    let flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN | IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    let world = World::new(ENTRIES as u32, BOTH, flags);
    for first in [1, 11] {
        // Ten completions for four entries; the message is received after all of them.
        world.write(first..first + 10);
        assert_eq!(world.b.receive(5, 0, 64), 0);
        let message = |wr: &mut ibv_send_wr| wr.send_flags = 0;
        let last = world.a.sge(0, 8);
        assert_eq!(world.a.send(99, IBV_WR_SEND, last, message), 0);
        expect_completion(world.b.cq, 5, IBV_WC_SUCCESS);
        // The send queue is in order: a signalled request after them completes last, and replaces one entry more.
        world.write(first + 50..first + 51);
        let mut seen = vec![];
        while seen.last() != Some(&(first + 50)) {
            let (id, raw, _) = world.next();
            assert_ne!(raw, 0);
            seen.push(id);
        }
        assert!(seen.len() <= 11, "{seen:?}");
        assert!(seen.is_sorted(), "{seen:?}");
        assert_eq!(world.a.state(), IBV_QPS_RTS);
    }
    assert_no_completion(world.a.cq);
}

#[test]
fn vendor_options_are_accepted_without_effect() {
    let side = Side::new(SideParams::default());
    let mut ece = ibv_ece {
        vendor_id: 1,
        options: 2,
        comp_mask: 3,
    };
    assert_eq!(call!(ibv_query_ece(side.qp, &raw mut ece)), 0);
    let vendor = ece.vendor_id;
    assert_eq!((vendor, ece.options, ece.comp_mask), (0x0002_5642, 0, 0));
    ece.options = 0xff;
    assert_eq!(call!(ibv_set_ece(side.qp, &raw mut ece)), 0);
    assert_eq!(call!(ibv_query_ece(side.qp, &raw mut ece)), 0);
    assert_eq!(ece.options, 0, "none of them exists");
    type Case = (&'static str, ibv_ece, c_int);
    let wrong: [Case; 3] = [
        (
            "no vendor",
            ibv_ece {
                vendor_id: 0,
                ..ece
            },
            libc::EOPNOTSUPP,
        ),
        (
            "another vendor",
            ibv_ece {
                vendor_id: 0x15b3,
                ..ece
            },
            libc::EINVAL,
        ),
        (
            "unknown field",
            ibv_ece {
                comp_mask: 1,
                ..ece
            },
            libc::EINVAL,
        ),
    ];
    for (what, mut ece, number) in wrong {
        assert_eq!(call!(ibv_set_ece(side.qp, &raw mut ece)), number, "{what}");
    }
    let null = ptr::null_mut();
    assert_eq!(call!(ibv_query_ece(side.qp, null)), libc::EINVAL);
    assert_eq!(call!(ibv_set_ece(side.qp, null)), libc::EINVAL);
    assert_eq!(
        call!(ibv_query_ece(ptr::null_mut(), &raw mut ece)),
        libc::EINVAL
    );
}

/// There are no flows, to which alone counters can be attached: the headers report `EOPNOTSUPP` for functions that are missing.
#[test]
fn flow_counters_do_not_exist() {
    let side = Side::new(SideParams::default());
    let verbs = verbs_of(side.context);
    assert!(verbs.create_counters.is_none() && verbs.destroy_counters.is_none());
    assert!(verbs.attach_counters_point_flow.is_none() && verbs.read_counters.is_none());
    assert!(verbs.ibv_create_flow.is_none());
}
