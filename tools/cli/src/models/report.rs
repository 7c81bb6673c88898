//! Results as a table and as JSON. Latencies are medians of the rounds, and each ratio compares measurements of the same round.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::{Model, Sample};

/// One direction of a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// The median in microseconds; the median of the rounds.
    pub median: f64,
    /// The 99th percentile in microseconds; the median of the rounds.
    pub p99: f64,
    /// The median divided by that of the first model in the same round; the median of the rounds.
    pub ratio: f64,
}

/// One model in one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The model.
    pub model: &'static str,
    /// Bytes of a packet.
    pub size: u32,
    /// Packets to the unit.
    pub to_unit: Latency,
    /// Packets to the host.
    pub to_host: Latency,
    /// RDMAP messages of both adapters for each packet.
    pub messages: f64,
    /// Bytes of both adapters for each packet, without the packet.
    pub overhead: f64,
}

impl Row {
    pub(super) fn new(model: &Model, size: u32, ours: &[Sample], first: &[Sample]) -> Row {
        let latency = |times: fn(&Sample) -> &Vec<Duration>| {
            let at = |sample: &Sample, share| quantile(times(sample), share);
            let pairs = ours.iter().zip(first);
            Latency {
                median: median_of(ours.iter().map(|sample| at(sample, 0.5))),
                p99: median_of(ours.iter().map(|sample| at(sample, 0.99))),
                ratio: median_of(pairs.map(|(our, their)| at(our, 0.5) / at(their, 0.5))),
            }
        };
        let each = |of: fn(&Sample) -> u64| {
            median_of(ours.iter().map(|sample| {
                let packets = sample.to_unit.len() + sample.to_host.len();
                of(sample) as f64 / packets.max(1) as f64
            }))
        };
        Row {
            model: model.name,
            size,
            to_unit: latency(|sample| &sample.to_unit),
            to_host: latency(|sample| &sample.to_host),
            messages: each(|sample| sample.messages),
            overhead: each(|sample| sample.bytes) - f64::from(size),
        }
    }
}

/// A quantile of the times, in microseconds.
fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    times.get(at).map_or(0.0, |t| t.as_secs_f64() * 1e6)
}

fn median_of(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Prints one line, with a heading before the first.
pub fn print_text(out: &mut impl Write, row: &Row, first: bool) -> io::Result<()> {
    if first {
        writeln!(
            out,
            " #bytes model      to unit[usec]  99%[usec]  ratio  to host[usec]  99%[usec]  ratio  messages  bytes beside"
        )?;
    }
    let Row {
        model,
        size,
        to_unit,
        to_host,
        messages,
        overhead,
    } = row;
    writeln!(
        out,
        " {size:<6} {model:<10} {:>13.2} {:>10.2} {:>6.2} {:>14.2} {:>10.2} {:>6.2} {messages:>9.2} {overhead:>13.1}",
        to_unit.median, to_unit.p99, to_unit.ratio, to_host.median, to_host.p99, to_host.ratio,
    )
}

#[derive(Serialize)]
struct Results<'a> {
    results: &'a [Row],
}

/// Prints all rows as one JSON object.
pub fn print_json(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Results { results: rows })?;
    writeln!(out)
}
