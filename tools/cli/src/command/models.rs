//! `verbena models`: arguments of the comparison of pushing and pulling. It prints one line per model and size, or one JSON object, and uses
//! loopback only.

use std::io;

use clap::Args;
use verbena::Config;
use verbena_cli::models::{Plan, print_json, print_text, run as measure};

use super::bench::size;

pub(crate) const EXAMPLE: &str = "\
Models:
  push-push  each side writes packets to memory that the other offered in advance
  push-pull  the host writes its packets, and requests each packet of the unit
  pull-pull  each side requests each packet and names a buffer; the other writes it there
  read       each side sends the location of its packet; the other reads it and acknowledges

A pulling side sends its request at the moment a packet is ready, which no real driver can know: its latency is a lower bound.
Messages are what both adapters count; a write with immediate data is two of them.

Examples:
  verbena models
  verbena models --sizes 64,64k --count 5000 --rounds 7 --json";

#[derive(Args)]
pub(crate) struct Models {
    /// Bytes of the packets, with k or m; several with commas
    #[arg(long, short, value_delimiter = ',', value_parser = size, default_value = "64,1500,9000,64k")]
    sizes: Vec<u32>,
    /// Packets each way in one round
    #[arg(long, short = 'n', default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,
    /// Rounds, each of which runs every model; the median is reported
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Models) -> u8 {
    match try_run(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn try_run(args: &Models) -> Result<(), Box<dyn std::error::Error>> {
    let plan = Plan {
        sizes: args.sizes.clone(),
        count: args.count,
        rounds: args.rounds,
    };
    let mut first = true;
    let rows = measure(&Config::load()?, &plan, |row| {
        if !args.json {
            // A closed output is detected by the next print.
            let _ = print_text(&mut io::stdout().lock(), row, first);
            first = false;
        }
    })?;
    if args.json {
        print_json(&mut io::stdout().lock(), &rows)?;
    }
    Ok(())
}
