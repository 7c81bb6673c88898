//! Runs the binary and finds the fixtures. A run has the exit code, both outputs and the JSON lines.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Every capture, by name.
pub(crate) const CAPTURES: [&str; 11] = [
    "00_stock_rping_64_5000",
    "02_rping_v2_crc_sizes",
    "03_rping_v1_nocrc",
    "06_rping_v2_p2p_crc",
    "09_rping_ipv6_nocrc",
    "11_perftest_send",
    "13_perftest_read",
    "15_ops_ok_crc",
    "16_ops_terminate_crc",
    "17_reject_crc",
    "21_rping_v2_crc_loss",
];

/// The path of a fixture.
pub(crate) fn fixture(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/fixtures").join(name)
}

/// A capture's bytes.
pub(crate) fn capture(name: &str) -> Vec<u8> {
    std::fs::read(fixture(&format!("{name}.pcap"))).expect("fixture")
}

/// A finished run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The JSON lines.
    pub(crate) fn records(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }

    /// The records of this kind.
    pub(crate) fn of_kind(&self, kind: &str) -> Vec<Value> {
        let mut records = self.records();
        records.retain(|r| r["kind"] == kind);
        records
    }

    /// Checks that there is one violation; returns its message.
    pub(crate) fn violation(&self) -> String {
        assert_eq!(self.code, 1, "{self:?}");
        let found = self.of_kind("Violation");
        assert_eq!(found.len(), 1, "{self:?}");
        found[0]["message"].as_str().expect("message").to_owned()
    }
}

/// Runs the binary on bytes, through standard input.
pub(crate) fn decode(bytes: &[u8], options: &[&str]) -> Run {
    let mut args = vec!["decode", "-"];
    args.extend(options);
    let mut child = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("stdin");
    let bytes = bytes.to_vec();
    // The command may end without reading all of it.
    let feeder = std::thread::spawn(move || stdin.write_all(&bytes).is_ok());
    let output = child.wait_with_output().expect("the binary ends");
    feeder.join().expect("feeder");
    finished(output)
}

/// Runs the binary with these arguments.
pub(crate) fn verbena(args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    finished(output)
}

fn finished(output: std::process::Output) -> Run {
    Run {
        code: output.status.code().expect("no signal"),
        stdout: String::from_utf8(output.stdout).expect("utf-8"),
        stderr: String::from_utf8(output.stderr).expect("utf-8"),
    }
}

/// What a command of tshark prints; `None` if it is not installed, which is a failure in CI only.
pub(crate) fn tshark(command: &mut Command) -> Option<String> {
    let output = match command.output() {
        Ok(output) => output,
        Err(_) if std::env::var_os("CI").is_none() => {
            eprintln!(
                "SKIPPED: tshark is not installed (Debian package tshark); nothing was compared"
            );
            return None;
        }
        Err(error) => panic!("tshark must be installed here (Debian package tshark): {error}"),
    };
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).expect("utf-8"))
}

/// A number of a record.
pub(crate) fn number(record: &Value, field: &str) -> u64 {
    let value = record[field].as_u64();
    value.unwrap_or_else(|| panic!("{field} of {record}"))
}

/// A string of a record.
pub(crate) fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    let value = record[field].as_str();
    value.unwrap_or_else(|| panic!("{field} of {record}"))
}
