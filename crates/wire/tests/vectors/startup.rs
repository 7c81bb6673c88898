//! Start-up frames: the enhanced Request and Reply, the plain revision 1 Request, and the Request
//! of Linux siw with its default settings.

use verbena_wire::mpa::enhanced::{Depth, Enhanced, RtrKinds};
use verbena_wire::mpa::startup::{Flags, Frame, Kind, Revision};

use crate::support::hex;

const CRC: Flags = Flags {
    markers: false,
    crc: true,
    reject: false,
    reserved: 0,
};

fn both_ways(text: &str, kind: Kind, revision: Revision, flags: Flags, enhanced: Option<Enhanced>) {
    let bytes = hex(text);
    let frame = Frame::new(kind, revision, flags, enhanced, &[]).expect("a frame");
    let mut out = Vec::new();
    frame.emit(&mut out);
    assert_eq!(out, bytes);
    assert_eq!(Frame::parse(kind, &bytes), Ok(Some((frame, bytes.len()))));
}

fn block(depth: u16, peer_to_peer: bool, write: bool, read: bool) -> Option<Enhanced> {
    let depth = Depth::new(depth).expect("14 bits");
    Some(Enhanced {
        ird: depth,
        ord: depth,
        peer_to_peer,
        rtr: RtrKinds {
            send: false,
            write,
            read,
        },
    })
}

#[test]
fn enhanced_request() {
    both_ways(
        "4d504120494420526571204672616d65 50 02 0004 8080 c080",
        Kind::Request,
        Revision::Two,
        CRC,
        block(128, true, true, true),
    );
}

#[test]
fn enhanced_reply() {
    both_ways(
        "4d504120494420526570204672616d65 50 02 0004 8080 4080",
        Kind::Reply,
        Revision::Two,
        CRC,
        block(128, true, false, true),
    );
}

#[test]
fn revision_one_request() {
    both_ways(
        "4d504120494420526571204672616d65 40 01 0000",
        Kind::Request,
        Revision::One,
        CRC,
        None,
    );
}

#[test]
fn siw_default_request() {
    for depth in [0u16, 1, 16, 128] {
        let text = format!("4d504120494420526571204672616d65 10 02 0004 {depth:04x} {depth:04x}");
        both_ways(
            &text,
            Kind::Request,
            Revision::Two,
            Flags::default(),
            block(depth, false, false, false),
        );
    }
}
