//! `cargo xtask instructions`: counts the instructions of a few fixed scenarios and compares them with the kept counts.
//! It fails if one takes 1 % more than the file, or 5 % more with another compiler than the file names, and rewrites the file with `--write`.
//! Time is not measured: unlike time, a count is the same on a busy machine.

mod judge;
mod record;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;

use crate::command::{Tool, find};
use crate::packages;
use crate::step::Outcome;
use crate::workspace::Workspace;
use record::{Record, Toolchain};

/// The file of the counts.
const FILE: &str = "docs/performance/instructions.toml";
/// The benchmark that runs one scenario a given number of times, and its package.
const BENCH: &str = "instructions";
const PACKAGE: &str = "verbena-nic";
const VALGRIND: &str = "valgrind";
/// The C library's copy functions are limited to SSE2, which every x86-64 has: by default it selects by the processor, and a
/// copy of 64 KiB may then be one instruction per 32 bytes or (as callgrind counts `rep movsb`) one per byte.
const TUNABLES: &str =
    "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX_Fast_Unaligned_Load,-SSSE3,-ERMS,-FSRM";

const LACKING: &str =
    "`valgrind` is missing (needed to count instructions); on Debian: apt-get install valgrind";

/// A fixed amount of work.
struct Scenario {
    /// Its name in `benches/instructions.rs`, and its size: together its name in the file.
    case: &'static str,
    size: u32,
    /// Repetitions in the first run; the second has twice as many, so that what both share cancels out.
    times: u64,
}

impl Scenario {
    fn name(&self) -> String {
        format!("{} {}", self.case, self.size)
    }
}

const fn scenario(case: &'static str, size: u32, times: u64) -> Scenario {
    Scenario { case, size, times }
}

/// The scenarios. None has a CRC, whose computation depends on the processor.
const SCENARIOS: &[Scenario] = &[
    scenario("send", 64, 1_000),
    scenario("write", 65_536, 200),
    scenario("read", 8, 1_000),
    scenario("roce-send", 64, 1_000),
    scenario("roce-write", 65_536, 200),
    scenario("poll", 0, 10_000),
];

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Write the counts into docs/performance/instructions.toml instead of comparing
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if find(VALGRIND).is_none() {
        bail!("{LACKING}");
    }
    if options.write {
        return write(workspace);
    }
    compare(workspace)?.print();
    Ok(())
}

/// The step of the test command: this program, so that it can run beside others.
pub(crate) fn test(workspace: &Workspace) -> Result<Tool> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    Ok(Tool::new(own)
        .arg("instructions")
        .current_dir(&workspace.root))
}

/// The outcome of the step if nothing can be counted: a missing program is a failure in CI, and reported elsewhere.
pub(crate) fn missing() -> Result<Option<Outcome>> {
    match find(VALGRIND) {
        Some(_) => Ok(None),
        None => uncounted(packages::in_ci()).map(Some),
    }
}

/// Builds the benchmark, if it can be counted.
pub(crate) fn prepare(workspace: &Workspace) -> Result<()> {
    if find(VALGRIND).is_some() {
        build(workspace)?;
    }
    Ok(())
}

fn uncounted(ci: bool) -> Result<Outcome> {
    if ci {
        bail!("{LACKING}");
    }
    Ok(Outcome::Lacking(LACKING.to_owned()))
}

fn compare(workspace: &Workspace) -> Result<Outcome> {
    let path = workspace.root.join(FILE);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("cannot read {FILE}; create it with `cargo xtask instructions --write`")
    })?;
    let kept = Record::parse(&text).with_context(|| format!("cannot parse {FILE}"))?;
    let maker = Toolchain::current()?;
    // Other processors have other instructions: there is nothing to compare.
    if kept.made.architecture != maker.architecture {
        return Ok(Outcome::Lacking(format!(
            "{FILE} has the instruction counts of {}, and this is {}",
            kept.made.architecture, maker.architecture
        )));
    }
    let counted = count_all(workspace)?;
    judge::outcome(&kept, &maker, &counted)
}

fn write(workspace: &Workspace) -> Result<()> {
    let record = Record {
        made: Toolchain::current()?,
        instructions: count_all(workspace)?,
    };
    let path = workspace.root.join(FILE);
    std::fs::write(&path, record.text()).with_context(|| format!("cannot write {FILE}"))?;
    println!("{FILE} is updated; state in the commit message why the counts changed");
    Ok(())
}

/// The instructions of each scenario, by name.
fn count_all(workspace: &Workspace) -> Result<BTreeMap<String, u64>> {
    let binary = build(workspace)?;
    let mut counts = BTreeMap::new();
    for scenario in SCENARIOS {
        let once = collect(&binary, scenario, scenario.times)?;
        let twice = collect(&binary, scenario, 2 * scenario.times)?;
        let each = per_repetition(once, twice, scenario.times)
            .with_context(|| format!("`{}` was not counted", scenario.name()))?;
        println!("{:<12} {each:>8} instructions", scenario.name());
        counts.insert(scenario.name(), each);
    }
    Ok(counts)
}

/// Builds the benchmark, and gets its path from cargo.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let tool = workspace
        .cargo()
        .args(["bench", "--package", PACKAGE, "--bench", BENCH, "--no-run"])
        .arg("--message-format=json-render-diagnostics");
    eprintln!("$ {}", tool.shown());
    executable(&tool.output()?)
}

/// A line of what `cargo --message-format=json` prints, reduced to what we use.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

fn executable(messages: &str) -> Result<PathBuf> {
    for line in messages.lines() {
        let message: Message = serde_json::from_str(line)
            .with_context(|| format!("cannot parse a message of cargo: {line}"))?;
        let (Some(target), Some(executable)) = (message.target, message.executable) else {
            continue;
        };
        if target.name == BENCH && target.kind.iter().any(|kind| kind == "bench") {
            return Ok(executable);
        }
    }
    bail!("cargo built no benchmark `{BENCH}` of {PACKAGE}")
}

/// The instructions of a whole run.
fn collect(binary: &Path, scenario: &Scenario, times: u64) -> Result<u64> {
    let tool = Tool::new(VALGRIND)
        // Without the settings of the user's files and environment.
        .args(["--command-line-only=yes", "--tool=callgrind", "--vgdb=no"])
        .args(["--callgrind-out-file=/dev/null", "--log-fd=1"])
        .arg(binary)
        .args([scenario.case.to_owned(), scenario.size.to_string()])
        .arg(times.to_string())
        .env("GLIBC_TUNABLES", TUNABLES);
    let shown = tool.shown();
    let text = tool.output()?;
    collected(&text).with_context(|| format!("`{shown}` printed no count but: {text}"))
}

/// The number in valgrind's line `==123== Collected : 456`.
fn collected(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .filter(|line| line.starts_with("=="))
        .find_map(|line| line.split_once(" Collected : "));
    line?.1.trim().parse().ok()
}

/// The instructions of one repetition, rounded; a scenario without instructions is an error.
fn per_repetition(once: u64, twice: u64, times: u64) -> Result<u64> {
    let Some(more) = twice.checked_sub(once) else {
        bail!("{times} took {once} instructions and twice as many took fewer, {twice}");
    };
    let each = (more + times / 2) / times;
    if each == 0 {
        bail!("{times} took {once} instructions and twice as many {twice}: nothing was run");
    }
    Ok(each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_is_parsed_from_valgrind_output() {
        let text = "==7== Callgrind, a call-graph generating cache profiler\n==7== \n\
                    ==7== Events    : Ir\n==7== Collected : 11117437\n==7== \n";
        assert_eq!(collected(text), Some(11_117_437));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
        assert_eq!(collected("==7== Collected : many\n"), None);
        // Output of the program itself is not valgrind's.
        assert_eq!(collected("a Collected : 5\n"), None);
    }

    #[test]
    fn common_cost_of_both_runs_cancels() {
        assert_eq!(per_repetition(1_400, 1_800, 100).unwrap(), 4);
        assert_eq!(per_repetition(1_000, 1_349, 100).unwrap(), 3);
        assert_eq!(per_repetition(1_000, 1_350, 100).unwrap(), 4);
    }

    /// The benchmark prints its usage, and exits with 0, when it does not know a scenario.
    #[test]
    fn scenario_without_instructions_is_an_error() {
        assert!(per_repetition(1_000, 1_000, 100).is_err());
        assert!(per_repetition(1_000, 1_010, 100).is_err());
        assert!(per_repetition(1_000, 900, 100).is_err());
    }

    #[test]
    fn benchmark_path_is_parsed_from_cargo_messages() {
        let library = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"instructions"},"executable":null}"#;
        let test = r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"instructions"},"executable":"/t/test"}"#;
        let bench = r#"{"reason":"compiler-artifact","target":{"kind":["bench"],"name":"instructions"},"executable":"/t/bench"}"#;
        let end = r#"{"reason":"build-finished","success":true}"#;
        let text = [library, test, bench, end].join("\n");
        assert_eq!(executable(&text).unwrap(), PathBuf::from("/t/bench"));
        assert!(executable(&[library, test, end].join("\n")).is_err());
        assert!(executable("not a message").is_err());
    }

    #[test]
    fn missing_valgrind_fails_only_in_ci() {
        assert!(uncounted(true).is_err());
        let Ok(Outcome::Lacking(what)) = uncounted(false) else {
            panic!("it passed");
        };
        assert!(what.contains("apt-get install valgrind"), "{what}");
    }

    /// The file in the repository can be read, and has exactly the scenarios that are counted.
    #[test]
    fn kept_file_has_exactly_the_scenarios() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = std::fs::read_to_string(root.join(FILE)).unwrap();
        let kept = Record::parse(&text).unwrap();
        let mut names: Vec<String> = SCENARIOS.iter().map(Scenario::name).collect();
        names.sort();
        let lines: Vec<String> = kept.instructions.keys().cloned().collect();
        assert_eq!(lines, names);
        // Written by `--write` and not by hand.
        assert_eq!(kept.text(), text);
    }
}
