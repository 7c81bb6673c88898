//! The tables, for the terminal and for `docs/performance/peers.md`.
//! They show medians with the smallest and largest round, the targets first, and lost rounds below.

use super::case::{Topology, shown};
use super::results::Results;
use super::series::{Measure, Series, number};
use super::targets::{Target, Verdict};

/// How the measurement was made.
pub(crate) struct RunInfo {
    pub(crate) machine: String,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    /// Load average at the beginning and at the end.
    pub(crate) load: [String; 2],
}

/// A warning if the machine was busy when the run began; empty otherwise.
pub(crate) fn load_warning(about: &RunInfo) -> String {
    match about.load[0].parse::<f64>() {
        Ok(load) if load <= 1.0 => String::new(),
        _ => format!(
            "**The machine was busy (load average {}): these verdicts are not valid. Repeat the measurement on an idle machine.**\n\n",
            about.load[0]
        ),
    }
}

fn cell(series: &Series) -> String {
    match (series.value(), series.spread()) {
        (Some(value), Some((least, most))) => {
            format!("{} ({}–{})", number(value), number(least), number(most))
        }
        _ => "lost".to_owned(),
    }
}

pub(crate) fn targets(list: &[Target]) -> String {
    let mut text = "| target | wanted | measured | |\n| --- | --- | --- | --- |\n".to_owned();
    for target in list {
        let verdict = match target.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "**missed**",
            Verdict::Unmeasured => "not measured",
        };
        let Target {
            what,
            wanted,
            measured,
            ..
        } = target;
        text += &format!("| {what} | {wanted} | {measured} | {verdict} |\n");
    }
    text
}

/// One table per place and measure: a line per contender, a column per size.
pub(crate) fn tables(results: &Results) -> String {
    let mut text = String::new();
    for (place, measure) in results.kinds() {
        text += &format!("\n### {}\n\n", title(place, measure));
        text += &table(results, place, measure, &cell);
        let has = |of: fn(&Series) -> Option<f64>| {
            let here = |case: &super::case::Case| (case.topology, case.measure) == (place, measure);
            results
                .rows
                .iter()
                .any(|(case, series)| here(case) && of(series).is_some())
        };
        if has(Series::cpu) {
            text += "\nProcessor seconds of both sides per GB:\n\n";
            text += &table(results, place, measure, &|s| shown_or_dash(s.cpu()));
        }
        if has(Series::memory) {
            text += "\nBytes of resident memory per connection, on the side that needs more:\n\n";
            text += &table(results, place, measure, &|s| shown_or_dash(s.memory()));
        }
    }
    text
}

fn shown_or_dash(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), number)
}

fn title(place: Topology, measure: Measure) -> String {
    let what = match measure {
        Measure::Latency => "half a round trip (a whole one for reads), µs",
        Measure::Bandwidth => "bandwidth, GB/s",
        Measure::RoceLatency => {
            "half a round trip over RoCEv2, TCP and UDP (a whole one for reads), µs"
        }
        Measure::RoceBandwidth => "bandwidth over RoCEv2, TCP and UDP, GB/s",
        Measure::ShmLatency => {
            "half a round trip through shared memory (a whole one for reads and atomics), µs"
        }
        Measure::ShmBandwidth => "bandwidth through shared memory, GB/s",
        Measure::ShmRate => "messages per second through shared memory, millions",
        Measure::Rate => "messages per second, millions",
        Measure::Connections => "bandwidth over many connections (64 KiB writes in turn), GB/s",
        Measure::Idle => "voluntary wake-ups of both sides in two seconds",
    };
    format!("{}: {what}", place.name())
}

fn table(
    results: &Results,
    place: Topology,
    measure: Measure,
    cell: &dyn Fn(&Series) -> String,
) -> String {
    let sizes = results.sizes(place, measure);
    let heads: Vec<String> = sizes.iter().map(|size| shown(*size)).collect();
    let mut text = format!(
        "| | {} |\n| --- |{}\n",
        heads.join(" | "),
        " --- |".repeat(sizes.len())
    );
    for name in results.names(place, measure) {
        let cells: Vec<String> = sizes
            .iter()
            .map(|size| {
                let series = results.series(place, measure, *size, name);
                series.map_or(String::new(), cell)
            })
            .collect();
        if cells.iter().any(|cell| !cell.is_empty() && cell != "-") {
            text += &format!("| {name} | {} |\n", cells.join(" | "));
        }
    }
    text
}

/// The cases with lost rounds, each with its first reason.
pub(crate) fn lost(results: &Results) -> String {
    let mut text = String::new();
    for (case, series) in &results.rows {
        if let Some(why) = series.lost.first() {
            let count = series.lost.len();
            text += &format!("* `{}`: {count} rounds lost; {why}\n", case.name());
        }
    }
    text
}

/// The whole page.
pub(crate) fn page(
    results: &Results,
    list: &[Target],
    about: &RunInfo,
    plots: &[String],
) -> String {
    let mut text = format!(
        "# Verbena compared with its peers\n\n\
         Written by `cargo xtask peers --write`; the raw numbers are in [peers.json](peers.json).\n\n\
         {}. {} interleaved rounds (each runs every contender once), {} s each after a warm-up of a quarter of that time; \
         programs without a time option got a message count for about as long. Two processes for each, not pinned to processors. \
         Load average at the beginning {}, at the end {}: on a busy machine, polling contenders slow down first. \
         Cells: the median, and the smallest and the largest round.\n\n\
         `tcp-…` are our own loops over plain sockets (on loopback without the pacing of bbr, as in Verbena), `verbena-…` the Rust API, `dropin-…` perftest on the drop-in libraries; \
         `…-events` wait for events where the others poll, `…-mss` has frames of a TCP segment, all others large ones. Only the tables of shared memory have Verbena's path through it, UCX with `UCX_TLS=sm` and libfabric's shm; \
         `futex` there is two threads that wake each other. The targets of `verbena-read` and `verbena-atomic` sleep, those of `…-polled` poll. libfabric's \
         only program measures ping-pong alone, also in the tables of bandwidth and rate.\n\n## Targets\n\n",
        about.machine, about.rounds, about.seconds, about.load[0], about.load[1]
    );
    text += &load_warning(about);
    text += &targets(list);
    text += "\n## Figures\n";
    for plot in plots {
        let name = plot.trim_end_matches(".svg");
        text += &format!("\n![{name}]({plot})\n");
    }
    text += &tables(results);
    let lost = lost(results);
    if !lost.is_empty() {
        text += &format!("\n## Lost rounds\n\n{lost}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::case;
    use super::super::series::Sample;
    use super::super::targets::judge;
    use super::*;

    #[test]
    fn page_has_targets_figures_and_lost_rounds() {
        let mut results = Results::new(case::all(true, false));
        for (case, series) in &mut results.rows {
            match case.contender.name {
                "ucx" => series.lost.push("it was late".to_owned()),
                _ => series.samples.extend([2.0, 3.0, 4.0].map(Sample::of)),
            }
        }
        let about = RunInfo {
            machine: "A machine".to_owned(),
            rounds: 3,
            seconds: 0.3,
            load: ["0.1".to_owned(), "0.2".to_owned()],
        };
        assert_eq!(load_warning(&about), "");
        let busy = RunInfo {
            load: ["7.4".to_owned(), "0.2".to_owned()],
            ..about
        };
        assert!(load_warning(&busy).contains("load average 7.4"));
        let about = busy;
        let page = page(&results, &judge(&results), &about, &["a.svg".to_owned()]);
        for part in [
            "| verbena-send | 3.00 (2.00–4.00) |",
            "| ucx | lost |",
            "`loopback/latency/8/ucx`: 1 rounds lost; it was late",
            "![a](a.svg)",
            "not measured",
            "The machine was busy",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }
}
