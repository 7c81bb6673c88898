//! The worst ratio decides, in either direction, and a target that was not measured is not met.

use super::super::case;
use super::super::series::Sample;
use super::*;

/// Results in which every contender has the value that is given for the case's name.
fn results(value: impl Fn(&str) -> Option<Sample>) -> Results {
    let mut results = Results::new(case::all(false, true));
    for (case, series) in &mut results.rows {
        series.samples.extend(value(&case.name()));
    }
    results
}

fn verdicts(results: &Results) -> Vec<Verdict> {
    judge(results).iter().map(|target| target.verdict).collect()
}

#[test]
fn unmeasured_targets_are_not_met() {
    let empty = results(|_| None);
    assert!(verdicts(&empty).iter().all(|v| *v == Verdict::Unmeasured));
}

#[test]
fn every_target_can_be_met() {
    let good = results(|name| {
        let value =
            match name {
                _ if name.contains("idle") => 0.0,
                _ if name.ends_with("verbena-send") && name.contains("rate") => 10.0,
                _ if name.contains("ucx") || name.contains("libfabric") => {
                    if name.contains("latency") { 2.0 } else { 0.5 }
                }
                _ if name.ends_with("dropin-send") && name.contains("rate") => 10.0,
                _ => 1.0,
            };
        Some(Sample {
            value,
            cpu: Some(1.0),
            memory: Some(3000.0),
        })
    });
    let all = judge(&good);
    let missed: Vec<&Target> = all.iter().filter(|t| t.verdict != Verdict::Met).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn the_worst_size_decides() {
    let results = results(|name| {
        Some(Sample::of(match name {
            "loopback/bandwidth/1Mi/verbena-write" => 0.9,
            "loopback/bandwidth/1Mi/tcp-framed" => 1.0,
            _ if name.contains("/tcp-framed") => 0.5,
            _ => 1.0,
        }))
    });
    let first = &judge(&results)[0];
    assert_eq!(first.verdict, Verdict::Missed);
    assert!(
        first.measured.starts_with("0.90 (verbena-write by tcp-"),
        "{first:?}"
    );
    assert!(first.measured.contains("1Mi B)"), "{first:?}");
}

#[test]
fn number_of_misses_is_reported() {
    let at = || "here".to_owned();
    let ratios = [0.5, 2.0, 0.9].map(|value| Ratio { value, at: at() });
    let judged = target("", "", Bound::Least(0.9), ratios.to_vec());
    assert_eq!(judged.measured, "0.50 (here); 1 of 3 miss it");
    let judged = target("", "", Bound::Most(2.0), ratios.to_vec());
    assert_eq!(judged.measured, "2.00 (here)");
}

#[test]
fn longer_latency_and_smaller_bandwidth_are_worse() {
    let results = results(|name| {
        let ours = name.contains("verbena-send");
        Some(Sample::of(match (ours, name.contains("latency")) {
            (true, true) => 2.0,
            (true, false) => 4.0,
            _ => 1.0,
        }))
    });
    let ahead = Bound::Least(1.0).worst(results.ahead()).unwrap();
    assert!(
        (ahead.value - 0.5).abs() < 1e-9 && ahead.at.contains("latency"),
        "{ahead:?}"
    );
}
