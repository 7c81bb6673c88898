//! `cargo xtask test`: everything that must hold before a change lands, in the order of cost.
//! CI runs exactly this, and so does a contributor; a new machine needs only Rust to start it.

use std::cell::OnceCell;
use std::num::NonZero;

use anyhow::{Result, bail};
use clap::Args;

use crate::background::Background;
use crate::command::Tool;
use crate::dropin::Build;
use crate::step::Steps;
use crate::workspace::Workspace;
use crate::{clients, dropin, instructions, loom, package, packages, schedules, sim, tidy};

// The steps that run in the background.
const CLIPPY: &str = "clippy";
const MODELS: &str = "models";
const SCHEDULES: &str = "schedules";
const SIMULATOR: &str = "simulator";
const DOCUMENTATION: &str = "documentation";
const INSTRUCTIONS: &str = "instruction counts";

/// Seeds that the simulator runs in every test run.
const SEEDS: u64 = 200;
/// Seeds of a long run.
const SEEDS_LONG: u64 = 5_000;

#[derive(Args)]
pub(crate) struct Options {
    /// Run longer: more seeds, every case of real programs as every user, and LONG_TESTS=1 for the tests
    #[arg(long)]
    long: bool,
    /// Never install packages, even as root
    #[arg(long)]
    no_install: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let background = OnceCell::new();
    let finish = |title| match background.get() {
        Some(background) => Background::finish(background, title),
        None => bail!("it was not started"),
    };
    let mut steps = Steps::default();
    steps.add_outcome("programs the tests need", || {
        packages::ensure(!options.no_install, options.long)
    });
    steps.add("format", || format(workspace).run());
    steps.add("tidy", || tidy::run(workspace, &tidy::Options::default()));
    steps.add("build", || build(workspace, options.long));
    steps.add("tests", || {
        // There is none yet.
        let _ = background.set(start_background(workspace, options.long)?);
        tests(workspace, options.long).run()
    });
    steps.add_outcome("clients", || clients::test(workspace, options.long));
    for title in [CLIPPY, MODELS, SCHEDULES, SIMULATOR, DOCUMENTATION] {
        steps.add_outcome(title, move || finish(title));
    }
    steps.add_outcome(INSTRUCTIONS, || match instructions::missing()? {
        Some(missing) => Ok(missing),
        None => finish(INSTRUCTIONS),
    });
    if options.long {
        steps.add_outcome("packages", || package::test(workspace));
    }
    steps.run()
}

/// What takes processors and no particular time: while the tests wait for each other, and the real programs after them, processors are idle.
fn start_background(workspace: &Workspace, long: bool) -> Result<Background> {
    let seeds = if long { SEEDS_LONG } else { SEEDS };
    let steps = [
        (CLIPPY, vec![clippy(workspace)]),
        (MODELS, vec![loom::test(workspace)]),
        (SCHEDULES, schedules::test(workspace, long)),
        (SIMULATOR, sim::test(workspace, seeds)),
        (DOCUMENTATION, vec![documentation(workspace)]),
        (INSTRUCTIONS, vec![instructions::test(workspace)?]),
    ];
    Ok(Background::start(workspace, steps))
}

fn format(workspace: &Workspace) -> Tool {
    workspace.cargo().args(["fmt", "--all", "--check"])
}

/// With a build folder of its own: tests that call Cargo would wait for its lock.
fn clippy(workspace: &Workspace) -> Tool {
    let clippy = ["clippy", "--workspace", "--all-targets", "--target-dir"];
    let deny = ["--", "-D", "warnings"];
    let folder = workspace.target.join("clippy");
    workspace.cargo().args(clippy).arg(folder).args(deny)
}

/// Compiles the tests, and what other steps and some tests need: the benchmark that is counted beside them, because its build compiles one
/// crate after the other for the most part and alone would leave processors idle; and the drop-in libraries.
fn build(workspace: &Workspace, long: bool) -> Result<()> {
    std::thread::scope(|scope| {
        let others = scope.spawn(|| instructions::prepare(workspace));
        let tests = tests(workspace, false).arg("--no-run").run();
        let others = others.join();
        tests?;
        others.unwrap_or_else(|_| bail!("a build panicked"))
    })?;
    // A long run takes the build that is installed.
    let from = if long { Build::Release } else { Build::Tests };
    dropin::build_complete(workspace, from)
}

/// Plain `cargo test`: it needs no further program and runs the documentation's examples too.
/// The fuzz corpora are replayed here, by the tests of the fuzz crate.
fn tests(workspace: &Workspace, long: bool) -> Tool {
    let tool = workspace
        .cargo()
        .args(["test", "--workspace", "--no-fail-fast"])
        // Built in the step before: a test must not be skipped because they are missing.
        .env("DROPIN_REQUIRED", "1")
        .env("RUST_TEST_THREADS", test_threads());
    if long {
        tool.env("LONG_TESTS", "1")
    } else {
        tool
    }
}

/// How many tests run at once: the environment's choice, or two for each processor, as many wait for a peer's timeout most of their time.
fn test_threads() -> String {
    std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        (2 * processors).to_string()
    })
}

/// Of the packages that are published: their pages are read.
fn documentation(workspace: &Workspace) -> Tool {
    let packages = workspace.packages.iter();
    let private = packages.filter(|package| !package.is_published());
    let exclude = private.flat_map(|package| ["--exclude", &package.name]);
    workspace
        .cargo()
        .args(["doc", "--workspace", "--no-deps"])
        .args(exclude)
        .env("RUSTDOCFLAGS", "-D warnings")
}
