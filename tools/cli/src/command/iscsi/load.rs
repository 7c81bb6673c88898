//! `verbena iscsi bench`: a load on a disk, and its results. Nothing is written without `--destructive`.

use std::ops::ControlFlow;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use verbena_storage::bench::{BenchResult, Limit, Load, Pattern, run};
use verbena_storage::{Address, Blocks};

use super::size::bytes;
use super::url::Url;
use super::{BoxError, Common, show, stop};

/// What is done to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rw {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Random reads and writes, see --reads
    Mix,
}

#[derive(Args)]
pub(super) struct Bench {
    /// The disk
    #[arg(value_name = "URL", value_parser = Url::<Address>::new())]
    address: Address,
    /// The access pattern
    #[arg(long, value_enum, default_value = "randread")]
    rw: Rw,
    /// Percentage of reads in a mix
    #[arg(long, default_value_t = 70, value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: u8,
    /// Bytes per request, with k or m
    #[arg(long, short, default_value = "4k", value_parser = bytes)]
    size: u64,
    /// Duration of the measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// The first byte that is accessed, with k, m, g or t
    #[arg(long, default_value = "0", value_parser = bytes)]
    offset: u64,
    /// Bytes that are accessed; up to the end of the disk if not given
    #[arg(long, value_parser = bytes)]
    length: Option<u64>,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Read everything into the same memory, as iscsi-perf does: it stays in the processor's caches, unlike a buffer per request
    #[arg(long)]
    discard: bool,
    /// Allow writes, which destroy the data on the disk
    #[arg(long)]
    destructive: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn bench(args: &Bench) -> Result<(), BoxError> {
    let (pattern, reads) = match args.rw {
        Rw::Read => (Pattern::Sequential, 100),
        Rw::Write => (Pattern::Sequential, 0),
        Rw::Randread => (Pattern::Random, 100),
        Rw::Randwrite => (Pattern::Random, 0),
        Rw::Mix => (Pattern::Random, args.reads),
    };
    if reads < 100 && !args.destructive {
        let what = "this load overwrites data on the disk; pass --destructive to allow it";
        return Err(what.into());
    }
    let mut unit = args.common.unit(&args.address)?;
    let stop = stop()?;
    let geometry = unit.geometry();
    let end = match args.length {
        Some(length) => args.offset.saturating_add(length),
        None => geometry.bytes(),
    };
    let load = Load {
        range: args.offset..end,
        pattern,
        reads,
        size: u32::try_from(args.size).map_err(|_| "a request must be smaller than 4 GiB")?,
        depth: args.common.depth.into(),
        limit: Limit::Time(Duration::from_secs(args.seconds)),
        seed: args.seed,
        discard: args.discard,
    };
    let score = run(&mut unit, &load, &mut |_| match stop.is_requested() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })?;
    unit.close()?;
    match args.json {
        true => show(format_args!("{}", object(args, &load, &score)))?,
        false => show(format_args!("{score}"))?,
    }
    Ok(())
}

fn object(args: &Bench, load: &Load, score: &BenchResult) -> serde_json::Value {
    let micro = |time: Duration| time.as_nanos() as f64 / 1e3;
    let rw = args.rw.to_possible_value();
    json!({
        "rw": rw.as_ref().map(clap::builder::PossibleValue::get_name),
        "size": load.size,
        "depth": load.depth,
        "discard": load.discard,
        "reads": score.reads,
        "writes": score.writes,
        "bytes": score.bytes(),
        "seconds": score.elapsed.as_secs_f64(),
        "requests_per_second": score.iops(),
        "megabytes_per_second": score.megabytes_per_second(),
        "cpu_seconds_per_gigabyte": score.cpu_per_gigabyte(),
        "latency_us": {
            "min": micro(score.latency.min()),
            "median": micro(score.latency.quantile(0.5)),
            "p99": micro(score.latency.quantile(0.99)),
            "max": micro(score.latency.max()),
        },
    })
}
