//! A process with its limits, on programs that every machine has. No test waits longer than a second for an end.

use verbena_testing::wait_until;

use super::*;

fn start(label: &str, command: &[&str]) -> Process {
    let folder = std::env::temp_dir();
    let label = format!("verbena-process-{label}-{}", std::process::id());
    let command: Vec<String> = command.iter().map(ToString::to_string).collect();
    Start {
        command: &command,
        env: &[("WORD", "bird".into())],
        user: User::Own,
        folder: &folder,
        label: &label,
    }
    .start()
    .unwrap()
}

fn soon(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds)
}

impl Process {
    fn forget_files(&self) {
        for path in [&self.out, &self.err] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn stdout_stderr_and_exit_code_are_kept() {
    let mut process = start("kept", &["sh", "-c", "echo $WORD; echo no >&2; exit 3"]);
    assert_eq!(process.wait(soon(5000), false).unwrap(), End::Code(3));
    assert_eq!(process.output(), "bird\n");
    assert_eq!(process.stderr(), "no\n");
    process.forget_files();
}

#[test]
fn signal_is_distinguished_from_exit_code() {
    let mut process = start("signal", &["sh", "-c", "kill -9 $$"]);
    assert_eq!(process.wait(soon(5000), false).unwrap(), End::Signal(9));
    process.forget_files();
}

#[test]
fn late_process_group_is_killed() {
    let mut process = start("late", &["sh", "-c", "sleep 100 & echo $!; wait"]);
    wait_until("its child's number", || !process.output().is_empty());
    let inner = process.output();
    assert_eq!(process.wait(soon(50), false).unwrap(), End::TimedOut);
    process.forget_files();
    drop(process);
    let runs = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
    };
    wait_until("its child ends", || !runs(inner.trim()));
}

#[test]
fn listening_sockets_are_recognised() {
    let table = "  sl  local_address rem_address   st\n\
                 0: 0100007F:4A38 00000000:0000 0A 00000000\n\
                 1: 0100007F:4A39 0100007F:4A38 01 00000000\n";
    assert!(listening(table, 0x4A38));
    assert!(!listening(table, 0x4A39));
    assert!(!listening(table, 0x4A3A));
    assert!(bound(table, 0x4A38) && bound(table, 0x4A39));
    assert!(!bound(table, 0x4A3A) && !bound(table, 0));
}
