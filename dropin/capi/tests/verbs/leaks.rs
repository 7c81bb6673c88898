//! Objects that were created and destroyed leave neither memory, nor descriptors, nor threads behind.
//! In a process of its own, since these are counted per process.

use core::ptr;

use verbena_capi::abi::*;
use verbena_capi::verbs::*;
use verbena_testing::own_process;
use verbena_testing::wait_until;

use crate::common::*;
use crate::resident::resident;

/// Descriptors without sockets: the number of a destroyed queue pair is not reused for `reuse_delay`, and its port stays open meanwhile.
fn descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|entry| {
        let target = std::fs::read_link(entry.as_ref().unwrap().path());
        !target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
    })
    .count()
}

/// Threads that are not about to end: the kernel lists a thread for a moment after it was joined, and then it is not asleep.
fn threads() -> usize {
    let mut count = 0;
    wait_until("the threads sleep", || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let stats =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
        let states: Vec<_> = stats
            .filter_map(|stat| stat.rsplit_once(')')?.1.trim_start().chars().next())
            .collect();
        count = states.len();
        // The one that runs is this one.
        states.iter().filter(|state| **state != 'S').count() == 1
    });
    count
}

#[test]
fn destroyed_objects_leave_no_resources() {
    own_process!();
    objects();
    devices();
}

fn objects() {
    let wanted = SideParams {
        with_channel: true,
        shared: 4,
        operations: IBV_QP_EX_WITH_SEND.into(),
        ..SideParams::default()
    };
    let side = Side::new(wanted);
    let round = || {
        let pd = call!(ibv_alloc_pd(side.context));
        let mr = call!(ibv_reg_mr(
            pd,
            side.memory.as_ptr().cast_mut().cast(),
            64,
            1
        ));
        let mw = alloc_mw(pd, IBV_MW_TYPE_2);
        let cq = call!(ibv_create_cq(
            side.context,
            16,
            ptr::null_mut(),
            side.channel,
            0
        ));
        let qp = side.another_qp();
        // A failure leaves nothing either.
        let mut wrong = side.init_ex();
        wrong.send_ops_flags = 1 << 30;
        let create = verbs_of(side.context).create_qp_ex.unwrap();
        assert!(call!(create(side.context, &raw mut wrong)).is_null());
        let mut attr = side.rtr_attr(0).0.ah_attr;
        let ah = call!(ibv_create_ah(pd, &raw mut attr));
        assert_eq!(call!(ibv_destroy_ah(ah)), 0);
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
        assert_eq!(call!(ibv_destroy_cq(cq)), 0);
        assert_eq!(dealloc_mw(mw), 0);
        assert_eq!(call!(ibv_dereg_mr(mr)), 0);
        assert_eq!(call!(ibv_dealloc_pd(pd)), 0);
    };
    let rounds: usize = std::env::var("ROUNDS").map_or(2000, |n| n.parse().unwrap());
    for _ in 0..rounds {
        round();
    }
    let before = (resident(), descriptors(), threads());
    for _ in 0..rounds {
        round();
    }
    let after = (resident(), descriptors(), threads());
    println!("kilobytes, descriptors, threads: {before:?}, then {after:?}");
    assert!(
        after.0 < before.0 + 1024,
        "{} kB more after {rounds} rounds",
        after.0 - before.0
    );
    assert_eq!((before.1, before.2), (after.1, after.2));
}

fn devices() {
    let round = |_| drop(pair(SideParams::default()));
    (0..20).for_each(round);
    let before = (resident(), descriptors(), threads());
    (0..100).for_each(round);
    let after = (resident(), descriptors(), threads());
    assert!(after.0 < before.0 + 4096, "{before:?}, then {after:?}");
    assert_eq!((before.1, before.2), (after.1, after.2));
}
