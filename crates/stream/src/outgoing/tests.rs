//! Tests of segmentation: sizes, offsets and headers of the segments of one message.

use proptest::prelude::*;

use super::*;

fn pieces(message: Message, max_ulpdu: u16) -> Vec<(Header, usize, u32, u16)> {
    let mut outgoing = Outgoing::new(message, None, 0);
    outgoing.number(Msn::new(7));
    let mut pieces = Vec::new();
    while let Some(segment) = outgoing.segment(max_ulpdu) {
        let header = Header::parse(&segment.header).unwrap();
        pieces.push((
            header,
            segment.body.bytes().len(),
            segment.offset,
            segment.len,
        ));
        assert_eq!(segment.last, header.last());
    }
    assert!(outgoing.is_done());
    pieces
}

#[test]
fn an_empty_message_is_one_segment() {
    let write = Message::Write {
        stag: Stag::new(1),
        to: To::new(2),
        len: 0,
    };
    assert_eq!(pieces(write, 128).len(), 1);
}

#[test]
fn our_largest_bodies_fit_the_smallest_segment() {
    let room = usize::from(crate::MIN_ULPDU) - Untagged::LEN;
    assert!(MAX_BODY <= room);
    let caps = Control::Caps(crate::testing::caps());
    assert!(Body::of_control(&caps).bytes().len() <= MAX_BODY);
    let mut full = crate::testing::caps();
    full.same_host = Some([1; 16]);
    full.path = Some(1);
    assert!(Body::of_control(&Control::Caps(full)).bytes().len() <= MAX_BODY);
}

proptest! {
    #[test]
    fn pieces_cover_the_message_without_gap_or_overlap(
        len in 0_u32..20_000,
        max in 128_u16..3000,
        kind in 0..3,
        to in any::<u32>(),
    ) {
        let to = To::new(u64::from(to));
        let message = match kind {
            0 => Message::Write { stag: Stag::new(1), to, len },
            1 => Message::Send { solicited: false, invalidate: None, len },
            _ => Message::SendImm {
                solicited: false,
                invalidate: None,
                immediate: Immediate::from_imm(1),
                len,
            },
        };
        let lead = if kind == 2 { 8 } else { 0 };
        let pieces = pieces(message, max);
        let mut at = 0;
        for (i, (header, body, offset, piece)) in pieces.iter().enumerate() {
            prop_assert_eq!(*offset, at);
            prop_assert!(header.len() + body + usize::from(*piece) <= usize::from(max));
            prop_assert_eq!(header.last(), i + 1 == pieces.len());
            match header {
                Header::Tagged(h) => prop_assert_eq!(h.to.get(), to.get() + u64::from(at)),
                Header::Untagged(h) => {
                    let carried = if i == 0 { 0 } else { lead };
                    prop_assert_eq!(h.mo.get(), at + carried);
                    prop_assert_eq!(h.msn, Msn::new(7));
                }
            }
            at += u32::from(*piece);
        }
        prop_assert_eq!(at, len);
    }
}
