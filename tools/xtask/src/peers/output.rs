//! Parsers for the output of each program: one number of one run.
//! Bytes per second are computed from messages and their size where possible, so that units of the programs do not matter.
//! Output without the expected line is an error that names the program.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::series::{Measure, Sample};

/// The program that printed the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// `verbena-peers`: one object per side.
    Worker,
    Iperf3,
    Ucx,
    Fabric,
    PerftestLatency,
    PerftestBandwidth,
}

/// The parameters of a run that its output depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) format: Format,
    pub(crate) measure: Measure,
    pub(crate) size: u32,
}

/// The output of both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outputs<'a> {
    pub(crate) server: &'a str,
    pub(crate) caller: &'a str,
    /// Processor seconds of both processes from their start to their end.
    pub(crate) cpu: f64,
}

impl Run {
    pub(crate) fn read(self, printed: Outputs<'_>) -> Result<Sample> {
        let size = f64::from(self.size);
        let text = printed.caller;
        match self.format {
            Format::Worker => self.worker(printed),
            Format::Iperf3 => {
                let bytes = iperf3(text).context("iperf3 printed no sum")?;
                Ok(Sample {
                    cpu: Some(printed.cpu / (bytes.0 / 1e9)),
                    ..Sample::of(bytes.0 / bytes.1 / 1e9)
                })
            }
            Format::Ucx => {
                let line = ucx(text).context("ucx_perftest printed no result")?;
                Ok(Sample::of(match self.measure {
                    m if m.is_latency() => line.median,
                    m if m.is_rate() => line.rate / 1e6,
                    _ => line.rate * size / 1e9,
                }))
            }
            Format::Fabric => {
                let micros = fabric(text).context("fi_pingpong printed no result")?;
                Ok(Sample::of(match self.measure {
                    m if m.is_latency() => micros,
                    m if m.is_rate() => 1.0 / micros,
                    _ => size / micros / 1e3,
                }))
            }
            Format::PerftestLatency => {
                let typical = perftest(text, 4).context("perftest printed no result")?;
                Ok(Sample::of(typical))
            }
            Format::PerftestBandwidth => {
                // Its MB are 2^20 bytes; its rate has too few digits for large messages.
                let mib = perftest(text, 3).context("perftest printed no result")?;
                let bytes = mib * f64::from(1 << 20);
                Ok(Sample::of(match self.measure {
                    m if m.is_rate() => bytes / size / 1e6,
                    _ => bytes / 1e9,
                }))
            }
        }
    }

    fn worker(self, printed: Outputs<'_>) -> Result<Sample> {
        let caller: Figures = figures(printed.caller).context("the client printed nothing")?;
        let server: Figures = figures(printed.server).context("the server printed nothing")?;
        let cpu =
            (caller.carried > 0).then(|| (caller.cpu + server.cpu) / (caller.carried as f64 / 1e9));
        let bandwidth = caller.bytes as f64 / caller.seconds / 1e9;
        Ok(match self.measure {
            Measure::Latency | Measure::RoceLatency | Measure::ShmLatency => {
                Sample::of(caller.median * 1e6)
            }
            Measure::Bandwidth | Measure::RoceBandwidth | Measure::ShmBandwidth => Sample {
                cpu,
                ..Sample::of(bandwidth)
            },
            Measure::Rate | Measure::ShmRate => {
                Sample::of(caller.messages as f64 / caller.seconds / 1e6)
            }
            Measure::Connections => Sample {
                memory: Some(caller.grown.max(server.grown) as f64 / f64::from(self.size))
                    .filter(|bytes| *bytes > 0.0),
                ..Sample::of(bandwidth)
            },
            Measure::Idle => Sample::of((caller.wakeups + server.wakeups) as f64),
        })
    }
}

/// What `verbena-peers` prints for one side.
#[derive(Debug, Deserialize)]
struct Figures {
    messages: u64,
    bytes: u64,
    seconds: f64,
    median: f64,
    cpu: f64,
    carried: u64,
    grown: u64,
    wakeups: u64,
}

fn figures(text: &str) -> Result<Figures> {
    let line = text.lines().last().context("nothing was printed")?;
    serde_json::from_str(line).with_context(|| format!("not a line of results: {line}"))
}

/// Bytes and seconds of everything received.
fn iperf3(text: &str) -> Option<(f64, f64)> {
    let all: serde_json::Value = serde_json::from_str(text).ok()?;
    let sum = all.get("end")?.get("sum_received")?;
    Some((sum.get("bytes")?.as_f64()?, sum.get("seconds")?.as_f64()?))
}

struct Ucx {
    /// µs.
    median: f64,
    /// Messages per second, of the whole run.
    rate: f64,
}

/// The last line of numbers: count, three times, two bandwidths, two rates.
fn ucx(text: &str) -> Option<Ucx> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        let line = line.trim_start_matches("Final:");
        let words: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        words.ok().filter(|words| words.len() == 8)
    };
    let last = text.lines().rev().find_map(numbers)?;
    Some(Ucx {
        median: last[1],
        rate: last[7],
    })
}

/// µs per transfer, from the line below the heading.
fn fabric(text: &str) -> Option<f64> {
    let mut lines = text.lines().skip_while(|line| !line.contains("usec/xfer"));
    let heading = lines.next()?;
    let column = heading
        .split_whitespace()
        .position(|word| word == "usec/xfer")?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

/// A column of the line below `#bytes`.
fn perftest(text: &str, column: usize) -> Option<f64> {
    let mut lines = text.lines().skip_while(|line| !line.contains("#bytes"));
    lines.next()?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests;
