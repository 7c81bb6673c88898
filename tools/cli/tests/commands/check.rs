//! `verbena check` on the examples of docs/check.md, each of which does one thing wrong or right, and on programs of rdma-core and perftest.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use verbena_testing::wait_for;

use super::dropin::libraries;
use super::running::{Program, Runtime, free_port, has_program, text};

/// The kinds of reports that each example is for.
const EXAMPLES: [(&str, &str); 18] = [
    ("send_buffer_changed", "send-buffer-changed"),
    ("receive_buffer_changed", "receive-buffer-changed"),
    ("overlapping_receives", "overlapping-receives"),
    ("overlapping_reads", "overlapping-reads"),
    ("send_queue_overrun", "send-queue-overrun"),
    ("cq_overrun", "cq-overrun"),
    ("wrong_state", "wrong-state"),
    ("post_refused", "post-refused"),
    ("stale_key", "stale-key"),
    ("stale_rkey", "stale-key"),
    ("unknown_key", "unknown-key"),
    ("memory_unmapped", "memory-unmapped"),
    ("memory_freed", "memory-freed"),
    ("leaked_object", "leaked-object"),
    ("event_unacknowledged", "event-unacknowledged"),
    ("completion_unpolled", "completion-unpolled"),
    ("unused_access", "unused-access"),
    ("busy_poll", "busy-poll"),
];

/// What are hints.
const HINTS: [&str; 2] = ["unused-access", "busy-poll"];

/// Compiles an example; none if the machine has no compiler or headers, which fails in CI.
fn compile(libs: &Path, to: &Path, name: &str, good: bool) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/check");
    let program = to.join(format!("{name}{}", if good { "_good" } else { "" }));
    let output = Command::new("gcc")
        .args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-g",
            "-D_GNU_SOURCE",
            "-o",
        ])
        .arg(&program)
        .args(good.then_some("-DGOOD"))
        .arg(folder.join(format!("{name}.c")))
        .args(["librdmacm.so.1", "libibverbs.so.1"].map(|library| libs.join(library)))
        .output();
    let compiled = output.as_ref().is_ok_and(|output| output.status.success());
    if !compiled {
        assert!(std::env::var_os("CI").is_none(), "{output:?}");
        eprintln!("not tested: {name} cannot be compiled: {output:?}");
    }
    compiled.then_some(program)
}

/// A checked program: its reports as objects, and the output of the command.
struct Checked {
    reports: Vec<Value>,
    summary: Value,
    output: Output,
}

fn check(runtime: &Runtime, args: &[&str], program: &[&str]) -> Checked {
    let file = runtime.0.join("report.jsonl");
    let mut command = runtime.command(&["check", "--device", "127.0.0.1", "--json", "-o"]);
    let output = command
        .arg(&file)
        .args(args)
        .arg("--")
        .args(program)
        .output();
    let output = output.expect("the command starts");
    let lines = std::fs::read_to_string(&file).expect("a report");
    let mut objects: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let summary = objects.pop().expect("a summary");
    Checked {
        reports: objects,
        summary,
        output,
    }
}

impl Checked {
    fn kinds(&self) -> Vec<&str> {
        self.reports
            .iter()
            .filter_map(|report| report["kind"].as_str())
            .collect()
    }

    fn find(&self, kind: &str) -> Option<&Value> {
        self.reports.iter().find(|report| report["kind"] == kind)
    }

    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }
}

/// The functions and lines of the first stack.
fn first_stack(report: &Value) -> Vec<(String, u64)> {
    let frames = report["stacks"][0]["frames"].as_array().expect("frames");
    let place = |frame: &Value| {
        let function = frame["function"].as_str().unwrap_or("?").to_owned();
        (function, frame["line"].as_u64().unwrap_or(0))
    };
    frames.iter().map(place).collect()
}

#[test]
fn each_example_shows_its_kind_and_no_other_error() {
    let Some(libs) = libraries() else { return };
    let runtime = Runtime::new();
    for (name, kind) in EXAMPLES {
        let is_hint = HINTS.contains(&kind);
        for good in [false, true] {
            let Some(program) = compile(&libs, &runtime.0, name, good) else {
                return;
            };
            let run = check(&runtime, &["--hints"], &[program.to_str().unwrap()]);
            let level = |level: &str| run.reports.iter().filter(|r| r["level"] == level).count();
            if good {
                assert!(run.find(kind).is_none(), "{name}: {:?}", run.reports);
                assert_eq!(level("error"), 0, "{name}: {:?}", run.reports);
                assert_eq!(run.code(), Some(0), "{name}: {:?}", run.output);
                continue;
            }
            let report = run
                .find(kind)
                .unwrap_or_else(|| panic!("{name}: {:?}, {:?}", run.reports, run.output));
            assert_eq!(
                run.code(),
                Some(if is_hint { 0 } else { 86 }),
                "{name}: {:?}",
                run.output
            );
            let others = run
                .kinds()
                .iter()
                .filter(|k| **k != kind && !HINTS.contains(k))
                .count();
            assert_eq!(others, 0, "{name}: {:?}", run.reports);
            // The stack leads to the example.
            let stack = first_stack(report);
            assert!(
                stack
                    .iter()
                    .any(|(function, line)| function == "main" && *line > 0),
                "{name}: {stack:?}"
            );
        }
    }
}

#[test]
fn report_names_byte_and_line() {
    let Some(libs) = libraries() else { return };
    let runtime = Runtime::new();
    let Some(program) = compile(&libs, &runtime.0, "send_buffer_changed", false) else {
        return;
    };
    let program = program.to_str().unwrap();
    let run = check(&runtime, &[], &[program]);
    assert_eq!(run.kinds(), ["send-buffer-changed"]);
    let what = run.reports[0]["what"].as_str().unwrap();
    assert!(
        what.starts_with("the buffer of a Write (64 bytes at 0x"),
        "{what}"
    );
    assert!(
        what.ends_with(
            "was changed before its completion was polled: first byte 0 was 0x66 and is 0x6f"
        ),
        "{what}"
    );
    let source = include_str!("check/send_buffer_changed.c");
    let line = source
        .lines()
        .position(|line| line.contains("post(&w"))
        .unwrap()
        + 1;
    let stack = first_stack(&run.reports[0]);
    assert_eq!(
        stack.last(),
        Some(&("main".to_owned(), line as u64)),
        "{stack:?}"
    );
    assert_eq!(run.summary["errors"], 1);
    assert_eq!(run.summary["processes"][0]["ended"], true);
    // As text, on standard error, with what the program itself writes.
    let output = runtime.output(&[
        "check",
        "--device",
        "127.0.0.1",
        "--error-exitcode",
        "3",
        "--",
        program,
    ]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = text(&output.stderr);
    for part in [
        "error: send-buffer-changed\n",
        "  posted:\n",
        "(send_buffer_changed.c:",
        "verbena check: 1 errors, ",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn generated_rules_suppress_the_reports() {
    let Some(libs) = libraries() else { return };
    let runtime = Runtime::new();
    let Some(program) = compile(&libs, &runtime.0, "leaked_object", false) else {
        return;
    };
    let program = program.to_str().unwrap();
    let run = check(&runtime, &["--gen-suppressions"], &[program]);
    assert!(run.reports.len() > 1, "{:?}", run.reports);
    let rules: String = run
        .reports
        .iter()
        .filter_map(|report| report["suppression"].as_str())
        .collect();
    let file = runtime.0.join("known.toml");
    std::fs::write(&file, rules).unwrap();
    let again = check(
        &runtime,
        &["--suppressions", file.to_str().unwrap()],
        &[program],
    );
    assert_eq!(again.code(), Some(0), "{:?}", again.reports);
    assert_eq!(again.summary["errors"], 0);
    assert_eq!(again.summary["suppressed"], run.reports.len());
    std::fs::write(&file, "[[suppress]]\n").unwrap();
    let wrong = runtime.output(&[
        "check",
        "--suppressions",
        file.to_str().unwrap(),
        "--",
        "true",
    ]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert!(
        text(&wrong.stderr).contains("known.toml: rule 1 has neither kind nor program nor frames"),
        "{wrong:?}"
    );
}

#[test]
fn children_are_checked_and_closed_descriptors_do_not_matter() {
    let Some(libs) = libraries() else { return };
    let runtime = Runtime::new();
    let Some(program) = compile(&libs, &runtime.0, "leaked_object", false) else {
        return;
    };
    let program = program.to_str().unwrap();
    let script = format!("{program} >&- 2>&- <&-; exec {program}");
    let run = check(&runtime, &[], &["sh", "-c", &script]);
    assert_eq!(run.code(), Some(86), "{:?}", run.output);
    let mut processes: Vec<_> = run
        .reports
        .iter()
        .map(|report| report["pid"].as_u64())
        .collect();
    processes.dedup();
    assert_eq!(processes.len(), 2, "{:?}", run.reports);
    // A program without verbs has nothing to report, and keeps its status.
    let none = check(&runtime, &[], &["sh", "-c", "exit 7"]);
    assert_eq!(none.code(), Some(7));
    assert_eq!(none.summary["processes"].as_array().map(Vec::len), Some(0));
}

#[test]
fn killed_and_hung_programs_are_told() {
    let Some(libs) = libraries() else { return };
    let runtime = Runtime::new();
    let Some(program) = compile(&libs, &runtime.0, "send_buffer_changed", false) else {
        return;
    };
    // Stopped in a shell that then kills itself: what was reported until then is there.
    let script = format!("{}; kill -KILL $$", program.display());
    let run = check(&runtime, &["--error-exitcode", "0"], &["sh", "-c", &script]);
    assert_eq!(run.kinds(), ["send-buffer-changed"]);
    assert_eq!(run.code(), Some(128 + 9), "{:?}", run.output);
    // A program that does not end is ended by a signal to the command.
    let mut command = runtime.command(&["check", "--", "sleep", "1000"]);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let hung = Program(child.expect("the command starts"));
    let children = format!("/proc/{0}/task/{0}/children", hung.pid());
    let has_child = || std::fs::read_to_string(&children).is_ok_and(|text| !text.is_empty());
    wait_for("the program", || has_child().then_some(()));
    hung.signal(Signal::TERM);
    let mut hung = hung;
    assert_eq!(hung.0.wait().expect("it ends").code(), Some(128 + 15));
}

#[test]
fn hostile_files_in_the_folder_are_harmless() {
    if libraries().is_none() {
        return;
    }
    let runtime = Runtime::new();
    let script = "cd \"$VERBENA_CHECK\" && printf 'x\\033[31m\\n' > 1.jsonl && mkfifo 2.jsonl && ln -s /etc/passwd 3.jsonl \
        && mkdir 4.jsonl && head -c 1000000 /dev/zero > 5.jsonl && printf 'y\\n' > name.jsonl";
    let run = check(&runtime, &[], &["sh", "-c", script]);
    assert_eq!(run.code(), Some(0), "{:?}", run.output);
    assert_eq!(run.reports, Vec::<Value>::new());
    let lost = run.summary["lost"].as_u64().unwrap();
    assert!((1..=4).contains(&lost), "{lost}");
}

/// Runs a server and a client of the system under the check, and returns what was found in both.
fn pair(server: &[&str], client: &[&str], to: &[&str]) -> Option<[Checked; 2]> {
    libraries()?;
    if !has_program(server[0]) {
        return None;
    }
    let (one, other) = (Runtime::new(), Runtime::new());
    let server: Vec<String> = server.iter().map(|arg| (*arg).to_owned()).collect();
    let serving = std::thread::spawn(move || {
        let args: Vec<&str> = server.iter().map(String::as_str).collect();
        check(&one, &[], &args)
    });
    // A client that comes before the server listens ends with an error.
    let args = [client, to].concat();
    let client = loop {
        let run = check(&other, &[], &args);
        if run.output.status.success() || serving.is_finished() {
            break run;
        }
    };
    Some([serving.join().expect("the server was checked"), client])
}

#[test]
fn programs_of_rdma_core_and_perftest_have_no_errors() {
    let port = free_port();
    let own_port = |program: &'static str| [program, "-p", &port].map(str::to_owned);
    let rping = own_port("rping");
    let rping: Vec<&str> = rping.iter().map(String::as_str).collect();
    let to_rping = ["-c", "-C", "5", "-a", "127.0.0.1"];
    let Some(runs) = pair(
        &[&rping[..], &["-s", "-C", "5"]].concat(),
        &rping,
        &to_rping,
    ) else {
        return;
    };
    for run in &runs {
        assert_eq!(run.kinds(), Vec::<&str>::new(), "{:?}", run.reports);
        assert_eq!(run.code(), Some(0), "{:?}", run.output);
    }
    let port = free_port();
    let write_bw = ["ib_write_bw", "-n", "50", "-p", &port];
    if let Some(runs) = pair(&write_bw, &write_bw, &["127.0.0.1"]) {
        for run in &runs {
            assert_eq!(run.summary["errors"], 0, "{:?}", run.reports);
            assert_eq!(run.code(), Some(0), "{:?}", run.output);
        }
    }
    // All receives have the one buffer of the program, which a rule of the command knows.
    let port = free_port();
    let pingpong = ["ibv_rc_pingpong", "-g", "0", "-n", "20", "-p", &port];
    if let Some(runs) = pair(&pingpong, &pingpong, &["127.0.0.1"]) {
        for run in &runs {
            assert_eq!(run.summary["errors"], 0, "{:?}", run.reports);
            assert!(
                run.kinds()
                    .iter()
                    .all(|kind| *kind == "overlapping-receives"),
                "{:?}",
                run.reports
            );
            assert_eq!(run.code(), Some(0), "{:?}", run.output);
        }
    }
}

#[test]
fn explanations_are_those_of_the_page() {
    let runtime = Runtime::new();
    let page = include_str!("../../../../docs/check.md");
    let list = runtime.output(&["check", "--explain"]);
    let names: Vec<String> = text(&list.stdout)
        .lines()
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .collect();
    assert!(names.len() >= 16, "{names:?}");
    for (_, kind) in EXAMPLES {
        assert!(names.iter().any(|name| name == kind), "{kind} in {names:?}");
    }
    for name in names {
        let output = runtime.output(&["check", "--explain", &name]);
        let section = format!("### {}", text(&output.stdout));
        assert!(
            page.contains(&section),
            "docs/check.md wants this section:\n\n{section}"
        );
    }
    let unknown = runtime.output(&["check", "--explain", "nothing"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
}
