//! One run of one case: both processes, their end, and their output.
//! No process of a run is left when it returns, whether it gave a number, exceeded its limit or was interrupted.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::case::{Case, Topology};
use super::contender::Setting;
use super::output::Outputs;
use super::series::Sample;
use super::veth::Veth;
use crate::clients::process::{End, Process, Start};
use crate::clients::user::User;

/// Interval of checks for an end.
const TICK: Duration = Duration::from_millis(2);
/// How long a server may take to listen.
const LISTEN: Duration = Duration::from_secs(5);
/// How long a server may take to end after its client.
const LINGER: Duration = Duration::from_secs(3);
/// The largest path MTU of RoCEv2, for datagrams of a burst.
const ROCE_MTU: u32 = 4096;
/// Ticks of processor time per second, as the kernel counts it.
const TICKS: f64 = 100.0;

/// Set by the signal handler to end the run.
pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// What all runs have in common.
pub(crate) struct Bench {
    pub(crate) worker: PathBuf,
    pub(crate) libraries: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) veths: Vec<(u32, Veth)>,
    pub(crate) seconds: f64,
    pub(crate) limit: Duration,
}

impl Bench {
    pub(crate) fn run(&self, case: &Case, port: u16) -> Result<Sample> {
        let veth = match case.topology {
            Topology::Loopback => None,
            Topology::Veth(mtu) => {
                let found = self.veths.iter().find(|(own, _)| *own == mtu);
                Some(&found.context("no such veth pair")?.1)
            }
        };
        let setting = Setting {
            address: veth.map_or("127.0.0.1", |_| Veth::SERVER).to_owned(),
            port,
            loopback: veth.is_none(),
            worker: self.worker.to_string_lossy().into_owned(),
            libraries: self.libraries.to_string_lossy().into_owned(),
            seconds: self.seconds,
            datagram: case.topology.datagram(),
            segment: case.topology.datagram().min(ROCE_MTU),
        };
        let commands = case.contender.commands(case.measure, case.size, &setting);
        let start = |side: usize, command: &[String]| {
            let mut all = veth.map_or_else(Vec::new, |veth| veth.enter(side));
            all.extend_from_slice(command);
            Start {
                command: &all,
                env: &commands.env,
                user: User::Own,
                folder: &self.folder,
                label: ["server", "caller"][side],
            }
            .start()
        };
        let before = children();
        let mut server = start(0, &commands.server)?;
        if !server.wait_listening(port, Instant::now() + LISTEN)? {
            bail!("the server does not listen: {}", complaint(&server));
        }
        let mut caller = start(1, &commands.caller)?;
        let end = wait(&mut caller, self.limit)?;
        if end != Some(End::Code(0)) {
            bail!("{}: {}", describe_end(end), complaint(&caller));
        }
        if wait(&mut server, LINGER)?.is_none() {
            server.signal(rustix::process::Signal::KILL);
        }
        let (served, printed) = (server.output(), caller.output());
        // Reaped, so that the kernel has added their processor time.
        drop((server, caller));
        commands.run.read(Outputs {
            server: &served,
            caller: &printed,
            cpu: children() - before,
        })
    }
}

/// How it ended, or none if the limit was exceeded.
fn wait(process: &mut Process, limit: Duration) -> Result<Option<End>> {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        if interrupted() {
            bail!("interrupted");
        }
        if let Some(end) = process.try_wait()? {
            return Ok(Some(end));
        }
        std::thread::sleep(TICK);
    }
    Ok(None)
}

fn describe_end(end: Option<End>) -> String {
    match end {
        None => "it exceeded the time limit".to_owned(),
        Some(End::Code(code)) => format!("it ended with {code}"),
        Some(end) => format!("{end:?}"),
    }
}

/// The first line that a process printed, of standard error if there is one.
fn complaint(process: &Process) -> String {
    let all = format!("{}\n{}", process.stderr(), process.output());
    let first = all.lines().find(|line| !line.trim().is_empty());
    first.unwrap_or("it printed nothing").trim().to_owned()
}

/// Processor seconds of our children that have ended.
fn children() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    waited(&text).unwrap_or(f64::NAN)
}

/// Fields 16 and 17 of the kernel's line; the name before them may contain spaces.
fn waited(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(13);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_time_is_parsed_behind_any_name() {
        let line = "7 (a) b) S 1 7 7 0 -1 4194304 100 200 0 0 11 12 130 25 20 0 1 0 5 6 7";
        assert_eq!(waited(line), Some(1.55));
        assert_eq!(waited("7 (a"), None);
        assert!(children().is_finite());
    }
}
