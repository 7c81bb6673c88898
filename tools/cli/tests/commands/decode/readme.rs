//! What the fixtures' README says about each capture, as assertions about its messages. The listings have the same information for each
//! FPDU.

use serde_json::Value;

use super::support::{Run, capture, decode, number, text};

fn json(name: &str) -> Run {
    let run = decode(&capture(name), &["--json"]);
    assert_eq!(run.code, 0, "{name}: {}", run.stderr);
    run
}

fn message_kinds(records: &[Value], stream: u64) -> Vec<String> {
    let of_stream = records.iter().filter(|r| number(r, "stream") == stream);
    of_stream
        .map(|r| format!("{} {}", text(r, "dir"), text(r, "kind")))
        .collect()
}

#[test]
fn rping_round_is_decoded_in_order() {
    let records = json("00_stock_rping_64_5000").records();
    let round = [
        "i2r Send",
        "r2i ReadRequest",
        "i2r ReadResponse",
        "r2i Send",
        "i2r Send",
        "r2i Write",
        "r2i Send",
    ];
    for stream in 0..2 {
        let mut expected = vec!["i2r MpaRequest", "r2i MpaReply"];
        expected.extend(round);
        expected.extend(round);
        assert_eq!(message_kinds(&records, stream), expected);
    }
    let writes: Vec<_> = records.iter().filter(|r| r["kind"] == "Write").collect();
    let lens: Vec<_> = writes.iter().map(|r| number(r, "len")).collect();
    assert_eq!(lens, [64, 64, 5000, 5000]);
    assert_eq!(number(writes[2], "segments"), 4);
}

#[test]
fn rping_writes_have_whole_message_sizes() {
    let run = json("02_rping_v2_crc_sizes");
    let lens: Vec<_> = run
        .of_kind("Write")
        .iter()
        .map(|r| number(r, "len"))
        .collect();
    let sizes = [64, 101, 1001, 1384, 5000, 20000];
    let expected: Vec<u64> = sizes.into_iter().flat_map(|s| [s, s]).collect();
    assert_eq!(lens, expected);
}

#[test]
fn revision_one_streams_hold_one_send() {
    let run = json("03_rping_v1_nocrc");
    let records = run.records();
    for stream in 0..2 {
        assert_eq!(
            message_kinds(&records, stream),
            ["i2r MpaRequest", "r2i MpaReply", "i2r Send"]
        );
    }
    for frame in run.of_kind("MpaRequest") {
        assert_eq!(number(&frame, "revision"), 1);
        assert!(frame["ird"].is_null());
    }
}

#[test]
fn peer_to_peer_opens_with_zero_length_write() {
    let run = json("06_rping_v2_p2p_crc");
    let records = run.records();
    assert_eq!(text(&records[0], "rtr"), "write+read");
    assert_eq!(text(&records[1], "rtr"), "write");
    let first = &records[2];
    assert_eq!(text(first, "kind"), "Write");
    assert_eq!(number(first, "len"), 0);
    assert_eq!(text(first, "stag"), "0x00000001");
    assert_eq!(first["rtr"], true);
    assert!(records[3..].iter().all(|r| r["rtr"].is_null()));
}

#[test]
fn ipv6_capture_is_decoded() {
    let run = json("09_rping_ipv6_nocrc");
    let request = &run.of_kind("MpaRequest")[0];
    assert!(text(request, "from").starts_with("[fd01::2]:"));
    assert_eq!(text(request, "to"), "[fd01::1]:7174");
}

#[test]
fn perftest_runs_are_pairs_of_connections() {
    for name in ["11_perftest_send", "13_perftest_read"] {
        assert_eq!(json(name).of_kind("MpaRequest").len(), 6, "{name}");
    }
    let reads = json("13_perftest_read");
    assert_eq!(
        reads.of_kind("ReadRequest").len(),
        reads.of_kind("ReadResponse").len()
    );
}

#[test]
fn every_operation_of_successful_run_is_recognised() {
    let run = json("15_ops_ok_crc");
    assert_eq!(run.of_kind("MpaRequest").len(), 16);
    for request in run.of_kind("MpaRequest") {
        assert_eq!(text(&request, "private_data"), "68656c6c6f");
    }
    for reply in run.of_kind("MpaReply") {
        assert_eq!(number(&reply, "len"), 16);
    }
    assert_eq!(run.of_kind("SendSe").len(), 1);
    let invalidating = run.of_kind("SendInv");
    assert_eq!(invalidating.len(), 1);
    assert_eq!(number(&invalidating[0], "len"), 100);
    assert!(text(&invalidating[0], "invalidate").starts_with("0x"));
    let empty = |kind: &str| run.of_kind(kind).iter().any(|r| number(r, "len") == 0);
    assert!(empty("Send") && empty("Write") && empty("ReadResponse"));
    assert!(
        run.of_kind("Write")
            .iter()
            .any(|r| number(r, "len") == 30000)
    );
}

#[test]
fn siw_terminates_are_decoded_with_cause() {
    let run = json("16_ops_terminate_crc");
    let found = run.of_kind("Terminate");
    let causes: Vec<_> = found
        .iter()
        .map(|r| (number(r, "stream"), text(r, "cause")))
        .collect();
    assert_eq!(
        causes,
        [
            (0, "DDP tagged buffer: invalid STag"),
            (1, "DDP tagged buffer: invalid STag"),
            (2, "DDP tagged buffer: base or bounds violation"),
            // A Write without the right: siw reports an invalid STag.
            (3, "DDP tagged buffer: invalid STag"),
            (4, "RDMAP remote protection: invalid STag"),
            (5, "RDMAP remote protection: base or bounds violation"),
            (7, "DDP untagged buffer: no buffer available"),
            // A Send too long for its receive: siw reports that there is none.
            (8, "DDP untagged buffer: no buffer available"),
        ]
    );
    for terminate in &found {
        assert_eq!(text(terminate, "dir"), "r2i");
        assert_eq!(text(terminate, "dialect"), "siw");
    }
    // siw does not check the right to read.
    let records = run.records();
    assert_eq!(
        message_kinds(&records, 6)[2..],
        ["i2r ReadRequest", "r2i ReadResponse"]
    );
}

#[test]
fn a_rejection_is_shown_with_its_private_data() {
    let run = json("17_reject_crc");
    let reply = &run.of_kind("MpaReply")[0];
    assert_eq!(reply["reject"], true);
    let data = text(reply, "private_data");
    let bytes: Vec<u8> = (0..data.len() / 2)
        .map(|i| u8::from_str_radix(&data[2 * i..2 * i + 2], 16).expect("hex"))
        .collect();
    assert_eq!(bytes, b"no thanks");
    let summary = decode(&capture("17_reject_crc"), &[]).stdout;
    assert!(summary.contains("rejected by the responder"), "{summary}");
}

#[test]
fn lossy_capture_decodes_without_gaps() {
    let run = decode(&capture("21_rping_v2_crc_loss"), &["--json", "--segments"]);
    assert_eq!(run.code, 0);
    assert_eq!(run.of_kind("Fpdu").len(), 70);
    assert_eq!(run.of_kind("Lost").len(), 0);
}
