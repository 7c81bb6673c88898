//! Invalid headers: lengths where there must be none, flags that exclude each other, the wrong side, random bytes.

use proptest::prelude::*;
use verbena_wire::Malformed;

use super::super::*;
use super::golden::{bhs, initiator, target};

const OPCODES: usize = 64;

/// A header changed by `bend`.
fn altered(bytes: &Bhs, alter: impl FnOnce(&mut Bhs)) -> Bhs {
    let mut bytes = *bytes;
    alter(&mut bytes);
    bytes
}

#[test]
fn pdus_of_other_side_are_refused() {
    let initiators: Vec<Bhs> = initiator().into_iter().map(|(bytes, _)| bytes).collect();
    let targets: Vec<Bhs> = target().into_iter().map(|(bytes, _)| bytes).collect();
    for bytes in &targets {
        let got = bytes[0] & 0x3f;
        let wrong = Malformed::IscsiSide { got };
        assert_eq!(FromInitiator::parse(bytes), Err(wrong));
    }
    for bytes in &initiators {
        let got = bytes[0] & 0x3f;
        let wrong = Malformed::IscsiSide { got };
        assert_eq!(FromTarget::parse(bytes), Err(wrong));
        if got != 0 {
            let expected = Malformed::IscsiOpcode { expected: 0, got };
            assert_eq!(NopOut::parse(bytes), Err(expected));
        }
    }
    let known = initiators.iter().chain(&targets).map(|b| b[0] & 0x3f);
    let known: Vec<u8> = known.collect();
    for code in (0..OPCODES as u8).filter(|code| !known.contains(code)) {
        let bytes = altered(&[0; BHS_LEN], |b| b[0] = code);
        let wrong = Malformed::IscsiSide { got: code };
        assert_eq!(FromInitiator::parse(&bytes), Err(wrong));
        assert_eq!(FromTarget::parse(&bytes), Err(wrong));
    }
}

/// RFC 7143 §11.2.1.5: only commands have additional headers.
#[test]
fn only_commands_may_have_additional_headers() {
    for (bytes, pdu) in initiator() {
        let long = altered(&bytes, |b| b[4] = 0xff);
        match (pdu, FromInitiator::parse(&long)) {
            (FromInitiator::ScsiCommand(_), got) => {
                let Ok(FromInitiator::ScsiCommand(command)) = got else {
                    panic!("{got:?}");
                };
                assert_eq!(command.ahs_len, 1020);
            }
            (_, got) => {
                let opcode = pdu.opcode() as u8;
                assert_eq!(got, Err(Malformed::IscsiAhs { opcode, got: 1020 }));
            }
        }
    }
    for (bytes, pdu) in target() {
        let opcode = pdu.opcode() as u8;
        let got = FromTarget::parse(&altered(&bytes, |b| b[4] = 1));
        assert_eq!(got, Err(Malformed::IscsiAhs { opcode, got: 4 }));
    }
}

#[test]
fn data_is_refused_where_not_allowed() {
    let bare = [
        Opcode::TaskRequest,
        Opcode::LogoutRequest,
        Opcode::Snack,
        Opcode::TaskResponse,
        Opcode::LogoutResponse,
        Opcode::R2t,
    ];
    for at in 5..8 {
        let got = 1 << (8 * (7 - at));
        let long = |bytes: &Bhs| altered(bytes, |b| b[at] ^= 1);
        for (bytes, pdu) in initiator() {
            let opcode = pdu.opcode();
            let refused = FromInitiator::parse(&long(&bytes)).err();
            let opcode_got = Malformed::IscsiData {
                opcode: opcode as u8,
                got,
            };
            assert_eq!(refused, bare.contains(&opcode).then_some(opcode_got));
        }
        for (bytes, pdu) in target() {
            let opcode = pdu.opcode();
            let refused = FromTarget::parse(&long(&bytes)).err();
            let opcode_got = Malformed::IscsiData {
                opcode: opcode as u8,
                got,
            };
            assert_eq!(refused, bare.contains(&opcode).then_some(opcode_got));
        }
    }
}

#[test]
fn contradictory_flags_are_refused() {
    // Opcode, byte 1, and whether it is valid.
    let cases: &[(u8, u8, bool)] = &[
        // A command with neither F nor W.
        (0x01, 0x00, false),
        (0x01, 0x40, false),
        (0x01, 0x20, true),
        (0x01, 0x80, true),
        // T and C of a login, F and C of text.
        (0x03, 0xc0, false),
        (0x23, 0xc4, false),
        (0x03, 0x40, true),
        (0x04, 0xc0, false),
        (0x24, 0xc0, false),
        (0x24, 0x40, true),
        // Overflow and underflow together.
        (0x21, 0x86, false),
        (0x21, 0x98, false),
        (0x21, 0x94, true),
        (0x25, 0x87, false),
        // Status without F.
        (0x25, 0x01, false),
        (0x25, 0x81, true),
        (0x25, 0x00, true),
    ];
    for &(opcode, flags, stands) in cases {
        let bytes = altered(&[0; BHS_LEN], |b| b[..2].copy_from_slice(&[opcode, flags]));
        let refused = match opcode & 0x20 {
            0 => FromInitiator::parse(&bytes).err(),
            _ => FromTarget::parse(&bytes).err(),
        };
        let expected = (!stands).then_some(Malformed::IscsiFlags { opcode, flags });
        assert_eq!(refused, expected, "{opcode:#x} {flags:#x}");
    }
}

#[test]
fn empty_r2t_is_refused() {
    let bytes = altered(&target()[7].0, |b| b[44..].fill(0));
    let wrong = Malformed::IscsiR2tEmpty {
        itt: 0x1011_1213,
        offset: 0x2829_2a2b,
    };
    assert_eq!(R2t::parse(&bytes), Err(wrong));
    assert_eq!(
        wrong.to_string(),
        "R2T of task 0x10111213 asks for 0 bytes at offset 673786411"
    );
}

/// Without S there is neither status nor residual, whatever their fields contain.
#[test]
fn data_in_without_status_has_no_residual() {
    let bytes = altered(&target()[5].0, |b| b[1] = 0x04);
    let data = DataIn::parse(&bytes).unwrap();
    assert_eq!((data.status, data.residual), (None, Residual::None));
    let emitted = data.emit();
    assert_eq!(
        (emitted[1], emitted[3], &emitted[44..]),
        (0, 0, &[0; 4][..])
    );
    assert_eq!(DataIn::parse(&emitted), Ok(data));
}

#[test]
fn sense_data_ends_inside_its_segment() {
    let sense = ScsiResponse::sense;
    assert_eq!(sense(&[]), Ok(&[][..]));
    assert_eq!(sense(&[0, 0]), Ok(&[][..]));
    assert_eq!(sense(&[0, 0, 9, 9]), Ok(&[][..]));
    assert_eq!(sense(&[0, 2, 7, 8, 9]), Ok(&[7, 8][..]));
    let short = |what, need, got| Err(Malformed::Truncated { what, need, got });
    assert_eq!(sense(&[0]), short("length of sense data", 2, 1));
    assert_eq!(sense(&[0, 3, 7, 8]), short("sense data", 3, 2));
    assert_eq!(sense(&[0xff, 0xff, 7]), short("sense data", 0xffff, 1));
}

#[test]
fn a_reject_returns_the_header() {
    let header = bhs(&"07".repeat(BHS_LEN));
    assert_eq!(Reject::header(&header), Ok(&header));
    assert_eq!(Reject::header(&[&header[..], &[1]].concat()), Ok(&header));
    let short = Malformed::Truncated {
        what: "rejected header",
        need: 48,
        got: 47,
    };
    assert_eq!(Reject::header(&header[1..]), Err(short));
}

#[test]
fn unknown_values_are_kept() {
    for code in 0..=u8::MAX {
        assert_eq!(RejectReason::from_code(code).code(), code);
        assert_eq!(AsyncEvent::from_code(code).code(), code);
        assert_eq!(TaskOutcome::from_code(code).code(), code);
        assert_eq!(LogoutOutcome::from_code(code).code(), code);
        assert_eq!(Service::from_code(code).code(), code);
    }
    for code in 0..=u16::MAX {
        let status = LoginStatus::from_code(code);
        assert_eq!(status.code(), code);
        assert_eq!([status.class(), status.detail()], code.to_be_bytes());
        assert_eq!(status.is_success(), code < 0x100);
    }
    assert_eq!(
        LoginStatus::from_code(0x0203).to_string(),
        "target not found"
    );
    assert_eq!(LoginStatus::from_code(0x0abc).to_string(), "unknown(0xabc)");
    assert_eq!(RejectReason::from_code(4).to_string(), "protocol error");
    assert_eq!(RejectReason::from_code(0x0b).to_string(), "unknown(0xb)");
    assert_eq!(
        AsyncEvent::from_code(1).to_string(),
        "target requests logout"
    );
}

proptest! {
    /// Every value that can be read makes the round trip, and no bytes cause a panic.
    #[test]
    fn round_trip(
        front in proptest::array::uniform8(any::<u8>()),
        rest in proptest::collection::vec(any::<u8>(), BHS_LEN - 8),
        at in 0..Opcode::ALL.len(),
        bare: bool,
    ) {
        let mut bytes = [0; BHS_LEN];
        bytes[..8].copy_from_slice(&front);
        bytes[8..].copy_from_slice(&rest);
        bytes[0] = bytes[0] & 0xc0 | Opcode::ALL[at] as u8;
        if bare {
            // Without additional headers and data, so that most kinds are generated often.
            bytes[4..8].fill(0);
        }
        if let Ok(pdu) = FromInitiator::parse(&bytes) {
            prop_assert_eq!(FromInitiator::parse(&pdu.emit()), Ok(pdu));
            prop_assert_eq!(Lengths::of(&pdu.emit()), Lengths::of(&bytes));
            prop_assert!(!pdu.to_string().is_empty());
        }
        if let Ok(pdu) = FromTarget::parse(&bytes) {
            prop_assert_eq!(FromTarget::parse(&pdu.emit()), Ok(pdu));
            prop_assert_eq!(Lengths::of(&pdu.emit()), Lengths::of(&bytes));
            prop_assert!(!pdu.to_string().is_empty());
        }
    }
}

/// A flipped bit is an error, gives another value, or is reserved.
#[test]
fn flipped_bits_fail_change_or_are_reserved() {
    for (bytes, pdu) in target() {
        for bit in 0..BHS_LEN * 8 {
            let flipped = altered(&bytes, |b| b[bit / 8] ^= 0x80 >> (bit % 8));
            if let Ok(got) = FromTarget::parse(&flipped) {
                let known = got == pdu || got.emit() == flipped;
                // The fields of another opcode need not cover all bits.
                let other = got.opcode() != pdu.opcode();
                // Without S or its flag there is no residual.
                let less = bit / 8 == 1;
                assert!(known || other || less, "{pdu} bit {bit}: {got}");
            }
        }
    }
}
