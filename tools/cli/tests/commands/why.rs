//! `verbena why` on programs of the system that know nothing of it: one that runs well, one whose peer is stopped, one that was killed, and one that
//! misuses verbs. And on a process that is no adapter and sends what it likes.

use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use verbena_testing::wait_for;

use super::dropin::libraries;
use super::running::{Program, Runtime, text, write_bw};

/// The findings about one process, as text.
fn why(runtime: &Runtime, pid: u32) -> String {
    let output = runtime.output(&["why", &pid.to_string()]);
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// The same as JSON.
fn findings_of(runtime: &Runtime, pid: u32) -> Vec<serde_json::Value> {
    let output = runtime.output(&["why", "--json", &pid.to_string()]);
    let lines = text(&output.stdout);
    let parse = |line| serde_json::from_str(line).expect("one object per line");
    lines.lines().map(parse).collect()
}

#[test]
fn peer_that_stops_and_dies_is_named() {
    let runtime = Runtime::new();
    let Some((mut server, mut client)) = write_bw(&runtime) else {
        return;
    };
    let well = runtime.output(&["why", &client.pid().to_string()]);
    assert_eq!(text(&well.stdout), "", "{well:?}");
    assert!(
        text(&well.stderr).contains("(ib_write_bw): none of its 1 queue pairs failed or waits"),
        "{well:?}"
    );

    server.signal(Signal::STOP);
    let finding = wait_for("a client that waits", || {
        findings_of(&runtime, client.pid())
            .into_iter()
            .find(|f| f["verdict"] == "waits")
    });
    assert_eq!(finding["for"], "answer", "{finding}");
    assert_eq!(
        (&finding["op"], &finding["length"]),
        (&"Write".into(), &65536.into()),
        "{finding}"
    );
    let said = why(&runtime, client.pid());
    let stopped = format!(
        "the peer does not answer: process {} is stopped",
        server.pid()
    );
    assert!(said.contains(&stopped), "{said}");
    assert!(said.contains("on this host over shared memory"), "{said}");
    let said = why(&runtime, server.pid());
    assert!(
        said.contains("does not answer") && said.contains("kill -CONT"),
        "{said}"
    );

    server.kill();
    let said = why(&runtime, server.pid());
    assert!(said.contains("(ib_write_bw), queue pair"), "{said}");
    assert!(said.contains("it was killed or crashed"), "{said}");
    client.0.wait().unwrap();
    let findings = findings_of(&runtime, client.pid());
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(
        (&findings[0]["verdict"], &findings[0]["kind"]),
        (&"failed".into(), &"peer-gone".into())
    );
    assert_eq!(findings[0]["status"], "RetryExcErr");
    assert!(
        findings[0]["rkey"].as_str().unwrap().starts_with("0x"),
        "{findings:?}"
    );
}

/// Compiles the program that misuses verbs; none if the machine has no compiler or headers, which fails in CI.
fn bad_rkey(folder: &Path, to: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/bad_rkey.c");
    let program = to.join("bad_rkey");
    let output = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(source)
        .args(["librdmacm.so.1", "libibverbs.so.1"].map(|library| folder.join(library)))
        .output();
    let compiled = output.as_ref().is_ok_and(|output| output.status.success());
    if !compiled {
        assert!(std::env::var_os("CI").is_none(), "{output:?}");
        eprintln!("not tested: the program cannot be compiled: {output:?}");
    }
    compiled.then_some(program)
}

#[test]
fn refused_write_names_key_region_and_rights() {
    let Some(folder) = libraries() else { return };
    let runtime = Runtime::new();
    let Some(program) = bad_rkey(&folder, &runtime.0) else {
        return;
    };
    let program = program.to_str().unwrap();
    let mut server = runtime.start(&[program]);
    let port = server.first_line();
    let mut client = runtime.start(&[program, &port]);
    assert_eq!(client.first_line(), "remote access error");

    let at_client = findings_of(&runtime, client.pid()).remove(0);
    let at_server = findings_of(&runtime, server.pid()).remove(0);
    assert_eq!(at_client["kind"], "access-refused", "{at_client}");
    assert_eq!(
        (&at_client["wr_id"], &at_client["op"]),
        (&4242.into(), &"Write".into())
    );
    assert_eq!(
        (&at_server["kind"], &at_server["blame"]),
        (&"access".into(), &"peer".into())
    );
    for key in ["rkey", "address", "length"] {
        assert_eq!(at_client[key], at_server[key], "{at_client} {at_server}");
    }
    let said = why(&runtime, server.pid());
    for part in [
        "64 bytes at 0x",
        "which needs remote-write",
        "the region has 4096 bytes from 0x",
        "grants local-read+local-write+remote-read",
        "peer     127.0.0.1:",
        "the region does not grant remote-write",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    // One queue pair by its number, and one that does not exist.
    let number = at_server["number"].as_u64().unwrap();
    let one = runtime.output(&["why", &format!("{}/{number}", server.pid())]);
    let shown = text(&one.stdout);
    assert!(
        shown.starts_with(said.split(" failed").next().unwrap()),
        "{shown}"
    );
    let none = runtime.output(&["why", &format!("{}/{}", server.pid(), number + 1000)]);
    assert_eq!(text(&none.stdout), "");

    // After its end the same is told from what it left.
    drop(server.0.stdin.take());
    assert!(server.0.wait().unwrap().success());
    let after = findings_of(&runtime, server.pid()).remove(0);
    for key in [
        "kind",
        "rkey",
        "address",
        "length",
        "needs",
        "region_rights",
        "cause",
    ] {
        assert_eq!(after[key], at_server[key], "{after}");
    }
}

#[test]
fn process_without_a_trace_is_an_error() {
    let runtime = Runtime::new();
    // A program that has no adapter.
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let child = Program(child);
    let output = runtime.output(&["why", &child.pid().to_string()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("cannot be watched"),
        "{output:?}"
    );
    let output = runtime.output(&["why", "x/1"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        text(&output.stderr).contains("PID or PID/QPN"),
        "{output:?}"
    );
}

/// Without the prefix of the settings: unknown settings are rejected.
const ROLE: &str = "TEST_OF_VERBENA_WHY";

/// What a hostile process sends, and what is said about it.
const ATTACKS: [(&str, &str); 4] = [
    ("an endless line", "sent more than"),
    ("endless lines", "sent more than"),
    ("endless fields", "sent more than"),
    ("control characters", ""),
];

fn attack(what: &str, client: &mut dyn Write) {
    let endless: &[u8] = match what {
        "an endless line" => b"a",
        "endless lines" => b"cq number=1\n",
        "endless fields" => b"a=b ",
        _ => {
            let lines = "failure number=1 kind=\u{1b}]0;x\u{7} cause=x\nqp number=\u{1b}[2J\n\
                         failure number=2 kind=access cause=plain\n";
            let _ = client.write_all(lines.as_bytes());
            return;
        }
    };
    let endless = endless.repeat(1000);
    while client.write_all(&endless).is_ok() {}
}

/// A process that is no adapter and serves its socket.
#[test]
fn as_hostile_child() {
    let Ok(what) = std::env::var(ROLE) else {
        return;
    };
    let name = format!("verbena-objects/{}/0", std::process::id());
    let name = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&name).unwrap();
    println!("\n> ready");
    for client in listener.incoming() {
        let mut client = client.unwrap();
        let _ = client.write_all(b"verbena-objects 1\n");
        attack(&what, &mut client);
    }
}

#[test]
fn hostile_process_is_bounded_and_harmless() {
    let runtime = Runtime::new();
    for (what, complaint) in ATTACKS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["why::as_hostile_child", "--exact", "--nocapture"])
            .env(ROLE, what)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let child = Program(child);
        let mut lines = out.lines();
        assert!(lines.any(|line| line.unwrap() == "> ready"));
        let output = runtime.output(&["why", &child.pid().to_string()]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(err.contains(complaint), "{what}: {output:?}");
        let is_plain = |text: &str| !text.chars().any(|c| c.is_control() && c != '\n');
        assert!(is_plain(&out) && is_plain(&err), "{what}: {output:?}");
        assert_eq!(
            output.status.success(),
            complaint.is_empty(),
            "{what}: {output:?}"
        );
        assert_eq!(
            out.contains("plain"),
            complaint.is_empty(),
            "{what}: {output:?}"
        );
    }
}
