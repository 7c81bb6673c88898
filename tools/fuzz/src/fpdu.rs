//! The layout of FPDUs with and without markers (RFC 5044 §4), compared with a reference that builds the frame byte by byte.
//! Every position, run, marker and phase must agree, and so must the bytes that `emit_fpdu` writes.

use verbena_wire::crc::{Crc32c, crc32c, crc32c_wire};
use verbena_wire::mpa::fpdu::{LENGTH_LEN, MAX_ULPDU_WITH_MARKERS};
use verbena_wire::mpa::{Layout, Marker, Phase, emit_fpdu, mulpdu, pad_len};

use crate::source::{Source, bit};

const SPACING: usize = 512;
/// With switches from this value on the ULPDU is the input repeated.
const REPEAT: u8 = 0xf0;

/// Runs one input.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let switches = source.byte();
    let phase = Phase::new(source.u16());
    let stretch = usize::from(source.byte());
    // Repetition makes frames of all lengths out of short inputs; only for few inputs, because long frames take long.
    let copies = if switches >= REPEAT { 1 + stretch } else { 1 };
    let ulpdu = source.rest().repeat(copies);
    let ulpdu = &ulpdu[..ulpdu.len().min(usize::from(u16::MAX))];
    frame(ulpdu, phase, bit(switches, 1));
    segment_size(data);
    checksum(data, stretch);
}

fn frame(ulpdu: &[u8], phase: Option<Phase>, crc: bool) {
    let ulpdu_len = ulpdu.len() as u16;
    let layout = Layout::new(ulpdu_len, phase);
    let walk = Walk::new(ulpdu, phase, crc);
    assert_eq!(layout.ulpdu_len(), ulpdu_len);
    assert_eq!(layout.size(), walk.bytes.len());
    assert_eq!(layout.size() % 4, 0);
    assert_eq!(layout.body_len(), walk.places.len() - 1);
    assert_eq!(layout.crc_at(), walk.crc_at);
    assert_eq!(layout.marker_count(), walk.markers.len());
    assert_eq!(layout.next_phase(), walk.next_phase);
    for (k, &(at, fpdu_ptr)) in walk.markers.iter().enumerate() {
        assert_eq!(layout.marker(k), Some((at, Marker { fpdu_ptr })));
    }
    assert_eq!(layout.marker(walk.markers.len()), None);
    let mut run = 0;
    for (body, &at) in walk.places.iter().enumerate().rev() {
        let joined = body > 0 && walk.places[body - 1] + 1 == at;
        // All bytes of a short frame; of a long one those around markers, and samples.
        if walk.places.len() < 1024 || run < 2 || !joined || body % 61 == 0 {
            assert_eq!(layout.locate(body), at, "body byte {body}");
            assert_eq!(layout.run_at(body), run, "run at body byte {body}");
        }
        run = if joined { run + 1 } else { 1 };
    }
    let mut out = vec![0xee; 3];
    assert_eq!(emit_fpdu(ulpdu, phase, crc, &mut out), walk.next_phase);
    assert_eq!(out[3..], walk.bytes[..]);
    let _ = layout.to_string();
}

/// A frame built byte by byte.
struct Walk {
    bytes: Vec<u8>,
    /// Frame offset of each body byte, and of the checksum behind the last.
    places: Vec<usize>,
    /// Frame offset and pointer of each marker.
    markers: Vec<(usize, u16)>,
    crc_at: usize,
    next_phase: Option<Phase>,
}

impl Walk {
    fn new(ulpdu: &[u8], phase: Option<Phase>, crc: bool) -> Walk {
        let mut body = (ulpdu.len() as u16).to_be_bytes().to_vec();
        body.extend(ulpdu);
        while !body.len().is_multiple_of(4) {
            body.push(0);
        }
        assert_eq!(
            pad_len(ulpdu.len() as u16),
            body.len() - LENGTH_LEN - ulpdu.len()
        );
        let mut walk = Walk {
            bytes: Vec::new(),
            places: Vec::new(),
            markers: Vec::new(),
            crc_at: 0,
            next_phase: None,
        };
        let mut until = phase.map(|p| usize::from(p.get()));
        // The length field's offset: markers point back to it.
        let mut field = 0;
        for byte in body.iter().map(Some).chain([None]) {
            if until == Some(0) {
                field = if walk.bytes.is_empty() {
                    Marker::LEN
                } else {
                    field
                };
                walk.marker(field);
                until = Some(SPACING - Marker::LEN);
            }
            walk.places.push(walk.bytes.len());
            walk.bytes.extend(byte);
            until = until.map(|n| n - usize::from(byte.is_some()));
        }
        walk.crc_at = walk.bytes.len();
        let sum = if crc { crc32c(&walk.bytes) } else { 0 };
        walk.bytes.extend(crc32c_wire(sum));
        // The checksum is never split: a marker due right behind it opens the next frame.
        walk.next_phase = until.and_then(|n| Phase::new((n - 4) as u16));
        walk
    }

    fn marker(&mut self, field: usize) {
        let at = self.bytes.len();
        let pointer = at.saturating_sub(field) as u16;
        self.markers.push((at, pointer));
        self.bytes.extend(Marker { fpdu_ptr: pointer }.emit());
    }
}

fn segment_size(data: &[u8]) {
    let emss = Source::new(data).u32() as usize % 70_000;
    for markers in [false, true] {
        let most = mulpdu(emss, markers);
        assert!(most >= 128);
        assert!(!markers || usize::from(most) <= MAX_ULPDU_WITH_MARKERS);
        if most > 128 {
            let worst = (0..SPACING as u16).step_by(4).map(|p| {
                let phase = Phase::new(p).filter(|_| markers);
                Layout::new(most, phase).size()
            });
            assert!(worst.max() <= Some(emss), "{most} bytes do not fit {emss}");
        }
    }
}

fn checksum(data: &[u8], cut: usize) {
    let mut pieces = Crc32c::new();
    let (front, back) = data.split_at(cut.min(data.len()));
    pieces.update(front);
    pieces.update(back);
    assert_eq!(pieces.finish(), crc32c(data));
}
