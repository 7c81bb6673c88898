//! Recognition of pure acknowledgements, comparison of two, and the fields that must be equal.

use proptest::prelude::*;

use super::*;

/// An acknowledgement as Linux sends it, built by hand.
struct TestAck {
    tags: usize,
    v6: bool,
    stamps: Option<(u32, u32)>,
    seq: u32,
    ack: u32,
    window: u16,
    flags: u8,
    payload: usize,
    pad: usize,
    name: u16,
}

const PLAIN: TestAck = TestAck {
    tags: 0,
    v6: false,
    stamps: Some((1000, 77)),
    seq: 5,
    ack: 100,
    window: 512,
    flags: ONLY_ACK,
    payload: 0,
    pad: 0,
    name: 9,
};

impl TestAck {
    fn frame(&self) -> Vec<u8> {
        let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for _ in 0..self.tags {
            f.extend([0x81, 0, 0, 7]);
        }
        let tcp = if self.stamps.is_some() { 32 } else { 20 };
        let above = (tcp + self.payload) as u16;
        if self.v6 {
            f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            f.extend(above.to_be_bytes());
            f.extend([6, 64]);
            f.extend([0x20; 16]);
            f.extend([0x31; 16]);
        } else {
            f.extend([8, 0, 0x45, 0]);
            f.extend((above + 20).to_be_bytes());
            f.extend(self.name.to_be_bytes());
            f.extend([0x40, 0, 64, 6]);
            // A stand-in for the header checksum, different in each packet.
            f.extend((!self.name).to_be_bytes());
            f.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        }
        f.extend([0x30, 0x39, 0, 80]);
        f.extend(self.seq.to_be_bytes());
        f.extend(self.ack.to_be_bytes());
        f.extend([(tcp as u8 / 4) << 4, self.flags]);
        f.extend(self.window.to_be_bytes());
        f.extend((self.ack as u16).to_be_bytes());
        f.extend([0, 0]);
        if let Some((value, echo)) = self.stamps {
            f.extend(TIMESTAMPS);
            f.extend(value.to_be_bytes());
            f.extend(echo.to_be_bytes());
        }
        f.extend(vec![0xaa; self.payload]);
        f.extend(vec![0; self.pad]);
        f
    }

    fn ack(&self) -> Option<Ack> {
        Ack::parse(&self.frame())
    }

    /// It supersedes the plain one.
    fn supersedes_plain(&self) -> bool {
        let (Some(this), Some(plain)) = (self.ack(), PLAIN.ack()) else {
            panic!("one of them is none");
        };
        this.supersedes(&plain)
    }
}

#[test]
fn higher_acknowledgement_outdates_lower_one() {
    let later = TestAck {
        ack: 65_260,
        window: 100,
        stamps: Some((1001, 80)),
        name: 10,
        ..PLAIN
    };
    assert!(later.supersedes_plain());
    let (earlier, later) = (PLAIN.ack().unwrap(), later.ack().unwrap());
    assert!(!earlier.supersedes(&later), "not the other way");
}

#[test]
fn acknowledgement_and_timestamp_numbers_wrap() {
    let at = |ack| TestAck { ack, ..PLAIN }.ack().unwrap();
    assert!(at(3).supersedes(&at(u32::MAX - 3)));
    assert!(!at(u32::MAX - 3).supersedes(&at(3)));
    let at = |value| {
        let stamps = Some((value, 0));
        let ack = 100 + (value == 2) as u32;
        TestAck {
            stamps,
            ack,
            ..PLAIN
        }
        .ack()
        .unwrap()
    };
    assert!(at(2).supersedes(&at(u32::MAX)));
}

#[test]
fn duplicate_ack_and_window_update_are_kept() {
    assert!(!PLAIN.supersedes_plain());
    // RFC 5681, 2: a window update alone must not be dropped either.
    let window = TestAck {
        window: 513,
        ..PLAIN
    };
    assert!(!window.supersedes_plain());
}

#[test]
fn acks_that_differ_otherwise_are_kept() {
    let more = |made: TestAck| TestAck { ack: 200, ..made };
    // Another sequence number: data was sent in between.
    assert!(!more(TestAck { seq: 6, ..PLAIN }).supersedes_plain());
    // An older timestamp: the packet was reordered.
    let old = Some((999, 90));
    assert!(
        !more(TestAck {
            stamps: old,
            ..PLAIN
        })
        .supersedes_plain()
    );
    assert!(!more(TestAck { tags: 1, ..PLAIN }).supersedes_plain());
    assert!(!more(TestAck { v6: true, ..PLAIN }).supersedes_plain());
    assert!(
        !more(TestAck {
            stamps: None,
            ..PLAIN
        })
        .supersedes_plain()
    );
}

#[test]
fn flags_data_or_options_make_no_pure_ack() {
    for flags in 0..=u8::MAX {
        let made = TestAck { flags, ..PLAIN };
        assert_eq!(made.ack().is_some(), flags == ONLY_ACK, "{flags:#x}");
    }
    assert_eq!(
        TestAck {
            payload: 1,
            ..PLAIN
        }
        .ack(),
        None
    );
    // Selective acknowledgement behind the timestamps (RFC 2018), and a reserved bit.
    let mut frame = PLAIN.frame();
    frame[46] = 0xb0;
    frame[16..18].copy_from_slice(&64_u16.to_be_bytes());
    frame.extend([1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(Ack::parse(&frame), None);
    let mut frame = PLAIN.frame();
    frame[46] |= 1;
    assert_eq!(Ack::parse(&frame), None);
    let mut frame = PLAIN.frame();
    frame[54] = 2;
    assert_eq!(Ack::parse(&frame), None, "other options of the same length");
    // A CE mark in the IP header (RFC 3168) makes two acknowledgements differ.
    let mut frame = TestAck { ack: 200, ..PLAIN }.frame();
    frame[15] = 3;
    assert!(
        !Ack::parse(&frame)
            .unwrap()
            .supersedes(&PLAIN.ack().unwrap())
    );
}

#[test]
fn pure_acks_are_recognised_with_padding_and_tags() {
    for (tags, v6) in [(0, false), (1, false), (2, false), (0, true), (2, true)] {
        for stamps in [None, Some((1, 2))] {
            let made = |ack| TestAck {
                tags,
                v6,
                stamps,
                ack,
                pad: if tags == 0 && !v6 { 6 } else { 0 },
                ..PLAIN
            };
            let (first, second) = (made(1).ack().unwrap(), made(2).ack().unwrap());
            assert!(second.supersedes(&first), "{tags} {v6} {stamps:?}");
        }
    }
    let longest = TestAck {
        tags: 2,
        v6: true,
        ..PLAIN
    };
    assert_eq!(longest.frame().len(), Ack::MAX_LEN);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_judged_without_panic(
        mut frame in proptest::collection::vec(any::<u8>(), 0..120),
        real in any::<bool>(),
        at in 0..66_usize,
        byte in any::<u8>(),
    ) {
        if real {
            frame = PLAIN.frame();
            frame[at] = byte;
        }
        if let Some(ack) = Ack::parse(&frame) {
            prop_assert!(!ack.supersedes(&ack));
            // Of two frames of which one supersedes the other, only these fields may differ.
            let may = (18..20).contains(&at) || (24..26).contains(&at) || (42..46).contains(&at) || at >= 48;
            if real && PLAIN.frame() != frame && ack.supersedes(&PLAIN.ack().unwrap()) {
                prop_assert!(may, "byte {at}");
            }
        }
    }

    #[test]
    fn truncated_frame_is_no_ack(len in 0..66_usize) {
        prop_assert_eq!(Ack::parse(&PLAIN.frame()[..len]), None);
    }
}
