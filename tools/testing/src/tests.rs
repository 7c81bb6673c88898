//! Tests of the waits: each ends by its event, and not before.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use super::*;

#[test]
fn wait_ends_when_the_condition_holds() {
    let mut looks = 0;
    wait_until("the third look", || {
        looks += 1;
        looks == 3
    });
    assert_eq!(looks, 3);
    assert_eq!(wait_for("a value", || Some(7)), 7);
}

#[test]
fn written_or_closed_stream_is_readable() {
    let (near, mut far) = UnixStream::pair().unwrap();
    assert!(!readable_within(&near, Duration::ZERO));
    far.write_all(b"x").unwrap();
    wait_readable("a byte", &near);
    drop(far);
    wait_readable("the end", &near);
}

#[test]
fn only_a_sleeping_thread_is_blocked() {
    assert!(!is_blocked(Tid::current()));
    let (wake, woken) = mpsc::channel();
    std::thread::scope(|scope| {
        let sleeper = spawn_blocked(scope, move || woken.recv());
        wake.send(7).unwrap();
        assert_eq!(sleeper.join().unwrap(), Ok(7));
    });
}

#[test]
fn end_of_a_process_is_seen() {
    let mut cat = std::process::Command::new("cat");
    let cat = cat.stdin(std::process::Stdio::piped());
    let mut child = cat.spawn().unwrap();
    assert!(!process_ends(child.id(), Duration::ZERO));
    drop(child.stdin.take());
    assert!(process_ends(child.id(), WAIT_LIMIT));
    assert!(child.wait().unwrap().success());
}

#[test]
fn service_ends_when_told() {
    let mut steps = 0;
    let count = std::cell::Cell::new(0);
    let stop = || count.get() == 3;
    serve_until(stop, || {
        steps += 1;
        count.set(steps);
        steps % 2 == 0
    });
    assert_eq!(steps, 3);
}
