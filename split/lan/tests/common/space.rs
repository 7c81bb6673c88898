//! Network namespaces for tests of interfaces, here and in other crates.
//! Namespaces have no names and no processes: they end with the descriptors of this process, even if it crashes.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "every test program uses a part"
)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Time limit for the kernel to report a change, and for a loaded machine to run a command.
pub const PATIENCE: Duration = Duration::from_secs(30);

const NESTED: &str = "LAN_TEST_NESTED";

/// Runs a test where interfaces can be created: in this process, or again in a user namespace; otherwise prints that it was skipped,
/// and returns false.
///
/// `name` is the test's name in `cargo test`.
pub fn privileged(name: &str, test: impl FnOnce()) -> bool {
    // Forces the user namespace even as root, to test it.
    let detour = std::env::var_os("LAN_TEST_DETOUR").is_some();
    let nested = std::env::var_os(NESTED).is_some();
    if let Some(why) = lacking() {
        skip(name, &why);
        return false;
    }
    if can_run(&["-n"]) && (nested || !detour) {
        test();
    } else if !nested && can_run(&["-Urn"]) {
        rerun_nested(name);
    } else {
        let why = "neither root nor a user namespace (unshare -Urn) can be had here";
        skip(name, why);
        return false;
    }
    true
}

/// Runs a test in a user namespace, as root or not.
pub fn unprivileged(name: &str, test: impl FnOnce()) {
    if let Some(why) = lacking() {
        skip(name, &why);
    } else if std::env::var_os(NESTED).is_some() {
        test();
    } else if can_run(&["-Urn"]) {
        rerun_nested(name);
    } else {
        skip(name, "no user namespace (unshare -Urn) can be had here");
    }
}

/// Programs that tests start, with their Debian packages.
const PROGRAMS: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("ping", "iputils-ping"),
    ("ethtool", "ethtool"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("/usr/bin/python3", "python3"),
];

/// The first missing prerequisite.
fn lacking() -> Option<String> {
    for (program, package) in PROGRAMS {
        if let Err(error) = Command::new(program).arg("-V").output() {
            return Some(format!("{program} (Debian package {package}): {error}"));
        }
    }
    let tun = File::options().read(true).write(true).open("/dev/net/tun");
    tun.err().map(|error| format!("/dev/net/tun: {error}"))
}

fn can_run(words: &[&str]) -> bool {
    let ran = Command::new("unshare").args(words).arg("true").output();
    ran.is_ok_and(|ran| ran.status.success())
}

/// Prints that a test was skipped; in CI, fails instead.
pub fn skip(name: &str, why: &str) {
    let ci = std::env::var("CI").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false"));
    assert!(!ci, "{name}: {why}");
    eprintln!("SKIPPED: {name}: {why}; no interface was tested");
}

fn rerun_nested(name: &str) {
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
pub struct Netns(File);

impl Netns {
    pub fn new() -> Netns {
        let mut command = Command::new("unshare");
        // The child waits until this process has opened its namespace, then exits.
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
        Netns(space)
    }

    /// Calls a function in the namespace.
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

    /// Runs a program in the namespace, which must succeed; returns its output.
    pub fn command(&self, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        let ran = self.run(|| Command::new(words[0]).args(&words[1..]).output());
        let ran = ran.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let complained = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{words:?}: {said}{complained}");
        said
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, words: &str) -> String {
        self.command(&format!("ip {words}"))
    }

    /// Joins two namespaces by a veth pair with both ends up.
    pub fn connect_veth(&self, end: &str, other: &Netns, other_end: &str) {
        // A descriptor passed by its /proc path can also be opened by child processes.
        let path = format!("/proc/{}/fd/{}", std::process::id(), {
            use std::os::fd::AsRawFd;
            other.0.as_raw_fd()
        });
        self.ip(&format!(
            "link add {end} type veth peer name {other_end} netns {path}"
        ));
        self.ip(&format!("link set {end} up"));
        other.ip(&format!("link set {other_end} up"));
    }
}

pub use verbena_testing::wait_until;
