//! Violations: each leads to exit code 1 and one line with the rule, the stream, the direction and the offset. The other side's messages are
//! still shown, and are not violations if they can no longer be checked. Markers are tested here too, right and wrong ones.

use verbena_wire::mpa::{Depth, Enhanced, Flags, Kind, RtrKinds};
use verbena_wire::rdmap::{Cause, DdpError, Dialect, LlpError, Opcode, Terminate};

use super::net::{BACK, Net, TO};
use super::peer::{CRC, Framer, reply, request, startup};
use super::support::{capture, decode, number, text};

/// A connection after its startup, and a framer for each side.
fn started(flags: Flags) -> (Net, Framer, Framer) {
    let mut net = Net::open();
    net.send(TO, &request(flags)).send(BACK, &reply(flags));
    let framer = Framer::new(flags.crc, flags.markers);
    (net, framer.clone(), framer)
}

#[test]
fn flipped_bit_is_reported_as_crc_violation() {
    let (mut net, mut to, _) = started(CRC);
    net.send(TO, &to.send(1, b"good"));
    let mut bad = to.send(2, b"damaged");
    bad[25] ^= 0x10;
    net.send(TO, &bad);
    let run = decode(&net.pcap(), &["--json"]);
    assert!(
        run.violation().starts_with("FPDU checksum is 0x"),
        "{run:?}"
    );
    let violation = &run.of_kind("Violation")[0];
    assert_eq!(
        (number(violation, "stream"), text(violation, "dir")),
        (0, "i2r")
    );
    // The Request has 22 bytes, the first FPDU 28.
    assert_eq!(number(violation, "offset"), 50);
    let words = decode(&net.pcap(), &[]);
    assert_eq!(words.code, 1);
    assert!(
        words.stdout.contains("at byte 50: FPDU checksum"),
        "{}",
        words.stdout
    );
    assert!(words.stdout.contains("1 protocol violation(s)"));
}

#[test]
fn changed_byte_in_capture_is_crc_violation() {
    let mut file = capture("16_ops_terminate_crc");
    let write = [0xc1, 0x40, 0xcf, 0x18, 0xd2, 0x00];
    let at = file.windows(6).position(|w| w == write).expect("the Write");
    file[at + 40] ^= 1;
    let run = decode(&file, &["--json"]);
    assert!(run.violation().contains("checksum"));
    // The other eight streams are not affected.
    assert_eq!(run.of_kind("MpaRequest").len(), 9);
    assert_eq!(run.of_kind("Terminate").len(), 8);
}

#[test]
fn out_of_order_messages_are_violations() {
    let (mut net, mut to, _) = started(CRC);
    net.send(TO, &to.send(1, b"one"))
        .send(TO, &to.send(3, b"three"));
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.violation(), "queue 0: got message 3, expected 2");

    let (mut net, mut to, _) = started(CRC);
    net.send(TO, &to.part(1, 0, false, b"1234"))
        .send(TO, &to.part(1, 5, true, b"678"));
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.violation(), "segment at offset 5, expected offset 4");
}

#[test]
fn read_responses_must_match_their_requests() {
    let cases: [(&str, Vec<u8>); 4] = [
        (
            "ReadResponse without a matching request",
            Framer::new(true, false).read_response(0, true, b"unasked"),
        ),
        (
            "Read Response at 0x11, expected at 0x10",
            Framer::new(true, false).read_response(0x11, true, b"12345678"),
        ),
        (
            "ReadResponse reaches 9 bytes of 8 asked",
            Framer::new(true, false).read_response(0x10, true, b"123456789"),
        ),
        (
            "ReadResponse ends after 7 bytes of 8 asked",
            Framer::new(true, false).read_response(0x10, true, b"1234567"),
        ),
    ];
    for (at, (expected, response)) in cases.iter().enumerate() {
        let (mut net, mut to, _) = started(CRC);
        if at > 0 {
            net.send(TO, &to.read_request(1, 0x10, 8));
        } else {
            net.send(TO, &to.send(1, b"no read"));
        }
        net.send(BACK, response);
        let run = decode(&net.pcap(), &["--json"]);
        assert_eq!(run.violation(), *expected);
        assert_eq!(text(&run.of_kind("Violation")[0], "dir"), "r2i");
    }
}

#[test]
fn terminate_after_violation_is_no_violation() {
    let (mut net, mut to, mut back) = started(CRC);
    net.send(TO, &to.send(7, b"out of turn"));
    // What follows can no longer be checked: the request for this response was not parsed.
    net.send(TO, &to.read_request(1, 0, 4));
    let mut payload = Vec::new();
    let terminate = Terminate {
        cause: Cause::Ddp(DdpError::UntaggedMsnRange),
        segment: None,
    };
    terminate.emit(Dialect::Rfc, &mut payload);
    net.send(BACK, &back.untagged(Opcode::Terminate, 1, 0, &payload));
    net.fin(BACK).fin(TO);
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.violation(), "queue 0: got message 7, expected 1");
    let said = &run.of_kind("Terminate")[0];
    assert_eq!((text(said, "dir"), text(said, "dialect")), ("r2i", "rfc"));
    assert_eq!(
        (
            number(said, "layer"),
            number(said, "etype"),
            number(said, "code")
        ),
        (1, 2, 3)
    );

    let (mut net, mut to, mut back) = started(CRC);
    net.send(TO, &to.send(7, b"out of turn"))
        .send(TO, &to.read_request(1, 0, 4));
    net.send(BACK, &back.read_response(0, true, b"1234"));
    assert_eq!(
        decode(&net.pcap(), &["--json"]).of_kind("Violation").len(),
        1
    );
}

#[test]
fn terminate_excuses_unfinished_message_and_trailing_bytes() {
    let (mut net, mut to, mut back) = started(CRC);
    net.send(TO, &to.part(1, 0, false, b"to be continued"));
    let mut payload = Vec::new();
    let terminate = Terminate {
        cause: Cause::Llp(LlpError::Crc),
        segment: None,
    };
    terminate.emit(Dialect::Rfc, &mut payload);
    net.send(BACK, &back.untagged(Opcode::Terminate, 1, 0, &payload));
    net.send(BACK, b"whatever comes now");
    net.fin(BACK).fin(TO);
    let run = decode(&net.pcap(), &[]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert!(
        run.stdout
            .contains("ended: Terminate from the responder, then FIN from both sides")
    );
}

#[test]
fn stream_end_inside_fpdu_or_message_is_violation() {
    let (mut net, mut to, _) = started(CRC);
    let send = to.send(1, b"cut");
    net.send(TO, &send[..10]).fin(TO);
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.violation(), "the stream ended inside an FPDU");

    let (mut net, mut to, _) = started(CRC);
    net.send(TO, &to.part(1, 0, false, b"cut")).fin(TO);
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.violation(), "the stream ended inside a message");
}

#[test]
fn startup_frame_violations_are_reported() {
    let mut net = Net::open();
    let mut early = request(CRC);
    early.extend(Framer::new(true, false).send(1, b"too soon"));
    net.send(TO, &early);
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(
        run.violation(),
        "32 bytes behind the Request, before the Reply"
    );

    let mut net = Net::open();
    let mut future = request(CRC);
    future[17] = 3;
    net.send(TO, &future);
    let run = decode(&net.pcap(), &["--json"]);
    let expected = "startup frame: MPA revision 3 is not supported, only 1 and 2";
    assert_eq!(run.violation(), expected);

    let mut net = Net::open();
    net.send(TO, &request(CRC)).send(BACK, &request(CRC));
    let run = decode(&net.pcap(), &["--json"]);
    let expected = "startup frame: the peer sent an MPA Request, expected a Reply";
    assert_eq!(run.violation(), expected);
}

#[test]
fn markers_are_independent_per_direction() {
    for bits in 0..4u8 {
        let flags = |bit: u8| Flags {
            markers: bits & bit != 0,
            ..CRC
        };
        let mut net = Net::open();
        net.send(TO, &request(flags(1)))
            .send(BACK, &reply(flags(2)));
        // Each side requests markers in what it receives.
        let mut to = Framer::new(true, bits & 2 != 0);
        let mut back = Framer::new(true, bits & 1 != 0);
        for msn in 1..=9 {
            net.send(TO, &to.send(msn, &vec![3; 150 * msn as usize]));
            net.send(BACK, &back.send(msn, &vec![4; 211 * msn as usize]));
        }
        let run = decode(&net.pcap(), &["--json"]);
        assert_eq!(run.code, 0, "{}", run.stdout);
        assert_eq!(run.of_kind("Send").len(), 18);
    }
}

#[test]
fn wrong_marker_pointer_is_violation() {
    let flags = Flags {
        markers: true,
        crc: false,
        ..CRC
    };
    let (mut net, mut to, _) = started(flags);
    let mut send = to.send(1, &[5; 600]);
    send[515] ^= 4;
    net.send(TO, &send);
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(
        run.violation(),
        "marker points back 504 bytes, the FPDU began 508 bytes before it"
    );
}

#[test]
fn fpdu_shorter_than_header_is_violation() {
    let flags = Flags { crc: false, ..CRC };
    let (mut net, _, _) = started(flags);
    net.send(TO, &[0, 3, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0]);
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(
        run.violation(),
        "FPDU of 3 bytes is shorter than its 14-byte header"
    );
}

/// A connection whose responder serves `depth` reads, opened by these RTR messages if any.
fn enhanced(depth: u16, rtr: Option<RtrKinds>) -> (Net, Framer, Framer) {
    let depth = Depth::new(depth).expect("depth");
    let block = Some(Enhanced {
        ird: depth,
        ord: depth,
        peer_to_peer: rtr.is_some(),
        rtr: rtr.unwrap_or_default(),
    });
    let mut net = Net::open();
    net.send(TO, &startup(Kind::Request, CRC, block));
    net.send(BACK, &startup(Kind::Reply, CRC, block));
    (net, Framer::new(true, false), Framer::new(true, false))
}

#[test]
fn reads_beyond_agreed_depth_are_violation() {
    let (mut net, mut to, mut back) = enhanced(2, None);
    net.send(TO, &to.read_request(1, 0, 1));
    net.send(TO, &to.read_request(2, 0, 1));
    net.send(BACK, &back.read_response(0, true, b"1"));
    net.send(TO, &to.read_request(3, 0, 1));
    assert_eq!(decode(&net.pcap(), &["--json"]).code, 0);
    net.send(TO, &to.read_request(4, 0, 1));
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.violation(), "more than 2 reads outstanding");
}

#[test]
fn first_fpdu_must_be_agreed_rtr_message() {
    let rtr = RtrKinds {
        read: true,
        ..RtrKinds::default()
    };
    let (mut net, mut to, mut back) = enhanced(0, Some(rtr));
    net.send(TO, &to.read_request(1, 0, 0));
    net.send(BACK, &back.read_response(0, true, b""));
    net.send(TO, &to.send(1, b"open"));
    let run = decode(&net.pcap(), &["--json"]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert_eq!(run.of_kind("ReadRequest")[0]["rtr"], true);

    let (mut net, mut to, _) = enhanced(0, Some(rtr));
    net.send(TO, &to.send(1, b"not open"));
    let run = decode(&net.pcap(), &["--json"]);
    let expected = "first FPDU is Send, not the agreed ready-to-receive message";
    assert_eq!(run.violation(), expected);
}
