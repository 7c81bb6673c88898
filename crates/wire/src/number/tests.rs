//! Ranges, wrap-around and printing of the number types.

use proptest::prelude::*;

use super::*;

const TOP: u32 = 0x00ff_ffff;

#[test]
fn stag_splits_into_index_and_key() {
    let stag = Stag::new(0x1234_5678);
    assert_eq!((stag.index(), stag.key()), (0x12_3456, 0x78));
    assert_eq!(Stag::from_parts(0x12_3456, 0x78), Some(stag));
    assert_eq!(Stag::from_parts(TOP, 0xff), Some(Stag::new(u32::MAX)));
    assert_eq!(Stag::from_parts(TOP + 1, 0), None);
    assert_eq!(Stag::new(0xab).to_string(), "0x000000ab");
}

#[test]
fn offsets_do_not_wrap() {
    assert_eq!(To::new(1).checked_add(2), Some(To::new(3)));
    assert_eq!(To::new(u64::MAX).checked_add(0), Some(To::new(u64::MAX)));
    assert_eq!(To::new(u64::MAX).checked_add(1), None);
    assert_eq!(Mo::ZERO.checked_add(u32::MAX), Some(Mo::new(u32::MAX)));
    assert_eq!(Mo::new(u32::MAX).checked_add(1), None);
    assert_eq!(To::new(0x1000).to_string(), "0x1000");
}

#[test]
fn message_numbers_start_at_one_and_wrap() {
    // RFC 5041 §4.3.
    assert_eq!(Msn::FIRST.get(), 1);
    assert_eq!(Msn::FIRST.next(), Msn::new(2));
    assert_eq!(Msn::new(u32::MAX).next(), Msn::new(0));
}

#[test]
fn twenty_four_bit_numbers_keep_to_their_range() {
    assert_eq!(Rsn::new(TOP).map(Rsn::get), Some(TOP));
    assert_eq!(Rsn::new(TOP + 1), None);
    assert_eq!(Rsn::wrapping(TOP + 5).get(), 4);
    assert_eq!(Rsn::wrapping(TOP).next(), Rsn::ZERO);
    assert_eq!(Psn::new(TOP + 1), None);
    assert_eq!(Psn::wrapping(TOP).next(), Psn::wrapping(0));
    assert_eq!(Qpn::new(TOP).map(Qpn::get), Some(TOP));
    assert_eq!(Qpn::new(TOP + 1), None);
    assert_eq!(Qpn::wrapping(0x11).to_string(), "0x000011");
    assert_eq!(Srqn::new(TOP).map(Srqn::get), Some(TOP));
    assert_eq!(Srqn::new(TOP + 1), None);
    assert_eq!(Srqn::wrapping(0x0301_0203).get(), 0x01_0203);
    assert_eq!(Srqn::wrapping(0x01_0203).to_string(), "66051");
}

#[test]
fn request_order_is_serial() {
    let half = 1 << 23;
    let first = Rsn::wrapping(TOP);
    assert!(first.is_before(first.next()));
    assert!(!first.next().is_before(first));
    assert!(!first.is_before(first));
    assert!(first.is_before(first.plus(half - 1)));
    assert!(!first.is_before(first.plus(half)));
    assert!(!first.plus(half).is_before(first));
}

#[test]
fn queues_have_their_numbers() {
    let queues = [
        Qn::SEND,
        Qn::READ_REQUEST,
        Qn::TERMINATE,
        Qn::ATOMIC_RESPONSE,
        Qn::READ_V2_RESPONSE,
        Qn::CONTROL,
    ];
    assert!(
        (0..)
            .map(Qn::new)
            .zip(queues)
            .all(|(want, got)| want == got)
    );
    assert_eq!(Qn::CONTROL.get(), 5);
}

proptest! {
    #[test]
    fn rsn_plus_and_minus_undo_each_other(start in 0..=TOP, count in any::<u32>()) {
        let start = Rsn::wrapping(start);
        prop_assert_eq!(start.plus(count).minus(start), count & TOP);
        prop_assert!(start.plus(count).get() <= TOP);
    }

    #[test]
    fn rsn_order_is_antisymmetric(a in 0..=TOP, b in 0..=TOP) {
        let (a, b) = (Rsn::wrapping(a), Rsn::wrapping(b));
        prop_assert!(!(a.is_before(b) && b.is_before(a)));
    }

    #[test]
    fn stag_parts_round_trip(value in any::<u32>()) {
        let stag = Stag::new(value);
        prop_assert_eq!(Stag::from_parts(stag.index(), stag.key()), Some(stag));
    }
}
