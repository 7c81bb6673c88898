//! Tests of forks with live connections in the parent.

use verbena_nic::Wc;
use verbena_nic::{Arm, Status};

use super::*;
use crate::Error;

// The helpers of `tests/`; tests that fork are here, since `unsafe` is confined to `sys`.
#[path = "../../../tests/common/mod.rs"]
mod common;
use common::{SEND, Side, loopback, pair};

#[test]
fn fork_is_counted_in_the_child() {
    let before = watch_forks();
    // SAFETY: the child calls only `watch_forks`, which is initialized, and `_exit`: allowed after a fork of a multi-threaded process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let grew = watch_forks() == before + 1;
        // SAFETY: `_exit` takes an integer and ends the child without the exit handlers of the parent.
        unsafe { libc::_exit(i32::from(!grew)) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: waits for the child made above; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child saw no fork");
    assert_eq!(watch_forks(), before, "the parent is no child");
}

/// Runs `play` in a forked child, which exits with its result; returns that, or none if it hangs.
fn in_a_child(play: impl FnOnce() -> i32) -> Option<i32> {
    // SAFETY: the child runs what is under test: calls that must return at once, without locks and threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answer = play();
        // SAFETY: `_exit` takes an integer and runs no code of the process: locks that other threads held at the fork do not matter.
        unsafe { libc::_exit(answer) };
    }
    assert!(child > 0);
    if !verbena_testing::process_ends(child.unsigned_abs(), common::TEST_TIMEOUT) {
        // SAFETY: kills the child made above, which hangs and has not been waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, which has ended or is killed; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    let exited = libc::WIFEXITED(status);
    exited.then(|| libc::WEXITSTATUS(status))
}

fn talk(a: &Side, b: &Side, id: u64) {
    b.receive(id, &[b.sge(0, 64)]);
    a.post(id, SEND, &[a.sge(0, 64)]);
    assert_eq!(a.statuses(1), [(id, Status::Success)]);
    assert_eq!(b.statuses(1), [(id, Status::Success)]);
}

/// Every call in the child fails, none hangs, and dropping its objects does not affect the parent.
#[test]
fn forked_child_cannot_affect_parent_connections() {
    for round in 0..5 {
        let (a, b) = pair(&[]);
        let listener = b.engine.listen(loopback(), 4).unwrap();
        talk(&a, &b, 1);
        let mut kept = Some((a, b, listener));
        let answer = in_a_child(|| {
            let Some((a, b, listener)) = kept.take() else {
                return 99;
            };
            let closed = |r: Result<(), Error>| matches!(r, Err(Error::Closed));
            let wr = verbena_nic::ReceiveWr {
                id: 1,
                scatter: &[],
            };
            let checks = [
                closed(a.engine.create_cq(4).map(drop)),
                closed(a.engine.listen(loopback(), 4).map(drop)),
                closed(listener.next().map(drop)),
                closed(a.qp.connect(loopback(), b"", |_| ())),
                closed(a.cq.resize(100)),
                a.qp.post_receive(&wr).is_err(),
                a.cq.poll(&mut [Wc::default()]) == 0,
                a.engine.events().try_take().is_none(),
                a.qp.modify(verbena_nic::QpState::Err).is_err(),
            ];
            a.cq.arm(Arm::Next);
            let failed = checks.iter().position(|ok| !ok);
            // In any order, and all of it.
            drop((listener, b.qp, b.cq, b.engine));
            drop((a.engine, a.cq, a.qp));
            failed.map_or(0, |at| at as i32 + 1)
        });
        assert_eq!(answer, Some(0), "round {round}");
        let (a, b, listener) = kept.unwrap();
        for id in 0..20 {
            talk(&a, &b, id);
        }
        drop(b.qp);
        drop(listener);
    }
}

/// The same for datagrams.
#[test]
fn forked_child_cannot_affect_parent_datagrams() {
    use common::datagrams::{GROUP, LOCALHOST, Side, wr};
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let to = b.to(&a);
    b.ud.attach(GROUP.parse().unwrap()).unwrap();
    let mut kept = Some((a, b));
    let answer = in_a_child(|| {
        let Some((a, b)) = kept.take() else {
            return 99;
        };
        let receive = verbena_nic::ReceiveWr {
            id: 1,
            scatter: &[],
        };
        let options = crate::UdOptions::new(b.pd);
        let checks = [
            a.engine.create_ud(&a.cq, &a.cq, options).is_err(),
            a.ud.post_sends(&[wr(1, to, &[])]).is_err(),
            b.ud.post_receive(&receive).is_err(),
            b.ud.modify(verbena_nic::QpState::Err).is_err(),
            b.ud.attach(GROUP.parse().unwrap()).is_err(),
            !b.ud.detach(GROUP.parse().unwrap()),
        ];
        let failed = checks.iter().position(|ok| !ok);
        drop((b.ud, b.cq, b.engine, a.engine, a.ud, a.cq));
        failed.map_or(0, |at| at as i32 + 1)
    });
    assert_eq!(answer, Some(0));
    let (a, b) = kept.unwrap();
    for id in 0..20 {
        b.receive(id, 0, 100);
        a.send(id, to, &[a.sge(0, 20)]);
        assert_eq!(common::complete(&b.cq, 1)[0].id, id);
        assert_eq!(common::complete(&a.cq, 1)[0].id, id);
    }
}

/// A child that goes on running, or executes another program, does not keep the parent's connections open.
#[test]
fn forked_child_holds_no_descriptor() {
    let (a, b) = pair(&[]);
    let ours = crate::sys::fd::count();
    assert!(ours > 10, "{ours}");
    let answer = in_a_child(|| crate::sys::fd::count() as i32);
    assert_eq!(answer, Some(0));
    talk(&a, &b, 1);
    // Under traffic, and with programs started by `Command`.
    for id in 0..10 {
        assert_eq!(in_a_child(|| 7), Some(7));
        let done = std::process::Command::new("true").status().unwrap();
        assert!(done.success());
        talk(&a, &b, id);
    }
}

/// A child may make an engine of its own.
#[test]
fn forked_child_can_make_its_own_engine() {
    let (a, b) = pair(&[]);
    let answer = in_a_child(|| {
        let (c, d) = pair(&[("shards", "1")]);
        talk(&c, &d, 5);
        0
    });
    assert_eq!(answer, Some(0));
    talk(&a, &b, 1);
}
