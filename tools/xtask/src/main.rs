//! `cargo xtask`: the project's own checks and drivers, one subcommand per file.
//! Contributors and CI run the same checks through it. It starts programs, reads files and reports; it has no RDMA code.

mod background;
mod bench;
mod clients;
mod command;
mod demo;
mod dropin;
mod fuzz;
mod install;
mod instructions;
mod iscsi;
mod loom;
mod median;
mod package;
mod packages;
mod peers;
mod release;
mod schedules;
mod sim;
mod split;
mod step;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Checks and drivers of the Verbena workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all checks: format, clippy, tidy, all tests, models, schedules, docs, instruction counts, simulator seeds
    Test(test::Options),
    /// Check the repository's rules: layering, pure crates, headers, unsafe, docs
    Tidy(tidy::Options),
    /// Build the drop-in replacements of libibverbs and librdmacm
    Dropin(dropin::Options),
    /// Install the `verbena` command and the drop-in libraries, or uninstall them
    Install(install::Options),
    /// Build what users install: a Debian package, an archive, a Python wheel, an image recipe, an rpm package, the site
    Package(package::Options),
    /// Check that everything is ready to be published; publishes nothing
    Release(release::Options),
    /// Run real RDMA programs on the drop-in libraries, and print the results
    Clients(clients::Options),
    /// Demonstrate Verbena: generate a capture of iWARP traffic and decode it
    Demo(demo::Options),
    /// Run the simulator over a range of seeds
    Sim(sim::Options),
    /// Fuzz a target with coverage guidance, on the stable toolchain
    Fuzz(fuzz::Options),
    /// Run the models of lock-free code: every interleaving of its threads, by loom
    Loom(loom::Options),
    /// Run whole engines under randomised schedules, by seed
    Schedules(schedules::Options),
    /// Run the benchmarks (arguments go to `cargo bench`)
    Bench(bench::Options),
    /// Count the instructions of fixed scenarios and compare them with the recorded counts
    Instructions(instructions::Options),
    /// Compare Verbena with plain TCP, iperf3, UCX and libfabric, interleaved in one run
    Peers(peers::Options),
    /// Compare the iSCSI initiator with libiscsi's iscsi-perf, interleaved in one run
    Iscsi(iscsi::Options),
    /// Compare the split driver with a cable, a pair of TAPs and a plain tunnel, interleaved in one run
    Split(split::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> anyhow::Result<()> {
    let workspace = match task {
        Task::Peers(options) => options.prebuilt()?,
        _ => None,
    };
    let workspace = workspace.map_or_else(Workspace::load, Ok)?;
    match task {
        Task::Test(options) => test::run(&workspace, options),
        Task::Tidy(options) => tidy::run(&workspace, options),
        Task::Dropin(options) => dropin::run(&workspace, options),
        Task::Install(options) => install::run(&workspace, options),
        Task::Package(options) => package::run(&workspace, options),
        Task::Release(options) => release::run(&workspace, options),
        Task::Clients(options) => clients::run(&workspace, options),
        Task::Demo(options) => demo::run(&workspace, options),
        Task::Sim(options) => sim::run(&workspace, options),
        Task::Fuzz(options) => fuzz::run(&workspace, options),
        Task::Loom(options) => loom::run(&workspace, options),
        Task::Schedules(options) => schedules::run(&workspace, options),
        Task::Bench(options) => bench::run(&workspace, options),
        Task::Instructions(options) => instructions::run(&workspace, options),
        Task::Peers(options) => peers::run(&workspace, options),
        Task::Iscsi(options) => iscsi::run(&workspace, options),
        Task::Split(options) => split::run(&workspace, options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_a_description() {
        for task in Cli::command().get_subcommands() {
            assert!(task.get_about().is_some(), "{} has none", task.get_name());
        }
    }
}
