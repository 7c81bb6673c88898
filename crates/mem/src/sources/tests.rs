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

#[test]
fn any_part_is_copied_to_an_address() {
    let whole: Vec<u8> = (1..=12).collect();
    let (mut one, mut two, mut three) = ([0; 3], [0; 5], [0; 4]);
    one.copy_from_slice(&whole[..3]);
    two.copy_from_slice(&whole[3..8]);
    three.copy_from_slice(&whole[8..]);
    let mut sources = Sources::new();
    for bytes in [&one[..], &two, &three] {
        assert!(sources.borrow_bytes(bytes));
    }
    for skip in 0..=12 {
        for len in 0..=13 {
            let mut to = [0xee_u8; 16];
            let copied = len.min(12 - skip);
            // SAFETY: `to` has more than `len` bytes and is none of the sources.
            let answer = unsafe { sources.copy_at(skip, to.as_mut_ptr(), len) };
            assert_eq!(answer, Ok(copied));
            assert_eq!(to[..copied], whole[skip..skip + copied]);
            assert!(to[copied..].iter().all(|byte| *byte == 0xee));
        }
    }
}
