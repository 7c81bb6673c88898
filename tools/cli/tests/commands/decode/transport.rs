//! The layers below MPA do not matter: link types, IP versions, file formats, segmentation, loss, reordering, numbers. The same exchange is
//! captured in many ways, and all must decode to the same records. Gaps of the capture itself are reported, and are no violations.

use pcap_file::DataLink;
use serde_json::Value;

use super::net::{ACK, BACK, Net, TO, pcap, pcapng};
use super::peer::{CRC, Framer, reply, request};
use super::support::{Run, decode};

const EXPECTED: [&str; 8] = [
    "i2r MpaRequest",
    "r2i MpaReply",
    "i2r Send",
    "r2i ReadRequest",
    "i2r ReadResponse",
    "r2i Write",
    "r2i Send",
    "i2r Send",
];

/// The bytes of each side, in order.
fn exchange() -> Vec<(usize, Vec<u8>)> {
    let (mut to, mut back) = (Framer::new(true, false), Framer::new(true, false));
    vec![
        (TO, request(CRC)),
        (BACK, reply(CRC)),
        (TO, to.send(1, b"first")),
        (BACK, back.read_request(1, 0x1000, 600)),
        (TO, to.read_response(0x1000, false, &[7; 500])),
        (TO, to.read_response(0x1000 + 500, true, &[8; 100])),
        (BACK, back.write(5, true, &[9; 33])),
        (BACK, back.send(1, b"done")),
        (TO, to.send(2, b"bye")),
    ]
}

fn send_exchange(net: &mut Net) {
    for (dir, bytes) in exchange() {
        net.send(dir, &bytes);
    }
    net.fin(TO).fin(BACK);
}

fn captured_exchange() -> Net {
    let mut net = Net::open();
    send_exchange(&mut net);
    net
}

fn message_kinds(run: &Run) -> Vec<String> {
    let line = |r: &Value| {
        let (dir, kind) = (r["dir"].as_str().unwrap(), r["kind"].as_str().unwrap());
        format!("{dir} {kind}")
    };
    run.records().iter().map(line).collect()
}

#[track_caller]
fn expect_exchange(file: &[u8]) {
    let run = decode(file, &["--json"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    assert_eq!(message_kinds(&run), EXPECTED);
}

#[test]
fn link_types_and_file_formats_make_no_difference() {
    let net = captured_exchange();
    let plain = decode(&net.pcap(), &["--json", "--segments"]).stdout;
    let behind = |header: &[u8]| -> Vec<Vec<u8>> {
        let add = |ip: &Vec<u8>| [header, ip].concat();
        net.packets.iter().map(add).collect()
    };
    let mut sll = vec![0; 14];
    sll.extend([0x08, 0x00]);
    let mut sll2 = vec![0x08, 0x00];
    sll2.extend([0; 18]);
    let files = [
        pcap(DataLink::ETHERNET, &net.ethernet(&[])),
        pcap(DataLink::ETHERNET, &net.ethernet(&[5])),
        pcap(DataLink::ETHERNET, &net.ethernet(&[100, 5])),
        pcapng(DataLink::ETHERNET, &net.ethernet(&[])),
        pcapng(DataLink::RAW, &net.packets),
        pcap(DataLink::LINUX_SLL, &behind(&sll)),
        pcap(DataLink::from(276), &behind(&sll2)),
        pcap(DataLink::NULL, &behind(&[2, 0, 0, 0])),
        pcap(DataLink::LOOP, &behind(&[0, 0, 0, 2])),
        pcap(DataLink::IPV4, &net.packets),
    ];
    for (at, file) in files.iter().enumerate() {
        let run = decode(file, &["--json", "--segments"]);
        assert_eq!(run.stdout, plain, "file {at}");
        assert_eq!(run.code, 0);
    }
}

#[test]
fn ipv6_makes_no_difference() {
    let mut net = Net::new();
    net.ipv6 = true;
    net.handshake();
    send_exchange(&mut net);
    expect_exchange(&net.pcap());
    expect_exchange(&pcap(DataLink::ETHERNET, &net.ethernet(&[7])));
}

#[test]
fn segments_of_one_byte_make_no_difference() {
    let mut net = Net::open();
    for (dir, bytes) in exchange() {
        for byte in bytes {
            net.send(dir, &[byte]);
        }
    }
    net.fin(TO).fin(BACK);
    expect_exchange(&net.pcap());
}

#[test]
fn sequence_numbers_may_wrap_anywhere() {
    for before in [1, 10, 40, 100, 700] {
        let mut net = Net::new();
        net.seq = [0u32.wrapping_sub(before), 0u32.wrapping_sub(before / 2)];
        net.handshake();
        send_exchange(&mut net);
        expect_exchange(&net.pcap());
    }
}

#[test]
fn retransmissions_and_overlaps_are_decoded_once() {
    let mut net = Net::open();
    for (dir, bytes) in exchange() {
        let (seq, ack) = (net.seq[dir], net.seq[1 - dir]);
        let half = bytes.len() / 2;
        net.raw(dir, seq, ack, ACK, &bytes[..half]);
        net.send(dir, &bytes);
        net.raw(dir, seq, ack, ACK, &bytes);
        net.raw(dir, seq.wrapping_add(3), ack, ACK, &bytes[3..]);
    }
    net.fin(TO).fin(BACK).fin(TO);
    net.seq[TO] = net.seq[TO].wrapping_sub(1);
    expect_exchange(&net.pcap());
}

#[test]
fn out_of_order_packets_are_reassembled() {
    let net = captured_exchange();
    // Every pair of neighbours swapped, which puts answers before their requests.
    for at in 0..net.packets.len() - 1 {
        let mut mixed = net.clone();
        mixed.packets.swap(at, at + 1);
        expect_exchange(&mixed.pcap());
    }
    let mut reversed = net.clone();
    reversed.packets[3..].reverse();
    expect_exchange(&reversed.pcap());
}

#[test]
fn capture_may_begin_after_the_handshake() {
    for skipped in 1..=3 {
        let mut net = captured_exchange();
        net.packets.drain(..skipped);
        expect_exchange(&net.pcap());
    }
}

#[test]
fn packet_missing_from_capture_is_no_violation() {
    let lines = exchange();
    for lost in 1..lines.len() {
        let mut net = Net::open();
        for (at, (dir, bytes)) in lines.iter().enumerate() {
            if at == lost {
                net.send_uncaptured(*dir, bytes);
            } else {
                net.send(*dir, bytes);
            }
        }
        net.fin(TO).fin(BACK);
        let run = decode(&net.pcap(), &["--json"]);
        assert_eq!(run.code, 0, "{}", run.stdout);
        let reported = run.of_kind("Lost");
        assert_eq!(reported.len(), 1, "{lost}: {}", run.stdout);
        let expected = format!("lost {} bytes", lines[lost].1.len());
        assert!(reported[0]["message"].as_str().unwrap().contains(&expected));
    }
}

#[test]
fn bytes_buffered_behind_gap_are_bounded() {
    let mut net = Net::open();
    net.send(TO, &request(CRC)).send(BACK, &reply(CRC));
    net.send_uncaptured(TO, &[0; 20]);
    for _ in 0..200 {
        net.send(TO, &[0; 40_000]);
    }
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.of_kind("Lost").len(), 1);
    assert_eq!(run.code, 0);
}

#[test]
fn packets_cut_by_snaplen_are_reported_lost() {
    let net = captured_exchange();
    let mut file = net.pcap();
    file.truncate(24);
    for packet in &net.packets {
        let kept = packet.len().min(80);
        file.extend([0; 8]);
        file.extend((kept as u32).to_be_bytes());
        file.extend((packet.len() as u32).to_be_bytes());
        file.extend(&packet[..kept]);
    }
    let run = decode(&file, &[]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("the capture lost"), "{}", run.stdout);
}

#[test]
fn reset_is_reported_and_is_no_violation() {
    let mut net = Net::open();
    let mut framer = Framer::new(true, false);
    net.send(TO, &request(CRC)).send(BACK, &reply(CRC));
    net.send(TO, &framer.part(1, 0, false, b"unfinished"));
    net.rst(BACK);
    let run = decode(&net.pcap(), &[]);
    assert_eq!(run.code, 0);
    assert!(
        run.stdout.contains("ended: RST from the responder"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_capture_that_ends_early_is_no_violation() {
    let mut net = Net::open();
    let mut framer = Framer::new(true, false);
    net.send(TO, &request(CRC)).send(BACK, &reply(CRC));
    let send = framer.send(1, &[1; 300]);
    net.send(TO, &send[..200]);
    let run = decode(&net.pcap(), &[]);
    assert_eq!(run.code, 0);
    assert!(
        run.stdout.contains("200 bytes unfinished"),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout.contains("ended: not in this capture"),
        "{}",
        run.stdout
    );
}

#[test]
fn other_protocols_are_counted_and_skipped() {
    let mut net = Net::open();
    net.ports = [50001, 22];
    net.handshake();
    net.send(BACK, b"SSH-2.0-server")
        .send(TO, b"SSH-2.0-client");
    net.ports = [50002, 80];
    net.handshake();
    net.send(TO, b"GET / HTTP/1.1\r\n\r\n")
        .send(BACK, b"HTTP/1.1 200 OK\r\n");
    net.ports = [50003, 81];
    net.handshake();
    net.send(TO, b"MPA ID Re").send(TO, b"turn of the frames");
    let run = decode(&net.pcap(), &[]);
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains("no MPA stream found"), "{}", run.stdout);
    assert!(
        run.stdout
            .contains("0 MPA streams, 4 other TCP connections"),
        "{}",
        run.stdout
    );

    net.ports = [40000, 7174];
    net.seq = [77, 88];
    net.handshake();
    send_exchange(&mut net);
    expect_exchange(&net.pcap());
}

#[test]
fn reused_ports_are_separate_streams() {
    let mut net = captured_exchange();
    net.seq = [500_000, 600_000];
    net.handshake();
    send_exchange(&mut net);
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.code, 0);
    let twice: Vec<_> = EXPECTED.iter().chain(&EXPECTED).collect();
    assert_eq!(message_kinds(&run).iter().collect::<Vec<_>>(), twice);
    assert_eq!(run.records()[EXPECTED.len()]["stream"], 1);
    let only = decode(&net.pcap(), &["--json", "--stream", "1"]);
    assert_eq!(message_kinds(&only), EXPECTED);
    let none = decode(&net.pcap(), &["--stream", "2"]);
    assert!(none.stdout.contains("there is no stream 2 among 2"));
    assert_eq!(decode(&net.pcap(), &["--json", "--port", "9"]).stdout, "");
    assert_eq!(
        message_kinds(&decode(&net.pcap(), &["--json", "--port", "7174"])).len(),
        16
    );
}
