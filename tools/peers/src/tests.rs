//! A short run of every loop: that it ends, and that its figures are plausible.

use super::*;
use clap::CommandFactory;
use std::net::SocketAddr;

fn job(words: &str) -> Job {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap();
    let all = format!("verbena-peers call {words} --at {at} --seconds 0.05");
    match Cli::parse_from(all.split_whitespace()).side {
        Side::Call(job) | Side::Serve(job) => job,
    }
}

fn await_listener(at: SocketAddr) {
    let wanted = format!(":{:04X} 00000000:0000 0A", at.port());
    verbena_testing::wait_until("the server listens", || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        table.contains(&wanted)
    });
}

/// The figures of the server, and those of the caller.
fn run_both(words: &str) -> (Figures, Figures) {
    let job = job(words);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&job).unwrap());
        await_listener(job.at);
        let caller = call(&job).unwrap();
        (server.join().unwrap(), caller)
    })
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn times_are_positive_and_in_order() {
    for words in [
        "pingpong",
        "blocking --size 70000",
        "tls-pingpong",
        "udp-pingpong",
        "latency --wire roce",
        "latency --tls",
        "latency",
        "latency --events",
        "latency --op write --size 64",
        "latency --op read --events",
    ] {
        let (_, caller) = run_both(words);
        assert!(caller.messages > 0, "{words}: {caller:?}");
        assert!(
            0.0 < caller.median && caller.median <= caller.p99,
            "{words}: {caller:?}"
        );
    }
}

#[test]
fn streams_carry_bytes() {
    for words in [
        "plain --size 65536",
        "framed --size 65536",
        "framed --size 1",
        "messages --size 64",
        "tls-plain --size 65536",
        "udp-stream",
        "stream --op write --size 65536 --wire roce",
        "stream --size 65536 --wire roce --loss 1000",
        "stream --op write --size 65536 --tls",
        "stream --size 64 --depth 128",
        "stream --size 64 --depth 128 --list 1",
        "stream --op write --size 65536 --crc on",
        "stream --op write --size 65536 --events --fpdu mss",
        "stream --op read --size 65536",
    ] {
        let (server, caller) = run_both(words);
        assert!(caller.messages > 0 && caller.seconds > 0.04, "{words}");
        assert!(
            caller.carried >= caller.bytes && server.cpu > 0.0,
            "{words}"
        );
    }
}

#[test]
fn many_connections_report_memory_and_bytes() {
    let (server, caller) = run_both("many --connections 300 --size 4096");
    assert!(
        server.grown > 0 && caller.bytes > 0,
        "{server:?} {caller:?}"
    );
}

#[test]
fn tcp_many_carries_bytes_and_ends() {
    for words in [
        "tcp-many --connections 300 --size 4096",
        "tcp-many --connections 1 --size 3000000",
    ] {
        let (server, caller) = run_both(words);
        assert!(caller.bytes > 0 && server.cpu > 0.0, "{words}: {caller:?}");
    }
}

#[test]
fn meter_starts_after_two_messages_per_connection() {
    let mut meter = job("many --connections 50 --size 10").meter_for_connections();
    // real time: longer than the meter measures; it must not have started yet.
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(meter.record(99) && meter.figures().messages == 0);
    assert!(meter.record(1) && meter.figures().messages == 0);
    assert!(meter.record(7) && meter.figures().messages == 7);
    // real time: until the measurement is over.
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert!(!meter.record(1));
    assert_eq!(meter.figures().carried, 1080);
}

#[test]
fn connections_beyond_descriptor_limit_are_refused() {
    let error = call(&job("many --connections 2000000000")).unwrap_err();
    assert!(
        error.to_string().contains("2000000000 connections"),
        "{error}"
    );
}

#[test]
fn idle_run_ends_by_itself() {
    let (_, caller) = run_both("idle");
    assert!(caller.seconds > 0.0);
}
