//! `cargo xtask schedules`: runs whole engines in the simulated operating system under randomised schedules, one after the other by seed.
//! They are built separately, because one flag changes every crate. A seed that fails is printed, and fails again when it is run alone.

use anyhow::Result;
use clap::Args;

use crate::command::Tool;
use crate::workspace::Workspace;

/// Seeds of every test run.
const SEEDS: u64 = 1_000;
/// Seeds of a long run.
const SEEDS_LONG: u64 = 50_000;

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
}

impl Options {
    /// Those of `cargo xtask test`.
    pub(crate) fn test(long: bool) -> Options {
        Options {
            seeds: if long { SEEDS_LONG } else { SEEDS },
            first: 0,
            trace: false,
        }
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    tool(workspace, options).run()
}

fn tool(workspace: &Workspace, options: &Options) -> Tool {
    let tool = workspace
        .cargo_with_cfg("shuttle")
        .args(["test", "--release", "--package", "verbena-engine"])
        .args(["--test", "schedules", "--"])
        .args([options.seeds, options.first].map(|n| n.to_string()))
        // Half the time to build, and the checks of the code stay.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
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
        };
        let shown = tool(&workspace, &options).shown();
        assert!(shown.ends_with("--test schedules -- 7 3"), "{shown}");
    }
}
