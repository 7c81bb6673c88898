//! Watching a process by its monitor: every event is reported or counted as missed, nothing waits for a watcher, and other users are rejected.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;

use verbena_engine::notify::monitor::{GREETING, MAX_WATCHERS, NAME, REFUSED};
use verbena_events::eqe::Cause;
use verbena_events::interrupts::Origin;
use verbena_testing::own_process;

use crate::common::{Side, TEST_TIMEOUT, descriptors, serialize_tests, wait};

fn connect_monitor(pid: u32, number: u32) -> Option<BufReader<UnixStream>> {
    let to = SocketAddr::from_abstract_name(format!("{NAME}{pid}/{number}")).unwrap();
    let stream = UnixStream::connect_addr(&to).ok()?;
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    Some(BufReader::new(stream))
}

fn line(reader: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn watch() -> BufReader<UnixStream> {
    let mut reader = connect_monitor(std::process::id(), 0).unwrap();
    assert_eq!(line(&mut reader), GREETING);
    reader
}

fn pin(side: &Side, pin: u16) {
    let cause = Cause::GeneralPurpose { pin };
    side.engine.inject(cause, Origin::UNSPECIFIED).unwrap();
}

/// A line without its time.
fn words(line: &str) -> &str {
    line.split_once(' ').unwrap().1
}

#[test]
fn unread_monitor_events_are_counted_as_missed() {
    let _alone = serialize_tests();
    own_process!();
    let side = Side::new(&[]);
    let mut reader = watch();
    for n in 0..100 {
        pin(&side, n);
        assert_eq!(
            words(&line(&mut reader)),
            format!("global general_purpose pin={n}")
        );
    }
    // The watcher does not read meanwhile, and the adapter does not wait for it.
    const MANY: u64 = 20_000;
    for n in 0..MANY {
        pin(&side, n as u16);
    }
    let (mut next, mut missed) = (0, 0);
    while next < MANY {
        let line = line(&mut reader);
        match words(&line).strip_prefix("monitor missed count=") {
            Some(count) => {
                let count: u64 = count.parse().unwrap();
                missed += count;
                next += count;
            }
            None => {
                let pin = next as u16;
                assert_eq!(words(&line), format!("global general_purpose pin={pin}"));
                next += 1;
            }
        }
    }
    assert!(missed > 0 && next == MANY, "{missed} of {next}");
    pin(&side, 7);
    assert_eq!(words(&line(&mut reader)), "global general_purpose pin=7");
}

#[test]
fn watchers_are_limited_and_leave_no_descriptors() {
    let _alone = serialize_tests();
    own_process!();
    let _side = Side::new(&[]);
    let before = descriptors();
    for _ in 0..3 {
        let mut all: Vec<_> = (0..MAX_WATCHERS).map(|_| watch()).collect();
        let mut more = connect_monitor(std::process::id(), 0).unwrap();
        let refused = line(&mut more);
        assert!(refused.starts_with(REFUSED), "{refused}");
        drop(more);
        // A watcher that sends anything is disconnected.
        all[0].get_ref().write_all(b"hello").unwrap();
        let end = all[0].read_to_end(&mut Vec::new());
        // Its bytes were not read, so the end may be a reset; it must not be a timeout.
        let silent = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!end.is_err_and(silent), "sent away");
        drop(all);
        wait("all are gone", || descriptors() <= before);
    }
}

#[test]
fn monitor_off_hides_the_engine() {
    let _alone = serialize_tests();
    own_process!();
    let side = Side::new(&[("monitor", "off")]);
    assert!(connect_monitor(std::process::id(), 0).is_none());
    let (first, second) = (Side::new(&[]), Side::new(&[]));
    let mut reader = connect_monitor(std::process::id(), 1).unwrap();
    assert_eq!(line(&mut reader), GREETING);
    drop((side, first));
    pin(&second, 9);
    assert_eq!(words(&line(&mut reader)), "global general_purpose pin=9");
    drop(second);
    assert_eq!(line(&mut reader), "", "the end");
}

const OTHER_USER_ROLE: &str = "VERBENA_TEST_STRANGER";

#[test]
fn as_other_user() {
    if let Ok(pid) = std::env::var(OTHER_USER_ROLE) {
        let mut reader = connect_monitor(pid.parse().unwrap(), 0).unwrap();
        println!("\n> {}", line(&mut reader));
    }
}

/// Only root can act as another user.
#[test]
fn other_users_are_refused() {
    let _alone = serialize_tests();
    own_process!();
    let _side = Side::new(&[]);
    let other_uid = 65_534;
    let other = Command::new(std::env::current_exe().unwrap())
        .args(["monitor::as_other_user", "--exact", "--nocapture"])
        .env(OTHER_USER_ROLE, std::process::id().to_string())
        .uid(other_uid)
        .output();
    match other {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let refused = format!("> {REFUSED}the client is a process of another user");
            assert!(said.contains(&refused), "{said}");
        }
        Err(error) => {
            let may_not = error.kind() == std::io::ErrorKind::PermissionDenied;
            assert!(may_not, "{error}");
            println!("not shown: {error}");
        }
    }
}
