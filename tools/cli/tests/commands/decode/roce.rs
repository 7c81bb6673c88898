//! Captures of Linux rxe: the messages, losses and refusals that are known to be in them, and every packet as Wireshark's InfiniBand dissector reads it.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use super::support::{capture, decode, fixture, number, text, tshark};

const CAPTURES: [(&str, usize); 5] = [
    ("40_rxe_cm_rping", 134),
    ("41_rxe_ops", 97),
    ("42_rxe_errors", 35),
    ("44_rxe_loss", 659),
    ("46_rxe_perftest", 166),
];

fn records(name: &str, options: &[&str]) -> Vec<Value> {
    let run = decode(&capture(name), &[&["--json"], options].concat());
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{name}");
    run.records()
}

fn kinds(records: &[Value]) -> BTreeMap<&str, usize> {
    let mut kinds = BTreeMap::new();
    for record in records {
        *kinds.entry(text(record, "kind")).or_default() += 1;
    }
    kinds
}

#[test]
fn every_packet_is_shown_with_a_right_checksum() {
    for (name, packets) in CAPTURES {
        let all = records(name, &["--segments"]);
        assert_eq!(all.len(), packets, "{name}");
        assert!(all.iter().all(|record| record["icrc_ok"] == true), "{name}");
    }
}

#[test]
fn messages_are_assembled() {
    let ops = records("41_rxe_ops", &[]);
    // A write and a read of 10,000 bytes are ten packets each.
    for kind in ["Write", "Read Response"] {
        let long = |record: &&Value| record["kind"] == kind && number(record, "len") == 10_000;
        let found: Vec<_> = ops.iter().filter(long).collect();
        assert_eq!(found.len(), 1, "{kind}");
        assert_eq!(number(found[0], "segments"), 10);
    }
    let kinds = kinds(&ops);
    assert_eq!(kinds["FetchAdd"], 1);
    assert_eq!(kinds["Atomic Ack"], 1);
    let words = |needle: &str| ops.iter().any(|r| text(r, "words").contains(needle));
    for needle in [
        "immediate 0x",
        "invalidates 0x",
        "CM REQ",
        "10.2.0.1 > 10.2.0.2",
        "CM DREP",
    ] {
        assert!(words(needle), "{needle}");
    }
}

#[test]
fn refusals_are_named() {
    let errors = records("42_rxe_errors", &[]);
    let naks: Vec<&str> = errors
        .iter()
        .filter(|record| text(record, "kind").contains("NAK"))
        .map(|record| text(record, "words"))
        .collect();
    assert_eq!(naks.len(), 5, "{naks:?}");
    let count = |needle: &str| naks.iter().filter(|words| words.contains(needle)).count();
    assert_eq!(count("remote access error"), 3);
    assert_eq!(count("receiver not ready"), 1);
    assert_eq!(count("remote operational error"), 1);
}

#[test]
fn losses_are_marked() {
    let loss = records("44_rxe_loss", &["--segments"]);
    let noted = |needle: &str| {
        let notes = loss.iter().filter_map(|record| record["note"].as_str());
        notes.filter(|note| note.contains(needle)).count()
    };
    assert!(noted("repeated") > 50, "{}", noted("repeated"));
    let text = decode(&capture("44_rxe_loss"), &[]).stdout;
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains("659 RoCEv2 packets"), "{last}");
    assert!(last.contains("repeated"), "{last}");
    let none = decode(&capture("40_rxe_cm_rping"), &[]).stdout;
    assert!(
        !none.contains("repeated") && !none.contains("missing"),
        "{none}"
    );
}

#[test]
fn damaged_packets_are_counted() {
    let mut file = capture("41_rxe_ops");
    // A byte of the last packet's payload.
    let at = file.len() - 8;
    file[at] ^= 1;
    let text = decode(&file, &[]).stdout;
    assert!(text.contains("1 with a wrong ICRC"), "{text}");
    assert!(text.contains("WRONG ICRC"), "{text}");
}

#[test]
fn wireshark_reads_the_same_headers() {
    for (name, _) in CAPTURES {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(fixture(&format!("{name}.pcap")));
        command.args("-T fields -E separator=; -E occurrence=f".split(' '));
        for field in ["opcode", "destqp", "psn", "a"] {
            command.args(["-e", &format!("infiniband.bth.{field}")]);
        }
        command.args(["-e", "infiniband.reth.va", "-e", "infiniband.reth.r_key"]);
        let Some(theirs) = tshark(&mut command) else {
            return;
        };
        let ours = records(name, &["--segments"]);
        assert_eq!(theirs.lines().count(), ours.len(), "{name}");
        for (line, record) in theirs.lines().zip(&ours) {
            let fields: Vec<&str> = line.split(';').collect();
            assert_eq!(number(record, "opcode").to_string(), fields[0], "{line}");
            assert_eq!(text(record, "qpn"), fields[1], "{line}");
            assert_eq!(number(record, "psn").to_string(), fields[2], "{line}");
            let asks = record["ack_request"] == true;
            assert_eq!(if asks { "1" } else { "0" }, fields[3], "{line}");
            if let (Some(va), Some(rkey)) = (fields[4].strip_prefix("0x"), fields.get(5)) {
                let va = u64::from_str_radix(va, 16).unwrap();
                let wanted = format!("rkey {rkey} va {va:#x}");
                assert!(text(record, "words").contains(&wanted), "{line}: {record}");
            }
        }
    }
}
