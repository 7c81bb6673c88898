//! Whole packets: the headers of each opcode, undefined opcodes, pads, short input.

use proptest::prelude::*;

use super::*;
use crate::To;
use crate::roce::aeth::Syndrome;
use crate::testing::refuses_every_prefix;

const RETH: Reth = Reth {
    va: To::new(0x1000),
    rkey: Stag::new(0x102),
    len: 9,
};
const AETH: Aeth = Aeth {
    syndrome: Syndrome::ACK,
    msn: 3,
};
const ATOMIC: AtomicEth = AtomicEth {
    va: To::new(0x1000),
    rkey: Stag::new(0x102),
    swap_or_add: 1,
    compare: 2,
};
const DETH: Deth = Deth {
    qkey: 0x1111_1111,
    src_qpn: Qpn::wrapping(7),
};
const DATA: Immediate = [1, 2, 3, 4];

fn connected(service: Service) -> Vec<(u8, usize, Operation)> {
    let base = if service == Service::Rc { 0 } else { UC };
    vec![
        (base, 0, Operation::SendFirst(service)),
        (base | 1, 0, Operation::SendMiddle(service)),
        (base | 2, 0, Operation::SendLast(service, Tail::Plain)),
        (
            base | 3,
            4,
            Operation::SendLast(service, Tail::Immediate(DATA)),
        ),
        (base | 4, 0, Operation::SendOnly(service, Tail::Plain)),
        (
            base | 5,
            4,
            Operation::SendOnly(service, Tail::Immediate(DATA)),
        ),
        (base | 6, 16, Operation::WriteFirst(service, RETH)),
        (base | 7, 0, Operation::WriteMiddle(service)),
        (base | 8, 0, Operation::WriteLast(service, None)),
        (base | 9, 4, Operation::WriteLast(service, Some(DATA))),
        (base | 10, 16, Operation::WriteOnly(service, RETH, None)),
        (
            base | 11,
            20,
            Operation::WriteOnly(service, RETH, Some(DATA)),
        ),
    ]
}

/// Every operation with its opcode and the bytes of its extension headers.
fn operations() -> Vec<(u8, usize, Operation)> {
    let invalidate = Tail::Invalidate(Stag::new(0xabc));
    let mut all = connected(Service::Rc);
    all.extend(connected(Service::Uc));
    all.extend([
        (0x0c, 16, Operation::ReadRequest(RETH)),
        (0x0d, 4, Operation::ReadResponseFirst(AETH)),
        (0x0e, 0, Operation::ReadResponseMiddle),
        (0x0f, 4, Operation::ReadResponseLast(AETH)),
        (0x10, 4, Operation::ReadResponseOnly(AETH)),
        (0x11, 4, Operation::Acknowledge(AETH)),
        (0x12, 12, Operation::AtomicAcknowledge(AETH, 5)),
        (0x13, 28, Operation::CmpSwap(ATOMIC)),
        (0x14, 28, Operation::FetchAdd(ATOMIC)),
        (0x16, 4, Operation::SendLast(Service::Rc, invalidate)),
        (0x17, 4, Operation::SendOnly(Service::Rc, invalidate)),
        (0x64, 8, Operation::Datagram(DETH, None)),
        (0x65, 12, Operation::Datagram(DETH, Some(DATA))),
        (0x81, 0, Operation::CongestionNotification),
    ]);
    all
}

fn sealed(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    assert_eq!(bytes.len(), packet.len_with(packet.payload.len()));
    bytes.extend([9, 8, 7, 6]);
    bytes
}

fn packet(operation: Operation, payload: &[u8]) -> Packet<'_> {
    let plain = Packet::new(operation, Qpn::wrapping(0x11), Psn::wrapping(0x100));
    Packet { payload, ..plain }
}

#[test]
fn each_opcode_has_its_headers() {
    for (opcode, headers, operation) in operations() {
        assert_eq!(operation.opcode(), opcode);
        let packet = packet(operation, b"hello");
        let bytes = sealed(&packet);
        assert_eq!(bytes[0], opcode);
        assert_eq!(
            bytes.len(),
            Bth::LEN + headers + 8 + ICRC_LEN,
            "{opcode:#x}"
        );
        assert_eq!(Packet::parse(&bytes), Ok((packet, [9, 8, 7, 6])));
        let short = sealed(&Packet {
            payload: &[],
            ..packet
        });
        refuses_every_prefix(&short, |bytes| Packet::parse(bytes).map(drop));
    }
}

#[test]
fn undefined_opcodes_are_refused() {
    let defined: Vec<u8> = operations().iter().map(|row| row.0).collect();
    assert_eq!(defined.len(), 38);
    for got in (0..=u8::MAX).filter(|opcode| !defined.contains(opcode)) {
        let mut bytes = sealed(&packet(Operation::ReadResponseMiddle, &[0; 40]));
        bytes[0] = got;
        assert_eq!(Packet::parse(&bytes), Err(Malformed::RoceOpcode { got }));
    }
}

#[test]
fn a_pad_longer_than_the_payload_is_refused() {
    for pad in 1..=3 {
        let mut bytes = sealed(&packet(Operation::ReadResponseMiddle, b""));
        bytes[1] |= pad << 4;
        let payload = 0;
        assert_eq!(
            Packet::parse(&bytes),
            Err(Malformed::Padding { pad, payload })
        );
    }
}

#[test]
fn responses_are_for_the_requester() {
    for (opcode, _, operation) in operations() {
        let is_response = (0x0d..=0x12).contains(&opcode);
        assert_eq!(operation.is_response(), is_response, "{opcode:#x}");
        let has_aeth = is_response && opcode != 0x0e;
        assert_eq!(operation.aeth().is_some(), has_aeth, "{opcode:#x}");
    }
}

#[test]
fn prints_one_line() {
    let write = Packet {
        ack_request: true,
        ..packet(
            Operation::WriteOnly(Service::Rc, RETH, Some(DATA)),
            b"nine byte",
        )
    };
    assert_eq!(
        write.to_string(),
        "RC Write Only with Immediate -> 0x000011 psn=0x000100 RETH va=0x1000 rkey=0x00000102 len=9 imm=0x01020304 payload=9 ackreq"
    );
    let ack = packet(Operation::Acknowledge(AETH), b"");
    assert_eq!(
        ack.to_string(),
        "RC Acknowledge -> 0x000011 psn=0x000100 AETH ACK msn=3 payload=0"
    );
}

proptest! {
    #[test]
    fn round_trip(
        row in 0usize..38,
        qpn in 0u32..1 << 24,
        psn in 0u32..1 << 24,
        flags: [bool; 5],
        pkey: u16,
        payload in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let [ack_request, solicited, migration, fecn, becn] = flags;
        let packet = Packet {
            operation: operations()[row].2,
            dest_qpn: Qpn::wrapping(qpn),
            psn: Psn::wrapping(psn),
            ack_request,
            solicited,
            migration,
            fecn,
            becn,
            pkey,
            payload: &payload,
        };
        let bytes = sealed(&packet);
        prop_assert_eq!(Packet::parse(&bytes).unwrap().0, packet);
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok((packet, icrc)) = Packet::parse(&bytes) {
            let mut again = Vec::new();
            packet.emit(&mut again);
            again.extend(icrc);
            prop_assert_eq!(Packet::parse(&again).unwrap().0, packet);
        }
    }
}
