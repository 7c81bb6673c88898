//! More polling threads than processors, on both sides: throughput must not collapse (docs/performance.md).

use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Messages per second, in millions, with this number of polling threads on each side.
fn rate(settings: &[(&str, &str)], threads: usize, more: &[&str]) -> f64 {
    let output = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(["bench", "send", "--metric", "rate", "-n", "60000"])
        .args(["--json", "--rounds", "1", "--threads"])
        .arg(threads.to_string())
        .args(more)
        .envs(settings.iter().copied())
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &parsed["results"][0];
    assert_eq!(row["threads"], threads, "{row}");
    row["value"].as_f64().unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// With four polling threads for each processor, the rate stays near that of one thread.
fn keep_up_with_one(settings: &[(&str, &str)]) {
    // Two such tests at the same time would compare different loads.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let many = (4 * processors).min(64);
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        one.push(rate(settings, 1, &[]));
        all.push(rate(settings, many, &[]));
    }
    let ratio = median(all.clone()) / median(one.clone());
    // About 1 with sleeping polls, whatever else runs; 0.05 to 0.2 on two processors without (`poll_sleep = 0s`).
    assert!(
        ratio > 0.3,
        "{ratio:.2}: one thread {one:?}, {many} threads {all:?}"
    );
}

#[test]
fn many_polling_threads_keep_up_with_one() {
    keep_up_with_one(&[]);
}

#[test]
fn many_polling_threads_keep_up_with_one_over_tcp() {
    keep_up_with_one(&[("VERBENA_SAME_HOST", "off")]);
}

#[test]
fn threads_can_poll_one_completion_queue() {
    assert!(rate(&[], 3, &["--one-cq"]) > 0.0);
}
