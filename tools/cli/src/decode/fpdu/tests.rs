//! Parsing is the inverse of emitting, with and without markers, and waits for the last byte.

use verbena_wire::mpa::emit_fpdu;

use super::*;

#[test]
fn emitted_fpdus_parse_at_every_marker_phase() {
    for len in [14usize, 15, 18, 500, 501, 1442, 4000] {
        let ulpdu: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let phases = (0..512).step_by(4).map(Phase::new);
        for phase in phases.chain([None]) {
            let mut bytes = Vec::new();
            let next = emit_fpdu(&ulpdu, phase, true, &mut bytes);
            let whole = bytes.len();
            assert_eq!(Fpdu::parse(&bytes[..whole - 1], phase), None);
            bytes.extend([0xee; 9]);
            let fpdu = Fpdu::parse(&bytes, phase).unwrap();
            assert_eq!(fpdu.bytes.len(), whole);
            assert_eq!(fpdu.ulpdu, ulpdu);
            assert_eq!(fpdu.crc, fpdu.computed);
            assert_eq!(fpdu.next, next);
        }
    }
}

#[test]
fn incomplete_fpdus_are_not_parsed() {
    assert_eq!(Fpdu::parse(&[], None), None);
    assert_eq!(Fpdu::parse(&[0], None), None);
    assert_eq!(Fpdu::parse(&[0; 5], Some(Phase::START)), None);
    assert_eq!(Fpdu::parse(&[0; 8], None).unwrap().ulpdu, Vec::<u8>::new());
}
