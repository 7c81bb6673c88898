//! Frames with markers: the two figures of RFC 5044, and a stream of four frames that has a marker
//! before a length, inside a body and before a checksum.

use sha2::{Digest, Sha256};
use verbena_wire::crc::{crc32c, crc32c_wire};
use verbena_wire::ddp::{Header, Untagged};
use verbena_wire::mpa::fpdu::{Layout, Phase, emit_fpdu};
use verbena_wire::mpa::marker::Marker;
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Mo, Msn, Qn};

use crate::support::hex;

fn send(opcode: Opcode, msn: u32, payload: &[u8]) -> Vec<u8> {
    let header = Untagged {
        last: true,
        opcode,
        ulp: 0,
        qn: Qn::SEND,
        msn: Msn::new(msn),
        mo: Mo::ZERO,
    };
    let mut ulpdu = header.emit().to_vec();
    ulpdu.extend_from_slice(payload);
    ulpdu
}

/// Takes the ULPDU out of a frame with markers, checking each marker and the checksum.
fn unframe(frame: &[u8], phase: Phase) -> Vec<u8> {
    let at = if phase == Phase::START {
        Marker::LEN
    } else {
        0
    };
    let len = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let layout = Layout::new(len, Some(phase));
    assert_eq!(layout.size(), frame.len());
    for k in 0..layout.marker_count() {
        let (at, marker) = layout.marker(k).expect("a marker");
        assert_eq!(Marker::parse(&frame[at..]), Ok(marker));
    }
    let (covered, crc) = frame.split_at(layout.crc_at());
    assert_eq!(crc32c_wire(crc32c(covered)), crc);
    let body: Vec<u8> = (0..layout.body_len())
        .map(|i| frame[layout.locate(i)])
        .collect();
    body[2..2 + usize::from(len)].to_vec()
}

fn both_ways(frame: &str, phase: Phase, msn: u32) {
    let (frame, ulpdu) = (hex(frame), send(Opcode::Send, msn, &[0; 24]));
    let mut out = Vec::new();
    emit_fpdu(&ulpdu, Some(phase), true, &mut out);
    assert_eq!(out, frame);
    let got = unframe(&frame, phase);
    assert_eq!(got, ulpdu);
    let Ok(Header::Untagged(header)) = Header::parse(&got) else {
        unreachable!("an untagged header");
    };
    assert_eq!((header.msn, header.qn), (Msn::new(msn), Qn::SEND));
}

#[test]
fn figure_5_marker_before_the_length() {
    both_ways(
        "00000000 002a 4143 00000000 00000000 00000001 00000000 00*24 52239983",
        Phase::START,
        1,
    );
}

#[test]
fn figure_6_marker_inside() {
    let phase = Phase::new(0x200 - 0x1ec).expect("a phase");
    both_ways(
        "002a 4143 00000000 00000000 00000002 00000000 00000014 00*24 84925898",
        phase,
        2,
    );
}

#[test]
fn stream_of_four_frames() {
    let frames = [
        (
            send(Opcode::Send, 1, &[b'A'; 488]),
            520,
            "761911d7",
            vec![0, 508],
        ),
        (send(Opcode::Send, 2, &[b'B'; 480]), 504, "ff7cd4a8", vec![]),
        (
            send(Opcode::Send, 3, &[b'C'; 1200]),
            1236,
            "537f960e",
            vec![0, 508, 1020],
        ),
        (send(Opcode::SendSe, 4, &[]), 24, "77150ad9", vec![]),
    ];
    let mut stream = Vec::new();
    let mut phase = Phase::START;
    for (ulpdu, size, crc, pointers) in frames {
        let start = stream.len();
        let layout = Layout::new(ulpdu.len() as u16, Some(phase));
        let next = emit_fpdu(&ulpdu, Some(phase), true, &mut stream);
        assert_eq!((layout.size(), stream.len() - start), (size, size));
        assert_eq!(stream[stream.len() - 4..], hex(crc));
        let got: Vec<u16> = (0..layout.marker_count())
            .map(|k| layout.marker(k).expect("a marker").1.fpdu_ptr)
            .collect();
        assert_eq!(got, pointers);
        assert_eq!(unframe(&stream[start..], phase), ulpdu);
        phase = next.expect("markers stay on");
    }
    assert_eq!(stream.len(), 2284);
    assert_eq!(
        Sha256::digest(&stream).as_slice(),
        hex("d343528593f8595f2b6a7ce25a515c4938258d3a8e7b823fc5577fda965a343d")
    );
}
