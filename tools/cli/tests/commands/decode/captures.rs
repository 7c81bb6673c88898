//! Every stream of every capture decodes to exactly what the independent listing beside it contains. Compared are startup frames, every
//! FPDU with its checksum, and the messages of the FPDUs; not time and order between the directions, which the listing does not define.

use serde_json::Value;

use super::listing::{Connection, Line, listing};
use super::support::{CAPTURES, Run, capture, decode, number, text};

fn decoded(name: &str) -> Run {
    let run = decode(&capture(name), &["--json", "--segments"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{name}");
    run
}

/// The records of one direction of the stream between these ends, in order.
fn direction(records: &[Value], connection: &Connection, dir: usize) -> Vec<Value> {
    let request = records.iter().find(|r| {
        r["kind"] == "MpaRequest"
            && r["from"] == connection.ends[0].as_str()
            && r["to"] == connection.ends[1].as_str()
    });
    let stream = &request.unwrap_or_else(|| panic!("{:?}", connection.ends))["stream"];
    let mut found = records.to_vec();
    found.retain(|r| r["stream"] == *stream && r["dir"] == ["i2r", "r2i"][dir]);
    found
}

fn is_fpdu(record: &Value) -> bool {
    record["kind"] == "Fpdu"
}

fn each_direction(check: impl Fn(&str, &[Line], &[Value])) {
    for name in CAPTURES {
        let records = decoded(name).records();
        let connections = listing(name);
        let streams = records.iter().filter(|r| r["kind"] == "MpaRequest").count();
        assert_eq!(streams, connections.len(), "{name}");
        for connection in &connections {
            for dir in 0..2 {
                let ours = direction(&records, connection, dir);
                check(name, &connection.lines[dir], &ours);
            }
        }
    }
}

#[test]
fn startup_frames_match_listing() {
    each_direction(|name, lines, records| {
        let listed: Vec<_> = lines.iter().filter(|l| l.is_startup()).collect();
        let ours: Vec<_> = records
            .iter()
            .filter(|r| text(r, "kind").starts_with("Mpa"))
            .collect();
        assert_eq!(listed.len(), ours.len(), "{name}");
        for (line, record) in listed.into_iter().zip(ours) {
            assert_eq!(number(record, "revision"), line.number("rev"), "{name}");
            for (flag, field) in [("M", "markers"), ("R", "reject")] {
                assert_eq!(record[field], line.field(flag) == "1", "{name} {field}");
            }
            // The block's C bit is named C(write-rtr), the flag just C.
            assert_eq!(record["crc"], line.field("C") == "1", "{name}");
            let private = match line.field("private") {
                "-" => "",
                data => data,
            };
            assert_eq!(record["private_data"], private, "{name}");
            assert_eq!(number(record, "len") as usize, private.len() / 2, "{name}");
            for depth in ["ird", "ord"] {
                let listed = line.get(depth).map(|d| d.parse::<u64>().expect("depth"));
                assert_eq!(record[depth].as_u64(), listed, "{name} {depth}");
            }
            let peer_to_peer = line.get("A(p2p)") == Some("1");
            assert_eq!(record["rtr"].is_string(), peer_to_peer, "{name}");
        }
    });
}

#[test]
fn fpdus_match_listing() {
    each_direction(|name, lines, records| {
        let listed: Vec<_> = lines.iter().filter(|l| !l.is_startup()).collect();
        let ours: Vec<_> = records.iter().filter(|r| is_fpdu(r)).collect();
        assert_eq!(listed.len(), ours.len(), "{name}");
        for (line, record) in listed.into_iter().zip(ours) {
            assert_eq!(text(record, "opcode"), line.kind(), "{name}");
            assert_eq!(record["tagged"], line.class.starts_with('T'), "{name}");
            assert_eq!(record["last"], line.is_last(), "{name}");
            assert_eq!(number(record, "ulpdu"), line.number("ulpdu"), "{name}");
            assert_eq!(number(record, "len"), line.number("payload"), "{name}");
            assert_eq!(number(record, "pad"), line.number("pad"), "{name}");
            let (crc, verdict) = line.field("crc").split_once('[').expect("verdict");
            assert_eq!(text(record, "crc"), crc, "{name}");
            assert_eq!(record["crc_ok"], verdict == "ok]", "{name}");
            same_place(name, line, record);
        }
    });
}

#[test]
fn messages_match_listing() {
    each_direction(|name, lines, records| {
        let fpdus: Vec<_> = lines.iter().filter(|l| !l.is_startup()).collect();
        let listed: Vec<_> = fpdus.split_inclusive(|l| l.is_last()).collect();
        let mut ours = records.to_vec();
        ours.retain(|r| !is_fpdu(r) && !text(r, "kind").starts_with("Mpa"));
        assert_eq!(listed.len(), ours.len(), "{name}");
        for (segments, record) in listed.into_iter().zip(&ours) {
            let payload: u64 = segments.iter().map(|l| l.number("payload")).sum();
            assert_eq!(text(record, "kind"), segments[0].kind(), "{name}");
            assert_eq!(number(record, "segments"), segments.len() as u64, "{name}");
            assert_eq!(number(record, "len"), payload, "{name}");
            same_place(name, segments[0], record);
            same_request(name, segments[0], record);
        }
    });
}

/// STag and TO, or QN, MSN and MO.
fn same_place(name: &str, line: &Line, record: &Value) {
    if line.class.starts_with('T') {
        assert_eq!(text(record, "stag"), line.field("stag"), "{name}");
        assert_eq!(text(record, "to"), line.field("to"), "{name}");
    } else {
        for field in ["qn", "msn", "mo"] {
            assert_eq!(number(record, field), line.number(field), "{name} {field}");
        }
    }
}

/// The fields of a Read Request, or an STag to invalidate.
fn same_request(name: &str, line: &Line, record: &Value) {
    if line.name == "READ_REQ" {
        let sink = format!("{}:{}", text(record, "sink_stag"), text(record, "sink_to"));
        let source = format!(
            "{}:{}",
            text(record, "source_stag"),
            text(record, "source_to")
        );
        assert_eq!(sink, line.field("sink"), "{name}");
        assert_eq!(source, line.field("src"), "{name}");
        assert_eq!(number(record, "size"), line.number("size"), "{name}");
    }
    assert_eq!(record["invalidate"].as_str(), line.get("inv"), "{name}");
}

#[test]
fn end_of_each_stream_is_reported() {
    for name in CAPTURES {
        let run = decode(&capture(name), &[]);
        let endings: Vec<_> = run
            .stdout
            .lines()
            .filter(|l| l.contains("ended: "))
            .collect();
        let connections = listing(name);
        assert_eq!(endings.len(), connections.len(), "{name}");
        for (ending, connection) in endings.iter().zip(&connections) {
            let closed = ending.contains("FIN from both sides") || ending.contains("rejected");
            assert_eq!(closed, connection.fins == [true, true], "{name}: {ending}");
        }
    }
}
