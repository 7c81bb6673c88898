//! `verbena trace` on programs of perftest and rdma-core: from their start, attached to running ones, when they are killed, and when the reader is slow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_testing::wait_for;

use super::dropin::libraries;
use super::running::{Runtime, free_port, has_program, text, write_bw};

/// A trace file that was parsed.
struct Traced {
    events: Vec<Value>,
    other: Value,
}

impl Traced {
    fn read(path: &Path) -> Traced {
        let text = std::fs::read_to_string(path).unwrap();
        let mut all: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!("{error} in {} bytes", text.len());
        });
        let Value::Array(events) = all["traceEvents"].take() else {
            panic!("no events");
        };
        let traced = Traced {
            events,
            other: all["otherData"].take(),
        };
        traced.check();
        traced
    }

    /// What holds of every trace: events of a thread have different times, and every flow has a beginning and an end, in slices, in order.
    fn check(&self) {
        let mut slices = BTreeSet::new();
        let mut flows = BTreeMap::<u64, Vec<(&str, f64, String)>>::new();
        for event in &self.events {
            let phase = event["ph"].as_str().unwrap();
            let ts = event["ts"].as_f64();
            let place = format!("{}/{}/{}", event["pid"], event["tid"], event["ts"]);
            match phase {
                "M" => assert!(event["args"]["name"].is_string(), "{event}"),
                "X" => {
                    assert!(event["dur"].as_f64().unwrap() >= 0.0, "{event}");
                    assert!(slices.insert(place), "two slices at one time: {event}");
                }
                "i" => assert!(ts.unwrap() > 0.0, "{event}"),
                "s" | "t" | "f" => {
                    let id = event["id"].as_u64().unwrap();
                    flows
                        .entry(id)
                        .or_default()
                        .push((phase, ts.unwrap(), place));
                }
                other => panic!("phase {other}"),
            }
        }
        for (id, points) in &flows {
            let phases: Vec<&str> = points.iter().map(|(phase, ..)| *phase).collect();
            assert_eq!(
                (phases[0], phases[phases.len() - 1]),
                ("s", "f"),
                "flow {id}"
            );
            assert!(
                phases[1..phases.len() - 1]
                    .iter()
                    .all(|phase| *phase == "t")
            );
            assert!(points.is_sorted_by(|a, b| a.1 <= b.1), "{points:?}");
            for (_, _, place) in points {
                assert!(
                    slices.contains(place),
                    "flow {id} at {place} is in no slice"
                );
            }
        }
        assert_eq!(self.other["flows"].as_u64(), Some(flows.len() as u64));
    }

    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["cat"] == kind)
    }

    fn count(&self, phase: &str, kind: &str) -> usize {
        self.of_kind(kind)
            .filter(|event| event["ph"] == phase)
            .count()
    }

    fn has(&self, name: &str) -> bool {
        self.events
            .iter()
            .any(|event| event["name"].as_str().unwrap().starts_with(name))
    }

    /// Requests, by process, queue pair and number, among events of this kind that pass.
    fn requests(&self, kind: &str, passes: impl Fn(&Value) -> bool) -> Vec<(u64, u64, u64)> {
        let number = |event: &Value, key: &str| event["args"][key].as_u64();
        self.of_kind(kind)
            .filter(|event| event["ph"] == "X" && passes(event))
            .filter_map(|event| {
                let pid = event["pid"].as_u64()?;
                Some((pid, number(event, "qp")?, number(event, "request")?))
            })
            .collect()
    }
}

fn trace(runtime: &Runtime, args: &[&str]) -> (Output, std::path::PathBuf) {
    let file = runtime.0.join("trace.json");
    let file_arg = file.to_str().unwrap();
    let output = runtime.output(&[&["trace", "--out", file_arg], args].concat());
    (output, file)
}

#[test]
fn program_is_traced_from_its_start() {
    if libraries().is_none() || !has_program("rping") {
        return;
    }
    let runtime = Runtime::new();
    let port = free_port();
    let server = runtime.start(&["rping", "-s", "-C", "20", "-a", "127.0.0.1", "-p", &port]);
    let program = [
        "rping",
        "-c",
        "-v",
        "-C",
        "20",
        "-a",
        "127.0.0.1",
        "-p",
        &port,
    ];
    let options = ["--summary", "--set", "device=127.0.0.1", "--"];
    // The server may not listen yet.
    let (output, file) = wait_for("a client that ran", || {
        let (output, file) = trace(&runtime, &[&options[..], &program].concat());
        output.status.success().then_some((output, file))
    });
    drop(server);
    let traced = Traced::read(&file);
    assert_eq!(traced.other["lost"], 0, "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("(rping)") && said.contains(" 0 lost"),
        "{said}"
    );
    let table = text(&output.stdout);
    assert!(table.contains("post -> completion"), "{table}");
    for name in [
        "post Send 16 B",
        "post Receive",
        "send MPA Request",
        "receive MPA Reply",
        "send Send",
        "receive Ack",
        "poll Send",
        "completion of Receive",
        "queue pair",
        "process_name",
    ] {
        assert!(traced.has(name), "{name}");
    }
    // One completion for each signalled post, and its flow.
    let signaled = |event: &Value| event["args"]["signaled"] == true;
    let mut posted = traced.requests("post", signaled);
    let mut completed = traced.requests("completion", |_| true);
    posted.sort_unstable();
    completed.sort_unstable();
    assert!(posted.len() >= 40, "{}", posted.len());
    assert_eq!(posted, completed);
    assert_eq!(traced.count("s", "post to completion"), completed.len());
    assert!(traced.count("s", "arrival to completion") >= 20);
    assert!(traced.count("s", "completion to poll") >= 40);
}

#[test]
fn flows_lead_into_the_other_process() {
    let runtime = Runtime::new();
    let Some((server, client)) = write_bw(&runtime) else {
        return;
    };
    let (server_pid, client_pid) = (server.pid().to_string(), client.pid().to_string());
    // One flow must be found while both are traced; how many depends on the load of the machine.
    let (output, file) = wait_for("a trace with a flow between both", || {
        let (output, file) = trace(&runtime, &["--seconds", "0.3", &server_pid, &client_pid]);
        assert!(output.status.success(), "{output:?}");
        let traced = Traced::read(&file);
        (traced.count("s", "post to arrival") > 0).then_some((output, file))
    });
    let traced = Traced::read(&file);
    let pid_of = |phase: &str| {
        let all = traced.of_kind("post to arrival");
        let pids = all
            .filter(|event| event["ph"] == phase)
            .map(|event| event["pid"].to_string());
        pids.collect::<BTreeSet<_>>()
    };
    assert_eq!(
        pid_of("s"),
        BTreeSet::from([client_pid.clone()]),
        "{output:?}"
    );
    assert_eq!(pid_of("f"), BTreeSet::from([server_pid]));
    assert!(traced.has("post Write 65536 B") && traced.has("receive Write"));
    // It goes on without the tracer, and can be traced again, also one queue pair alone.
    let (output, _) = trace(&runtime, &["--seconds", "0.2", "--qp", "2", &client_pid]);
    assert!(output.status.success(), "{output:?}");
    let (output, _) = trace(&runtime, &["--seconds", "0.2", "--qp", "99", &client_pid]);
    assert!(
        text(&output.stderr).contains("has no queue pair 99"),
        "{output:?}"
    );
}

/// A trace that runs beside the test.
fn start_trace(runtime: &Runtime, args: &[&str]) -> Child {
    let file = runtime.0.join("trace.json");
    let mut command = runtime.command(&["trace", "--out", file.to_str().unwrap()]);
    let child = command.args(args).stderr(Stdio::piped()).spawn();
    child.expect("the command starts")
}

#[test]
fn killed_program_leaves_a_whole_file() {
    let runtime = Runtime::new();
    let Some((_server, mut client)) = write_bw(&runtime) else {
        return;
    };
    let tracer = start_trace(&runtime, &[&client.pid().to_string()]);
    let file = runtime.0.join("trace.json");
    // The file is whole at any time.
    wait_for("events in the file", || {
        let bytes = std::fs::metadata(&file).ok()?.len();
        (bytes > 100_000).then_some(())
    });
    client.kill();
    let output = tracer.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let traced = Traced::read(&file);
    assert!(traced.has("post Write"));
}

#[test]
fn overwritten_events_are_counted() {
    let runtime = Runtime::new();
    let Some((_server, client)) = write_bw(&runtime) else {
        return;
    };
    let tracer = start_trace(&runtime, &["--ring", "256", &client.pid().to_string()]);
    let file = runtime.0.join("trace.json");
    wait_for("events in the file", || {
        let bytes = std::fs::metadata(&file).ok()?.len();
        (bytes > 10_000).then_some(())
    });
    // While the reader is stopped, the program is not: its rings are overwritten.
    let pid = Pid::from_child(&tracer);
    kill_process(pid, Signal::STOP).unwrap();
    let sent = || {
        let output = runtime.output(&["devinfo", "--json", &client.pid().to_string()]);
        let lines = text(&output.stdout);
        let objects = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        objects
            .filter_map(|object| object["messages_out"].as_u64())
            .sum::<u64>()
    };
    let before = sent();
    wait_for("a thousand messages", || {
        (sent() > before + 1000).then_some(())
    });
    kill_process(pid, Signal::CONT).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = tracer.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let traced = Traced::read(&file);
    let lost = traced.other["lost"].as_u64().unwrap();
    assert!(lost > 1000, "{lost}");
    assert!(text(&output.stderr).contains(" lost because the rings were full"));
}

#[test]
fn wrong_arguments_are_explained() {
    let runtime = Runtime::new();
    for (args, complaint) in [
        (&[][..], "required"),
        (&["1", "2", "--qp", "3"], "one queue pair of one process"),
        (&["x"], "is not a number"),
        (&["1", "--seconds", "0"], "number of seconds above 0"),
        (&["1", "--ring", "3"], "3 is not in"),
        (&["1", "--max-size", "5"], "less than"),
        (&["1/2", "--follow"], "--follow does not go with it"),
    ] {
        let (output, _) = trace(&runtime, args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(complaint), "{output:?}");
    }
    let own = std::process::id().to_string();
    let (output, _) = trace(&runtime, &[&own]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("cannot be watched"),
        "{output:?}"
    );
    let (output, _) = trace(&runtime, &["--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
}
