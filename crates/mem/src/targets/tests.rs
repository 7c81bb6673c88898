//! Tests of targets: order of places, what does not fit, and that deregistration waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{Access, Buffer, MemAccess, Pd, Policy, Tpt};

const PD: Pd = Pd(1);

fn mem_access(buffer: &Buffer, offset: u64, len: u64) -> MemAccess {
    MemAccess {
        stag: buffer.stag(),
        at: buffer.at() + offset,
        len,
        pd: PD,
        qp: 1,
        needs: Access::LOCAL_WRITE,
    }
}

#[test]
fn bytes_go_to_the_places_in_order() {
    let tpt = Arc::new(Tpt::new(1..10, Policy::Verbs, 1));
    let memory = Buffer::new(&tpt, 16, PD, Access::ALL).unwrap();
    let mut stage = [0; 4];
    let mut targets = Targets::new();
    assert_eq!(
        targets.place(tpt.place_local(&mem_access(&memory, 8, 3)).unwrap()),
        3
    );
    assert_eq!(
        targets.place(tpt.place_local(&mem_access(&memory, 0, 2)).unwrap()),
        2
    );
    assert!(targets.stage(&mut stage));
    assert_eq!((targets.bytes(), targets.spans().len()), (9, 3));
    assert_eq!(targets.fill(b"abcdefg"), Ok(7));
    drop(targets);
    assert_eq!(memory.read(8, 3), b"abc");
    assert_eq!(memory.read(0, 2), b"de");
    assert_eq!(&stage, b"fg\0\0");
}

#[test]
fn fill_at_continues_behind_skipped_bytes() {
    let whole: Vec<u8> = (0..9).collect();
    for cut in 0..=9 {
        let (mut one, mut two, mut three) = ([9; 3], [9; 2], [9; 4]);
        let mut targets = Targets::new();
        for stage in [&mut one[..], &mut two, &mut three] {
            assert!(targets.stage(stage));
        }
        assert_eq!(targets.fill_at(0, &whole[..cut]), Ok(cut));
        assert_eq!(
            targets.fill_at(cut, &[&whole[cut..], &[7; 3]].concat()),
            Ok(9 - cut)
        );
        drop(targets);
        assert_eq!([&one[..], &two, &three].concat(), whole, "cut at {cut}");
    }
}

#[test]
fn fill_stops_when_targets_are_full() {
    let mut stage = [0; 3];
    let mut targets = Targets::new();
    assert!(targets.stage(&mut stage));
    assert_eq!(targets.fill(b"abcdef"), Ok(3));
}

#[test]
fn a_full_list_takes_no_more_places() {
    let tpt = Arc::new(Tpt::new(1..10, Policy::Verbs, 1));
    let memory = Buffer::new(&tpt, 1000, PD, Access::ALL).unwrap();
    let mut targets = Targets::new();
    let granted = |i: usize| {
        tpt.place_local(&mem_access(&memory, 2 * i as u64, 1))
            .unwrap()
    };
    for i in 0..MAX_PLACES {
        assert_eq!(targets.place(granted(i)), 1);
    }
    assert_eq!(targets.place(granted(MAX_PLACES)), 0);
    assert_eq!(targets.bytes(), MAX_PLACES);
}

/// Deregistration waits for running grants.
#[test]
fn deregistration_waits_for_targets() {
    let tpt = Arc::new(Tpt::new(1..10, Policy::Verbs, 1));
    let memory = Buffer::new(&tpt, 16, PD, Access::ALL).unwrap();
    let stag = memory.stag();
    let mut targets = Targets::new();
    targets.place(tpt.place_local(&mem_access(&memory, 0, 16)).unwrap());
    let released = Arc::new(AtomicBool::new(false));
    let revoker = {
        let (tpt, released) = (tpt.clone(), released.clone());
        std::thread::spawn(move || {
            let done = tpt.deregister(stag).is_ok();
            (done, released.load(Ordering::Acquire))
        })
    };
    // The thread makes new grants fail, and then waits for `targets`.
    while tpt.place_local(&mem_access(&memory, 0, 1)).is_ok() {
        std::thread::yield_now();
    }
    // A revoker that does not wait ends here.
    (0..1000).for_each(|_| std::thread::yield_now());
    assert!(!revoker.is_finished());
    targets.fill(&[7; 16]).unwrap();
    released.store(true, Ordering::Release);
    drop(targets);
    assert_eq!(revoker.join().unwrap(), (true, true));
    assert_eq!(memory.read(0, 16), [7; 16]);
}

/// Adjacent borrows are not joined: neither may be written through the pointer of the other.
#[test]
fn stages_are_not_joined() {
    let mut stage = [0; 6];
    let (one, rest) = stage.split_at_mut(2);
    let (two, three) = rest.split_at_mut(2);
    let mut targets = Targets::new();
    assert!(targets.stage(one) && targets.stage(two) && targets.stage(three));
    assert_eq!(targets.spans().len(), 3);
    assert_eq!(targets.fill(b"abcdef"), Ok(6));
    drop(targets);
    assert_eq!(&stage, b"abcdef");
}
