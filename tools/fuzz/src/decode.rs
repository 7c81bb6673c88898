//! `verbena decode` on capture files: the input itself if it begins like one, else a capture made of a script for both directions.
//! No file may make it panic or fail, text and JSON output must agree on streams and violations, and every JSON line must be an object.

mod capture;
mod disks;

use crate::rx::Peer;
use crate::source::{Source, bit};
use capture::Recorder;
use verbena_cli::decode::{Options, decode};
use verbena_wire::mpa::Enhanced;
use verbena_wire::mpa::startup::{EXT_AGREE, EXT_OFFER, Flags, Frame, Kind, Revision};

/// First bytes of pcap files, in both byte orders, and of pcapng.
const MAGIC: [u8; 4] = [0xa1, 0xd4, 0x4d, 0x0a];

/// First byte of a script for an iSCSI connection: that of a Login Request.
const DISK: u8 = 0x43;
const MPA_PORT: u16 = 4791;

/// Runs one input.
pub fn target(data: &[u8]) {
    match data.first() {
        Some(first) if MAGIC.contains(first) => run(data),
        Some(&DISK) => run(&disks::capture(data)),
        _ => run(&scripted(data)),
    }
}

fn run(file: &[u8]) {
    let text = Options {
        segments: true,
        verbose: true,
        plot: true,
        ..Options::default()
    };
    let json = Options { json: true, ..text };
    let (mut lines, mut objects) = (Vec::new(), Vec::new());
    let summary = decode(file, &mut lines, text).expect("memory takes all output");
    let same = decode(file, &mut objects, json).expect("memory takes all output");
    assert_eq!(
        (summary.streams, summary.violations),
        (same.streams, same.violations)
    );
    assert_eq!(summary.damage.is_some(), same.damage.is_some());
    core::str::from_utf8(&lines).expect("text is text");
    for line in objects.split_inclusive(|&b| b == b'\n') {
        let object: serde_json::Value = serde_json::from_slice(line).expect("a line of JSON");
        assert!(object.is_object(), "{object}");
    }
}

/// A connection: both startup frames, then the frames of the two scripts, cut and interleaved as the input says.
fn scripted(data: &[u8]) -> Vec<u8> {
    let mut source = Source::new(data);
    let [mode, rtr, cut, disorder] = source.array();
    let len = usize::from(source.byte());
    let mut there = Source::new(source.slice(len));
    let flags = |markers, reserved| Flags {
        markers,
        crc: bit(mode, 1),
        reject: false,
        reserved,
    };
    let (to_responder, to_initiator) = (bit(mode, 2), bit(mode, 3));
    let (offer, agree) = match (bit(mode, 4), bit(mode, 5)) {
        (true, true) => (EXT_OFFER, EXT_AGREE),
        (true, false) => (EXT_OFFER, 0),
        _ => (0, 0),
    };
    let revision = if bit(mode, 6) {
        Revision::One
    } else {
        Revision::Two
    };
    let mut recorder = Recorder::new(MPA_PORT, 1 + usize::from(cut), disorder);
    let block = [0, 4, rtr, 4];
    recorder.send(
        0,
        &startup(Kind::Request, revision, flags(to_initiator, offer), block),
    );
    recorder.send(
        1,
        &startup(Kind::Reply, revision, flags(to_responder, agree), block),
    );
    let crc = bit(mode, 1);
    let first = Peer::new(to_responder, crc).script(&mut there);
    let second = Peer::new(to_initiator, crc).script(&mut source);
    recorder.exchange(&first, &second);
    recorder.finish()
}

fn startup(kind: Kind, revision: Revision, flags: Flags, block: [u8; 4]) -> Vec<u8> {
    let enhanced = Enhanced::parse(&block).ok();
    let enhanced = enhanced.filter(|_| revision == Revision::Two);
    let mut out = Vec::new();
    if let Ok(frame) = Frame::new(kind, revision, flags, enhanced, b"hello") {
        frame.emit(&mut out);
    }
    out
}
