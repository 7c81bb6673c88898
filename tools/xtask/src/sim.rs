//! `cargo xtask sim`: runs the deterministic simulator over a range of seeds.
//! The test command runs the simulator that was built with the tests, so that nothing is compiled twice.
//! Workloads are passed on by name.

use anyhow::Result;
use clap::Args;

use crate::command::Tool;
use crate::workspace::Workspace;

const PROGRAM: &str = "verbena-sim";

#[derive(Args)]
pub(crate) struct Options {
    /// First seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds, counting up from the first
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Only this workload (default: the seed chooses)
    #[arg(long)]
    workload: Option<String>,
    /// Use the dev profile: quicker to build, slower to run
    #[arg(long)]
    dev: bool,
    /// Further arguments for the simulator, after `--`
    #[arg(last = true)]
    rest: Vec<String>,
}

impl Options {
    /// Seeds 0, 1, … in the dev profile.
    fn from_zero(count: u64) -> Options {
        Options {
            seed: 0,
            count,
            workload: None,
            dev: true,
            rest: Vec::new(),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--seed".into(), self.seed.to_string()];
        arguments.extend(["--count".into(), self.count.to_string()]);
        if let Some(workload) = &self.workload {
            arguments.extend(["--workload".into(), workload.clone()]);
        }
        arguments.extend(self.rest.iter().cloned());
        arguments
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    simulator(workspace, !options.dev)
        .args(options.arguments())
        .run()
}

/// Seeds 0, 1, … as the test command runs them.
pub(crate) fn test(workspace: &Workspace, count: u64) -> Vec<Tool> {
    // Built with the features of the whole workspace, as for the tests: built alone it would be compiled again.
    let beside = ["test", "--workspace", "--no-run", "--test", "command"];
    let run = Tool::new(workspace.target.join("debug").join(PROGRAM))
        .current_dir(&workspace.root)
        .args(Options::from_zero(count).arguments());
    vec![workspace.cargo().args(beside), run]
}

/// The simulator's binary, built and ready for arguments.
pub(crate) fn simulator(workspace: &Workspace, release: bool) -> Tool {
    let mut tool = workspace.cargo().args(["run", "--quiet"]);
    if release {
        tool = tool.arg("--release");
    }
    tool.args(["--package", PROGRAM, "--"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_passed_on() {
        let options = Options {
            seed: 7,
            count: 3,
            workload: Some("mixed".into()),
            dev: false,
            rest: vec!["--verbose".into()],
        };
        let expected = "--seed 7 --count 3 --workload mixed --verbose";
        assert_eq!(options.arguments().join(" "), expected);
    }

    #[test]
    fn the_test_run_starts_at_zero() {
        assert_eq!(
            Options::from_zero(200).arguments().join(" "),
            "--seed 0 --count 200"
        );
    }
}
