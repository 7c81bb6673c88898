//! Tests of handler threads alone: one that fails to start is not kept, and no signal is accepted that would not be served.

use super::*;

fn first() -> u16 {
    sys::processors().unwrap()[0]
}

#[test]
fn thread_that_fails_to_start_is_not_kept() {
    let (all_threads, core) = (HandlerThreads::default(), Weak::new());
    for processor in 4000..4100 {
        let refused = all_threads.index_for(&core, &[processor], Class::Normal);
        assert!(
            matches!(refused, Err(Error::NoProcessor { processor: p }) if p == processor),
            "{refused:?}"
        );
    }
    assert!(all_threads.groups.lock().all.is_empty());
    let at = |class| all_threads.index_for(&core, &[first()], class).unwrap();
    assert_eq!((at(Class::Bulk), at(Class::Latency)), (0, 0));
    all_threads.stop(Duration::from_secs(1));
}

/// A thread that found the group a moment before it ended must serve the signal itself.
#[test]
fn stopped_threads_take_no_signal() {
    let (all_threads, core) = (HandlerThreads::default(), Weak::new());
    let at = all_threads
        .index_for(&core, &[first()], Class::Normal)
        .unwrap();
    let group = all_threads.get(at).unwrap();
    assert!(group.queue_task(Task::Signal(Signal::Line), Class::Normal));
    assert!(
        group.queue_task(Task::Signal(Signal::Line), Class::Bulk),
        "any thread does"
    );
    all_threads.stop(Duration::from_secs(1));
    assert!(!group.queue_task(Task::Signal(Signal::Line), Class::Normal));
    let closed = all_threads.index_for(&core, &[first()], Class::Normal);
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
}
