//! Tests of sources: order, partial copies, and what does not fit.

use std::sync::Arc;

use super::*;
use crate::{Access, Buffer, MemAccess, Pd, Policy, Tpt};

const PD: Pd = Pd(1);

#[test]
fn bytes_come_from_the_sources_in_order() {
    let tpt = Arc::new(Tpt::new(1..10, Policy::Verbs, 1));
    let memory = Buffer::new(&tpt, 16, PD, Access::ALL).unwrap();
    memory.write(4, b"payload");
    let reach = MemAccess {
        stag: memory.stag(),
        at: memory.at() + 4,
        len: 7,
        pd: PD,
        qp: 1,
        needs: Access::NONE,
    };
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(b"<"));
    assert_eq!(sources.gather(tpt.gather_local(&reach).unwrap()), 7);
    assert!(sources.borrow_bytes(b">"));
    assert_eq!((sources.bytes(), sources.spans().len()), (9, 3));
    for most in 0..=9 {
        let mut copy = b"=".to_vec();
        assert_eq!(sources.copy_to(&mut copy, most), Ok(most));
        assert_eq!(copy, b"=<payload>"[..most + 1]);
    }
}

#[test]
fn a_full_list_takes_no_more_sources() {
    let bytes = [[0_u8; 2]; 100];
    let mut sources = Sources::new();
    let taken = bytes
        .iter()
        .take_while(|two| sources.borrow_bytes(&two[..1]));
    assert_eq!(taken.count(), crate::span::MAX_SPANS);
}

/// Adjacent borrows are not joined: neither may be read through the pointer of the other.
#[test]
fn adjacent_borrows_are_not_joined() {
    let (one, two) = b"abcd".split_at(2);
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(one) && sources.borrow_bytes(two));
    assert_eq!(sources.spans().len(), 2);
    let mut copy = Vec::new();
    assert_eq!(sources.copy_to(&mut copy, 10), Ok(4));
    assert_eq!(copy, b"abcd");
}
