//! A started program: its own process group, output into files, and waiting for its end with a limit.
//! On drop the whole process group is killed. Only processes that were started here are signalled.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use super::user::User;
use crate::command::{Tool, find, quoted};

/// Interval of checks for an end or a listening socket.
const TICK: Duration = Duration::from_millis(5);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Code(i32),
    Signal(i32),
    /// It had not ended at the limit, and was killed.
    TimedOut,
}

/// A program to start.
pub(crate) struct Start<'a> {
    pub(crate) command: &'a [String],
    pub(crate) env: &'a [(&'static str, String)],
    pub(crate) user: User,
    pub(crate) folder: &'a Path,
    /// Prefix of the names of its output files.
    pub(crate) label: &'a str,
}

/// A program that was started.
pub(crate) struct Process {
    child: Child,
    group: Pid,
    end: Option<End>,
    pub(crate) shown: String,
    out: PathBuf,
    err: PathBuf,
}

impl Start<'_> {
    pub(crate) fn start(&self) -> Result<Process> {
        let program = self.command.first().context("an empty command")?;
        let out = self.folder.join(format!("{}.out", self.label));
        let err = self.folder.join(format!("{}.err", self.label));
        let mut command = Command::new("setpriv");
        command
            // It must not survive this process.
            .args(["--pdeathsig", "KILL"])
            .args(self.command)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(create(&out)?)
            .stderr(create(&err)?)
            .process_group(0);
        if let User::Other(id) = self.user {
            // `uid` also clears the supplementary groups if none are set.
            command.uid(id).gid(id);
            // Our home directory is not readable for this user.
            command.env("HOME", self.folder);
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start `{program}`"))?;
        let group = Pid::from_child(&child);
        let shown: Vec<String> = self.command.iter().map(|arg| quoted(arg)).collect();
        let env: Vec<String> = self.env.iter().map(|(n, v)| format!("{n}={v} ")).collect();
        Ok(Process {
            child,
            group,
            end: None,
            shown: format!("{}{}", env.concat(), shown.join(" ")),
            out,
            err,
        })
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot create {}", path.display()))
}

impl Process {
    /// Waits until it listens on the TCP port, in its network namespace; `false` if it ended or the time has passed.
    pub(crate) fn wait_listening(&mut self, port: u16, until: Instant) -> Result<bool> {
        self.wait_for_socket(["tcp", "tcp6"], |text| listening(text, port), until)
    }

    /// Waits until a socket is bound to the UDP port in its network namespace.
    pub(crate) fn wait_bound(&mut self, port: u16, until: Instant) -> Result<bool> {
        self.wait_for_socket(["udp", "udp6"], |text| bound(text, port), until)
    }

    fn wait_for_socket(
        &mut self,
        tables: [&str; 2],
        found: impl Fn(&str) -> bool,
        until: Instant,
    ) -> Result<bool> {
        let pid = self.child.id();
        while self.try_wait()?.is_none() && Instant::now() < until {
            for table in tables {
                let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}"));
                if text.is_ok_and(|text| found(&text)) {
                    return Ok(true);
                }
            }
            std::thread::sleep(TICK);
        }
        Ok(false)
    }

    /// How it ended, if it has.
    pub(crate) fn try_wait(&mut self) -> Result<Option<End>> {
        if self.end.is_none() {
            self.end = self.child.try_wait()?.map(End::of);
        }
        Ok(self.end)
    }

    /// Waits for its end; after the limit it is killed. With `stacks` its stacks are printed before, if gdb is installed.
    pub(crate) fn wait(&mut self, until: Instant, stacks: bool) -> Result<End> {
        while Instant::now() < until {
            if let Some(end) = self.try_wait()? {
                return Ok(end);
            }
            std::thread::sleep(TICK);
        }
        if let Some(end) = self.try_wait()? {
            return Ok(end);
        }
        if stacks {
            self.print_stacks();
        }
        self.signal(Signal::KILL);
        self.child.wait()?;
        self.end = Some(End::TimedOut);
        Ok(End::TimedOut)
    }

    /// Signals the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.end.is_none() {
            // Fails if it has just ended, which `wait` reports.
            let _ = kill_process_group(self.group, signal);
        }
    }

    pub(crate) fn output(&self) -> String {
        read(&self.out)
    }

    pub(crate) fn stderr(&self) -> String {
        read(&self.err)
    }

    fn print_stacks(&self) {
        if find("gdb").is_none() {
            return;
        }
        let stacks = Tool::new("timeout")
            .args(["20", "gdb", "-nx", "-batch", "-p"])
            .arg(self.child.id().to_string())
            .args(["-ex", "thread apply all bt 25"])
            .env("DEBUGINFOD_URLS", "")
            .output();
        if let Ok(text) = stacks {
            println!("    stacks of `{}`:\n{text}", self.shown);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Children of a process that has ended may remain, so the group is signalled in any case.
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl End {
    fn of(status: ExitStatus) -> End {
        match (status.code(), status.signal()) {
            (Some(code), _) => End::Code(code),
            (None, signal) => End::Signal(signal.unwrap_or(0)),
        }
    }
}

/// The output need not be UTF-8.
fn read(path: &Path) -> String {
    std::fs::read(path).map_or_else(
        |error| format!("({}: {error})", path.display()),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// Whether a table of `/proc/net` has a listening socket at the port.
fn listening(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|word| word.ends_with(&suffix));
        local && words.nth(1) == Some(LISTEN)
    })
}

/// Whether a table of `/proc/net` has a socket at the port.
fn bound(table: &str, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    let mut locals = table.lines().skip(1).map(|l| l.split_whitespace().nth(1));
    locals.any(|local| local.is_some_and(|word| word.ends_with(&suffix)))
}

#[cfg(test)]
mod tests;
