//! The command `verbena-sim`: runs seeds, prints the results, and how to reproduce a failure.
//! The exit code is 0 if all passed, 1 if one failed, 2 for bad usage. The checks are in the library.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand, ValueEnum};
use verbena_sim::Workload;
use verbena_sim::adapters;
use verbena_sim::capture;
use verbena_sim::notification;
use verbena_sim::run::{RunCounters, run};
use verbena_sim::split;

/// Runs iWARP connections in a deterministic simulation, one per seed, and checks every outcome.
#[derive(Parser)]
#[command(name = "verbena-sim", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "EXIT CODES\n  0  every seed passed\n  1  a seed failed; the command line to reproduce it is printed\n  2  bad usage"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    seeds: Seeds,
}

#[derive(Subcommand)]
enum Command {
    /// Writes a pcap of example connections without faults
    Capture {
        /// The file to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Seed of payload and keys; the sequence of messages is always the same
        #[arg(long, default_value_t = 1, value_name = "N")]
        seed: u64,
    },
}

/// The wire under the queue pairs of adapters.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wire {
    /// Byte streams
    Tcp,
    /// RoCEv2 packets
    Roce,
}

#[derive(Args)]
struct Seeds {
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// How many seeds, counting up from the first
    #[arg(long, default_value_t = 1, value_name = "M", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Runs this workload with every seed instead of the one the seed picks
    #[arg(long, value_name = "NAME")]
    workload: Option<Workload>,
    /// Runs only whole adapters; without it, each seed does so after its workload
    #[arg(long, conflicts_with = "workload")]
    adapters: bool,
    /// Runs only whole adapters, connected by this wire; without it, each seed uses both
    #[arg(long, value_name = "WIRE", conflicts_with = "workload")]
    wire: Option<Wire>,
    /// Runs only hosts and I/O units in a switched fabric; without it, each seed does so as its last step
    #[arg(long, conflicts_with_all = ["workload", "adapters", "wire"])]
    split: bool,
    /// Prints a line per seed
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Capture { out, seed }) => match capture::write(&out, seed) {
            Ok(said) => {
                println!("{said} written to {}", out.display());
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("verbena-sim: {error:#}");
                ExitCode::from(2)
            }
        },
        None => run_seeds(&cli.seeds),
    }
}

/// The simulations of one seed: peers, adapters, hosts with units, or all of them.
fn run_seed(seed: u64, seeds: &Seeds) -> Result<RunCounters, String> {
    let mut tally = RunCounters::default();
    if seeds.split {
        return split::run(seed).map_err(|f| f.to_string());
    }
    let only_adapters = seeds.adapters || seeds.wire.is_some();
    if !only_adapters {
        tally.add(&run(seed, seeds.workload).map_err(|f| f.to_string())?);
    }
    if seeds.workload.is_none() && seeds.wire != Some(Wire::Roce) {
        tally.add(&adapters::run(seed).map_err(|f| f.to_string())?);
        tally.add(&adapters::run_with_cells(seed).map_err(|f| f.to_string())?);
        tally.add(&notification::run(seed).map_err(|f| f.to_string())?);
    }
    if seeds.workload.is_none() && seeds.wire != Some(Wire::Tcp) {
        tally.add(&adapters::run_roce(seed).map_err(|f| f.to_string())?);
    }
    if !only_adapters && seeds.workload.is_none() {
        tally.add(&split::run(seed).map_err(|f| f.to_string())?);
    }
    Ok(tally)
}

fn run_seeds(seeds: &Seeds) -> ExitCode {
    // A panic inside a run is reported as a failure with its seed; the default message would only repeat it.
    std::panic::set_hook(Box::new(|_| {}));
    let began = Instant::now();
    let progress = std::io::stderr().is_terminal() && !seeds.verbose;
    let (mut tally, mut failed) = (RunCounters::default(), 0);
    for k in 0..seeds.count {
        let seed = seeds.seed.wrapping_add(k);
        if progress {
            eprint!(
                "\rseed {seed} ({}/{}), {failed} failed ",
                k + 1,
                seeds.count
            );
            let _ = std::io::stderr().flush();
        }
        match run_seed(seed, seeds) {
            Ok(one) => {
                if seeds.verbose {
                    println!("seed {seed}: {one}");
                }
                tally.add(&one);
            }
            Err(failure) => {
                failed += 1;
                println!("{failure}");
            }
        }
    }
    if progress {
        eprintln!();
    }
    let passed = seeds.count - failed;
    let took = began.elapsed().as_secs_f64();
    println!("{passed} seeds passed, {failed} failed: {tally}; took {took:.1} s");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
