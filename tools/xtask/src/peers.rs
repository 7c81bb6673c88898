//! `cargo xtask peers`: measures Verbena beside raw TCP, iperf3, UCX and libfabric, by turns in one run.
//! It prints medians over rounds in which every contender had a turn, and the project's targets. When interrupted, it removes what it created.
//! The docs are written only with `--write`; a contender without a number is not compared.

mod case;
mod contender;
mod measure;
mod output;
mod page;
mod plot;
mod results;
mod series;
mod targets;
pub(crate) mod veth;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

use crate::clients::user;
use crate::command::find;
use crate::workspace::Workspace;
use crate::{dropin, packages};
use case::{Case, Topology};
use contender::PROGRAMS;
use measure::{Bench, INTERRUPTED, interrupted};
use page::RunInfo;
use results::Results;
use veth::Veth;

/// The folder of the page, the numbers and the pictures.
const FOLDER: &str = "docs/performance";
const WORKER: &str = "verbena-peers";
/// Each run has a port of its own, below the ephemeral range.
const PORTS: std::ops::Range<u16> = 10_000..19_000;

#[derive(Args)]
pub(crate) struct Options {
    /// Rounds, each of which runs every contender once (default: 3, with --quick 2)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Measure only cases whose name contains this; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the cases and measure nothing
    #[arg(long)]
    list: bool,
    /// Fewer sizes, shorter measurements, two rounds: two minutes instead of ten
    #[arg(long)]
    quick: bool,
    /// Write the page, the numbers and the plots into docs/performance
    #[arg(long)]
    write: bool,
    /// Use the libraries and the worker of the last build, and start no cargo: for a machine to which the files were copied
    #[arg(long)]
    no_build: bool,
    /// Where those are, as `release/verbena-peers` and `dropin/` (default: CARGO_TARGET_DIR, else `target`)
    #[arg(long, value_name = "FOLDER", requires = "no_build")]
    from: Option<PathBuf>,
}

impl Options {
    /// The folders that are used instead of cargo's answer if nothing is built: `--write` writes below the current one.
    pub(crate) fn prebuilt(&self) -> Result<Option<Workspace>> {
        if !self.no_build {
            return Ok(None);
        }
        let root = std::env::current_dir().context("cannot find the current folder")?;
        let usual = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
        // Programs run in another folder.
        let target = root.join(self.from.as_ref().unwrap_or(&usual));
        Ok(Some(Workspace {
            root,
            target,
            packages: Vec::new(),
        }))
    }

    fn wants(&self, case: &Case) -> bool {
        let name = case.name();
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    fn rounds(&self) -> usize {
        let usual = if self.quick { 2 } else { 3 };
        self.rounds.map_or(usual, usize::from)
    }

    /// How long each of our own loops measures.
    fn seconds(&self) -> f64 {
        if self.quick { 0.15 } else { 0.25 }
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let root = user::is_root();
    let cases = case::all(options.quick, root);
    let wanted: Vec<Case> = cases.into_iter().filter(|c| options.wants(c)).collect();
    if wanted.is_empty() {
        bail!("no case has a matching name; `--list` shows all names");
    }
    if options.list {
        wanted.iter().for_each(|case| println!("{}", case.name()));
        return Ok(());
    }
    if !root {
        println!("!!! NOT EVERYTHING IS MEASURED: network namespaces need root");
    }
    let wanted = present(wanted, !options.no_build)?;
    if !options.no_build {
        build(workspace)?;
    }
    // The first SIGINT ends the run in good order, the second at once.
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("\ninterrupted: taking everything away");
    })?;
    let folder = Scratch::create()?;
    let (worker, libraries) = built(workspace)?;
    let bench = Bench {
        worker,
        libraries,
        folder: folder.0.clone(),
        veths: veths(&wanted)?,
        seconds: options.seconds(),
        limit: Duration::from_secs(if options.quick { 6 } else { 12 }),
    };
    let begin = load();
    let start = Instant::now();
    let mut results = Results::new(wanted);
    rounds(&bench, &mut results, options.rounds());
    let about = RunInfo {
        machine: machine(),
        rounds: options.rounds(),
        seconds: bench.seconds,
        load: [begin, load()],
    };
    drop(bench);
    if interrupted() {
        bail!("interrupted; nothing was written");
    }
    report(workspace, options, &results, &about)?;
    println!("\nmeasured in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// The worker and the folder with the libraries.
fn built(workspace: &Workspace) -> Result<(PathBuf, PathBuf)> {
    let worker = workspace.target.join("release").join(WORKER);
    let libraries = dropin::folder(workspace);
    for file in [worker.clone(), libraries.join(dropin::LIBIBVERBS)] {
        if !file.is_file() {
            bail!("{} is missing", file.display());
        }
    }
    Ok((worker, libraries))
}

/// A folder for output, removed at the end.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn create() -> Result<Scratch> {
        let name = format!("verbena-peers-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            println!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// The cases whose programs are installed, after an attempt to install them if that is allowed; missing programs are printed with their
/// packages.
fn present(cases: Vec<Case>, install: bool) -> Result<Vec<Case>> {
    let missing = || {
        PROGRAMS
            .iter()
            .filter(|(program, _)| find(program).is_none())
    };
    if install && missing().next().is_some() {
        // What could not be installed is printed below, if it is needed here.
        packages::ensure(true, false)?;
    }
    let missing: Vec<_> = missing().collect();
    for (program, package) in &missing {
        println!(
            "!!! NOT EVERYTHING IS MEASURED: `{program}` is missing; on Debian: apt-get install {package}"
        );
        if *program == "setpriv" {
            bail!("without `setpriv` nothing can be started safely");
        }
    }
    let there = |case: &Case| {
        let lacks = |name: &str| missing.iter().any(|(program, _)| *program == name);
        !lacks(case.contender.needs()) && (case.topology == Topology::Loopback || !lacks("ip"))
    };
    Ok(cases.into_iter().filter(there).collect())
}

fn build(workspace: &Workspace) -> Result<()> {
    workspace
        .cargo()
        .args(["build", "--release", "--package", WORKER])
        .run()?;
    dropin::build_complete(workspace, dropin::Build::Release)
}

fn veths(cases: &[Case]) -> Result<Vec<(u32, Veth)>> {
    let mut veths: Vec<(u32, Veth)> = Vec::new();
    for case in cases {
        if let Topology::Veth(mtu) = case.topology
            && veths.iter().all(|(own, _)| *own != mtu)
        {
            veths.push((mtu, Veth::create(mtu)?));
        }
    }
    Ok(veths)
}

/// Every contender in turn, then all again.
fn rounds(bench: &Bench, results: &mut Results, rounds: usize) {
    let (total, mut done) = (results.rows.len() * rounds, 0);
    let mut ports = PORTS.cycle();
    for round in 1..=rounds {
        for (case, series) in &mut results.rows {
            done += 1;
            progress(&format!(
                "round {round}: {done} of {total}: {}",
                case.name()
            ));
            let port = ports.next().unwrap_or(PORTS.start);
            let sample = bench.run(case, port);
            if interrupted() {
                return;
            }
            match sample {
                Ok(sample) => series.samples.push(sample),
                Err(error) => series.lost.push(format!("{error:#}")),
            }
        }
    }
    progress("");
}

/// One line that the next one replaces, on a terminal; elsewhere an occasional line.
fn progress(text: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        // Errors of the terminal are ignored.
        let _ = write!(err, "\r\x1b[2K{text}");
        let _ = err.flush();
    } else if text.contains("0 of ") {
        eprintln!("{text}");
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("?").to_owned()
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("a processor", |m| m.trim_start_matches([':', ' ', '\t']));
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{count} processors ({model}), Linux {}", kernel.trim())
}

fn report(
    workspace: &Workspace,
    options: &Options,
    results: &Results,
    about: &RunInfo,
) -> Result<()> {
    let judged = targets::judge(results);
    println!("{}\n{}", page::tables(results), page::targets(&judged));
    print!("{}", page::load_warning(about));
    print!("{}", page::lost(results));
    if !options.write {
        return Ok(());
    }
    let folder = workspace.root.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    let mut plots = Vec::new();
    for (place, measure) in results.kinds() {
        if let Some((name, picture)) = plot::draw(results, place, measure) {
            put(&folder.join(&name), &picture)?;
            plots.push(name);
        }
    }
    let all = json!({
        "machine": about.machine,
        "rounds": about.rounds,
        "seconds": about.seconds,
        "load": about.load,
        "targets": judged,
        "results": results.rows_for_json(),
    });
    put(
        &folder.join("peers.json"),
        &serde_json::to_string_pretty(&all)?,
    )?;
    put(
        &folder.join("peers.md"),
        &page::page(results, &judged, about, &plots),
    )
}

fn put(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("written {}", path.display());
    Ok(())
}
