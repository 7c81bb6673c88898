//! Headers: lengths, digests, numbers and units here; golden bytes of each kind, a recorded session, and errors in the
//! files below.

mod captured;
mod golden;
mod hostile;

use super::*;

#[test]
fn lengths_include_pad_and_digests() {
    let mut bhs = [0; BHS_LEN];
    bhs[4..8].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
    let lengths = Lengths::of(&bhs);
    let most = Lengths {
        ahs: 1020,
        data: MAX_DATA,
    };
    assert_eq!(lengths, most);
    assert_eq!(lengths.to_string(), "ahs=1020 data=16777215");
    // No data, hence no pad and no data digest.
    let bare = Lengths { ahs: 0, data: 0 };
    assert_eq!(bare.total(false, true), 48);
    assert_eq!(bare.total(true, true), 52);
    let five = Lengths { ahs: 8, data: 5 };
    assert_eq!(five.total(false, false), 48 + 8 + 8);
    assert_eq!(five.total(true, true), 48 + 8 + 4 + 8 + 4);
    assert_eq!([0, 1, 2, 3, 4, 5].map(pad), [0, 3, 2, 1, 0, 3]);
    assert_eq!(pad(u32::MAX), 1);
}

/// The examples of RFC 7143 §A.4, and two more computed by another program.
#[test]
fn digests_match_rfc_7143_examples() {
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    let read = verbena_wire::testing::hex(
        "01c00000 00000000 00000000 00000000 14000000 00000400 00000014 00000018 \
         28000000 00000000 02000000 00000000",
    );
    let ready = verbena_wire::testing::hex(
        "01810000 00000000 00010000 00000000 00000002 00000000 00000001 00000002 \
         00000000 00000000 00000000 00000000",
    );
    let cases: [(&[u8], [u8; 4]); 7] = [
        (&[0; 32], [0xaa, 0x36, 0x91, 0x8a]),
        (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        (&up, [0x4e, 0x79, 0xdd, 0x46]),
        (&down, [0x5c, 0xdb, 0x3f, 0x11]),
        (&read, [0x56, 0x3a, 0x96, 0xd9]),
        (&ready, [0x80, 0x34, 0xc3, 0x23]),
        (b"ping", [0xe5, 0x26, 0xfa, 0xa7]),
    ];
    for (bytes, expected) in cases {
        assert_eq!(digest(bytes), expected, "{bytes:02x?}");
    }
}

#[test]
fn opcode_ignores_the_upper_two_bits() {
    let mut bhs = [0; BHS_LEN];
    let mut known = 0;
    for code in 0..=u8::MAX {
        bhs[0] = code;
        let opcode = Opcode::of(&bhs);
        assert_eq!(is_immediate(&bhs), code & 0x40 != 0);
        // The two upper bits are not part of the opcode.
        assert_eq!(opcode, Opcode::from_code(code & 0x3f));
        let Some(opcode) = opcode else {
            continue;
        };
        assert_eq!(opcode as u8, code & 0x3f);
        assert_eq!(opcode.is_from_target(), code & 0x20 != 0);
        known += 1;
    }
    assert_eq!(known, 4 * Opcode::ALL.len());
    assert_eq!(Opcode::ALL.len(), 8 + 10);
}

#[test]
fn unit_numbers_are_encoded_as_luns() {
    let bytes = |n| Lun::new(n).map(Lun::to_bytes);
    assert_eq!(bytes(0), Some([0; 8]));
    assert_eq!(bytes(1), Some([0, 1, 0, 0, 0, 0, 0, 0]));
    assert_eq!(bytes(255), Some([0, 255, 0, 0, 0, 0, 0, 0]));
    assert_eq!(bytes(256), Some([0x41, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(bytes(16383), Some([0x7f, 0xff, 0, 0, 0, 0, 0, 0]));
    assert_eq!(bytes(16384), None);
    assert_eq!(bytes(u16::MAX), None);
    for n in 0..16384 {
        assert_eq!(Lun::new(n).and_then(Lun::number), Some(n));
    }
    // A flat address below 256 is a number; a bus, a second level and other methods are not.
    let number = |bytes| Lun::from_bytes(bytes).number();
    assert_eq!(number([0x40, 7, 0, 0, 0, 0, 0, 0]), Some(7));
    assert_eq!(number([1, 7, 0, 0, 0, 0, 0, 0]), None);
    assert_eq!(number([0, 7, 0, 1, 0, 0, 0, 0]), None);
    assert_eq!(number([0x40, 7, 0, 0, 0, 0, 0, 1]), None);
    assert_eq!(number([0x80, 7, 0, 0, 0, 0, 0, 0]), None);
    assert_eq!(number([0xc1, 1, 0, 0, 0, 0, 0, 0]), None);
    assert_eq!(Lun::new(300).unwrap().to_string(), "300");
    let odd = Lun::from_bytes([0xc1, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(odd.to_string(), "0xc101000000000000");
}

#[test]
fn sequence_number_comparison_is_serial() {
    let last = u32::MAX;
    assert!(sn_lt(1, 2) && sn_lt(last, 0) && sn_lt(last, 5) && sn_lt(0, (1 << 31) - 1));
    assert!(!sn_lt(2, 1) && !sn_lt(0, last) && !sn_lt(7, 7));
    assert!(sn_le(7, 7) && sn_le(last, 0) && !sn_le(0, last));
    // At half the number space neither is ahead.
    assert!(!sn_le(0, 1 << 31) && !sn_le(1 << 31, 0) && !sn_lt(0, 1 << 31));
}

/// RFC 7143 §4.2.2.1.
#[test]
fn a_window_only_moves_forward() {
    let window = |exp_cmd_sn, max_cmd_sn| Window {
        exp_cmd_sn,
        max_cmd_sn,
    };
    let now = window(10, 20);
    assert!(now.has_room_for(20) && !now.has_room_for(21));
    assert_eq!(now.advanced_to(window(12, 25)), window(12, 25));
    assert_eq!(now.advanced_to(window(8, 25)), window(10, 25));
    assert_eq!(now.advanced_to(window(12, 15)), window(12, 20));
    // A closed window is valid, and one less is not.
    assert_eq!(now.advanced_to(window(30, 29)), window(30, 29));
    assert_eq!(now.advanced_to(window(30, 28)), now);
    let old = window(u32::MAX, u32::MAX);
    assert_eq!(old.advanced_to(window(1, 4)), window(1, 4));
    assert!(window(0, u32::MAX).is_valid() && !window(0, u32::MAX - 1).is_valid());
    assert_eq!(now.to_string(), "window=10..=20");
}
