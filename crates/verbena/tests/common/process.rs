//! Runs examples as separate processes and reads their output.
//! A process is killed when its handle is dropped.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Examples are built beside the test programs.
pub(crate) fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let folder: PathBuf = test.parent().unwrap().parent().unwrap().join("examples");
    let program = folder.join(name);
    if !program.exists() {
        // Cargo builds them for all tests, but not for a test that is selected by name.
        let cargo = std::env::var_os("CARGO").unwrap();
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--package", "verbena", "--examples"])
            .status();
        assert!(built.unwrap().success());
    }
    Command::new(program)
}

/// A process whose output is read line by line. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    /// All lines that were read.
    pub(crate) output: Vec<String>,
}

impl Process {
    pub(crate) fn new(mut command: Command) -> Process {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (say, lines) = mpsc::channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let also = say.clone();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.for_each(|line| drop(say.send(line)));
        });
        std::thread::spawn(move || {
            let lines = BufReader::new(err).lines().map_while(Result::ok);
            lines.for_each(|line| drop(also.send(line)));
        });
        let said = Vec::new();
        Process {
            child,
            lines,
            output: said,
        }
    }

    pub(crate) fn id(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until a line contains `what`; returns the rest of that line.
    pub(crate) fn wait_for_line(&mut self, what: &str) -> String {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            match self.lines.recv_timeout(end - Instant::now()) {
                Ok(line) => {
                    self.output.push(line.clone());
                    if let Some((_, rest)) = line.split_once(what) {
                        return rest.trim().to_owned();
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("never `{what}`: {:?}", self.output),
                Err(RecvTimeoutError::Disconnected) => panic!("not `{what}`: {:?}", self.output),
            }
        }
    }

    /// Whether a line contained `what`, waited for or not.
    pub(crate) fn has_printed(&mut self, what: &str) -> bool {
        self.output.extend(self.lines.try_iter());
        self.output.iter().any(|line| line.contains(what))
    }

    /// Waits until a client has an answer from this generation of the server; it prints each one but the first.
    pub(crate) fn wait_for_generation(&mut self, generation: u64) {
        let line = format!("answered by generation {generation}");
        if generation > 1 && !self.has_printed(&line) {
            self.wait_for_line(&line);
        }
    }

    /// Closes its standard input.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Its exit status, with all of its output; fails unless it ends in this time.
    pub(crate) fn wait_exit(&mut self, patience: Duration) -> ExitStatus {
        if self.child.try_wait().unwrap().is_none() {
            let ended = verbena_testing::process_ends(self.child.id(), patience);
            self.output.extend(self.lines.try_iter());
            assert!(ended, "it does not end: {:?}", self.output);
        }
        let status = self.child.wait().unwrap();
        // The reader threads end with the pipes.
        self.output.extend(self.lines.iter());
        status
    }

    /// Whether it has not ended; if it has, all of its output is read.
    pub(crate) fn is_running(&mut self) -> bool {
        let running = self.child.try_wait().unwrap().is_none();
        if !running {
            // The reader threads end with the pipes.
            self.output.extend(self.lines.iter());
        }
        running
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
