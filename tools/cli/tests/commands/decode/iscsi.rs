//! iSCSI in captures: PDUs by name with their numbers, digests as the login negotiated, and PDUs that cannot be parsed. Headers are those
//! that an initiator and tgt exchanged in a capture; logins and digests are made here.

use serde_json::Value;
use verbena_cli::decode::iscsi::Digests;
use verbena_cli::decode::{Options, Report};
use verbena_storage_wire::iscsi::digest;

use super::net::{BACK, Net, TO};
use super::support::{Run, capture, decode, number, text, tshark};

const NO_DIGESTS: &str = "HeaderDigest=None\0DataDigest=None\0";
const ALL_DIGESTS: &str = "HeaderDigest=CRC32C\0DataDigest=CRC32C\0";
const OFFER: &str = "HeaderDigest=CRC32C,None\0DataDigest=CRC32C,None\0";

/// A header in words of 32 bits; the rest is zero.
fn bhs(words: &str) -> Vec<u8> {
    let digits: String = words.split_whitespace().collect();
    let mut bytes: Vec<u8> = (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    bytes.resize(48, 0);
    bytes
}

/// The sender of a PDU, its header and its data.
type SentPdu = (usize, Vec<u8>, Vec<u8>);

/// A login that ends with this answer about digests.
fn login(answer: &str) -> Vec<SentPdu> {
    let request = format!(
        "43870000 {:08x} 80aabbcc 00010000 00000001 00000000 00000001",
        OFFER.len()
    );
    let response = format!(
        "23870000 {:08x} 80aabbcc 00010300 00000001 00000000 00000001 00000001 00000002",
        answer.len()
    );
    vec![
        (TO, bhs(&request), OFFER.into()),
        (BACK, bhs(&response), answer.into()),
    ]
}

/// INQUIRY, WRITE(10) of 16 KiB in two PDUs of data, a ping and a logout.
fn session() -> Vec<SentPdu> {
    let lun = "00010000 00000000";
    let none = Vec::new;
    vec![
        (
            TO,
            bhs(&format!(
                "01c10000 00000000 {lun} 00000004 00000060 00000003 00000004 12000000 60"
            )),
            none(),
        ),
        (
            BACK,
            bhs(
                "25830000 00000042 00000000 00000000 00000004 ffffffff 00000004 00000004 00000084 00000000 00000000 0000001e",
            ),
            vec![0x20; 66],
        ),
        (
            TO,
            bhs(&format!(
                "01a10000 00000000 {lun} 00000008 00004000 00000007 00000008 2a000000 00080000 2000"
            )),
            none(),
        ),
        (
            BACK,
            bhs(&format!(
                "31800000 00000000 {lun} 00000008 d00ae6c1 00000008 00000008 00000088 00000000 00000000 00004000"
            )),
            none(),
        ),
        (
            TO,
            bhs(&format!(
                "05000000 00002000 {lun} 00000008 d00ae6c1 00000000 00000008"
            )),
            vec![1; 8192],
        ),
        (
            TO,
            bhs(&format!(
                "05800000 00002000 {lun} 00000008 d00ae6c1 00000000 00000008 00000000 00000001 00002000"
            )),
            vec![2; 8192],
        ),
        (
            BACK,
            bhs("21800000 00000000 00000000 00000000 00000008 00000000 00000008 00000008 00000088"),
            none(),
        ),
        (
            TO,
            bhs("40800000 00000004 00000000 00000000 00000077 ffffffff 00000008 00000009"),
            b"ping".to_vec(),
        ),
        (
            BACK,
            bhs("20800000 00000004 00000000 00000000 00000077 ffffffff 00000009 00000008 00000088"),
            b"ping".to_vec(),
        ),
        (
            TO,
            bhs("46800000 00000000 00000000 00000000 00000079 00000000 00000008 0000000a"),
            none(),
        ),
        (
            BACK,
            bhs("26800000 00000000 00000000 00000000 00000079 00000000 0000000a 00000009 00000089"),
            none(),
        ),
    ]
}

/// A PDU as on the wire.
fn bytes((_, head, data): &SentPdu, digests: Digests) -> Vec<u8> {
    let mut all = head.clone();
    if digests.header {
        all.extend(digest(head));
    }
    let mut data = data.clone();
    data.resize(data.len().next_multiple_of(4), 0);
    all.extend(&data);
    if digests.data && !data.is_empty() {
        all.extend(digest(&data));
    }
    all
}

fn connection(port: u16) -> Net {
    let mut net = Net::new();
    net.ports[TO] = 40000;
    net.ports[BACK] = port;
    net.handshake();
    net
}

/// Sends all of it, in segments of this number of bytes.
fn send_all(net: &mut Net, all: &[SentPdu], digests: Digests, cut: usize) {
    for said in all {
        for piece in bytes(said, digests).chunks(cut) {
            net.send(said.0, piece);
        }
    }
}

const BOTH: Digests = Digests {
    header: true,
    data: true,
};
const NONE: Digests = Digests {
    header: false,
    data: false,
};

fn full_session(answer: &str, digests: Digests, cut: usize) -> Net {
    let mut net = connection(3260);
    send_all(&mut net, &login(answer), NONE, cut);
    send_all(&mut net, &session(), digests, cut);
    net.fin(TO).fin(BACK);
    net
}

fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| text(record, "kind")).collect()
}

const KINDS: [&str; 13] = [
    "Login Request",
    "Login Response",
    "SCSI Command",
    "Data-In",
    "SCSI Command",
    "R2T",
    "Data-Out",
    "Data-Out",
    "SCSI Response",
    "NOP-Out",
    "NOP-In",
    "Logout Request",
    "Logout Response",
];

#[test]
fn every_pdu_shows_name_and_sequence_numbers() {
    let run = decode(&full_session(NO_DIGESTS, NONE, 1400).pcap(), &["--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let records = run.records();
    assert_eq!(kinds(&records), KINDS);
    let [inquiry, data, write, r2t] = &records[2..6] else {
        panic!("{run:?}");
    };
    assert_eq!(text(inquiry, "cdb"), "INQUIRY 120000006000");
    assert_eq!(text(inquiry, "itt"), "0x00000004");
    assert_eq!(number(inquiry, "cmd_sn"), 3);
    assert_eq!(number(inquiry, "exp_stat_sn"), 4);
    assert_eq!((number(data, "stat_sn"), number(data, "len")), (4, 66));
    assert_eq!(number(data, "max_cmd_sn"), 0x84);
    assert!(text(data, "words").contains("underflow(30)"), "{data}");
    assert_eq!(text(write, "cdb"), "WRITE(10) 2a000000000800002000");
    assert_eq!(text(r2t, "ttt"), "0xd00ae6c1");
    assert!(data.get("ttt").is_none() && data.get("header_digest").is_none());
    // Data without a status has no StatSN, and data of a write no CmdSN.
    assert!(records[6].get("cmd_sn").is_none());
}

/// The result does not depend on TCP's segmentation.
#[test]
fn negotiated_digests_are_checked_at_any_segmentation() {
    let mut first = None;
    for cut in [1400, 1, 7, 48, 52, 100] {
        let run = decode(&full_session(ALL_DIGESTS, BOTH, cut).pcap(), &["--json"]);
        assert_eq!(run.code, 0, "{cut}: {run:?}");
        let mut records = run.records();
        assert_eq!(kinds(&records), KINDS);
        assert!(
            records[1].get("header_digest").is_none(),
            "a login has none"
        );
        for record in &records[2..] {
            assert_eq!(text(record, "header_digest"), "good");
            let verdict = (number(record, "len") > 0).then_some("good");
            assert_eq!(record["data_digest"].as_str(), verdict);
        }
        // Times depend on the packets.
        records
            .iter_mut()
            .for_each(|record| record["time"] = 0.into());
        assert_eq!(*first.get_or_insert_with(|| records.clone()), records);
    }
}

#[test]
fn text_output_has_line_per_pdu_and_summary() {
    let run = decode(&full_session(ALL_DIGESTS, BOTH, 1400).pcap(), &["-v"]);
    let line = |part: &str| {
        let mut lines = run.stdout.lines();
        let line = lines.find(|line| line.contains(part));
        line.unwrap_or_else(|| panic!("{part}: {}", run.stdout))
    };
    let command = line("INQUIRY");
    assert!(command.contains("> SCSI Command"), "{command}");
    assert!(command.contains("cmdsn=3 expstatsn=4"), "{command}");
    assert!(
        command.ends_with("header digest good offset 96"),
        "{command}"
    );
    assert!(line("NOP-In").ends_with("payload 70696e67"));
    line("10.0.0.2:3260, iSCSI, digests of headers and data");
    line("7 PDUs, 2 Data-Out, 1 Login Request, 1 Logout Request, 1 NOP-Out, 2 SCSI Command");
    line("0 MPA streams, 1 iSCSI connection, 0 other TCP connections");
}

/// The connection with one byte of a PDU changed.
fn corrupted(at: usize, byte: usize) -> Run {
    let mut net = connection(3260);
    send_all(&mut net, &login(ALL_DIGESTS), NONE, 1400);
    for (number, said) in session().iter().enumerate() {
        let mut all = bytes(said, BOTH);
        if number == at {
            all[byte] ^= 1;
        }
        net.send(said.0, &all);
    }
    decode(&net.pcap(), &["--json"])
}

#[test]
fn wrong_digests_are_violations() {
    // RFC 7143 §7.7: the length of a PDU with a wrong header digest cannot be trusted, so its direction ends.
    let run = corrupted(0, 20);
    assert_eq!(run.violation(), "wrong header digest");
    assert!(run.of_kind("SCSI Command").is_empty());
    assert_eq!(run.of_kind("NOP-In").len(), 1, "the other one goes on");
    // RFC 7143 §7.8: only the data is wrong.
    let run = corrupted(1, 60);
    assert_eq!(run.violation(), "wrong data digest");
    assert_eq!(run.records().len(), KINDS.len() + 1);
    assert_eq!(text(&run.of_kind("Data-In")[0], "data_digest"), "wrong");
}

#[test]
fn malformed_pdus_are_violations() {
    let broken = |dir: usize, head: &str| {
        let mut net = connection(3260);
        send_all(&mut net, &login(NO_DIGESTS), NONE, 1400);
        net.send(dir, &bhs(head));
        decode(&net.pcap(), &["--json"]).violation()
    };
    let said = broken(TO, "25830000 00000000");
    assert!(said.contains("0x25"), "{said}");
    let said = broken(BACK, "1c000000 00000000");
    assert!(said.contains("0x1c"), "{said}");
    let mut net = connection(3260);
    send_all(&mut net, &login(NO_DIGESTS), NONE, 1400);
    net.send(TO, &bhs("40800000 00000004")).fin(TO);
    let said = decode(&net.pcap(), &["--json"]).violation();
    assert_eq!(said, "the stream ends inside a PDU");
}

/// The port says what a connection may be, and the first bytes what it is.
#[test]
fn iscsi_is_detected_by_port_and_login() {
    let run = |port: u16, options: &[&str]| {
        let mut net = connection(port);
        send_all(&mut net, &login(NO_DIGESTS), NONE, 1400);
        send_all(&mut net, &session(), NONE, 1400);
        let options = [&["--json"], options].concat();
        decode(&net.pcap(), &options).records().len()
    };
    assert_eq!(run(3260, &[]), KINDS.len());
    assert_eq!(run(13260, &[]), 0);
    assert_eq!(run(13260, &["--iscsi", "13260"]), KINDS.len());
    let mut other = connection(3260);
    other.send(TO, b"GET / HTTP/1.1\r\n\r\n");
    let said = decode(&other.pcap(), &[]).stdout;
    assert!(said.contains("1 other TCP connection"), "{said}");
}

/// A session that began before the capture: its digests must be given.
#[test]
fn session_without_login_needs_digests_option() {
    for skipped in [0, 1] {
        let mut net = Net::new();
        net.ports[BACK] = 3260;
        send_all(&mut net, &session()[skipped..], BOTH, 1400);
        let file = net.pcap();
        assert!(decode(&file, &["--json"]).records().is_empty());
        let run = decode(&file, &["--json", "--digests", "both"]);
        assert_eq!(run.code, 0, "{run:?}");
        assert_eq!(kinds(&run.records()), KINDS[2 + skipped..]);
    }
}

fn library(file: &[u8], digests: Option<Digests>) -> Report {
    let options = Options {
        verbose: true,
        digests,
        ..Options::default()
    };
    let mut output = Vec::new();
    verbena_cli::decode::decode(file, &mut output, options).expect("memory takes all output")
}

#[test]
fn hostile_bytes_never_panic() {
    // Every byte of every PDU, which includes lengths and digests.
    let all: Vec<SentPdu> = login(ALL_DIGESTS).into_iter().chain(session()).collect();
    for at in 0..all.len() {
        for byte in 0..48 {
            for value in [0, 0xff, all[at].1[byte] ^ 0x80] {
                let mut bent = all.clone();
                bent[at].1[byte] = value;
                let mut net = connection(3260);
                send_all(&mut net, &bent, NONE, 1400);
                net.fin(TO).rst(BACK);
                library(&net.pcap(), None);
            }
        }
    }
    let mut random = 7u32;
    for _ in 0..300 {
        let mut net = connection(3260);
        for turn in 0..20 {
            let mut noise: Vec<u8> = (0..random % 300)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (random >> 24) as u8
                })
                .collect();
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if let (0, Some(first)) = (turn, noise.first_mut()) {
                *first = 0x43;
            }
            net.send((random >> 20) as usize % 2, &noise);
        }
        library(&net.pcap(), Some(BOTH));
    }
}

/// The boundaries of PDUs behind missing bytes are unknown.
#[test]
fn lost_bytes_end_decoding_and_are_reported() {
    let mut net = connection(3260);
    send_all(&mut net, &login(NO_DIGESTS), NONE, 1400);
    let (before, after) = (&session()[..2], &session()[3..]);
    send_all(&mut net, before, NONE, 1400);
    net.send_uncaptured(TO, &bytes(&session()[2], NONE));
    send_all(&mut net, after, NONE, 1400);
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.of_kind("Lost").len(), 1, "{run:?}");
    assert_eq!(kinds(&run.records())[..4], KINDS[..4]);
}

/// Numbers that are compared with Wireshark's dissector, and their names in our records.
const COMPARED: [(&str, &str); 6] = [
    ("iscsi.datasegmentlength", "len"),
    ("iscsi.cmdsn", "cmd_sn"),
    ("iscsi.expstatsn", "exp_stat_sn"),
    ("iscsi.statsn", "stat_sn"),
    ("iscsi.expcmdsn", "exp_cmd_sn"),
    ("iscsi.maxcmdsn", "max_cmd_sn"),
];

#[test]
fn wireshark_reads_the_same_numbers() {
    let file = full_session(NO_DIGESTS, NONE, 1400).pcap();
    let name = format!("verbena-iscsi-{}.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, &file).unwrap();
    let mut command = std::process::Command::new("tshark");
    command.arg("-r").arg(&path).args(["-Y", "iscsi.opcode"]);
    command.args("-T fields -E separator=; -e iscsi.initiatortasktag".split(' '));
    for (field, _) in COMPARED {
        command.args(["-e", field]);
    }
    let theirs = tshark(&mut command);
    std::fs::remove_file(&path).unwrap();
    let Some(theirs) = theirs else { return };
    let ours = decode(&file, &["--json"]).records();
    assert_eq!(theirs.lines().count(), ours.len(), "{theirs}");
    let mut compared = 0;
    for (line, record) in theirs.lines().zip(&ours) {
        let fields: Vec<&str> = line.split(';').collect();
        assert_eq!(text(record, "itt"), fields[0], "{line}");
        for ((_, ours), theirs) in COMPARED.iter().zip(&fields[1..]) {
            // The dissector may show a number that the PDU does not have; but numbers that both show must be equal.
            if let (Some(ours), Ok(theirs)) = (record[*ours].as_u64(), parsed(theirs)) {
                assert_eq!(ours, theirs, "{record}\n{line}");
                compared += 1;
            }
        }
    }
    let all = 13 + 5 + 7 + 3 * 6;
    assert_eq!(
        compared, all,
        "lengths, CmdSN, ExpStatSN, and three numbers of targets"
    );
}

fn parsed(number: &str) -> Result<u64, std::num::ParseIntError> {
    match number.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => number.parse(),
    }
}

/// What our initiator and tgtd exchanged, with every combination of digests.
#[test]
fn captured_sessions_decode_with_their_digests() {
    let file = capture("30_iscsi_tgt_digests");
    let run = decode(&file, &["--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let records = run.records();
    assert_eq!(records.len(), 3 * 17);
    for (stream, (header, data)) in [(true, false), (false, true), (true, true)]
        .into_iter()
        .enumerate()
    {
        let of: Vec<&Value> = records.iter().filter(|r| r["stream"] == stream).collect();
        for record in &of[2..] {
            assert_eq!(record["header_digest"].as_str(), header.then_some("good"));
            let data = data && number(record, "len") > 0;
            assert_eq!(record["data_digest"].as_str(), data.then_some("good"));
        }
        let asked: Vec<&str> = of.iter().filter_map(|r| r["cdb"].as_str()).collect();
        assert_eq!(asked.len(), 6);
        assert!(asked[0].starts_with("INQUIRY ") && asked[5].starts_with("MODE SENSE(6) "));
    }
}
