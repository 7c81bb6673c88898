//! Hex to bytes, and the check that a value emits as a frame and is parsed back out of it. For
//! FPDUs without markers only; frames with markers have their own file.

use verbena_wire::crc::{crc32c, crc32c_wire};
use verbena_wire::ddp::Header;
use verbena_wire::mpa::fpdu::{Layout, emit_fpdu};

/// Bytes of a hex string; spaces, newlines and `|` only separate, `xx*n` repeats a byte.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text
        .split(|c: char| c.is_whitespace() || c == '|')
        .filter(|word| !word.is_empty())
    {
        let (digits, times) = match word.split_once('*') {
            Some((digits, times)) => (digits, times.parse().expect("a count")),
            None => (word, 1),
        };
        assert_eq!(digits.len() % 2, 0, "odd number of digits in {word}");
        let once: Vec<u8> = (0..digits.len() / 2)
            .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("hex digits"))
            .collect();
        bytes.extend(once.repeat(times));
    }
    bytes
}

/// Checks one frame without markers: header and payload emit as `frame`, and parse back out of it.
pub(crate) fn frame_both_ways(frame: &str, header: impl Into<Header>, payload: &[u8]) {
    let (frame, header) = (hex(frame), header.into());

    let mut ulpdu = header.emit().to_vec();
    ulpdu.extend_from_slice(payload);
    let mut out = Vec::new();
    assert_eq!(emit_fpdu(&ulpdu, None, true, &mut out), None);
    assert_eq!(out, frame, "emit {header}");

    let got = ulpdu_of(&frame);
    assert_eq!(Header::parse(&got), Ok(header));
    assert_eq!(&got[header.len()..], payload);
}

/// The ULPDU of a frame without markers, after checking its length and checksum.
pub(crate) fn ulpdu_of(frame: &[u8]) -> Vec<u8> {
    let len = u16::from_be_bytes([frame[0], frame[1]]);
    let layout = Layout::new(len, None);
    assert_eq!(layout.size(), frame.len());
    let (covered, crc) = frame.split_at(layout.crc_at());
    assert_eq!(crc32c_wire(crc32c(covered)), crc);
    assert!(covered[2 + usize::from(len)..].iter().all(|pad| *pad == 0));
    covered[2..2 + usize::from(len)].to_vec()
}
