//! Programs of the system on Verbena, started for tests that look into them: each test has a folder of its own for what ended programs leave.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use verbena_testing::{WAIT_LIMIT, wait_for};

use super::dropin::libraries;

/// A folder of this test's own for what ended programs leave, removed at the end.
pub(crate) struct Runtime(pub(crate) PathBuf);

impl Runtime {
    pub(crate) fn new() -> Runtime {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("verbena-why-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Runtime(folder)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_verbena"));
        command
            .args(args)
            .env("XDG_RUNTIME_DIR", &self.0)
            .env("LC_ALL", "C");
        command
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the command starts")
    }

    /// A program on Verbena; `verbena run` becomes it.
    pub(crate) fn start(&self, program: &[&str]) -> Program {
        let mut command = self.command(&["run", "--set", "device=127.0.0.1", "--"]);
        let child = command
            .args(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts");
        Program(child)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Killed on drop.
pub(crate) struct Program(pub(crate) Child);

impl Program {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub(crate) fn first_line(&mut self) -> String {
        let mut line = String::new();
        let out = self.0.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn has_program(name: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()));
    if !found {
        // `cargo xtask test` has checked for it, and fails in CI.
        eprintln!("not tested: {name} is missing");
    }
    found
}

/// Bound for a moment, to find a free port.
pub(crate) fn free_port() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port().to_string()
}

/// Queue pairs of a process that have sent something.
pub(crate) fn has_sent(runtime: &Runtime, pid: u32) -> bool {
    let output = runtime.output(&["devinfo", "--json", &pid.to_string()]);
    text(&output.stdout).lines().any(|line| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        object["kind"] == "qp" && object["messages_out"].as_u64() > Some(10)
    })
}

/// perftest's writes, without an end: a server, and a client that has sent. None if the machine has no perftest.
pub(crate) fn write_bw(runtime: &Runtime) -> Option<(Program, Program)> {
    libraries()?;
    if !has_program("ib_write_bw") {
        return None;
    }
    let end = Instant::now() + WAIT_LIMIT;
    let start = || {
        let port = free_port();
        let options = ["ib_write_bw", "-D", "120", "-s", "65536", "-p", &port];
        let mut server = runtime.start(&options);
        // A client that comes before the server listens on perftest's own port ends.
        while server.0.try_wait().unwrap().is_none() && Instant::now() < end {
            let mut client = runtime.start(&[&options[..], &["127.0.0.1"]].concat());
            while client.0.try_wait().unwrap().is_none() && Instant::now() < end {
                if has_sent(runtime, client.pid()) {
                    return Some((server, client));
                }
            }
        }
        // Another program has taken the port meanwhile.
        None
    };
    Some(wait_for("a client that has sent", start))
}
