//! The commands that move bytes, run as a user runs them: processes, loopback, exit codes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use verbena::low::{Cq, Pd, Qp, QpOptions, QpState};
use verbena::{Access, Device, Memory};
use verbena_cli::bench::{Case, Metric, Op};

fn verbena(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(args)
        .output();
    output.expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn demo_checks_every_byte() {
    let output = verbena(&["demo", "--quick"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("All data was verified."), "{said}");
}

#[test]
fn every_operation_is_measured_and_reported_as_json() {
    let output = verbena(&[
        "bench",
        "--json",
        "--baseline",
        "--iterations",
        "50",
        "--rounds",
        "1",
        "--size",
        "4k",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = parsed["results"].as_array().unwrap();
    // Four operations by three metrics, without the bandwidth of atomics.
    assert_eq!(rows.len(), 11);
    for row in rows {
        assert!(row["value"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["baseline"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["ratio"].as_f64().unwrap() > 0.0, "{row}");
        assert!(["us", "GB/s", "M/s"].contains(&row["unit"].as_str().unwrap()));
    }
    let is = |row: &serde_json::Value| (row["op"] == "write") && (row["metric"] == "bandwidth");
    assert!(rows.iter().any(is));
}

#[test]
fn every_metric_is_measured_over_several_connections() {
    let output = verbena(&[
        "bench",
        "--json",
        "--baseline",
        "--qps",
        "5",
        "-n",
        "52",
        "--depth",
        "4",
        "--rounds",
        "2",
        "--size",
        "4k",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "without a complaint");
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = parsed["results"].as_array().unwrap();
    assert_eq!(rows.len(), 11);
    for row in rows {
        assert_eq!(row["qps"], 5, "{row}");
        assert!(row["value"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["ratio"].as_f64().unwrap() > 0.0, "{row}");
    }
    let said = text(&verbena(&["bench", "send", "--qps", "2", "-n", "20", "--rounds", "1"]).stdout);
    assert!(said.contains("send rate, 2 connections"), "{said}");
    let help = text(&verbena(&["bench", "--help"]).stdout);
    assert!(help.contains("--qps <QPS>"), "{help}");
}

#[test]
fn too_many_connections_fail_with_message() {
    let none = verbena(&["bench", "--qps", "0"]);
    assert_eq!(none.status.code(), Some(2));
    let many = verbena(&["bench", "--qps", "1024", "--depth", "65"]);
    assert_eq!(many.status.code(), Some(1));
    let said = text(&many.stderr);
    assert!(said.contains("at most 65536 together"), "{said}");
}

#[test]
fn text_output_has_perftest_columns() {
    let output = verbena(&["bench", "send", "-n", "20", "--rounds", "1", "--crc", "on"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for column in ["#bytes", "#iterations", "t_typical[usec]", "MsgRate[Mpps]"] {
        assert!(said.contains(column), "{said}");
    }
}

#[test]
fn missing_server_is_named_in_error() {
    let output = verbena(&["bench", "--client", "127.0.0.1:1", "send"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("127.0.0.1:1"), "{said}");
}

/// A queue pair in INIT, and memory that the peer may write to.
struct SilentPeer {
    device: Device,
    qp: Qp,
    memory: Memory,
    _objects: (Pd, Cq),
}

impl SilentPeer {
    fn new() -> SilentPeer {
        let device = Device::open().unwrap();
        let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
        let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
        qp.modify(QpState::Init).unwrap();
        SilentPeer {
            memory: pd.memory(128, Access::ALL).unwrap(),
            device,
            qp,
            _objects: (pd, cq),
        }
    }
}

#[test]
fn silent_server_ends_the_benchmark() {
    let peer = SilentPeer::new();
    let listener = peer.device.listen("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let request = listener.next().wait().unwrap();
        let mut reply = peer.memory.remote().to_bytes().to_vec();
        reply.extend([0, 0]);
        let joining = request.accept_on(&peer.qp, &reply).unwrap();
        joining.wait().unwrap();
        peer
    });
    let output = verbena(&[
        "bench",
        "--client",
        &at,
        "write",
        "--metric",
        "latency",
        "--size",
        "8",
        "--timeout",
        "0.2",
    ]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("silent for 200ms"), "{said}");
    drop(server.join().unwrap());
}

/// Kills it when the test ends.
struct BenchServer(Child);

impl Drop for BenchServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn silent_client_does_not_hold_the_server() {
    let server = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(["bench", "--server", "127.0.0.1:0", "--timeout", "0.2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut server = BenchServer(server.expect("the command starts"));
    let mut out = BufReader::new(server.0.stdout.take().unwrap());
    let mut errors = BufReader::new(server.0.stderr.take().unwrap());
    let mut at = String::new();
    out.read_line(&mut at).unwrap();
    let at = at.trim();
    for (op, qps) in [(Op::Send, 1), (Op::Read, 1), (Op::Read, 2)] {
        let case = Case {
            op,
            metric: Metric::Rate,
            size: 64,
            count: 10,
            depth: 1,
            qps,
            threads: 1,
            one_cq: false,
            poll_memory: false,
        };
        let peer = SilentPeer::new();
        let mut hello = case.to_bytes().to_vec();
        hello.extend(0_u32.to_be_bytes());
        hello.extend(peer.memory.remote().to_bytes());
        let joining = peer.qp.connect(at.parse().unwrap(), &hello).unwrap();
        joining.wait().unwrap();
        let mut complaint = String::new();
        errors.read_line(&mut complaint).unwrap();
        assert!(
            complaint.contains("silent for 200ms"),
            "{op:?} {qps}: {complaint}"
        );
    }
    let output = verbena(&["bench", "--client", at, "send", "-n", "20", "--rounds", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn time_limit_must_be_in_range() {
    for wrong in ["0", "-1", "soon", "NaN"] {
        let output = verbena(&["bench", &format!("--timeout={wrong}")]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(text(&output.stderr).contains("--timeout"), "{wrong}");
    }
}

#[test]
fn devinfo_names_source_of_each_setting() {
    let output = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .arg("devinfo")
        .env("VERBENA_CRC", "off")
        .output()
        .expect("the command starts");
    let said = text(&output.stdout);
    let line = said.lines().find(|line| line.trim().starts_with("crc"));
    assert!(
        line.is_some_and(|l| l.contains("off") && l.contains("environment")),
        "{said}"
    );
    let first = |word: &str| {
        let line = said.lines().find(|line| line.trim().starts_with(word));
        line.and_then(|line| line.split_whitespace().nth(1))
    };
    // One of several has a comma behind it.
    let address = first("addresses").map(|a| a.trim_end_matches(','));
    assert!(
        address.is_some_and(|a| a.parse::<std::net::IpAddr>().is_ok()),
        "{said}"
    );
    assert!(
        first("handlers").is_some_and(|n| n.parse::<u16>().is_ok()),
        "N2: {said}"
    );
    assert!(first("processors").is_some(), "{said}");
    assert_eq!(first("name"), Some("verbena0"), "{said}");
    let row = |line: &str| line.trim().starts_with("pieces of a request");
    let row = said.lines().find(|line| row(line));
    assert!(row.is_some_and(|row| row.ends_with(" 64")), "{said}");
    let bad = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .arg("devinfo")
        .env("VERBENA_CRC", "perhaps")
        .output()
        .expect("the command starts");
    assert_eq!(bad.status.code(), Some(1));
    assert!(text(&bad.stderr).contains("perhaps"));
}

#[test]
fn devinfo_prints_json_object() {
    let output = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(["devinfo", "--json"])
        .envs([("VERBENA_HANDLERS", "3"), ("VERBENA_DEVICE", "127.0.0.1")])
        .env("VERBENA_MAX_QPS", "77")
        .output()
        .expect("the command starts");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["handlers"], 3);
    assert_eq!(said["name"], "verbena0");
    assert_eq!(said["personality"], "roce");
    assert_eq!(said["limits"]["queue_pairs"], 77);
    assert!(said["limits"]["message_bytes"].as_u64() > Some(1 << 30));
    assert_eq!(said["addresses"], serde_json::json!(["127.0.0.1"]));
    assert_eq!(said["ports"], "20000-29999");
    assert!(
        said["processors"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    );
    let nowhere = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .arg("devinfo")
        .env("VERBENA_DEVICE", "eth4095")
        .output()
        .expect("the command starts");
    let said = text(&nowhere.stdout);
    assert!(
        nowhere.status.success() && said.contains("none: no address of this host"),
        "{said}"
    );
}

/// V2: both maps of a profile, and which of its services are implemented.
#[test]
fn devinfo_profile_shows_devices_and_both_maps() {
    let ask = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_verbena"))
            .args(["devinfo", "--profile"])
            .args(more)
            .env(
                "VERBENA_PRESENTS",
                "verbena0=rdma+nic,verbena1=rdma,scsi0=iscsi",
            )
            .env("VERBENA_OWNERS", "192.0.2.1=verbena1,*:3260=scsi0")
            .env("VERBENA_MAX_QPS", "100")
            .output()
            .expect("the command starts")
    };
    let said = text(&ask(&[]).stdout);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = said.lines().map(words).collect();
    for line in [
        "verbena0 rdma function 0",
        "verbena0 nic not implemented",
        "verbena1 rdma function 1",
        "scsi0 iscsi function 2",
        "scsi0/iscsi queue pairs 2-101 202-301",
        "verbena0/rdma queue pairs 2-101 2-101",
        "verbena1/rdma queue pairs 2-101 102-201",
        "*:3260 scsi0",
        "192.0.2.1 verbena1",
        "anything else verbena0/rdma",
    ] {
        assert!(lines.iter().any(|l| l == line), "{line}\n{said}");
    }
    let said: serde_json::Value = serde_json::from_slice(&ask(&["--json"]).stdout).unwrap();
    assert_eq!(said["devices"][0]["services"][1]["there"], false);
    assert_eq!(said["devices"][1]["services"][0]["function"], 1);
    let rows = said["host"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["device"] == "verbena1" && row["object"] == "queue_pairs");
    assert_eq!(row.unwrap()["internal"], serde_json::json!([102, 201]));
    assert_eq!(said["network"][0]["packets"], "*:3260");
    let bad = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(["devinfo", "--profile"])
        .env("VERBENA_OWNERS", "192.0.2.1=verbena7")
        .output()
        .expect("the command starts");
    assert_eq!(bad.status.code(), Some(1));
    assert!(text(&bad.stderr).contains("no device is called verbena7"));
}

#[test]
fn models_compares_all_four_transfer_models() {
    let args = [
        "models", "--sizes", "64,64k", "--count", "40", "--rounds", "1",
    ];
    let output = verbena(&args);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(said.lines().count(), 9, "{said}");
    for model in ["push-push", "push-pull", "pull-pull", "read"] {
        let rows = said.lines().filter(|line| line.contains(model));
        assert_eq!(rows.count(), 2, "{said}");
    }
    let output = verbena(&[&args[..], &["--json"]].concat());
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = parsed["results"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for four in rows.chunks(4) {
        let messages = |row: &serde_json::Value| row["messages"].as_f64().unwrap();
        assert_eq!(four[0]["model"], "push-push");
        // P10: models with requests need more messages; their times depend on the machine and are not checked.
        assert!(
            four[1..]
                .iter()
                .all(|row| messages(row) > messages(&four[0]))
        );
        for row in four {
            let latency = |way: &str, what: &str| row[way][what].as_f64().unwrap();
            assert!(latency("to_unit", "median") > 0.0 && latency("to_host", "p99") > 0.0);
        }
    }
    let help = text(&verbena(&["models", "--help"]).stdout);
    assert!(help.contains("--rounds <ROUNDS>"), "{help}");
    let bad = verbena(&["models", "--sizes", "3"]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(text(&bad.stderr).contains("not 3"));
}
