//! Tests of outgoing frames: head, payload and trailer, the stage, and the codec yield the same bytes.

use verbena_wire::mpa::fpdu::emit_fpdu;

use super::*;
use crate::testing::{pattern, patterned};

#[test]
fn staged_frame_equals_codec_output() {
    for crc in [false, true] {
        for phase in [
            None,
            Some(0),
            Some(4),
            Some(16),
            Some(20),
            Some(300),
            Some(508),
        ] {
            let phase = phase.and_then(Phase::new);
            for len in [
                0_u16, 1, 2, 3, 4, 480, 490, 500, 1700, 16_364, 16_384, 32_768, 65_000,
            ] {
                let head = [0xab; 18];
                let frame = Frame::new(&[&head[..]], 0, len, phase, crc);
                let mut ulpdu = head.to_vec();
                ulpdu.extend(patterned(u32::from(len)));
                let mut expected = vec![9];
                let next = emit_fpdu(&ulpdu, phase, crc, &mut expected);
                let mut staged = vec![9];
                frame.write(&mut staged, pattern);
                assert_eq!(staged, expected, "{len} bytes, {phase:?}");
                assert_eq!(frame.next_phase(), next);
                assert_eq!(frame.size(), expected.len() - 1);
            }
        }
    }
}

#[test]
fn frame_holes_carry_message_offsets() {
    let frame = Frame::new(&[&[0; 14]], 5000, 1000, Phase::new(100), true);
    let mut next = 5000;
    frame.write(&mut Vec::new(), |offset, hole| {
        assert_eq!(offset, next);
        next += hole.len() as u32;
    });
    assert_eq!(next, 6000);
}

#[test]
fn only_frames_without_checksum_and_markers_are_plain() {
    let plain = |phase, crc| Frame::new(&[&[0; 14]], 0, 100, phase, crc).is_plain();
    assert!(plain(None, false));
    assert!(
        plain(Phase::new(508), false),
        "no marker falls into this one"
    );
    assert!(!plain(Phase::new(8), false));
    assert!(!plain(None, true));
    let marked = |phase| Frame::new(&[&[0; 14]], 0, 100, phase, false).is_marked();
    assert!(marked(Phase::new(508)) && !marked(None));
}
