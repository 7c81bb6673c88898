//! The results of every pair of flags, and RFC 6581's depths and RTR messages.

use verbena_wire::mpa::{Depth, Flags, Kind, Revision, RtrKinds};

use super::*;

const NO_RTR: RtrKinds = RtrKinds {
    send: false,
    write: false,
    read: false,
};

fn block(ird: u16, ord: u16, rtr: Option<RtrKinds>) -> Enhanced {
    Enhanced {
        ird: Depth::new(ird).unwrap(),
        ord: Depth::new(ord).unwrap(),
        peer_to_peer: rtr.is_some(),
        rtr: rtr.unwrap_or(NO_RTR),
    }
}

fn frame(kind: Kind, flags: Flags, enhanced: Option<Enhanced>) -> Frame<'static> {
    Frame::new(kind, Revision::Two, flags, enhanced, &[]).unwrap()
}

fn terms(request: Flags, reply: Flags) -> Terms {
    agree(
        &frame(Kind::Request, request, None),
        &frame(Kind::Reply, reply, None),
    )
}

fn with_blocks(request: Enhanced, reply: Enhanced) -> Terms {
    let none = Flags::default();
    agree(
        &frame(Kind::Request, none, Some(request)),
        &frame(Kind::Reply, none, Some(reply)),
    )
}

#[test]
fn either_side_enables_crc_and_its_own_markers() {
    for bits in 0..16u8 {
        let flags = |crc, markers| Flags {
            crc: bits & crc != 0,
            markers: bits & markers != 0,
            ..Flags::default()
        };
        let terms = terms(flags(1, 2), flags(4, 8));
        assert_eq!(terms.crc, bits & 5 != 0);
        assert_eq!(terms.markers, [bits & 8 != 0, bits & 2 != 0]);
    }
}

#[test]
fn extensions_need_offer_and_exact_answer() {
    let reserved = |reserved| Flags {
        reserved,
        ..Flags::default()
    };
    for offer in 0..16 {
        for answer in 0..16 {
            let terms = terms(reserved(offer), reserved(answer));
            assert_eq!(terms.extensions, offer & 1 == 1 && answer & 3 == 2);
            let first = if terms.extensions {
                FirstFpdu::Caps
            } else {
                FirstFpdu::Any
            };
            assert_eq!(terms.first, [first; 2]);
        }
    }
}

#[test]
fn rtr_messages_are_those_of_the_reply() {
    let write = RtrKinds {
        write: true,
        ..NO_RTR
    };
    let both = RtrKinds {
        read: true,
        ..write
    };
    let terms = with_blocks(block(1, 1, Some(both)), block(1, 1, Some(write)));
    assert_eq!(terms.first, [FirstFpdu::Rtr(write), FirstFpdu::Any]);
    let one_sided = with_blocks(block(1, 1, None), block(1, 1, Some(write)));
    assert_eq!(one_sided.first, [FirstFpdu::Any; 2]);
}

#[test]
fn read_depths_come_from_both_blocks() {
    assert_eq!(
        with_blocks(block(4, 9, None), block(7, 3, None)).depth,
        [7, 4]
    );
    assert_eq!(
        with_blocks(block(2, 9, None), block(7, 3, None)).depth,
        [7, 3]
    );
    let open = with_blocks(block(0x3fff, 0x3fff, None), block(0x3fff, 0x3fff, None));
    assert_eq!(open.depth, [u16::MAX; 2]);
    let read = RtrKinds {
        read: true,
        ..NO_RTR
    };
    let rtr = with_blocks(block(0, 0, Some(read)), block(0, 0, Some(read)));
    assert_eq!(rtr.depth, [1, 0]);
    assert_eq!(
        terms(Flags::default(), Flags::default()).depth,
        [u16::MAX; 2]
    );
}
