//! Results as text and JSON. Text has perftest's column names, JSON one object per case, and ratios are of medians from the same run.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::case::{Case, Metric};
use super::meter::{Throughput, quantile};

/// The result of one run of a case.
#[derive(Debug, Clone)]
pub(super) enum Sample {
    /// The time of each message.
    Times(Vec<Duration>),
    /// Of all messages together.
    Throughput(Throughput),
}

impl Sample {
    /// Merges the results of several threads, which took `whole` together.
    pub(super) fn merge(all: Vec<Sample>, whole: Duration) -> Sample {
        let (mut times, mut sum) = (Vec::new(), Throughput::default());
        for sample in all {
            match sample {
                Sample::Times(some) => times.extend(some),
                Sample::Throughput(one) => {
                    sum.messages += one.messages;
                    sum.bytes += one.bytes;
                    sum.carried += one.carried;
                }
            }
        }
        if !times.is_empty() {
            return Sample::Times(times);
        }
        Sample::Throughput(Throughput {
            elapsed: whole.max(Duration::from_nanos(1)),
            ..sum
        })
    }

    /// The result in the metric's unit.
    fn value(&self, metric: Metric) -> f64 {
        match self {
            Sample::Times(times) => {
                let mut times = times.clone();
                times.sort_unstable();
                micros(quantile(&times, 0.5))
            }
            Sample::Throughput(all) => {
                let seconds = all.elapsed.as_secs_f64();
                match metric {
                    Metric::Rate => all.messages as f64 / seconds / 1e6,
                    _ => all.bytes as f64 / seconds / 1e9,
                }
            }
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// One case with all its rounds.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The case.
    pub case: Case,
    /// The median of the rounds, in the metric's unit.
    pub value: f64,
    /// The same for plain TCP.
    pub baseline: Option<f64>,
    samples: Vec<Sample>,
}

impl Outcome {
    pub(super) fn new(case: Case, ours: Vec<Sample>, theirs: &[Sample]) -> Outcome {
        Outcome {
            case,
            value: median(&ours, case.metric).unwrap_or(f64::NAN),
            baseline: median(theirs, case.metric),
            samples: ours,
        }
    }

    /// Ours divided by plain TCP's: above one is more time, or more throughput.
    pub fn ratio(&self) -> Option<f64> {
        self.baseline.map(|baseline| self.value / baseline)
    }
}

fn median(samples: &[Sample], metric: Metric) -> Option<f64> {
    let mut values: Vec<f64> = samples.iter().map(|s| s.value(metric)).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Prints one case as text, with a heading where the columns change.
pub fn print_text(out: &mut impl Write, outcome: &Outcome, heading: bool) -> io::Result<()> {
    let case = &outcome.case;
    let (op, metric) = (case.op.name(), case.metric.name());
    if heading {
        let memory = if case.poll_memory { " by memory" } else { "" };
        write!(out, "\n{op} {metric}{memory}")?;
        match (case.connections(), case.threads) {
            (1, 1) => writeln!(out),
            (qps, 1) => writeln!(out, ", {qps} connections"),
            (qps, threads) => {
                let queues = if case.one_cq { "one" } else { "each its own" };
                writeln!(
                    out,
                    ", {qps} connections, {threads} polling threads per side, {queues} completion queue"
                )
            }
        }?;
        if case.metric == Metric::Latency {
            writeln!(
                out,
                " #bytes #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  t_avg[usec]  99%[usec]  TCP[usec]  ratio"
            )?;
        } else {
            writeln!(
                out,
                " #bytes #iterations  BW average[MB/sec]  MsgRate[Mpps]  TCP  ratio"
            )?;
        }
    }
    let baseline = outcome
        .baseline
        .map_or("-".to_owned(), |b| format!("{b:.2}"));
    let ratio = outcome
        .ratio()
        .map_or("-".to_owned(), |r| format!("{r:.2}"));
    match median_sample(outcome) {
        Some(Sample::Times(times)) => {
            let mut times = times.clone();
            times.sort_unstable();
            let sum: Duration = times.iter().sum();
            let average = micros(sum) / times.len().max(1) as f64;
            writeln!(
                out,
                " {:<6} {:<11} {:>12.2} {:>12.2} {:>16.2} {:>12.2} {:>10.2} {:>10} {:>6}",
                case.size,
                times.len(),
                micros(quantile(&times, 0.0)),
                micros(quantile(&times, 1.0)),
                outcome.value,
                average,
                micros(quantile(&times, 0.99)),
                baseline,
                ratio
            )
        }
        Some(Sample::Throughput(all)) => {
            let seconds = all.elapsed.as_secs_f64();
            writeln!(
                out,
                " {:<6} {:<11} {:>19.2} {:>14.3} {:>8} {:>6}",
                case.size,
                all.messages,
                all.bytes as f64 / seconds / 1e6,
                all.messages as f64 / seconds / 1e6,
                baseline,
                ratio
            )
        }
        None => Ok(()),
    }
}

/// The round whose value is the median.
fn median_sample(outcome: &Outcome) -> Option<&Sample> {
    let metric = outcome.case.metric;
    let distance = |s: &&Sample| (s.value(metric) - outcome.value).abs();
    outcome
        .samples
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

#[derive(Serialize)]
struct Results {
    results: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    op: &'static str,
    metric: &'static str,
    size: u32,
    qps: u32,
    threads: u32,
    one_cq: bool,
    value: f64,
    unit: &'static str,
    baseline: Option<f64>,
    ratio: Option<f64>,
}

/// Prints all cases as one JSON object.
pub fn print_json(out: &mut impl Write, outcomes: &[Outcome]) -> io::Result<()> {
    let rows = outcomes.iter().map(|o| Row {
        op: o.case.op.name(),
        metric: o.case.metric.name(),
        size: o.case.size,
        qps: o.case.connections(),
        threads: o.case.threads,
        one_cq: o.case.one_cq,
        value: o.value,
        unit: o.case.metric.unit(),
        baseline: o.baseline,
        ratio: o.ratio(),
    });
    let results = Results {
        results: rows.collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &results)?;
    writeln!(out)
}
