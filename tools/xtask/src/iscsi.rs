//! `cargo xtask iscsi`: measures our initiator, with and without polling, beside libiscsi's `iscsi-perf` and beside a loop on libiscsi with
//! the same memory use as ours, by turns at one target in one run. It prints medians over the rounds and the processor time of each
//! initiator. The target is started for the run and removed afterwards; the docs are not written.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::command::find;
use crate::median::median;
use crate::packages;
use crate::workspace::Workspace;

const NAME: &str = "iqn.2026-11.org.verbena:bench";
const PORTAL: &str = "127.0.0.1:13260";
/// It fits into the page cache: the disk is not measured.
const DISK: u64 = 512 << 20;
const BLOCK: u64 = 512;

/// What is measured: random reads of this many bytes, this many at once.
const LOADS: [(&str, u64, u32); 4] = [
    ("4 KiB, depth 1", 4 << 10, 1),
    ("4 KiB, depth 64", 4 << 10, 64),
    ("1 MiB, depth 1", 1 << 20, 1),
    ("1 MiB, depth 8", 1 << 20, 8),
];

/// tgtd keeps its memory from one request to the next. Otherwise the C library returns the memory of long requests to the system each
/// time, or not, depending on its adaptive thresholds, and the target is twice as fast in one run as in another.
const TGTD_ENV: [(&str, &str); 2] = [
    ("MALLOC_MMAP_THRESHOLD_", "33554432"),
    ("MALLOC_TRIM_THRESHOLD_", "1073741824"),
];

/// The initiators that are measured: the first three always.
const INITIATORS: [&str; 5] = [
    "verbena",
    "iscsi-perf",
    "equal loop",
    "verbena, --poll-us 0",
    "verbena, --discard",
];
/// Up to this depth our initiator polls before it sleeps (`storage/disks/src/session/sleep_poll.rs`); the fourth does not poll. The fifth is
/// measured at depths above 1; all its reads share their memory, as in `iscsi-perf`.
const POLL_DEPTH: u32 = 4;

#[derive(Args)]
pub(crate) struct Options {
    /// Rounds, each of which measures every initiator once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    seconds: u16,
    /// Use the program of the last build
    #[arg(long)]
    no_build: bool,
}

/// The result of one turn.
#[derive(Clone, Copy)]
struct Figures {
    iops: f64,
    /// Processor seconds of the initiator per gigabyte.
    cpu: f64,
}

/// A target with its disk.
struct Target {
    child: Child,
    folder: PathBuf,
}

impl Target {
    fn start() -> Result<Target> {
        let folder = std::env::temp_dir().join(format!("verbena-bench-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let disk = folder.join("disk");
        // Written, so that no read finds a hole.
        let mut file = File::create(&disk)?;
        for _ in 0..DISK >> 20 {
            file.write_all(&[0x5a; 1 << 20])?;
        }
        // Flushed now, and not during a measurement.
        file.sync_all()?;
        let child = Command::new("tgtd")
            .args(["-f", "--iscsi", &format!("portal={PORTAL}")])
            .env("TGT_IPC_SOCKET", folder.join("control"))
            .envs(TGTD_ENV)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let target = Target { child, folder };
        let end = Instant::now() + Duration::from_secs(10);
        while !target.tgtadm("--op show --mode sys")? {
            if Instant::now() > end {
                bail!("tgtd does not answer");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let commands = [
            format!("--lld iscsi --op new --mode target --tid 1 -T {NAME}"),
            format!(
                "--lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b {}",
                disk.display()
            ),
            "--lld iscsi --op bind --mode target --tid 1 -I ALL".to_owned(),
        ];
        for words in &commands {
            if !target.tgtadm(words)? {
                bail!("tgtadm {words} failed");
            }
        }
        Ok(target)
    }

    fn tgtadm(&self, words: &str) -> Result<bool> {
        let mut command = Command::new("tgtadm");
        command.env("TGT_IPC_SOCKET", self.folder.join("control"));
        let ran = command.args(words.split(' ')).output()?;
        Ok(ran.status.success())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if let Some(missing) = ["tgtd", "iscsi-perf"].iter().find(|p| find(p).is_none()) {
        packages::ensure(true, false)?;
        if find(missing).is_none() {
            bail!("{missing} is not installed");
        }
    }
    if !options.no_build {
        let build = ["build", "--release", "--package", "verbena-cli"];
        workspace.cargo().args(build).run()?;
    }
    let verbena = workspace.target.join("release/verbena");
    let target = Target::start()?;
    let equal = build_equal(&target.folder)?;
    println!(
        "| random reads | initiator | requests/s | MB/s | CPU s/GB | to iscsi-perf | to the equal loop |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, size, depth) in LOADS {
        let mut turns = [const { Vec::new() }; INITIATORS.len()];
        let our = |more: &[&str]| run_verbena(&verbena, size, depth, options.seconds, more);
        for _ in 0..options.rounds {
            turns[0].push(our(&[])?);
            turns[1].push(run_iscsi_perf(size, depth, options.seconds)?);
            turns[2].push(run_equal_loop(&equal, size, depth, options.seconds)?);
            if depth <= POLL_DEPTH {
                turns[3].push(our(&["--poll-us", "0"])?);
            }
            if depth > 1 {
                turns[4].push(our(&["--discard"])?);
            }
        }
        let middle = |turns: &[Figures], column: fn(&Figures) -> f64| {
            median(turns.iter().map(column)).unwrap_or(f64::NAN)
        };
        let rate = |turns: &[Figures]| middle(turns, |f| f.iops);
        let (perf, equal) = (rate(&turns[1]), rate(&turns[2]));
        for (who, turns) in INITIATORS
            .iter()
            .zip(&turns)
            .filter(|(_, turns)| !turns.is_empty())
        {
            let iops = rate(turns);
            let cpu = middle(turns, |f| f.cpu);
            println!(
                "| {name} | {who} | {iops:.0} | {:.0} | {cpu:.3} | {:.2} | {:.2} |",
                iops * size as f64 / 1e6,
                iops / perf,
                iops / equal,
            );
        }
    }
    println!(
        "Medians of {} rounds of {} s.",
        options.rounds, options.seconds
    );
    Ok(())
}

fn url() -> String {
    format!("iscsi://{PORTAL}/{NAME}/1")
}

fn run_verbena(
    verbena: &Path,
    size: u64,
    depth: u32,
    seconds: u16,
    more: &[&str],
) -> Result<Figures> {
    let mut command = Command::new(verbena);
    command.args(["iscsi", "bench", &url(), "--rw", "randread", "--json"]);
    command.args(["--size", &size.to_string(), "--depth", &depth.to_string()]);
    command.args(["--seconds", &seconds.to_string()]).args(more);
    let (said, cpu) = timed(&mut command)?;
    let json: serde_json::Value =
        serde_json::from_str(&said).context("cannot parse the output of `verbena iscsi bench`")?;
    let iops = json["requests_per_second"].as_f64();
    figures(iops, cpu, size, seconds).with_context(|| said)
}

/// Builds the loop on libiscsi in which, as in our initiator, every request has memory of its own. `iscsi-perf` passes none: libiscsi
/// allocates it for each response.
fn build_equal(folder: &Path) -> Result<PathBuf> {
    let (source, program) = (folder.join("equal.c"), folder.join("equal"));
    std::fs::write(&source, include_str!("iscsi/equal.c"))?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-o"]).arg(&program).arg(&source);
    let made = gcc.arg("-liscsi").output()?;
    if !made.status.success() {
        bail!("{}", String::from_utf8_lossy(&made.stderr));
    }
    Ok(program)
}

fn run_equal_loop(equal: &Path, size: u64, depth: u32, seconds: u16) -> Result<Figures> {
    let mut command = Command::new(equal);
    command.args([url(), size.to_string(), depth.to_string()]);
    command.arg(seconds.to_string());
    rated(&mut command, size, seconds)
}

fn run_iscsi_perf(size: u64, depth: u32, seconds: u16) -> Result<Figures> {
    let mut command = Command::new("iscsi-perf");
    command.args(["-r", "-m", &depth.to_string(), "-t", &seconds.to_string()]);
    command.args(["-b", &(size / BLOCK).to_string(), &url()]);
    rated(&mut command, size, seconds)
}

/// Runs a program that prints its average rate at the end.
fn rated(command: &mut Command, size: u64, seconds: u16) -> Result<Figures> {
    let (said, cpu) = timed(command)?;
    let average = said
        .rsplit("iops average ")
        .next()
        .and_then(|rest| rest.split(' ').next()?.parse().ok());
    figures(average, cpu, size, seconds).with_context(|| said)
}

fn figures(iops: Option<f64>, cpu: f64, size: u64, seconds: u16) -> Result<Figures> {
    let iops = iops.context("the output has no rate")?;
    let gigabytes = iops * f64::from(seconds) * size as f64 / 1e9;
    Ok(Figures {
        iops,
        cpu: cpu / gigabytes,
    })
}

/// Runs a program; returns its output, and the processor time it took, as reported by bash.
fn timed(command: &mut Command) -> Result<(String, f64)> {
    let program = command.get_program().to_owned();
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let ran = Command::new("bash")
        .args(["-c", "TIMEFORMAT='%U %S'; time \"$@\"", "time"])
        .arg(program)
        .args(words)
        .output()?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ran.stderr);
    if !ran.status.success() {
        bail!("{command:?}: {errors}");
    }
    let last = errors.trim_end().lines().last().unwrap_or_default();
    let times = last.split(' ').map(str::parse::<f64>);
    let cpu = times.sum::<Result<f64, _>>();
    Ok((said, cpu.with_context(|| errors.clone().into_owned())?))
}
