//! `verbena metrics` on a program of the system: over HTTP, in a file, and on standard output.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use super::running::{Program, Runtime, text, write_bw};

/// The value of the first series with this beginning.
fn value(metrics: &str, beginning: &str) -> f64 {
    let line = metrics.lines().find(|line| line.starts_with(beginning));
    let line = line.unwrap_or_else(|| panic!("{beginning} in {metrics}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// The sum over series with this beginning: other tests have devices, too.
fn sum(metrics: &str, beginning: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(beginning));
    lines
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        .sum()
}

#[test]
fn running_program_is_measured_in_every_form() {
    let runtime = Runtime::new();
    let Some((_server, client)) = write_bw(&runtime) else {
        return;
    };
    let sent = format!(
        "verbena_queue_pair_sent_bytes_total{{pid=\"{}\",program=\"ib_write_bw\"",
        client.pid()
    );

    let output = runtime.output(&["metrics"]);
    let printed = text(&output.stdout);
    assert!(printed.ends_with("# EOF\n"), "{output:?}");
    let first = value(&printed, &sent);
    assert!(first > 65536.0);
    let state = format!(
        "verbena_queue_pairs{{pid=\"{}\",program=\"ib_write_bw\",state=\"Rts\",path=\"shared-memory\"}}",
        client.pid()
    );
    assert_eq!(value(&printed, &state), 1.0);

    let file = runtime.0.join("verbena.prom");
    let output = runtime.output(&["metrics", "--once", "--textfile", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(value(&written, &sent) >= first && written.ends_with("# EOF\n"));
    // The device's bytes are asked for before those of its queue pairs, and the program goes on sending.
    let port = "node_infiniband_port_data_transmitted_bytes_total{device=";
    assert!(sum(&written, port) >= first);
    let names: Vec<_> = std::fs::read_dir(&runtime.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().contains("prom.")),
        "{names:?}"
    );

    let mut command = runtime.command(&["metrics", "--listen", "127.0.0.1:0"]);
    let mut server = Program(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .strip_prefix("serving http://")
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"),
        "{answer}"
    );
    assert!(value(&answer, &sent) >= first);
}

#[test]
fn wrong_places_are_refused_by_name() {
    let runtime = Runtime::new();
    let refused = |args: &[&str], code: i32, what: &str| {
        let output = runtime.output(args);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(text(&output.stderr).contains(what), "{output:?}");
    };
    refused(
        &["metrics", "--listen", "0.0.0.0:0"],
        1,
        "is no loopback address",
    );
    refused(&["metrics", "--textfile", "/tmp/x.txt"], 2, "end in .prom");
    refused(
        &["metrics", "--once", "--textfile", "/no/such/folder/a.prom"],
        1,
        "cannot write /no/such/folder/a.prom",
    );
    let output = runtime.output(&["metrics", "--dashboard"]);
    let dashboard: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(dashboard["title"], "Verbena");
}
