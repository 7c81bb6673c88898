//! Start-up frames a byte at a time, with surplus bytes behind, with reserved bits set, with wrong
//! lengths, and bytes that are no frame.

use proptest::prelude::*;

use super::*;
use crate::mpa::enhanced::{Depth, RtrKinds};

const KINDS: [Kind; 2] = [Kind::Request, Kind::Reply];

/// Flags, revision and length behind the right key.
fn header(kind: Kind, flags: u8, revision: u8, len: u16) -> Vec<u8> {
    let mut bytes = kind.key().to_vec();
    bytes.extend_from_slice(&[flags, revision]);
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes
}

fn block() -> Enhanced {
    Enhanced {
        ird: Depth::NOT_NEGOTIATED,
        ord: Depth::new(7).expect("14 bits"),
        peer_to_peer: true,
        rtr: RtrKinds {
            send: false,
            write: true,
            read: false,
        },
    }
}

fn emitted(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out);
    out
}

/// Every proper prefix needs more; the whole frame, with or without surplus, gives its length.
fn arrives_in_pieces(frame: &Frame<'_>) {
    let mut bytes = emitted(frame);
    let len = bytes.len();
    for cut in 0..len {
        assert_eq!(Frame::parse(frame.kind(), &bytes[..cut]), Ok(None), "{cut}");
    }
    for surplus in [&[][..], &[0], &[0xff; 600]] {
        bytes.truncate(len);
        bytes.extend_from_slice(surplus);
        assert_eq!(Frame::parse(frame.kind(), &bytes), Ok(Some((*frame, len))));
    }
}

#[test]
fn frame_parses_bytewise_and_with_surplus() {
    let full = [0x5a; MAX_PRIVATE_DATA];
    for kind in KINDS {
        for data in [0, 1, 252, 508, 512] {
            let data = &full[..data];
            let plain = Frame::new(kind, Revision::One, Flags::default(), None, data);
            arrives_in_pieces(&plain.expect("fits"));
        }
        for data in [0, 1, 252, 508] {
            let data = &full[..data];
            let rich = Frame::new(kind, Revision::Two, Flags::default(), Some(block()), data);
            arrives_in_pieces(&rich.expect("fits"));
        }
    }
}

#[test]
fn keys_differ_in_one_byte() {
    let differing = Kind::Request.key().iter().zip(Kind::Reply.key());
    assert_eq!(differing.filter(|(a, b)| a != b).count(), 1);
}

#[test]
fn wrong_key_byte_is_refused_at_once() {
    for kind in KINDS {
        let good = header(kind, 0x40, 1, 0);
        for at in 0..16 {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let want = if bad[at] == kind.other().key()[at] {
                    StartupError::WrongKind { expected: kind }
                } else {
                    StartupError::BadKey { at }
                };
                assert_eq!(Frame::parse(kind, &bad[..at]), Ok(None));
                for end in at + 1..=bad.len() {
                    assert_eq!(Frame::parse(kind, &bad[..end]), Err(want), "{at} {end}");
                }
            }
        }
    }
}

#[test]
fn frame_of_other_kind_is_refused() {
    for expected in KINDS {
        let other = header(expected.other(), 0x40, 1, 0);
        let want = Err(StartupError::WrongKind { expected });
        assert_eq!(Frame::parse(expected, &other), want);
        assert_eq!(Frame::parse(expected, &other[..10]), want);
        assert_eq!(Frame::parse(expected, &other[..9]), Ok(None));
    }
}

#[test]
fn unknown_revision_is_refused_at_once() {
    for got in (0..=u8::MAX).filter(|revision| ![1, 2].contains(revision)) {
        let bytes = header(Kind::Request, 0, got, 0);
        assert_eq!(Frame::parse(Kind::Request, &bytes[..17]), Ok(None));
        let want = Err(StartupError::Revision { got });
        assert_eq!(Frame::parse(Kind::Request, &bytes[..18]), want);
        assert_eq!(Frame::parse(Kind::Request, &bytes), want);
    }
}

#[test]
fn overlong_private_data_is_refused_at_once() {
    for got in [513, 514, 0x0300, 0x8000, 65535] {
        for revision in [1, 2] {
            let bytes = header(Kind::Reply, 0x10, revision, got);
            let want = Err(StartupError::PrivateDataTooLong { got: got.into() });
            assert_eq!(Frame::parse(Kind::Reply, &bytes[..19]), Ok(None));
            assert_eq!(Frame::parse(Kind::Reply, &bytes), want);
        }
    }
}

#[test]
fn enhanced_block_must_fit_the_private_data() {
    for got in 0..4 {
        let bytes = header(Kind::Request, 0x10, 2, got);
        let want = Err(StartupError::EnhancedTruncated { got });
        assert_eq!(Frame::parse(Kind::Request, &bytes), want);
    }
}

#[test]
fn s_is_a_reserved_bit_in_revision_one() {
    let mut bytes = header(Kind::Request, 0x10, 1, 2);
    bytes.extend_from_slice(b"pd");
    let (frame, len) = Frame::parse(Kind::Request, &bytes)
        .expect("well formed")
        .expect("complete");
    assert_eq!(
        (frame.enhanced(), frame.private_data(), len),
        (None, &b"pd"[..], 22)
    );
    assert_eq!(frame.flags(), Flags::default());
}

#[test]
fn every_flag_byte_round_trips() {
    for byte in 0..=u8::MAX {
        let mut bytes = header(Kind::Reply, byte, 2, 4);
        bytes.extend_from_slice(&block().emit());
        let (frame, _) = Frame::parse(Kind::Reply, &bytes)
            .expect("well formed")
            .expect("complete");
        let flags = frame.flags();
        assert_eq!(flags.markers, byte & 0x80 != 0);
        assert_eq!(flags.crc, byte & 0x40 != 0);
        assert_eq!(flags.reject, byte & 0x20 != 0);
        assert_eq!(frame.enhanced().is_some(), byte & 0x10 != 0);
        assert_eq!(flags.reserved, byte & 0x0f);
        assert_eq!(emitted(&frame), bytes);
    }
}

#[test]
fn unsendable_frame_cannot_be_built() {
    let full = [0; MAX_PRIVATE_DATA + 1];
    let new = |revision, block, data| {
        Frame::new(Kind::Request, revision, Flags::default(), block, data).err()
    };
    assert_eq!(
        new(Revision::One, Some(block()), &[]),
        Some(StartupError::EnhancedNeedsRevisionTwo)
    );
    assert_eq!(
        new(Revision::One, None, &full),
        Some(StartupError::PrivateDataTooLong { got: 513 })
    );
    assert_eq!(
        new(Revision::Two, Some(block()), &full[..509]),
        Some(StartupError::PrivateDataTooLong { got: 513 })
    );
    assert_eq!(new(Revision::Two, Some(block()), &full[..508]), None);
}

#[test]
fn reserved_flags_above_the_nibble_are_dropped() {
    let flags = Flags {
        reserved: 0xf0 | EXT_OFFER,
        ..Flags::default()
    };
    let frame = Frame::new(Kind::Request, Revision::Two, flags, None, &[]).expect("fits");
    assert_eq!(frame.flags().reserved, EXT_OFFER);
    assert_eq!(emitted(&frame)[16], EXT_OFFER);
}

#[test]
fn prints_one_line() {
    let flags = Flags {
        crc: true,
        reserved: EXT_OFFER,
        ..Flags::default()
    };
    let frame = Frame::new(Kind::Request, Revision::Two, flags, Some(block()), b"x");
    assert_eq!(
        frame.expect("fits").to_string(),
        "MPA Request rev=2 flags=-C-+0x1 ird=any ord=7 rtr=write private_data=1"
    );
    assert_eq!(
        StartupError::WrongKind {
            expected: Kind::Reply
        }
        .to_string(),
        "the peer sent an MPA Request, expected a Reply"
    );
}

proptest! {
    #[test]
    fn round_trip(
        kind in prop_oneof![Just(Kind::Request), Just(Kind::Reply)],
        two in any::<bool>(),
        bits in any::<[bool; 3]>(),
        reserved in 0u8..16,
        words in any::<Option<[u8; 4]>>(),
        data in proptest::collection::vec(any::<u8>(), 0..=508),
    ) {
        let [markers, crc, reject] = bits;
        let flags = Flags { markers, crc, reject, reserved };
        let revision = if two { Revision::Two } else { Revision::One };
        let block = words.filter(|_| two).map(|w| Enhanced::parse(&w).expect("four bytes"));
        let frame = Frame::new(kind, revision, flags, block, &data).expect("fits");
        let bytes = emitted(&frame);
        prop_assert_eq!(Frame::parse(kind, &bytes), Ok(Some((frame, bytes.len()))));
    }

    /// Any bytes behind a valid key: no panic, and more bytes never change the result.
    #[test]
    fn more_bytes_never_change_the_verdict(tail in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut bytes = Kind::Request.key().to_vec();
        bytes.extend_from_slice(&tail);
        let mut verdict = None;
        for end in 0..=bytes.len() {
            match Frame::parse(Kind::Request, &bytes[..end]) {
                Ok(None) => prop_assert_eq!(verdict, None),
                Ok(Some((_, len))) => {
                    prop_assert!(len <= end);
                    prop_assert!(verdict.is_none_or(|v| v == Ok(len)));
                    verdict = Some(Ok(len));
                }
                Err(error) => {
                    prop_assert!(verdict.is_none_or(|v| v == Err(error)));
                    verdict = Some(Err(error));
                }
            }
        }
    }
}
