//! Captures of Linux rxe: the messages, losses and refusals that are known to be in them, and every packet as Wireshark's InfiniBand dissector reads it.
//! Captures that are changed packet by packet, and some that are made here, show what is said of missing, repeated and late packets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;

use serde_json::Value;
use verbena_wire::roce::cm::{CmMessage, CmPath, CmTransport, CmaHeader, Rep, Req};
use verbena_wire::roce::{
    Aeth, Deth, MadHeader, Operation, PORT, Packet, Path, Psn, Qpn, Reth, Service, Syndrome, Tail,
    icrc_over_socket,
};
use verbena_wire::{Stag, To};

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

/// The packets of a capture, each with its header.
fn packets_of(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut all) = (&file[24..], Vec::new());
    while let Some(header) = rest.first_chunk::<16>() {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let (packet, behind) = rest.split_at(16 + len);
        all.push(packet.to_vec());
        rest = behind;
    }
    all
}

/// The notes and the last line of a capture that has the packets of `41_rxe_ops` after `change`, which gets the place of the first packet of
/// a Write of ten.
fn notes_after(change: impl FnOnce(&mut Vec<Vec<u8>>, usize)) -> (Vec<String>, String) {
    let file = capture("41_rxe_ops");
    let mut packets = packets_of(&file);
    let records = records("41_rxe_ops", &["--segments"]);
    let first = records
        .iter()
        .position(|record| number(record, "opcode") == 6);
    change(&mut packets, first.unwrap());
    let changed = [&file[..24], &packets.concat()].concat();
    let notes = decode(&changed, &["--json", "--segments"]).records();
    let notes = notes.iter().filter_map(|record| record["note"].as_str());
    let text = decode(&changed, &[]).stdout;
    let last = text.lines().last().unwrap_or_default().to_owned();
    (notes.map(str::to_owned).collect(), last)
}

#[test]
fn missing_packets_are_counted() {
    let (notes, last) = notes_after(|packets, first| {
        packets.remove(first + 3);
    });
    assert_eq!(notes, ["1 packet missing before it"]);
    assert!(last.contains("1 behind missing packets"), "{last}");
    let (notes, _) = notes_after(|packets, first| {
        packets.drain(first + 2..first + 6);
    });
    assert_eq!(notes, ["4 packets missing before it"]);
}

#[test]
fn late_packets_are_not_repeated_ones() {
    let (notes, last) = notes_after(|packets, first| packets.swap(first + 3, first + 4));
    assert_eq!(notes, ["1 packet missing before it", "out of order"]);
    assert!(last.contains("1 out of order"), "{last}");
    assert!(!last.contains("repeated"), "{last}");
    let (notes, last) = notes_after(|packets, first| {
        let again = packets[first + 3].clone();
        packets.insert(first + 6, again);
    });
    assert_eq!(notes, ["repeated"]);
    assert!(
        last.contains("1 repeated") && !last.contains("out of order"),
        "{last}"
    );
}

const HOSTS: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
];

/// A capture of packets over IPv6, each with its sender.
fn ipv6_capture(packets: &[(usize, Packet<'_>)]) -> Vec<u8> {
    // Version 2.4, Ethernet.
    let head: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
    let mut file: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (from, packet) in packets {
        let (src, dst) = (HOSTS[*from], HOSTS[1 - from]);
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        let (src_port, dst_port) = (PORT, PORT);
        let path = Path {
            src,
            dst,
            src_port,
            dst_port,
        };
        bytes.extend_from_slice(&icrc_over_socket(path, &bytes));
        let udp_len = bytes.len() as u16 + 8;
        // Ethernet; IPv6 with its length, UDP and a hop limit.
        let mut frame = [[0; 12].as_slice(), &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
        frame.extend_from_slice(&udp_len.to_be_bytes());
        frame.extend_from_slice(&[17, 64]);
        for address in [src, dst] {
            let IpAddr::V6(address) = address else {
                unreachable!()
            };
            frame.extend_from_slice(&address.octets());
        }
        for field in [src_port, dst_port, udp_len, 0] {
            frame.extend_from_slice(&field.to_be_bytes());
        }
        frame.extend_from_slice(&bytes);
        let len = frame.len() as u32;
        file.extend([0, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        file.extend_from_slice(&frame);
    }
    file
}

fn packet(operation: Operation, qpn: u32, psn: u32, payload: &[u8]) -> Packet<'_> {
    Packet {
        payload,
        ..Packet::new(operation, Qpn::wrapping(qpn), Psn::wrapping(psn))
    }
}

fn read(len: u32) -> Operation {
    Operation::ReadRequest(Reth {
        va: To::new(0x1000),
        rkey: Stag::new(0x0102_0304),
        len,
    })
}

const SEND: Operation = Operation::SendOnly(Service::Rc, Tail::Plain);
const ACK: Aeth = Aeth {
    syndrome: Syndrome::ACK,
    msn: 1,
};

/// The notes of a capture.
fn notes(file: &[u8]) -> Vec<String> {
    let run = decode(file, &["--json", "--segments"]);
    let records = run.records();
    assert!(records.iter().all(|record| record["icrc_ok"] == true));
    let notes = records.iter().filter_map(|record| record["note"].as_str());
    notes.map(str::to_owned).collect()
}

#[test]
fn ipv6_packets_are_decoded() {
    let file = ipv6_capture(&[
        (0, packet(SEND, 0x11, 7, b"hello")),
        (1, packet(Operation::Acknowledge(ACK), 0x22, 7, b"")),
    ]);
    let run = decode(&file, &["--json"]);
    let records = run.records();
    let seen = |at: usize| (text(&records[at], "kind"), number(&records[at], "psn"));
    assert_eq!((seen(0), seen(1)), (("Send", 7), ("Ack", 7)));
    assert!(records.iter().all(|record| record["icrc_ok"] == true));
    assert_eq!(records[0]["stream"], records[1]["stream"]);
    let mut damaged = file;
    let at = damaged.len() - 6;
    damaged[at] ^= 1;
    assert!(decode(&damaged, &[]).stdout.contains("WRONG ICRC"));
}

/// 10,000 bytes are three packets of 4096 bytes, ten of 1024.
#[test]
fn reads_are_counted_with_the_path_mtu() {
    let whole = [1; 4096];
    let first = Operation::ReadResponseFirst(ACK);
    let last = Operation::ReadResponseLast(ACK);
    let response = [
        (0, packet(read(10_000), 0x11, 100, b"")),
        (1, packet(first, 0x22, 100, &whole)),
        (1, packet(Operation::ReadResponseMiddle, 0x22, 101, &whole)),
        (1, packet(last, 0x22, 102, &whole[..1808])),
    ];
    let with = |behind: u32| [&response[..], &[(0, packet(SEND, 0x11, behind, b""))]].concat();
    assert!(notes(&ipv6_capture(&with(103))).is_empty());
    let lost = notes(&ipv6_capture(&with(105)));
    assert_eq!(lost, ["2 packets missing before it"]);
    let again = notes(&ipv6_capture(&with(102)));
    assert_eq!(again, ["repeated"]);
}

#[test]
fn path_mtu_is_that_of_the_request() {
    let cma = CmaHeader {
        port: 5,
        src: HOSTS[0],
        dst: HOSTS[1],
    };
    let private = cma.emit();
    let req = CmMessage::Req(Req {
        local_id: 0xa,
        service: CmaHeader::service_id(CmaHeader::PS_TCP, 7174),
        ca_guid: 1,
        qkey: 0,
        qpn: Qpn::wrapping(0x22),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 20,
        transport: CmTransport::Rc,
        flow_control: false,
        starting_psn: Psn::wrapping(100),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        mtu: 5,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: CmPath::default(),
        alternate: CmPath::default(),
        private: &private,
    });
    let rep = CmMessage::Rep(Rep {
        local_id: 0xb,
        remote_id: 0xa,
        qkey: 0,
        qpn: Qpn::wrapping(0x11),
        starting_psn: Psn::wrapping(500),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 0,
        failover: 1,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        ca_guid: 2,
        private: &[],
    });
    let (req, rep) = (req.emit(1), rep.emit(1));
    let to_qp1 = Operation::Datagram(
        Deth {
            qkey: MadHeader::QKEY,
            src_qpn: Qpn::wrapping(1),
        },
        None,
    );
    let with = |behind: u32| {
        ipv6_capture(&[
            (0, packet(to_qp1, 1, 0, &req)),
            (1, packet(to_qp1, 1, 0, &rep)),
            (0, packet(read(10_000), 0x11, 100, b"")),
            (0, packet(SEND, 0x11, behind, b"")),
        ])
    };
    assert!(notes(&with(103)).is_empty());
    assert_eq!(notes(&with(104)), ["1 packet missing before it"]);
}

/// Without anything that shows it, nothing is said of the packet behind a long Read.
#[test]
fn unknown_path_mtu_marks_nothing() {
    for behind in [103, 110, 140] {
        let file = ipv6_capture(&[
            (0, packet(read(10_000), 0x11, 100, b"")),
            (0, packet(SEND, 0x11, behind, b"")),
            (0, packet(SEND, 0x11, behind + 2, b"")),
        ]);
        assert_eq!(notes(&file), ["1 packet missing before it"], "{behind}");
    }
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

/// Further fields of Wireshark's dissector, and the words that we have before the same value.
const OTHER_FIELDS: [(&str, &str); 18] = [
    ("aeth.syndrome", ""),
    ("aeth.msn", " msn "),
    ("atomiceth.swapdt", " "),
    ("atomiceth.cmpdt", " compare "),
    ("atomicacketh.origremdt", " original "),
    ("cm.req", " CM REQ id="),
    ("cm.req.serviceid", " service="),
    ("cm.req.localqpn", " qpn="),
    ("cm.req.startpsn", " psn="),
    ("cm.rep", " CM REP id="),
    ("cm.rep.remotecommid", " of="),
    ("cm.rep.localqpn", " qpn="),
    ("cm.rep.startpsn", " psn="),
    ("cm.rtu.localcommid", " CM RTU id="),
    ("cm.rtu.remotecommid", " of="),
    ("cm.dreq.localcommid", " CM DREQ id="),
    ("cm.dreq.remotecommid", " of="),
    ("cm.drsp.localcommid", " CM DREP id="),
];
const FETCH_ADD: u64 = 20;

/// What our words have for a field with this value.
fn in_words((field, before): (&str, &str), value: &str, opcode: u64) -> String {
    let number = match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => value.parse().unwrap(),
    };
    match field {
        "aeth.syndrome" => match Aeth::parse(&[number as u8, 0, 0, 0]).unwrap().syndrome {
            Syndrome::RnrNak(timer) => format!(" receiver not ready, wait {timer} "),
            syndrome => format!(" {syndrome} "),
        },
        "aeth.msn" => format!("{before}{number} "),
        "atomiceth.swapdt" if opcode == FETCH_ADD => format!(" add {number:#x} "),
        "atomiceth.swapdt" => format!(" swap {number:#x} "),
        // Not used.
        "atomiceth.cmpdt" if opcode == FETCH_ADD => String::new(),
        "cm.req.localqpn" | "cm.rep.localqpn" => {
            format!("{before}{} ", Qpn::wrapping(number as u32))
        }
        "cm.req.startpsn" | "cm.rep.startpsn" => {
            format!("{before}{} ", Psn::wrapping(number as u32))
        }
        "atomiceth.cmpdt" | "atomicacketh.origremdt" | "cm.req.serviceid" => {
            format!("{before}{number:#x} ")
        }
        _ => format!("{before}{number:#010x} "),
    }
}

#[test]
fn wireshark_reads_the_same_headers() {
    let mut compared = BTreeMap::<&str, usize>::new();
    for (name, _) in CAPTURES {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(fixture(&format!("{name}.pcap")));
        command.args("-T fields -E separator=; -E occurrence=f".split(' '));
        for field in ["opcode", "destqp", "psn", "a"] {
            command.args(["-e", &format!("infiniband.bth.{field}")]);
        }
        command.args(["-e", "infiniband.reth.va", "-e", "infiniband.reth.r_key"]);
        for (field, _) in OTHER_FIELDS {
            command.args(["-e", &format!("infiniband.{field}")]);
        }
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
            for (field, theirs) in OTHER_FIELDS.into_iter().zip(&fields[6..]) {
                if !theirs.is_empty() {
                    let wanted = in_words(field, theirs, number(record, "opcode"));
                    let words = format!("{} ", text(record, "words"));
                    assert!(words.contains(&wanted), "{wanted}: {line}: {record}");
                    *compared.entry(field.0).or_default() += 1;
                }
            }
        }
    }
    for (field, _) in OTHER_FIELDS {
        assert!(compared.contains_key(field), "{field} is in no capture");
    }
}
