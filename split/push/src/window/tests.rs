//! Running numbers at the limits of their range.

use super::{Credit, Grant};

#[test]
fn credit_is_granted_minus_spent() {
    let mut credit = Credit::new(2);
    credit.spend();
    credit.spend();
    assert_eq!(credit.left(), 0);
    assert_eq!(credit.raise(5, 8), Ok(3));
    assert_eq!(credit.left(), 3);
}

#[test]
fn old_grant_is_ignored_excessive_one_refused() {
    let mut credit = Credit::new(4);
    assert_eq!(credit.raise(4, 8), Ok(0));
    assert_eq!(credit.raise(1, 8), Ok(0));
    assert_eq!(credit.raise(9, 8), Err((4, 8)));
    assert_eq!(credit.left(), 4);
}

#[test]
fn credit_numbers_wrap() {
    let mut credit = Credit::new(u32::MAX);
    credit.sent = u32::MAX - 1;
    assert_eq!(credit.raise(3, 8), Ok(4));
    assert_eq!(credit.left(), 5);
    let mut grant = Grant::new(u32::MAX);
    grant.received = u32::MAX - 1;
    assert!(grant.receive());
    assert!(!grant.receive());
    assert_eq!(grant.grant(4), (u32::MAX, 4));
    assert!((0..4).all(|_| grant.receive()));
    assert_eq!(grant.left(), 0);
}

/// An overdrawn credit is 0, not almost 2^32.
#[test]
fn overdrawn_credit_is_zero() {
    let mut credit = Credit::new(1);
    credit.spend();
    credit.spend();
    assert_eq!(credit.left(), 0);
}

#[test]
fn losses_are_limited_to_granted_credit() {
    let mut grant = Grant::new(4);
    assert_eq!(grant.count_lost(9), 4);
    assert_eq!(grant.grantable(4), 4);
    assert_eq!(grant.missing(5), None);
    assert_eq!(grant.missing(4), Some(0));
    assert_eq!(grant.missing(3), None);
}
