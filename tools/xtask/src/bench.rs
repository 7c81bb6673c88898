//! `cargo xtask bench`: runs the benchmarks through cargo.
//! All arguments are passed on, and `--workspace` is added if no package is named.

use anyhow::Result;
use clap::Args;

use crate::workspace::Workspace;

#[derive(Args)]
pub(crate) struct Options {
    /// Arguments for `cargo bench`, for example `-p verbena-wire` or `--bench NAME -- FILTER`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut tool = workspace.cargo().arg("bench");
    if !names_package(&options.rest) {
        tool = tool.arg("--workspace");
    }
    tool.args(&options.rest).run()
}

fn names_package(arguments: &[String]) -> bool {
    let ours = arguments.iter().take_while(|argument| *argument != "--");
    let mut names = ours.filter(|a| a.starts_with("-p") || a.starts_with("--package"));
    names.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> bool {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        names_package(&words)
    }

    #[test]
    fn package_arguments_are_recognised() {
        assert!(names("-p verbena-wire"));
        assert!(names("--bench crc --package=verbena-wire"));
        assert!(!names("--bench crc -- -p x"));
        assert!(!names(""));
    }
}
