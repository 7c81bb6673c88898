//! `cargo xtask schedules`: runs whole engines in the simulated operating system under randomised schedules, one after the other by seed.
//! They are built separately, because one flag changes every crate. A seed that fails is printed, and fails again when it is run alone.
//! Two races of the past are looked for without their mends: there a seed must fail (docs/schedules.md).

use anyhow::Result;
use clap::Args;

use crate::command::Tool;
use crate::workspace::Workspace;

/// Seeds of every test run.
const SEEDS: u64 = 1_000;
/// Seeds of a long run.
const SEEDS_LONG: u64 = 50_000;
/// Mends that the program can leave out, by the names that it knows (`crates/engine/src/sys/simulated/mends.rs`).
const MENDS: [&str; 2] = ["lookup-after-retire", "state-by-number"];

#[derive(Args)]
pub(crate) struct Options {
    /// How many seeds to run
    #[arg(long, default_value_t = SEEDS)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Print what the program of each seed does
    #[arg(long)]
    trace: bool,
    /// Leave out the mend of a race that was found late; succeeds only if a seed fails by that race
    #[arg(long, value_name = "MEND", value_parser = MENDS)]
    without_mend: Option<String>,
}

impl Options {
    /// Those of `cargo xtask test`.
    pub(crate) fn test(long: bool) -> Options {
        Options {
            seeds: if long { SEEDS_LONG } else { SEEDS },
            first: 0,
            trace: false,
            without_mend: None,
        }
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    tool(workspace, options).run()
}

/// The step of `cargo xtask test`: the seeds pass, and without each of the mends one of them fails.
pub(crate) fn test(workspace: &Workspace, long: bool) -> Vec<Tool> {
    let seeds = [Options::test(long)].into_iter();
    let without_mends = MENDS.map(|mend| Options {
        without_mend: Some(mend.to_owned()),
        ..Options::test(false)
    });
    seeds
        .chain(without_mends)
        .map(|options| tool(workspace, &options))
        .collect()
}

fn build(workspace: &Workspace) -> Tool {
    workspace
        .cargo_with_cfg("shuttle")
        .args(["test", "--release", "--package", "verbena-engine"])
        .args(["--test", "schedules"])
        // The checks of the code stay.
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
}

fn tool(workspace: &Workspace, options: &Options) -> Tool {
    let tool = build(workspace)
        .arg("--")
        .args([options.seeds, options.first].map(|n| n.to_string()))
        .args(&options.without_mend);
    if options.trace {
        tool.env("SCHEDULES_TRACE", "1")
    } else {
        tool
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a renamed test program nothing would be run.
    #[test]
    fn test_program_of_schedules_exists() {
        let workspace = Workspace::load().unwrap();
        let mut packages = workspace.packages.iter();
        let engine = packages.find(|p| p.name == "verbena-engine").unwrap();
        let program = engine
            .manifest_path
            .with_file_name("tests/schedules/main.rs");
        assert!(program.is_file());
    }

    #[test]
    fn seeds_are_passed_to_the_program() {
        let workspace = Workspace::load().unwrap();
        let options = Options {
            seeds: 7,
            first: 3,
            trace: false,
            without_mend: Some(MENDS[0].to_owned()),
        };
        let shown = tool(&workspace, &options).shown();
        let end = format!("--test schedules -- 7 3 {}", MENDS[0]);
        assert!(shown.ends_with(&end), "{shown}");
    }

    /// With another name the program would stop at once.
    #[test]
    fn program_knows_the_mends() {
        let workspace = Workspace::load().unwrap();
        let mut packages = workspace.packages.iter();
        let engine = packages.find(|p| p.name == "verbena-engine").unwrap();
        let mends = engine
            .manifest_path
            .with_file_name("src/sys/simulated/mends.rs");
        let text = std::fs::read_to_string(mends).unwrap();
        for mend in MENDS {
            assert!(text.contains(&format!("\"{mend}\"")), "{mend}");
        }
    }
}
