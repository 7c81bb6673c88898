//! Frames found in segments: aligned or not, by checksum, by marker or by length.

use verbena_wire::ddp::Tagged;
use verbena_wire::mpa::fpdu::emit_fpdu;
use verbena_wire::rdmap::Opcode;

use super::*;

fn ulpdu(to: u64, len: usize) -> Vec<u8> {
    let header = Tagged {
        last: true,
        opcode: Opcode::Write,
        stag: Stag::new(0x1234),
        to: To::new(to),
    };
    let mut bytes = header.emit().to_vec();
    bytes.extend((0..len).map(|at| at as u8 ^ 0x5a));
    bytes
}

/// A stream of frames, with the position of each and one behind the last.
fn stream(markers: bool, lens: &[usize]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut starts) = (Vec::new(), vec![0]);
    let mut phase = markers.then_some(Phase::START);
    for (at, len) in lens.iter().enumerate() {
        let ulpdu = ulpdu(at as u64 * 10_000, *len);
        phase = emit_fpdu(&ulpdu, phase, true, &mut bytes);
        starts.push(bytes.len());
    }
    (bytes, starts)
}

const LENS: [usize; 6] = [700, 1, 40, 1300, 512, 33];

#[test]
fn frames_behind_an_aligned_start_are_found() {
    for markers in [false, true] {
        let (bytes, starts) = stream(markers, &LENS);
        for first in 0..LENS.len() {
            let at = starts[first];
            let found = frames(at as u64, &bytes[at..], (markers, true), Alignment::Frames);
            let ends: Vec<usize> = found.iter().map(|(from, f)| at + from + f.size()).collect();
            assert_eq!(ends, starts[first + 1..], "{markers}");
            for ((_, frame), len) in found.iter().zip(&LENS[first..]) {
                let payload: Vec<u8> = frame.payload().flatten().copied().collect();
                assert_eq!(payload, ulpdu(0, *len)[14..]);
                assert_eq!(frame.payload_len() as usize, *len);
            }
        }
    }
}

/// Wherever a segment is cut, a frame is found by the first marker that is in it, and no other bytes are taken for one.
#[test]
fn markers_locate_frames_in_any_segment() {
    let (bytes, starts) = stream(true, &LENS);
    let mut located = 0;
    for crc in [false, true] {
        for from in 0..bytes.len() {
            let found = frames(from as u64, &bytes[from..], (true, crc), Alignment::Unknown);
            located += found.len();
            for (at, frame) in found {
                let begin = from + at;
                assert!(starts.contains(&begin) && starts.contains(&(begin + frame.size())));
            }
        }
    }
    assert!(located > bytes.len(), "{located}");
}

#[test]
fn unaligned_bytes_without_markers_are_no_frames() {
    let (bytes, _) = stream(false, &LENS);
    for from in 0..bytes.len() {
        let found = frames(
            from as u64,
            &bytes[from..],
            (false, true),
            Alignment::Unknown,
        );
        assert!(found.is_empty());
    }
}

/// Without a checksum the lengths must end with the segment.
#[test]
fn lengths_alone_must_fill_the_segment() {
    let (bytes, starts) = stream(false, &LENS);
    let from = starts[3];
    let whole = |end: usize| {
        frames(
            from as u64,
            &bytes[from..end],
            (false, false),
            Alignment::Frames,
        )
        .len()
    };
    assert_eq!(whole(starts[4]), 1);
    assert_eq!(whole(starts[5]), 2);
    assert_eq!(whole(starts[5] - 1), 0);
    assert_eq!(whole(starts[4] + 1), 0);
}

#[test]
fn any_flipped_bit_is_found_by_the_checksum() {
    let (bytes, _) = stream(false, &[40]);
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let found = frames(0, &changed, (false, true), Alignment::Frames);
        assert!(found.is_empty(), "{bit}");
    }
}
