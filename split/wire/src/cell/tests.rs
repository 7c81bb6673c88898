//! Cells: golden bytes of each kind, a cut at every byte, a flip of every bit, and every error.

use proptest::prelude::*;
use verbena_wire::testing::hex;
use verbena_wire::{Qpn, Stag, To};

use super::*;

const LOCAL: PortAddress = PortAddress([2, 0, 0, 0, 0, 1]);
const REMOTE: PortAddress = PortAddress([2, 0, 0, 0, 0, 2]);

fn cell<'a>(connected: bool, packet: u32, body: Body<'a>) -> Cell<'a> {
    Cell {
        route: CellRoute {
            to: REMOTE,
            from: LOCAL,
            to_wqp: Qpn::wrapping(0x0a_0b0c),
            from_wqp: Qpn::wrapping(7),
        },
        connected,
        packet: PacketSeq::new(packet),
        body,
    }
}

fn data<'a>(place: CellPosition, tail: Tail, payload: &'a [u8]) -> Data<'a> {
    Data {
        position: place,
        tail,
        acknowledged: false,
        solicited: false,
        payload,
    }
}

const COOKIE: Cookie = Cookie([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

/// The header without its first four bytes, with packet 5.
const WAY: &str = "020000000002 020000000001 000a0b0c 00000007 00000005";

/// The bytes of every kind, without the cell's checksum.
fn golden() -> Vec<(String, Cell<'static>)> {
    let last = |immediate, crc| Tail::Last { immediate, crc };
    let more = core::num::NonZeroU16::new(3).unwrap();
    let block = AddressBlock {
        at: To::new(0x1122_3344_5566_7788),
        handle: Stag::new(0xaabb_ccdd),
        len: 0x0102,
    };
    let terms = |acknowledged| Terms {
        acknowledged,
        max_payload: 256,
        private: b"hi",
    };
    let echo = PacketSeq::new(0x0102_0304);
    let solicited = Data {
        acknowledged: true,
        solicited: true,
        ..data(
            CellPosition::WriteFirst(block),
            last(Some(0xdead_beef), 0x4433_2211),
            b"xyz",
        )
    };
    let row = |front: &str, behind: &str, cell| (format!("{front} {WAY} {behind}"), cell);
    let body = |connected, body| cell(connected, 5, body);
    vec![
        row("10010002", "0000 0000 6162", {
            body(
                false,
                Body::Data(data(CellPosition::SendFirst, Tail::More, b"ab")),
            )
        }),
        row("10120001", "0003 0000 63 78563412", {
            let data = data(CellPosition::SendMore(more), last(None, 0x1234_5678), b"c");
            body(true, Body::Data(data))
        }),
        row(
            "113f0003",
            "0000 0000 1122334455667788 aabbccdd 00000102 deadbeef 78797a 11223344",
            body(true, Body::Data(solicited)),
        ),
        row("11100000", "0003 0000", {
            body(
                true,
                Body::Data(data(CellPosition::WriteMore(more), Tail::More, b"")),
            )
        }),
        row("12100000", "0000 0000", body(true, Body::Ack)),
        row("13000004", "0000 0000 00000002", {
            body(false, Body::Nak(NakReason::NoBuffer))
        }),
        row("14180006", "0000 0000 01000000 6869", {
            body(
                true,
                Body::Connect {
                    terms: terms(true),
                    cookie: None,
                },
            )
        }),
        row(
            "14180016",
            "0000 0000 01000010 000102030405060708090a0b0c0d0e0f 6869",
            body(
                true,
                Body::Connect {
                    terms: terms(true),
                    cookie: Some(COOKIE),
                },
            ),
        ),
        row("1510000a", "0000 0000 01000000 01020304 6869", {
            let terms = terms(false);
            body(true, Body::Accept { echo, terms })
        }),
        row("16100009", "0000 0000 00030000 01020304 6e", {
            let (reason, private) = (RejectReason::Busy, b"n".as_slice());
            body(
                true,
                Body::Reject {
                    echo,
                    reason,
                    private,
                },
            )
        }),
        row("17100004", "0000 0000 00020000", {
            body(true, Body::Disconnect(DisconnectReason::Failed))
        }),
        row(
            "18100014",
            "0000 0000 01020304 000102030405060708090a0b0c0d0e0f",
            {
                let cookie = COOKIE;
                body(true, Body::Retry { echo, cookie })
            },
        ),
    ]
}

/// The bytes followed by their checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    emit_trailer(0, None, &mut bytes);
    bytes
}

fn emitted(cell: &Cell<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    cell.emit(&mut out);
    out
}

#[test]
fn every_kind_parses_and_emits_exactly() {
    for (text, cell) in golden() {
        let bytes = sealed(hex(&text));
        assert_eq!(emitted(&cell), bytes, "{cell}");
        assert_eq!(cell.len(), bytes.len(), "{cell}");
        assert_eq!(Cell::parse(&bytes), Ok((cell, bytes.len())));
        assert!(!cell.is_empty());
    }
}

/// One cell with a checksum computed by another program: CRC-32C over the 32 bytes before, least significant byte first.
#[test]
fn cell_checksum_is_crc32c() {
    let ack = cell(true, 5, Body::Ack);
    let bytes = emitted(&ack);
    let mut bitwise = !0_u32;
    for byte in &bytes[..32] {
        bitwise ^= u32::from(*byte);
        for _ in 0..8 {
            let odd = bitwise & 1 != 0;
            bitwise = bitwise >> 1 ^ if odd { 0x82f6_3b78 } else { 0 };
        }
    }
    assert_eq!(bytes[32..], (!bitwise).to_le_bytes());
}

#[test]
fn truncated_cell_is_refused() {
    for (text, _) in golden() {
        let bytes = sealed(hex(&text));
        for cut in 0..bytes.len() {
            let got = Cell::parse(&bytes[..cut]);
            assert!(
                matches!(got, Err(Malformed::Truncated { need, got, .. }) if need > got && got == cut),
                "{cut}: {got:?}"
            );
        }
    }
}

#[test]
fn any_flipped_bit_is_refused() {
    for (text, _) in golden() {
        let bytes = sealed(hex(&text));
        for bit in 0..bytes.len() * 8 {
            let mut bent = bytes.clone();
            bent[bit / 8] ^= 0x80 >> (bit % 8);
            let got = Cell::parse(&bent).expect_err("a flipped bit");
            let expected = match bit {
                0..4 => matches!(got, Malformed::CellVersion { .. }),
                // Another kind, or flags and lengths that need more bytes than there are.
                4..32 => true,
                _ => matches!(got, Malformed::CellCrc { len, .. } if len == bytes.len()),
            };
            assert!(expected, "bit {bit}: {got}");
        }
    }
}

/// Invalid cells with a correct checksum.
#[test]
fn invalid_cells_with_good_checksum_are_refused() {
    let lie = |front: &str, behind: &str| sealed(hex(&format!("{front} {WAY} {behind}")));
    let flags = |kind, flags| Malformed::CellFlags { kind, flags };
    let cases = [
        (
            lie("20010000", "0000 0000"),
            Malformed::CellVersion { got: 2 },
        ),
        (lie("19100000", "0000 0000"), Malformed::CellKind { got: 9 }),
        (
            lie("1f100000", "0000 0000"),
            Malformed::CellKind { got: 15 },
        ),
        (lie("10410000", "0000 0000"), flags(0, 0x41)),
        (lie("10810000", "0000 0000"), flags(0, 0x81)),
        // Immediate data in a cell that is not the last.
        (lie("10050000", "0000 0000 00000000"), flags(0, 0x05)),
        // An acknowledgement with FIRST or ACKNOWLEDGED; a Connect without CONNECTED.
        (lie("12110000", "0000 0000"), flags(2, 0x11)),
        (lie("12180000", "0000 0000"), flags(2, 0x18)),
        (lie("14000004", "0000 0000 01000000"), flags(4, 0)),
        (lie("17180004", "0000 0000 00010000"), flags(7, 0x18)),
        (
            lie("10010000", "0001 0000"),
            Malformed::CellSequence {
                first: true,
                got: 1,
            },
        ),
        (
            lie("10000000", "0000 0000"),
            Malformed::CellSequence {
                first: false,
                got: 0,
            },
        ),
        (
            lie("12100000", "0001 0000"),
            Malformed::CellSequence {
                first: false,
                got: 1,
            },
        ),
        (
            lie("10010000", "0000 8000"),
            Malformed::CellReserved { got: 0x8000 },
        ),
        (
            lie("12100001", "0000 0000 00"),
            Malformed::CellPayload {
                kind: 2,
                need: 0,
                got: 1,
            },
        ),
        (
            lie("13100003", "0000 0000 000001"),
            Malformed::CellPayload {
                kind: 3,
                need: 4,
                got: 3,
            },
        ),
        (
            lie("14100003", "0000 0000 010000"),
            Malformed::CellPayload {
                kind: 4,
                need: 4,
                got: 3,
            },
        ),
        (
            lie("15100007", "0000 0000 01000000 010203"),
            Malformed::CellPayload {
                kind: 5,
                need: 8,
                got: 7,
            },
        ),
        (
            lie("17100005", "0000 0000 0001000000"),
            Malformed::CellPayload {
                kind: 7,
                need: 4,
                got: 5,
            },
        ),
        (
            lie("13100004", "0000 0000 00010001"),
            Malformed::CellReserved { got: 1 },
        ),
        // A cookie of another length, and a truncated one.
        (
            lie("14180006", "0000 0000 01000002 6869"),
            Malformed::CellReserved { got: 2 },
        ),
        (
            lie("14180006", "0000 0000 01000010 6869"),
            Malformed::CellPayload {
                kind: 4,
                need: 16,
                got: 2,
            },
        ),
        (
            lie("18100004", "0000 0000 01020304"),
            Malformed::CellPayload {
                kind: 8,
                need: 20,
                got: 4,
            },
        ),
    ];
    for (bytes, error) in cases {
        assert_eq!(Cell::parse(&bytes), Err(error));
    }
    for at in [16, 20] {
        let mut bytes = hex(&format!("12100000 {WAY} 0000 0000"));
        bytes[at] = 1;
        let got = Cell::parse(&sealed(bytes)).expect_err("a number of 25 bits");
        assert!(matches!(got, Malformed::CellReserved { .. }), "{got}");
    }
}

#[test]
fn private_data_is_limited() {
    let terms = |private| Terms {
        acknowledged: true,
        max_payload: 256,
        private,
    };
    let long = [7; MAX_PRIVATE + 1];
    let fits = cell(
        true,
        0,
        Body::Connect {
            terms: terms(&long[1..]),
            cookie: None,
        },
    );
    assert_eq!(Cell::parse(&emitted(&fits)).map(|(cell, _)| cell), Ok(fits));
    // Surplus bytes are not sent, and rejected on receipt.
    let cut = cell(
        true,
        0,
        Body::Connect {
            terms: terms(&long),
            cookie: None,
        },
    );
    assert_eq!(emitted(&cut), emitted(&fits));
    let mut bytes = emitted(&fits);
    bytes.truncate(bytes.len() - CRC_LEN);
    bytes.push(7);
    bytes[2..4].copy_from_slice(&(4 + MAX_PRIVATE as u16 + 1).to_be_bytes());
    let bytes = sealed(bytes);
    let got = Cell::parse(&bytes);
    assert!(matches!(
        got,
        Err(Malformed::TooLong {
            limit: MAX_PRIVATE,
            ..
        })
    ));
}

#[test]
fn iterator_skips_a_damaged_cell() {
    let cells: Vec<_> = golden().into_iter().map(|(_, cell)| cell).collect();
    let mut bytes = Vec::new();
    cells.iter().for_each(|cell| cell.emit(&mut bytes));
    let walked: Result<Vec<_>, _> = Cells::new(&bytes).collect();
    assert_eq!(walked, Ok(cells.clone()));

    let second = cells[0].len();
    bytes[second + 20] ^= 1;
    let walked: Vec<_> = Cells::new(&bytes).collect();
    assert_eq!(walked.len(), cells.len());
    assert!(matches!(walked[1], Err(Malformed::CellCrc { .. })));
    assert_eq!(walked[2], Ok(cells[2]));
    // The position of the next cell is unknown.
    bytes[second] = 0;
    let walked: Vec<_> = Cells::new(&bytes).collect();
    assert_eq!(walked.len(), 2);
    assert_eq!(Cells::new(&[]).count(), 0);

    let mut padded = emitted(&cells[4]);
    padded.resize(46, 0);
    assert_eq!(Cells::new(&padded).collect::<Vec<_>>(), [Ok(cells[4])]);
    padded.push(1);
    assert_eq!(Cells::new(&padded).count(), 2);
}

#[test]
fn packet_numbers_wrap() {
    let (last, first) = (PacketSeq::new(u32::MAX), PacketSeq::new(0));
    assert_eq!(last.next(), first);
    assert_eq!(first.previous(), last);
    assert_eq!(first.minus(last), 1);
    assert!(last.is_before(first) && !first.is_before(last) && !first.is_before(first));
}

#[test]
fn prints_one_line() {
    let lines: Vec<_> = golden().iter().map(|(_, cell)| cell.to_string()).collect();
    let way = "02:00:00:00:00:01/0x000007 -> 02:00:00:00:00:02/0x0a0b0c packet=5";
    assert_eq!(lines[0], format!("send {way} cell=0 payload=2"));
    assert_eq!(
        lines[2],
        format!(
            "write {way} connected cell=0 payload=3 at=0x1122334455667788 handle=0xaabbccdd len=258 \
             imm=0xdeadbeef last crc=0x44332211 ackreq se"
        )
    );
    assert_eq!(lines[5], format!("nak {way} reason=no-buffer"));
    assert_eq!(
        lines[7],
        format!("connect {way} connected cell=256 private=2 acknowledged cookie")
    );
    assert_eq!(
        lines[9],
        format!("reject {way} connected echo=16909060 reason=busy private=1")
    );
}

#[test]
fn unknown_reasons_are_kept() {
    for code in 0..=u16::MAX {
        assert_eq!(NakReason::from_code(code).code(), code);
        assert_eq!(RejectReason::from_code(code).code(), code);
        assert_eq!(DisconnectReason::from_code(code).code(), code);
    }
    assert_eq!(NakReason::from_code(7).to_string(), "unknown(7)");
}

proptest! {
    #[test]
    fn round_trip(
        (number, packet) in any::<(u16, u32)>(),
        (write, connected, acknowledged, solicited) in any::<(bool, bool, bool, bool)>(),
        block: (u64, u32, u32),
        tail: Option<(Option<u32>, u32)>,
        payload in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let (at, handle, len) = block;
        let block = AddressBlock { at: To::new(at), handle: Stag::new(handle), len };
        let tail = tail.map_or(Tail::More, |(immediate, crc)| Tail::Last { immediate, crc });
        let place = CellPosition::of(number, write.then_some(block));
        let cell = cell(connected, packet, Body::Data(Data { position: place, tail, acknowledged, solicited, payload: &payload }));
        let bytes = emitted(&cell);
        prop_assert!(bytes.len() <= MAX_OVERHEAD + payload.len());
        prop_assert_eq!(Cell::parse(&bytes), Ok((cell, bytes.len())));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), front in 0x10_u8..0x18) {
        let mut bytes = bytes;
        let _ = Cells::new(&bytes).count();
        if let Some(first) = bytes.first_mut() {
            *first = front;
            let _ = Cells::new(&sealed(bytes)).count();
        }
    }
}
