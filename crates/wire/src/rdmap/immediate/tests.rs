//! Immediate data: exactly eight bytes, and where a 32-bit immediate sits in them.

use super::*;

#[test]
fn immediate_is_exactly_eight_bytes() {
    let data = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    assert_eq!(Immediate::parse(&data), Ok(Immediate { data }));
    assert_eq!(Immediate { data }.emit(), data);
    for got in (0..20).filter(|len| *len != 8) {
        let want = Err(Malformed::ImmediateLength { got });
        assert_eq!(Immediate::parse(&[0; 20][..got]), want);
    }
}

#[test]
fn a_verbs_immediate_is_the_first_half() {
    let immediate = Immediate::from_imm(0xdead_beef);
    assert_eq!(immediate.data, [0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0]);
    assert_eq!(immediate.imm(), 0xdead_beef);
    let noisy = Immediate {
        data: [0, 0, 0, 1, 9, 9, 9, 9],
    };
    assert_eq!(noisy.imm(), 1);
    assert_eq!(immediate.to_string(), "imm=0xdeadbeef00000000");
}
