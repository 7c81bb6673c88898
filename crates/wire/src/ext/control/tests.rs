//! Control messages: every kind both ways, payloads of every wrong length, undefined kinds.

use proptest::prelude::*;

use super::*;
use crate::ext::caps::{Features, Personality, QpType};
use crate::testing::hex;

fn rsn(value: u32) -> Rsn {
    Rsn::new(value).expect("24 bits")
}

fn caps() -> Caps {
    Caps {
        version: Caps::VERSION,
        max_ulpdu: 1442,
        features: Features::NONE,
        personality: Personality::Iwarp,
        qp_type: QpType::Rc,
        min_rnr_timer: RnrTimer::new(0).expect("five bits"),
        ird: 1,
        nonce: 2,
        same_host: None,
        path: None,
    }
}

fn payload(control: &Control) -> Vec<u8> {
    let mut out = Vec::new();
    control.emit_payload(&mut out);
    out
}

/// One message of each kind but CAPS, with its word and payload.
fn messages() -> Vec<(Control, u32, &'static str)> {
    let timer = RnrTimer::new(12).expect("five bits");
    let psn = Psn::new(0xff_fffe).expect("24 bits");
    vec![
        (Control::Ack(rsn(0x01_0203)), 0x0201_0203, ""),
        (Control::Rnr { rsn: rsn(7), timer }, 0x0300_0007, "0c000000"),
        (Control::Ready(rsn(7)), 0x0400_0007, ""),
        (Control::Resume(rsn(0xff_ffff)), 0x05ff_ffff, ""),
        (Control::Active { psn }, 0x06ff_fffe, ""),
        (Control::Srq(Srqn::wrapping(0x0a_0b0c)), 0x080a_0b0c, ""),
    ]
}

#[test]
fn every_kind_parses_and_emits_exactly() {
    for (control, word, bytes) in messages() {
        assert_eq!(control.ulp_word(), word);
        assert_eq!(u32::from(control.kind()), word >> 24);
        assert_eq!(payload(&control), hex(bytes));
        assert_eq!(Control::parse(word, &hex(bytes)), Ok(control));
    }
    let control = Control::Caps(caps());
    assert_eq!(control.ulp_word(), 0x0100_0000);
    assert_eq!(Control::parse(0x0100_0000, &payload(&control)), Ok(control));
    // Capabilities have no number, so the field is ignored.
    assert_eq!(Control::parse(0x01ff_ffff, &payload(&control)), Ok(control));
}

#[test]
fn payloads_of_another_length_are_refused() {
    for (_, word, bytes) in messages() {
        let (kind, need) = ((word >> 24) as u8, bytes.len() / 2);
        for got in (0..12).filter(|got| *got != need) {
            let want = Err(Malformed::ControlLength { kind, need, got });
            assert_eq!(Control::parse(word, &vec![0; got]), want);
        }
    }
}

#[test]
fn undefined_kinds_are_refused() {
    for got in (0..=u8::MAX).filter(|kind| !matches!(kind, 1..=6 | 8)) {
        let word = u32::from(got) << 24;
        assert_eq!(
            Control::parse(word, &[]),
            Err(Malformed::ControlKind { got })
        );
    }
}

#[test]
fn only_the_first_payload_byte_counts() {
    let noisy = Control::parse(0x0300_0007, &hex("0cffffff"));
    assert_eq!(noisy, Control::parse(0x0300_0007, &hex("0c000000")));
    for got in 32..=u8::MAX {
        let want = Err(Malformed::RnrTimer { got });
        assert_eq!(Control::parse(0x0300_0000, &[got, 0, 0, 0]), want);
    }
}

#[test]
fn prints_one_line() {
    let lines: Vec<String> = messages()
        .iter()
        .map(|(control, ..)| control.to_string())
        .collect();
    assert_eq!(
        lines,
        [
            "ack rsn=66051",
            "rnr rsn=7 timer=640µs",
            "ready rsn=7",
            "resume rsn=16777215",
            "active psn=0xfffffe",
            "srq number=658188"
        ]
    );
}

proptest! {
    #[test]
    fn parsed_message_round_trips(word: u32, bytes in proptest::collection::vec(any::<u8>(), 0..8)) {
        if let Ok(control) = Control::parse(word, &bytes) {
            prop_assert_eq!(control.ulp_word(), word);
            prop_assert_eq!(Control::parse(word, &payload(&control)), Ok(control));
        }
    }

    #[test]
    fn round_trip(kind in prop::sample::select(&[2u8, 3, 4, 5, 6, 8][..]), number in 0u32..1 << 24, first in 0u8..2) {
        let word = u32::from(kind) << 24 | number;
        let bytes = if kind == 3 { vec![first, 0, 0, 0] } else { vec![] };
        let control = Control::parse(word, &bytes).expect("a message");
        prop_assert_eq!(control.ulp_word(), word);
        prop_assert_eq!(payload(&control), bytes);
    }
}
