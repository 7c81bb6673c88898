//! The messages of RFC 7306 and of docs/extensions.md, and their state. Requests that are sent again after an RNR must neither be counted
//! twice nor be a violation. An impossible acknowledgement must be one.

use verbena_cli::decode::Options;
use verbena_wire::ddp::Untagged;
use verbena_wire::ext::{Caps, Control, Features, Personality, QpType, ReadV2Request, RnrTimer};
use verbena_wire::mpa::Flags;
use verbena_wire::rdmap::{AtomicOp, AtomicRequest, AtomicResponse, FlushScope, Immediate, Opcode};
use verbena_wire::{Mo, Msn, Psn, Qn, Rsn, Srqn, Stag, To};

use super::net::{BACK, Net, TO};
use super::peer::{CRC, Framer, reply, request};
use super::support::{Run, decode, number, text};

fn caps() -> Control {
    Control::Caps(Caps {
        version: Caps::VERSION,
        max_ulpdu: 1442,
        features: Features::READ_V2 | Features::SEND_IMM,
        personality: Personality::Roce,
        qp_type: QpType::Rc,
        min_rnr_timer: RnrTimer::new(12).expect("timer"),
        ird: 16,
        nonce: 7,
        same_host: Some([0xab; 16]),
        path: None,
    })
}

fn rsn(n: u32) -> Rsn {
    Rsn::wrapping(n)
}

/// A connection with extensions negotiated and CAPS exchanged.
fn extended() -> (Net, Framer, Framer) {
    extended_with(CRC)
}

fn extended_with(flags: Flags) -> (Net, Framer, Framer) {
    let mut net = Net::open();
    let with = |reserved| Flags { reserved, ..flags };
    net.send(TO, &request(with(1))).send(BACK, &reply(with(2)));
    let framer = Framer::new(flags.crc, flags.markers);
    let (mut to, mut back) = (framer.clone(), framer);
    net.send(TO, &to.control(&caps()))
        .send(BACK, &back.control(&caps()));
    (net, to, back)
}

fn kinds(run: &Run) -> Vec<String> {
    let records = run.records();
    let kinds = records.iter().map(|r| text(r, "kind").to_owned());
    kinds
        .filter(|k| !k.starts_with("Mpa") && k != "Caps")
        .collect()
}

#[test]
fn ack_inside_read_v2_response_is_accepted() {
    let (mut net, mut to, mut back) = extended();
    let read = ReadV2Request {
        size: 6,
        source_stag: Stag::new(0x66),
        source_to: To::new(0x20),
    };
    net.send(TO, &to.send(1, b"first"));
    net.send(TO, &to.untagged(Opcode::ReadV2Request, 1, 0, &read.emit()));
    let piece = |mo, last| Untagged {
        last,
        opcode: Opcode::ReadV2Response,
        ulp: 0,
        qn: Qn::READ_V2_RESPONSE,
        msn: Msn::new(1),
        mo: Mo::new(mo),
    };
    net.send(BACK, &back.fpdu(&piece(0, false).into(), b"abc"));
    net.send(BACK, &back.control(&Control::Ack(rsn(1))));
    net.send(BACK, &back.fpdu(&piece(3, true).into(), b"def"));
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert_eq!(
        kinds(&run),
        ["Send", "ReadV2Request", "Ack", "ReadV2Response"]
    );
    let records = run.records();
    let response = records.last().expect("the response");
    assert_eq!(
        (number(response, "segments"), number(response, "len")),
        (2, 6)
    );
}

#[test]
fn atomic_write_and_flush_show_their_operation() {
    let (mut net, mut to, mut back) = extended();
    let ops = [
        AtomicOp::Write { bytes: [1; 8] },
        AtomicOp::Flush(FlushScope::Range { len: 64 }),
        AtomicOp::Flush(FlushScope::Region),
    ];
    for (at, op) in (1..).zip(ops) {
        let request = AtomicRequest {
            op,
            id: at,
            stag: Stag::new(0x55),
            to: To::new(0x40),
        };
        let answer = AtomicResponse {
            id: at,
            original: 0,
        };
        let asked = to.untagged(Opcode::AtomicRequest, at, 0, &request.emit());
        net.send(TO, &asked);
        let answered = back.untagged(Opcode::AtomicResponse, at, 0, &answer.emit());
        net.send(BACK, &answered);
    }
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    let shown: Vec<_> = run
        .of_kind("AtomicRequest")
        .iter()
        .map(|record| text(record, "operation").to_owned())
        .collect();
    let expected = [
        "AtomicWrite 0101010101010101",
        "Flush global len=64",
        "Flush global region",
    ];
    assert_eq!(shown, expected);
    assert_eq!(run.of_kind("AtomicResponse").len(), 3);
}

#[test]
fn extension_messages_show_name_and_fields() {
    let (mut net, mut to, mut back) = extended();
    let atomic = AtomicRequest {
        op: AtomicOp::FetchAdd { add: 5, mask: 0 },
        id: 0xa1,
        stag: Stag::new(0x55),
        to: To::new(0x40),
    };
    let answer = AtomicResponse {
        id: 0xa1,
        original: 41,
    };
    let read = ReadV2Request {
        size: 3,
        source_stag: Stag::new(0x66),
        source_to: To::new(0x20),
    };
    let imm = Immediate::from_imm(0xcafe);
    let mut carried = imm.emit().to_vec();
    carried.extend(b"payload");
    let send_imm = Opcode::SendImm {
        solicited: true,
        invalidate: true,
    };
    net.send(TO, &to.write(0, true, b"data"));
    net.send(TO, &to.untagged(Opcode::Immediate, 1, 0, &imm.emit()));
    net.send(TO, &to.untagged(Opcode::ImmediateSe, 2, 0, &imm.emit()));
    net.send(
        TO,
        &to.untagged(Opcode::AtomicRequest, 1, 0, &atomic.emit()),
    );
    net.send(TO, &to.untagged(Opcode::ReadV2Request, 2, 0, &read.emit()));
    net.send(TO, &to.untagged(send_imm, 3, 0x1234, &carried));
    net.send(BACK, &back.control(&Control::Ack(rsn(3))));
    net.send(
        BACK,
        &back.untagged(Opcode::AtomicResponse, 1, 0, &answer.emit()),
    );
    net.send(BACK, &back.untagged(Opcode::ReadV2Response, 1, 0, b"abc"));
    let psn = Psn::wrapping(0x123);
    net.send(BACK, &back.control(&Control::Active { psn }));
    net.send(TO, &to.control(&Control::Srq(Srqn::wrapping(77))));
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert_eq!(
        kinds(&run),
        [
            "Write",
            "Immediate",
            "ImmediateSe",
            "AtomicRequest",
            "ReadV2Request",
            "SendImmSeInv",
            "Ack",
            "AtomicResponse",
            "ReadV2Response",
            "Active",
            "Srq"
        ]
    );
    let one = |kind: &str| run.of_kind(kind).remove(0);
    assert_eq!(text(&one("Immediate"), "immediate"), "0000cafe00000000");
    assert_eq!(text(&one("SendImmSeInv"), "invalidate"), "0x00001234");
    assert_eq!(number(&one("AtomicRequest"), "id"), 0xa1);
    assert_eq!(text(&one("AtomicResponse"), "original"), "0x29");
    assert_eq!(number(&one("ReadV2Request"), "size"), 3);
    assert_eq!(number(&one("Ack"), "rsn"), 3);
    assert_eq!(number(&one("Active"), "psn"), 0x123);
    assert_eq!(number(&one("Srq"), "srqn"), 77);
    // The token is a secret of the two hosts.
    assert!(!run.stdout.contains("abababab"));
    let words = decode(&net.pcap(), &["--verbose", "--segments"]);
    assert_eq!(words.code, 0);
    assert!(!decode(&net.pcap(), &[]).stdout.contains("abababab"));
    assert!(words.stdout.contains("extensions on"), "{}", words.stdout);
}

#[test]
fn request_resent_after_rnr_is_counted_once() {
    let (mut net, mut to, mut back) = extended();
    let timer = RnrTimer::new(12).expect("timer");
    net.send(TO, &to.send(1, b"fits"));
    net.send(TO, &to.part(2, 0, false, b"finds no "));
    // The RNR crosses the rest of the message and a read behind it.
    net.send(BACK, &back.control(&Control::Rnr { rsn: rsn(1), timer }));
    net.send(TO, &to.part(2, 9, true, b"receive"));
    net.send(TO, &to.read_request(1, 0, 4));
    net.send(BACK, &back.control(&Control::Ready(rsn(1))));
    net.send(TO, &to.control(&Control::Resume(rsn(1))));
    net.send(TO, &to.send(3, b"finds no receive"));
    net.send(TO, &to.read_request(2, 0, 4));
    net.send(BACK, &back.control(&Control::Ack(rsn(2))));
    net.send(BACK, &back.read_response(0, true, b"1234"));
    net.send(BACK, &back.control(&Control::Ack(rsn(3))));
    net.fin(TO).fin(BACK);
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert_eq!(
        kinds(&run),
        [
            "Send",
            "Rnr",
            "Send",
            "ReadRequest",
            "Ready",
            "Resume",
            "Send",
            "ReadRequest",
            "Ack",
            "ReadResponse",
            "Ack"
        ]
    );
    let discarded: Vec<_> = run
        .of_kind("Send")
        .iter()
        .map(|r| r["discarded"] == true)
        .collect();
    assert_eq!(discarded, [false, true, false]);
    assert_eq!(number(&run.of_kind("Rnr")[0], "timer_us"), 640);
}

#[test]
fn late_rnr_withdraws_delivered_requests() {
    let (mut net, mut to, mut back) = extended();
    let timer = RnrTimer::new(12).expect("timer");
    // All three are in the capture before the RNR of the first.
    net.send(TO, &to.send(1, b"none"));
    net.send(TO, &to.write(0, true, b"none"));
    net.send(TO, &to.read_request(1, 0, 4));
    net.send(BACK, &back.control(&Control::Rnr { rsn: rsn(0), timer }));
    net.send(BACK, &back.control(&Control::Ready(rsn(0))));
    net.send(TO, &to.control(&Control::Resume(rsn(0))));
    net.send(TO, &to.send(2, b"some"))
        .send(TO, &to.read_request(2, 8, 2));
    net.send(BACK, &back.read_response(8, true, b"ok"));
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.code, 0, "{}", run.stdout);
}

#[test]
fn impossible_control_messages_are_violations() {
    let (mut net, mut to, mut back) = extended();
    net.send(TO, &to.send(1, b"one"));
    net.send(BACK, &back.control(&Control::Ack(rsn(2))));
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.violation(), "ACK names request 2, possible were 0..=1");

    let (mut net, mut to, _) = extended();
    net.send(TO, &to.control(&Control::Resume(rsn(0))));
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.violation(), "RESUME out of place");
}

#[test]
fn echoed_offer_enables_no_extensions() {
    let mut net = Net::open();
    let offer = Flags { reserved: 1, ..CRC };
    net.send(TO, &request(offer)).send(BACK, &reply(offer));
    let mut to = Framer::new(true, false);
    net.send(TO, &to.send(1, b"plain"));
    net.send(TO, &to.control(&caps()));
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.violation(), "unexpected opcode 15 (Control)");
}

/// Without checksums every changed byte is parsed.
#[test]
fn corrupted_messages_never_panic() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize
    };
    let timer = RnrTimer::new(12).expect("timer");
    let read = ReadV2Request {
        size: 8,
        source_stag: Stag::new(1),
        source_to: To::new(0),
    };
    for markers in [false, true] {
        let flags = Flags {
            crc: false,
            markers,
            ..CRC
        };
        let (mut net, mut to, mut back) = extended_with(flags);
        net.send(TO, &to.send(1, b"one"));
        net.send(TO, &to.part(2, 0, false, b"two "));
        net.send(BACK, &back.control(&Control::Rnr { rsn: rsn(1), timer }));
        net.send(TO, &to.part(2, 4, true, b"and more"));
        net.send(BACK, &back.control(&Control::Ready(rsn(1))));
        net.send(TO, &to.control(&Control::Resume(rsn(1))));
        net.send(TO, &to.send(3, b"two and more"));
        net.send(TO, &to.read_request(1, 0, 6));
        net.send(TO, &to.untagged(Opcode::ReadV2Request, 2, 0, &read.emit()));
        net.send(BACK, &back.read_response(0, false, b"123"));
        net.send(BACK, &back.read_response(3, true, b"456"));
        net.send(
            BACK,
            &back.untagged(Opcode::ReadV2Response, 1, 0, b"12345678"),
        );
        net.send(BACK, &back.control(&Control::Ack(rsn(4))));
        net.send(TO, &to.write(9, false, b"abc"))
            .send(TO, &to.write(12, true, b"d"));
        net.fin(TO).fin(BACK);
        assert_eq!(decode(&net.pcap(), &["--json"]).code, 0);
        for _ in 0..1000 {
            let mut bent = net.clone();
            for _ in 0..1 + random() % 3 {
                let packet = 5 + random() % (bent.packets.len() - 5);
                let bytes = &mut bent.packets[packet];
                // Behind the IP and TCP headers.
                if bytes.len() > 40 {
                    let at = 40 + random() % (bytes.len() - 40);
                    bytes[at] ^= 1 << (random() % 8);
                }
                if random() % 4 == 0 {
                    let other = 5 + random() % (bent.packets.len() - 5);
                    let payload = bent.packets[other][40..].to_vec();
                    let end = bent.packets[packet].len().min(40 + payload.len());
                    let part = &payload[..end - 40];
                    bent.packets[packet][40..end].copy_from_slice(part);
                }
            }
            let options = Options::default();
            let file = bent.pcap();
            verbena_cli::decode::decode(file.as_slice(), &mut Vec::new(), options).expect("output");
        }
    }
}
