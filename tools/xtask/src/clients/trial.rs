//! One case, run as one user: its processes are started in order, disturbed, waited for and checked.
//! It ends within the case's limit, and prints the output of the programs if they failed.
//! A case that cannot run is skipped with a reason, never passed.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::address::{self, Peer};
use super::case::{Case, Disturbance, Ending, PEER, PEER6, PORT, SCRIPTS, Side, Topology};
use super::judge;
use super::namespace::Namespaces;
use super::process::{Process, Start};
use super::stage::Stage;
use super::user::{User, is_root};
use crate::command::find;

/// How long a server may take until it listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a server without an end is watched after its last client, for a crash or an error message.
const EXIT_GRACE: Duration = Duration::from_millis(100);

/// The words before a command that give it its own processes, shared memory and temporary files. Process numbers repeat
/// from one such host to the next, and Open MPI names its temporary files after them.
const OWN_HOST: [&str; 11] = [
    "unshare",
    "--ipc",
    "--pid",
    "--uts",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "sh",
    "-c",
    "export TMPDIR=$(mktemp -d -p \"$PWD\"); exec \"$@\"",
    "sh",
];

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// With the figure for the table, or nothing.
    Passed(String),
    Skipped(String),
    Failed(String),
}

/// A case and a user, not yet run.
pub(crate) struct Trial<'a> {
    pub(crate) case: &'a Case,
    pub(crate) user: User,
}

/// A trial that was run.
pub(crate) struct TrialResult {
    pub(crate) name: String,
    pub(crate) user: User,
    pub(crate) quick: bool,
    pub(crate) verdict: Verdict,
    pub(crate) elapsed: Duration,
}

impl Trial<'_> {
    pub(crate) fn run(&self, stage: &Stage, port: u16) -> TrialResult {
        let start = Instant::now();
        let verdict = match self.obstacle(stage) {
            Some(obstacle) => Verdict::Skipped(obstacle),
            None => match self.run_processes(stage, port) {
                Ok(figure) => Verdict::Passed(figure),
                Err(error) => Verdict::Failed(format!("{error:#}")),
            },
        };
        TrialResult {
            name: self.case.name.clone(),
            user: self.user,
            quick: self.case.quick,
            verdict,
            elapsed: start.elapsed(),
        }
    }

    /// Why it cannot run here.
    fn obstacle(&self, stage: &Stage) -> Option<String> {
        let missing = self.case.programs().find(|name| find(name).is_none());
        if let Some(name) = missing {
            return Some(format!("`{name}` is not installed"));
        }
        // The programs of a source are not there yet.
        let own = self.case.sides.iter().map(Side::program);
        let own = own.filter_map(|name| name.strip_prefix(SCRIPTS)?.strip_prefix('/'));
        let ours = self.case.source.is_none();
        if let Some(name) = own
            .filter(|_| ours)
            .find(|name| !stage.folder().join(name).exists())
        {
            return Some(format!("`{name}` could not be compiled"));
        }
        if self.case.needs_namespaces() && !is_root() {
            return Some("network namespaces need root".to_owned());
        }
        if self.case.topology == Topology::OwnAddress && Peer::own().is_none() {
            return Some("this machine has no address besides loopback".to_owned());
        }
        if self.case.over_ipv6() && !address::has_ipv6() {
            return Some("this machine has no IPv6".to_owned());
        }
        if self.case.needs_mount_namespace()
            && let Err(error) = self.user.try_mount_namespace()
        {
            return Some(format!(
                "this user cannot create a mount namespace: {error:#}"
            ));
        }
        let source = self.case.source.as_ref()?;
        source.obstacle(stage.folder())
    }

    fn peer(&self) -> Result<Peer> {
        match self.case.topology {
            Topology::Loopback => Ok(Peer::loopback()),
            Topology::OwnAddress => Peer::own().context("this machine lost its address"),
            Topology::Namespaces | Topology::SeparateHosts => Ok(Namespaces::peer()),
        }
    }

    fn run_processes(&self, stage: &Stage, port: u16) -> Result<String> {
        let mark = port.to_string();
        let namespaces = match self.case.topology {
            _ if !self.case.needs_namespaces() => None,
            Topology::Loopback | Topology::OwnAddress => Some(Namespaces::loopback(&mark)?),
            Topology::Namespaces | Topology::SeparateHosts => Some(Namespaces::create(&mark)?),
        };
        if let (Some(namespaces), Some(mtu)) = (&namespaces, self.case.mtu) {
            namespaces.set_mtu(mtu)?;
        }
        let peer = self.peer()?;
        let until = Instant::now() + self.case.limit;
        let mut processes = Vec::new();
        for (index, side) in self.case.sides.iter().enumerate() {
            let label = format!("{port}-{index}");
            let mut command = namespaces.as_ref().map_or(Vec::new(), |n| n.enter(index));
            if self.case.topology == Topology::SeparateHosts {
                command.extend(OWN_HOST.map(ToOwned::to_owned));
            }
            command.extend(traced(side, stage, &label));
            command.extend(launched(side, stage));
            for word in &mut command {
                *word = filled(word, port, &peer, stage);
            }
            let process = Start {
                command: &command,
                env: &side.env,
                user: self.user,
                folder: stage.folder(),
                label: &label,
            };
            processes.push(process.start()?);
            let last = index + 1 == self.case.sides.len();
            if !last {
                self.await_listening(&mut processes, port)?;
            }
        }
        self.disturb(&mut processes)?;
        let mut findings = Vec::new();
        let mut ends = Vec::new();
        // The client first: once it has ended, its server ends soon.
        for (process, side) in processes.iter_mut().zip(&self.case.sides).rev() {
            // No stacks of a side that may go on without end.
            let curious = !matches!(side.ending, Ending::FailureOrEndless | Ending::Endless);
            let until = match side.ending {
                Ending::Endless => until.min(Instant::now() + EXIT_GRACE),
                _ => until,
            };
            ends.push(process.wait(until, curious)?);
        }
        ends.reverse();
        let mut figures = Vec::new();
        for (index, ((side, process), end)) in self
            .case
            .sides
            .iter()
            .zip(&processes)
            .zip(&ends)
            .enumerate()
        {
            let (output, complaints) = (process.output(), process.stderr());
            findings.extend(
                judge::side(side, *end, &output, &complaints)
                    .into_iter()
                    .map(|finding| format!("{}: {finding}", side.program())),
            );
            if let Some(check) = side.trace {
                match check(&read_trace(stage, &format!("{port}-{index}"))) {
                    Ok(figure) => figures.push(figure),
                    Err(finding) => findings.push(finding),
                }
            }
            if index + 1 == processes.len() && findings.is_empty() {
                match judge::figure(self.case.figure, &output) {
                    Ok(figure) => figures.push(figure),
                    Err(finding) => findings.push(finding),
                }
            }
        }
        if findings.is_empty() {
            figures.retain(|figure| !figure.is_empty());
            return Ok(figures.join("; "));
        }
        self.print_failure(&processes, &findings);
        bail!("{}", findings.join("; "))
    }

    fn await_listening(&self, processes: &mut [Process], port: u16) -> Result<()> {
        let Some(server) = processes.last_mut() else {
            return Ok(());
        };
        let until = Instant::now() + LISTEN_TIMEOUT;
        let (ready, port) = match self.case.udp {
            Some(port) => (server.wait_bound(port, until)?, port),
            None => (server.wait_listening(port, until)?, port),
        };
        if ready {
            return Ok(());
        }
        let finding = format!("the server does not listen on port {port}");
        self.print_failure(processes, std::slice::from_ref(&finding));
        bail!(finding)
    }

    fn disturb(&self, processes: &mut [Process]) -> Result<()> {
        let Some((side, after, disturbance)) = self.case.disturbance else {
            return Ok(());
        };
        let Some(process) = processes.get_mut(side) else {
            bail!("the case has a fault for side {side}, which does not exist");
        };
        std::thread::sleep(after);
        if process.try_wait()?.is_some() {
            let finding = "it ended before the fault was injected".to_owned();
            self.print_failure(processes, std::slice::from_ref(&finding));
            bail!(finding)
        }
        match disturbance {
            Disturbance::Kill => process.signal(Signal::KILL),
            Disturbance::Pause(time) => {
                process.signal(Signal::STOP);
                std::thread::sleep(time);
                process.signal(Signal::CONT);
            }
        }
        Ok(())
    }

    /// Prints what is needed to find the cause.
    fn print_failure(&self, processes: &[Process], findings: &[String]) {
        let mut text = format!("!!! {} as {}:\n", self.case.name, self.user);
        for finding in findings {
            let _ = writeln!(text, "    {finding}");
        }
        for process in processes {
            let _ = writeln!(text, "    $ {}", process.shown);
            for (name, content) in [("out", process.output()), ("err", process.stderr())] {
                for line in tail(&content) {
                    let _ = writeln!(text, "      {name}: {line}");
                }
            }
        }
        print!("{text}");
    }
}

/// The last lines.
fn tail(text: &str) -> Vec<&str> {
    const LINES: usize = 40;
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    lines[from..].to_vec()
}

fn traced(side: &Side, stage: &Stage, label: &str) -> Vec<String> {
    let Some(_) = side.trace else {
        return Vec::new();
    };
    let file = trace_file(stage, label);
    ["strace", "-f", "-qq", "-o", &file]
        .map(ToOwned::to_owned)
        .to_vec()
}

fn trace_file(stage: &Stage, label: &str) -> String {
    let path = stage.folder().join(format!("{label}.strace"));
    path.to_string_lossy().into_owned()
}

fn read_trace(stage: &Stage, label: &str) -> String {
    std::fs::read(trace_file(stage, label))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

fn launched(side: &Side, stage: &Stage) -> Vec<String> {
    let mut command = Vec::new();
    if let Some(options) = &side.launch {
        command.extend([stage.command(), "run".to_owned()]);
        command.extend(options.iter().cloned());
        command.push("--".to_owned());
    }
    command.extend(side.command.iter().cloned());
    command
}

fn filled(word: &str, port: u16, peer: &Peer, stage: &Stage) -> String {
    word.replace(PORT, &port.to_string())
        .replace(PEER, &peer.v4)
        .replace(PEER6, &peer.v6)
        .replace(SCRIPTS, &stage.folder().to_string_lossy())
}
