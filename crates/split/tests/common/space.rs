//! Network namespaces for tests.
//! They have no names and no processes: they go with the descriptors that this process holds, whatever happens to it.

#![allow(dead_code, unreachable_pub, reason = "every test program uses a part")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const NESTED: &str = "VERBENA_SPLIT_NESTED";

/// Runs a test where interfaces can be made: here, or again in a user namespace; otherwise says loudly that it did not.
///
/// `name` is the test's own, as `cargo test` calls it.
pub fn privileged(name: &str, test: impl FnOnce()) {
    let nested = std::env::var_os(NESTED).is_some();
    if let Err(error) = Command::new("ip").arg("-V").output() {
        skip(name, &format!("ip (Debian package iproute2): {error}"));
    } else if can("-n") {
        test();
    } else if !nested && can("-Urn") {
        again_nested(name);
    } else {
        skip(
            name,
            "neither root nor a user namespace (unshare -Urn) can be had here",
        );
    }
}

fn can(words: &str) -> bool {
    let ran = Command::new("unshare").args([words, "true"]).output();
    ran.is_ok_and(|ran| ran.status.success())
}

/// Loudly; and where nobody reads it, as a failure.
fn skip(name: &str, why: &str) {
    let ci = std::env::var("CI").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false"));
    assert!(!ci, "{name}: {why}");
    eprintln!("SKIPPED: {name}: {why}; no interface was tested");
}

fn again_nested(name: &str) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.arg("-Urn").arg(program);
    command.args([name, "--exact", "--nocapture"]);
    let ran = command.env(NESTED, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success() && said.contains("1 passed"),
        "in a user namespace:\n{said}\n{complained}"
    );
}

/// A network namespace.
pub struct Space(File);

impl Space {
    pub fn new() -> Space {
        let mut command = Command::new("unshare");
        // It waits until we have hold of its namespace, and goes.
        command.args(["-n", "sh", "-c", "ip link set lo up && echo here && read x"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "here\n", "unshare -n");
        let space = File::open(format!("/proc/{}/ns/net", child.id())).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        Space(space)
    }

    /// Does something in it.
    pub fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let within = || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.0.as_fd(), network).unwrap();
            what()
        };
        std::thread::scope(|scope| match scope.spawn(within).join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Runs a program in it, which must succeed; what it said.
    pub fn command(&self, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        let ran = self.run(|| Command::new(words[0]).args(&words[1..]).output());
        let ran = ran.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let complained = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{words:?}: {said}{complained}");
        said
    }

    /// Joins two by a cable with an end in each, both up.
    pub fn join(&self, end: &str, other: &Space, other_end: &str) {
        // Whoever lends a namespace's descriptor by its path lends it to children too.
        let path = format!("/proc/{}/fd/{}", std::process::id(), other.0.as_raw_fd());
        self.command(&format!(
            "ip link add {end} type veth peer name {other_end} netns {path}"
        ));
        self.command(&format!("ip link set {end} up"));
        other.command(&format!("ip link set {other_end} up"));
    }
}
