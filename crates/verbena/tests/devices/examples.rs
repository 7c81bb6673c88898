//! Runs the examples as separate programs; they check every byte themselves.
//! A test fails if the program fails or does not print the expected line.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::process::{Process, example};

/// More than a socket holds (net.ipv4.tcp_rmem).
const SOCKET_BUFFER: u64 = 64 << 20;

fn assert_example_prints(name: &str, says: &str) {
    let output = example(name).output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{name}: {out}{err}");
    assert!(out.contains(says), "{name}: {out}");
}

#[test]
fn examples_succeed_in_one_process() {
    assert_example_prints("ping_pong", "2000 rounds");
    assert_example_prints("counter", "the end: 2000");
    assert_example_prints("key_value", "every byte right");
    assert_example_prints("file_transfer", "5000017 bytes sent");
    assert_example_prints("oob", "100000 bytes written");
    assert_example_prints("lending", "one too many ended as RemAccessErr");
    assert_example_prints("fan_out", "1 channel detached; all completions in order");
    // It checks by itself which handler ran where.
    assert_example_prints("two_consumers", "500 round trips");
    assert_example_prints("upgrade", "5 upgrades under load, and no client noticed");
}

#[test]
fn examples_succeed_in_two_processes() {
    let folder = std::env::temp_dir().join(format!("verbena-examples-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (from, to) = (folder.join("from"), folder.join("to"));
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|i| (i ^ (i >> 7)) as u8).collect();
    std::fs::write(&from, &bytes).unwrap();
    for name in ["ping_pong", "counter", "key_value", "file_transfer", "oob"] {
        let is_file = name == "file_transfer";
        let mut server = example(name);
        server.arg("server");
        if is_file {
            server.arg(&to);
        }
        let mut server = server
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let at = line.strip_prefix("listening at ").unwrap();
        let mut client = example(name);
        client.arg("client");
        if is_file {
            client.arg(&from);
        }
        let output = client.arg(at).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {err}");
        // Read to the end, so that the server never blocks on the pipe.
        assert!(lines.all(|line| line.is_ok()));
        assert!(server.wait().unwrap().success(), "{name}");
    }
    assert_eq!(std::fs::read(&to).unwrap(), bytes, "every byte is there");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A server of the machine that prints a line when it listens; none, said loudly, where it is not installed.
fn start_server(command: &mut Command) -> Option<Process> {
    let name = command.get_program().to_string_lossy().into_owned();
    match Command::new(&name).arg("--version").output() {
        Ok(_) => Some(Process::new(std::mem::replace(command, Command::new(name)))),
        Err(error) if std::env::var_os("CI").is_some() => panic!("{name}: {error}"),
        Err(error) => {
            eprintln!("SKIPPED: {name}: {error}; no connection to it was tested");
            None
        }
    }
}

/// A port that no program listens on at the moment.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn tcp_queue_pair_fetches_from_web_server() {
    let folder = std::env::temp_dir().join(format!("verbena-tcp-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("page"), vec![7; 1_000_003]).unwrap();
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]);
    if let Some(mut server) = start_server(command.current_dir(&folder)) {
        let line = server.wait_for_line("port ");
        let port = line.split_whitespace().next().unwrap();
        let at = format!("127.0.0.1:{port}");
        for (path, says) in [("/page", "200 OK: 1000003 bytes"), ("/none", "404 ")] {
            let output = example("tcp").args(["get", &at, path]).output().unwrap();
            let out = String::from_utf8_lossy(&output.stdout);
            assert!(out.contains(says), "{out}{output:?}");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn tcp_queue_pair_sends_to_iperf3_server() {
    let port = free_port().to_string();
    let mut command = Command::new("iperf3");
    command.args(["-s", "-1", "--forceflush", "-B", "127.0.0.1", "-p", &port]);
    let Some(mut server) = start_server(&mut command) else {
        return;
    };
    server.wait_for_line("Server listening");
    let at = format!("127.0.0.1:{port}");
    let output = example("tcp").args(["iperf3", &at, "1"]).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let mut counts = out.lines().filter_map(|line| {
        let (before, _) = line.split_once(" bytes")?;
        before.rsplit(' ').next()?.parse::<u64>().ok()
    });
    let [delivered, received] = [counts.next(), counts.next()].map(|count| count.expect(&out));
    // At the end of its test the server stops reading, and does not count what its socket holds then.
    let unread = delivered.checked_sub(received);
    assert!(
        output.status.success() && unread.is_some_and(|unread| unread <= SOCKET_BUFFER),
        "{out}{output:?}"
    );
}
