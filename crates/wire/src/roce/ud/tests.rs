//! Whole datagrams: with and without an immediate, every pad, wrong opcodes, pads beyond the
//! payload, and a cut at every byte.

use proptest::prelude::*;

use super::*;
use crate::testing::hex;

fn packet(payload: &[u8]) -> UdPacket<'_> {
    UdPacket {
        dest_qpn: Qpn::wrapping(0x11),
        src_qpn: Qpn::wrapping(0x22),
        qkey: 0x1111_1111,
        pkey: 0xffff,
        psn: Psn::wrapping(5),
        solicited: false,
        immediate: None,
        payload,
    }
}

/// The packet followed by an ICRC.
fn sealed(packet: &UdPacket<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    packet.emit(&mut out);
    assert_eq!(out.len() % 4, 0);
    out.extend_from_slice(&[1, 2, 3, 4]);
    out
}

#[test]
fn parses_and_emits_exact_bytes() {
    let plain = packet(b"hello");
    let bytes = hex("6430ffff 00000011 00000005 11111111 00000022 68656c6c6f000000 01020304");
    assert_eq!(sealed(&plain), bytes);
    assert_eq!(UdPacket::parse(&bytes), Ok((plain, [1, 2, 3, 4])));

    let rich = UdPacket {
        solicited: true,
        immediate: Some([0xde, 0xad, 0xbe, 0xef]),
        ..packet(b"")
    };
    let bytes = hex("6580ffff 00000011 00000005 11111111 00000022 deadbeef 01020304");
    assert_eq!(sealed(&rich), bytes);
    assert_eq!(UdPacket::parse(&bytes), Ok((rich, [1, 2, 3, 4])));
}

#[test]
fn packet_shorter_than_headers_is_refused() {
    for immediate in [None, Some([9; 4])] {
        let bytes = sealed(&UdPacket {
            immediate,
            ..packet(b"")
        });
        for cut in 0..bytes.len() {
            let got = UdPacket::parse(&bytes[..cut]);
            assert!(
                matches!(got, Err(Malformed::Truncated { .. })),
                "{cut}: {got:?}"
            );
        }
    }
}

#[test]
fn a_pad_longer_than_the_payload_is_refused() {
    for pad in 1..=3 {
        let mut bytes = sealed(&packet(b""));
        bytes[1] = pad << 4;
        let payload = 0;
        assert_eq!(
            UdPacket::parse(&bytes),
            Err(Malformed::Padding { pad, payload })
        );
    }
}

#[test]
fn other_opcodes_are_refused() {
    for got in (0..=u8::MAX).filter(|opcode| ![0x64, 0x65].contains(opcode)) {
        let mut bytes = sealed(&packet(b"data"));
        bytes[0] = got;
        assert_eq!(UdPacket::parse(&bytes), Err(Malformed::UdOpcode { got }));
    }
}

#[test]
fn prints_one_line() {
    let rich = UdPacket {
        immediate: Some([0, 0, 0, 1]),
        ..packet(b"abc")
    };
    assert_eq!(
        rich.to_string(),
        "UD 0x000022 -> 0x000011 qkey=0x11111111 psn=0x000005 payload=3 imm=0x00000001"
    );
}

proptest! {
    #[test]
    fn round_trip(
        qpns in (0u32..1 << 24, 0u32..1 << 24),
        qkey: u32,
        pkey: u16,
        psn in 0u32..1 << 24,
        solicited: bool,
        immediate: Option<[u8; 4]>,
        payload in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let packet = UdPacket {
            dest_qpn: Qpn::wrapping(qpns.0),
            src_qpn: Qpn::wrapping(qpns.1),
            qkey,
            pkey,
            psn: Psn::wrapping(psn),
            solicited,
            immediate,
            payload: &payload,
        };
        let bytes = sealed(&packet);
        prop_assert_eq!(UdPacket::parse(&bytes), Ok((packet, [1, 2, 3, 4])));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = UdPacket::parse(&bytes);
    }
}
