//! A second process for tests: the same test program again, started with a role.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use verbena_nic::Wc;
use verbena_nic::wr::RemoteAddr;
use verbena_wire::{Stag, To};

use super::{Side, loopback};

const ROLE: &str = "VERBENA_TEST_ROLE";

/// The role this process was started in, and its settings.
pub fn role() -> Option<(String, Vec<(String, String)>)> {
    let role = std::env::var(ROLE).ok()?;
    let mut words = role.split(' ').map(str::to_owned);
    let name = words.next()?;
    let settings =
        words.filter_map(|w| w.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())));
    Some((name, settings.collect()))
}

/// Prints a line for the process that started this one.
pub fn print_line(line: &str) {
    println!("\n> {line}");
}

/// Waits for a line of the process that started this one; exits when that is gone.
pub fn read_line() -> String {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
    line.trim().to_owned()
}

/// Another process of this program; killed on drop.
pub struct Peer {
    child: Child,
    out: BufReader<ChildStdout>,
    into: ChildStdin,
}

impl Peer {
    /// Starts it; its test `as_child` runs the role.
    pub fn start(role: &str, settings: &[(&str, &str)]) -> Peer {
        let mut words = role.to_owned();
        for (key, value) in settings {
            words.push_str(&format!(" {key}={value}"));
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["as_child", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let into = child.stdin.take().unwrap();
        Peer { child, out, into }
    }

    /// The next line that it prints.
    pub fn read_line(&mut self) -> String {
        loop {
            let mut line = String::new();
            let n = self.out.read_line(&mut line).unwrap();
            assert!(n > 0, "the other process ended");
            if let Some(said) = line.strip_prefix("> ") {
                return said.trim().to_owned();
            }
        }
    }

    pub fn send_line(&mut self, line: &str) {
        writeln!(self.into, "{line}").unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has ended.
    pub fn wait_ended(&mut self) {
        self.child.wait().unwrap();
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What [`target`] prints: its listening address, and its memory.
    pub fn target_info(&mut self) -> (std::net::SocketAddr, RemoteAddr) {
        let line = self.read_line();
        let words: Vec<_> = line.split(' ').collect();
        let remote = RemoteAddr {
            stag: Stag::new(words[1].parse().unwrap()),
            to: To::new(words[2].parse().unwrap()),
        };
        (words[0].parse().unwrap(), remote)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Receives that a target posts before it accepts.
pub const RECEIVES: u64 = 256;

/// The role of a target: listens, accepts one connection, and keeps receives posted until it is killed.
pub fn target(settings: &[(String, String)]) {
    let settings: Vec<_> = settings.iter().map(|(k, v)| (&**k, &**v)).collect();
    let side = Side::new(&settings);
    let device = settings.iter().find(|(key, _)| *key == "device");
    let at = device.map_or(loopback(), |(_, at)| {
        (at.parse::<IpAddr>().unwrap(), 0).into()
    });
    let listener = side.engine.listen(at, 16).unwrap();
    let (at, stag) = (side.memory.at(), side.memory.stag());
    print_line(&format!(
        "{} {} {at}",
        listener.local_addr().unwrap(),
        stag.get()
    ));
    side.qp.modify(verbena_nic::QpState::Init).unwrap();
    for id in 0..RECEIVES {
        side.receive(id, &[side.sge(3 << 20, 64 << 10)]);
    }
    std::thread::spawn(|| {
        while !read_line().is_empty() {}
        std::process::exit(0);
    });
    super::accept_next(&listener, &side.qp);
    let forever = || false;
    verbena_testing::serve_until(forever, || {
        let mut some = [Wc::default(); 64];
        let n = side.cq.poll(&mut some);
        for wc in &some[..n] {
            if wc.status != verbena_nic::Status::Success {
                continue;
            }
            side.receive(wc.id, &[side.sge(3 << 20, 64 << 10)]);
        }
        n > 0
    });
}
