//! Completion vectors on processors of their own (setting `completion_vector_cpus`): the thread of a vector is bound to them and notifies there.
//! The settings are read once per process, so each test runs in one of its own.

use crate::common::*;
use core::ptr;
use std::path::{Path, PathBuf};
use verbena_capi::abi::*;
use verbena_capi::verbs::*;
use verbena_testing::{own_process, wait_until};

fn set(processors: &str) {
    // SAFETY: no other thread runs in this process yet.
    unsafe { std::env::set_var("VERBENA_COMPLETION_VECTOR_CPUS", processors) };
}

/// The processors that a thread may use, as the kernel lists them.
fn allowed(thread: &str) -> String {
    let status = std::fs::read_to_string(format!("{thread}/status")).unwrap();
    let list = status.lines().find_map(|line| {
        let list = line.strip_prefix("Cpus_allowed_list:")?;
        Some(list.trim().to_owned())
    });
    list.expect("Linux lists the processors")
}

/// The threads of this process that serve pinned vectors.
fn vector_threads() -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let threads = tasks.map(|task| task.unwrap().path());
    let serves = |thread: &PathBuf| {
        let name = std::fs::read_to_string(thread.join("comm")).unwrap();
        name.trim() == "verbena-fast"
    };
    threads.filter(serves).collect()
}

/// How often a thread was run by a processor.
fn times_run(thread: &Path) -> u64 {
    let stat = std::fs::read_to_string(thread.join("schedstat")).unwrap();
    let count = stat.split_whitespace().nth(2);
    count.and_then(|count| count.parse().ok()).unwrap()
}

#[test]
fn completion_vectors_run_on_their_processors() {
    own_process!();
    let all = allowed("/proc/self");
    let last = all.rsplit([',', '-']).next().unwrap();
    set(last);
    let (a, b) = pair(SideParams {
        with_channel: true,
        ..SideParams::default()
    });
    let threads = vector_threads();
    assert_eq!(threads.len(), 1, "both queues have vector 0");
    assert_eq!(allowed(threads[0].to_str().unwrap()), last);
    let before = times_run(&threads[0]);
    // More than once only if the thread has not slept since it was started.
    wait_until("the thread was woken", || {
        notify(&a, &b);
        times_run(&threads[0]) > before
    });
}

/// A message whose completion is notified through the channel of `b`.
fn notify(a: &Side, b: &Side) {
    assert_eq!(b.receive(1, 0, 8), 0);
    assert_eq!(req_notify_cq(b.cq, 0), 0);
    assert_eq!(a.send(2, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    assert!(readable(b.channel_fd(), LONG));
    let (mut cq, mut name) = (ptr::null_mut(), ptr::null_mut());
    let code = call!(ibv_get_cq_event(b.channel, &raw mut cq, &raw mut name));
    assert_eq!((code, cq), (0, b.cq));
    call!(ibv_ack_cq_events(cq, 1));
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
}

#[test]
fn unknown_processors_are_refused_at_open() {
    own_process!();
    set("1023");
    let mut count = 0;
    let list = call!(ibv_get_device_list(&raw mut count));
    assert!(count > 0);
    // SAFETY: the list has at least one device.
    let device = unsafe { *list };
    assert_refused(call!(ibv_open_device(device)), libc::EINVAL, "processor");
    call!(ibv_free_device_list(list));
}
