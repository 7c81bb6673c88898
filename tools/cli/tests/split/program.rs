//! Programs in namespaces: those that run to their end, with a time limit, and those that run until they are dropped.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::space::{Netns, wait_until};

/// Time limit of a program, in seconds.
const LONGEST: &str = "60";

/// Runs a shell command, which must succeed; returns its output.
pub(crate) fn sh(space: &Netns, line: &str) -> String {
    let (well, said) = try_sh(space, line);
    assert!(well, "{line}:\n{said}");
    said
}

/// Runs a shell command; returns whether it succeeded, and its output.
pub(crate) fn try_sh(space: &Netns, line: &str) -> (bool, String) {
    let ran = space.run(|| {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", LONGEST, "bash", "-o", "pipefail", "-c", line]);
        command.output().unwrap()
    });
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let complained = String::from_utf8_lossy(&ran.stderr);
    (ran.status.success(), said + &complained)
}

/// A running program, killed on drop.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts it; its output goes to a file.
    pub(crate) fn start(space: &Netns, command: &mut Command, log: &Path) -> Running {
        let mut options = File::options();
        let file = options.create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let child = space.run(|| command.spawn().unwrap());
        let log = log.to_owned();
        Running { child, log }
    }

    /// A shell command; with `exec`, its program is the one that is killed.
    pub(crate) fn sh(space: &Netns, line: &str, log: &Path) -> Running {
        let mut command = Command::new("bash");
        command.args(["-o", "pipefail", "-c", line]);
        Running::start(space, &mut command, log)
    }

    /// Its output, and that of earlier programs with the same file.
    pub(crate) fn output(&self) -> String {
        let said = std::fs::read(&self.log).unwrap();
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Waits for this text in its output.
    pub(crate) fn wait_for_output(&self, what: &str) {
        wait_until(what, || self.output().contains(what));
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the program ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub(crate) fn has_exited(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let said = self.output();
            let name = self.log.file_name().unwrap_or_default().display();
            let _ = writeln!(std::io::stderr(), "--- {name} said:\n{said}");
        }
    }
}

/// Sends pings as fast as they are answered: none of the first `count` may be lost, however late its answer is.
pub(crate) fn ping(space: &Netns, to: &str, count: u32) {
    ping_with(space, &format!("-i 0 {to}"), count);
}

/// The same with these options of ping.
pub(crate) fn ping_with(space: &Netns, words: &str, count: u32) {
    // Ping sends until this number has been answered (`-w`). Without a deadline it waits for the last answers no longer than twice the
    // longest round trip, and reports answers lost that a busy machine delays. The additional ones are for answers that overtake.
    let answered = count + 8 + count / 2;
    let said = sh(space, &format!("ping -n -c {answered} -w 50 {words}"));
    let missing = missing_answers(&said, count);
    assert!(missing.is_empty(), "{words}: {missing:?} lost: {said}");
}

/// The numbers of the pings that are answered in the output of ping.
pub(crate) fn answered_pings(said: &str) -> HashSet<u32> {
    let number = |line: &str| -> Option<u32> {
        let (_, number) = line.split_once(" icmp_seq=")?;
        let (number, _) = number.split_once(" ttl=")?;
        number.parse().ok()
    };
    said.lines().filter_map(number).collect()
}

/// Those of the first `count` pings that are not answered in the output of ping.
pub(crate) fn missing_answers(said: &str, count: u32) -> Vec<u32> {
    let answered = answered_pings(said);
    (1..=count).filter(|n| !answered.contains(n)).collect()
}

#[test]
fn ping_without_answer_is_missing() {
    let line = |n| format!("64 bytes from 192.168.9.1: icmp_seq={n} ttl=64 time=0.1 ms\n");
    let mut said: String = [1, 2, 5, 3].map(line).concat();
    said += "From 192.168.9.1 icmp_seq=4 Destination Host Unreachable\n";
    assert!(missing_answers(&said, 3).is_empty());
    assert_eq!(missing_answers(&said, 6), [4, 6]);
}

/// Whether a ping is answered.
pub(crate) fn is_reachable(space: &Netns, to: &str) -> bool {
    try_sh(space, &format!("ping -q -c 1 -W 1 {to}")).0
}

/// Measures with iperf3 to its server, both directions at once.
pub(crate) fn iperf3(space: &Netns, words: &str) -> Value {
    let mut report = Value::Null;
    let mut silent = 0;
    // The server may still run another test.
    wait_until("the server of iperf3 has time", || {
        let line = format!("timeout -s KILL 9 iperf3 -J --bidir -t 1 {words}");
        let (_, said) = try_sh(space, &line);
        // iperf3 starts a UDP test with one datagram and waits for its answer without a limit: if that is lost, which is possible in the
        // unacknowledged arrangement, it hangs without output. On a busy machine any test can take too long.
        if !said.contains('{') {
            silent += 1;
            assert!(silent < 3, "iperf3 {words} hung {silent} times: {said}");
            return false;
        }
        report = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        match report["error"].as_str() {
            None => true,
            // Between two tests the server closes its socket, and with it waiting connections.
            Some(why) if ["busy", "refused", "reset"].iter().any(|b| why.contains(b)) => false,
            Some(why) => panic!("iperf3 {words}: {why}"),
        }
    });
    report
}
