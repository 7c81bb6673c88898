//! System calls, as recorded by strace: none of our threads while a program is idle, and only sockets and timers while it polls.
//! The idle phase is between two marks that the script writes.
//! The calls of the program's own thread are not checked there.

use std::collections::BTreeMap;

use super::case::Case;
use super::{pingpong, pyverbs};

/// What the script writes to standard output before and after the idle phase.
const BEGIN: &str = "rest begins";
const END: &str = "rest ends";

/// What a thread of ours and a polling program may call once everything is connected.
const ALLOWED: &[&str] = &[
    "read",
    "readv",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "write",
    "writev",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "timerfd_settime",
    "clock_gettime",
    "clock_nanosleep",
    "nanosleep",
    "sched_yield",
    "futex",
    "restart_syscall",
];

/// Calls that busy machines and slow tracing cause, and in how many calls each is made at most once.
const RARE: &[(&str, usize)] = &[
    // A group is lent or returned: a polling thread is preempted for longer than allowed, and its connections return to a shard.
    ("epoll_ctl", 8),
    // The polling thread checks whether it was preempted, after a gap between two polls.
    ("getrusage", 4),
    // A shard checks whether a peer that was silent is alive.
    ("ioctl", 32),
    ("getsockopt", 32),
    // A thread that serves a connection for the first time maps its scratch buffer (`SCRATCH` in
    // `crates/engine/src/connection/turn.rs`), also in the middle of the record: the connection may return to another shard.
    ("mmap", 64),
    // The heap grows or shrinks by a message that is copied into a transmit buffer (`free_idle_memory` in
    // `crates/nic/src/qp/transmit_buffer.rs`), in a thread other than the first in an arena of its own.
    ("brk", 64),
    ("mprotect", 64),
    ("munmap", 64),
    ("madvise", 64),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut rest = pyverbs::script("pyverbs_idle.py").must_print(END);
    rest.trace = Some(idle);
    let mut polling = pingpong::pair("trace/polling", "rc", &[], 2000);
    for side in &mut polling.sides {
        side.trace = Some(self::polling);
        side.env.push(("VERBENA_SAME_HOST", "off".to_owned()));
    }
    let mut shared = pingpong::pair("trace/polling/shared-memory", "rc", &[], SHARED_ROUNDS);
    for side in &mut shared.sides {
        side.trace = Some(polling_shared_memory);
    }
    vec![Case::single("trace/idle", rest), polling, shared]
}

/// Round trips through shared memory.
const SHARED_ROUNDS: u64 = 20_000;

/// Over TCP each round trip takes a side two calls at least, one for each message. Through shared memory it takes none, but for the waits of
/// sides that other programs keep from running.
fn polling_shared_memory(trace: &str) -> Result<String, String> {
    let calls = trace.lines().filter_map(call).count() as u64;
    let said = format!("{calls} calls in {SHARED_ROUNDS} round trips");
    if calls < 2 * SHARED_ROUNDS {
        Ok(said)
    } else {
        Err(said)
    }
}

/// Between the marks only the script's own thread may make system calls.
fn idle(trace: &str) -> Result<String, String> {
    let own = trace
        .lines()
        .find(|line| line.contains(BEGIN))
        .and_then(thread)
        .ok_or("the script did not reach its idle phase")?;
    let rest: Vec<&str> = trace
        .lines()
        .skip_while(|line| !line.contains(BEGIN))
        .take_while(|line| !line.contains(END))
        .collect();
    let ours: Vec<&&str> = rest
        .iter()
        .filter(|line| thread(line).is_some_and(|id| id != own))
        .collect();
    match ours.first() {
        None => Ok("no call".to_owned()),
        Some(first) => Err(format!(
            "{} system calls of our threads during 2 s of rest, the first: {first}",
            ours.len()
        )),
    }
}

/// Opened by a shard when a polling thread is late: it checks whether the thread waits for a processor, which happens on a
/// busy machine only (`crates/engine/src/sys/sched.rs`). Each check is followed by at most one of each of these calls.
const TASK_PATH: &str = "\"/proc/self/task/";
/// At most one such check in this many calls.
const LOOKS: usize = 8;
const OPENS: &[&str] = &["open", "openat"];
const AFTER_TASK_OPEN: &[&str] = &["close", "fcntl"];

/// Checks the middle half of the record by call.
fn polling(trace: &str) -> Result<String, String> {
    let lines: Vec<&str> = trace.lines().collect();
    let quarter = lines.len() / 4;
    let middle = lines
        .get(quarter..lines.len() - quarter)
        .unwrap_or_default();
    let (mut calls, mut looks): (BTreeMap<&str, usize>, usize) = Default::default();
    for line in middle {
        let Some(name) = call(line) else { continue };
        if OPENS.contains(&name) && line.contains(TASK_PATH) {
            looks += 1;
        } else {
            *calls.entry(name).or_default() += 1;
        }
    }
    let all: usize = calls.values().sum();
    let tolerated = |name: &str, count: usize| {
        ALLOWED.contains(&name)
            || RARE.iter().any(|(rare, of)| *rare == name && count * of <= all)
            // One check may have begun before the middle half, in each of our threads.
            || AFTER_TASK_OPEN.contains(&name) && looks > 0 && count <= looks + 2
    };
    let strange = calls.iter().find(|(name, count)| !tolerated(name, **count));
    match strange {
        Some((name, count)) => Err(format!("{count} calls of `{name}` while it polls")),
        None if looks * LOOKS > all => Err(format!("{looks} looks at a thread while it polls")),
        None if calls.is_empty() => Err("strace recorded nothing".to_owned()),
        None => {
            let each: Vec<String> = calls.iter().map(|(n, c)| format!("{n} {c}")).collect();
            Ok(each.join(", "))
        }
    }
}

/// Lines read `ID call(…) = result`, `ID <... call resumed> …` or `ID +++ exited …`.
fn thread(line: &str) -> Option<u32> {
    line.split_whitespace().next()?.parse().ok()
}

fn call(line: &str) -> Option<&str> {
    let rest = line.split_once(' ')?.1.trim_start();
    let name = rest.split_once('(')?.0;
    let word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    word.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_script_calls_are_allowed_while_idle() {
        let good = "7 write(1, \"rest begins\\n\", 12) = 12\n7 clock_nanosleep(0) = 0\n\
                    7 write(1, \"rest ends\\n\", 10) = 10\n8 read(3) = 1\n";
        assert!(idle(good).is_ok());
        let bad = good.replace("7 clock", "9 epoll_wait(4) = 0\n7 clock");
        assert!(idle(&bad).unwrap_err().starts_with("1 system calls"));
        assert!(idle("").is_err());
    }

    #[test]
    fn unexpected_calls_are_named() {
        let good = "7 read(3) = 1\n".repeat(20);
        assert_eq!(polling(&good).unwrap(), "read 10");
        let strange = format!("{good}8 clone(0) = 1\n{good}");
        assert!(polling(&strange).unwrap_err().contains("`clone`"));
        for (name, of) in RARE {
            // Half of the reads are in the middle half of the record.
            let reads = "7 read(3) = 1\n".repeat(4 * of);
            let record = |count| format!("8 {name}(0) = 1\n").repeat(count);
            assert!(polling(&format!("{reads}{}{reads}", record(4))).is_ok());
            let error = polling(&format!("{reads}{}{reads}", record(8))).unwrap_err();
            assert_eq!(error, format!("8 calls of `{name}` while it polls"));
        }
        let opened = |path: &str, times| {
            let look = format!("8 openat(-1, \"{path}\", 0) = 4\n8 read(4) = 9\n8 close(4) = 0\n");
            polling(&format!("{good}{}{good}", look.repeat(times)))
        };
        let look = "/proc/self/task/7/stat";
        assert!(opened(look, 2).is_ok());
        assert!(opened(look, 9).unwrap_err().contains("9 looks"));
        assert!(opened("/etc/passwd", 1).unwrap_err().contains("`close`"));
        let closed = format!("{good}8 close(4) = 0\n{good}");
        assert!(polling(&closed).unwrap_err().contains("`close`"));
        assert!(polling("").is_err());
    }

    #[test]
    fn strace_lines_are_parsed() {
        assert_eq!(call("12  sendto(4, \"\") = 3"), Some("sendto"));
        assert_eq!(call("12 <... read resumed>) = 1"), None);
        assert_eq!(call("12 +++ exited with 0 +++"), None);
        assert_eq!(thread("12 read(1) = 1"), Some(12));
    }
}
