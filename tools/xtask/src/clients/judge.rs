//! Checks one side: how it ended, its output, its standard error, and the number it measured.
//! There is a sentence for every criterion that is not met. Speed is checked only where a case has a limit.

use super::case::{Ending, Figure, Side};
use super::process::End;

/// The criteria that this side does not meet.
pub(crate) fn side(side: &Side, end: End, output: &str, complaints: &str) -> Vec<String> {
    let mut findings: Vec<String> = ending(side.ending, end).into_iter().collect();
    if matches!(side.ending, Ending::Success | Ending::Endless) {
        findings.extend(unexpected_stderr(side, complaints));
    }
    for text in &side.must_print {
        if !output.contains(text.as_str()) {
            findings.push(format!("`{text}` is not in its output"));
        }
    }
    for text in &side.must_not_print {
        if output.contains(text.as_str()) {
            findings.push(format!("`{text}` is in its output"));
        }
    }
    findings
}

fn ending(wanted: Ending, end: End) -> Option<String> {
    const SIGKILL: i32 = 9;
    match (wanted, end) {
        (Ending::Success, End::Code(0)) | (Ending::Killed, End::Signal(SIGKILL)) => None,
        (Ending::Failure | Ending::FailureOrEndless, End::Code(code)) if code != 0 => None,
        (Ending::FailureOrEndless | Ending::Endless, End::TimedOut) => None,
        (_, End::TimedOut) => Some("did not end in time and was killed".to_owned()),
        (_, End::Code(code)) => Some(format!("ended with exit code {code}")),
        (_, End::Signal(signal)) => Some(format!("ended by signal {signal}")),
    }
}

/// The first line on standard error that is not in `noise`.
fn unexpected_stderr(side: &Side, complaints: &str) -> Option<String> {
    let expected = |line: &str| side.noise.iter().any(|noise| line.contains(noise.part));
    complaints
        .lines()
        .find(|line| !line.trim().is_empty() && !expected(line))
        .map(|line| format!("standard error is not empty: {line}"))
}

/// The number for the table, or why it is not good enough.
pub(crate) fn figure(figure: Figure, output: &str) -> Result<String, String> {
    match figure {
        Figure::None => Ok(String::new()),
        Figure::Latency(limit) => latency(output, limit),
        Figure::Bandwidth => {
            let (size, value) = row(output, 3)?;
            let digits = if value < 10.0 { 2 } else { 0 };
            Ok(format!("{value:.digits$} MiB/s at {size} B"))
        }
        Figure::PerIteration => output
            .lines()
            .find_map(|line| line.split_once("seconds = ")?.1.strip_suffix(" usec/iter"))
            .map(|value| format!("{value} µs"))
            .ok_or_else(|| "no time per iteration in its output".to_owned()),
    }
}

fn latency(output: &str, limit: Option<f64>) -> Result<String, String> {
    let (size, value) = row(output, 4)?;
    match limit {
        Some(limit) if value > limit => Err(format!(
            "the typical latency is {value:.1} µs, above the limit of {limit:.0} µs"
        )),
        _ => Ok(format!("{value:.1} µs at {size} B")),
    }
}

/// Message size and the wanted column of the last row of perftest's table.
fn row(output: &str, column: usize) -> Result<(u64, f64), String> {
    let parse = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers = words.iter().all(|word| word.parse::<f64>().is_ok());
        let size = words.first()?.parse().ok()?;
        let value = words.get(column)?.parse().ok()?;
        numbers.then_some((size, value))
    };
    output
        .lines()
        .filter_map(parse)
        .next_back()
        .ok_or_else(|| "no row of numbers in its output".to_owned())
}

#[cfg(test)]
mod tests;
