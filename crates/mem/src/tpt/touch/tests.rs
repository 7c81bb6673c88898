//! Tests of one-touch entries without sockets (M9): each row of the table, races, and what remains of an entry that was removed.

use std::sync::atomic::AtomicU32 as Count;

use super::*;
use crate::access::Access;
use crate::buffer::Buffer;
use crate::entry::Pd;
use crate::entry::Policy;
use crate::window::{Bind, WindowType};

const PD: Pd = Pd(1);

fn table() -> Arc<Tpt> {
    Arc::new(Tpt::new(1..100, Policy::Verbs, 42))
}

fn mem_access(stag: Stag, at: u64, len: u64) -> MemAccess {
    MemAccess {
        stag,
        at,
        len,
        pd: PD,
        qp: 5,
        needs: Access::REMOTE_WRITE,
    }
}

/// A one-touch buffer, and the reach of a peer's message into it.
fn once(tpt: &Arc<Tpt>) -> (Buffer, MemAccess) {
    let buffer = Buffer::one_touch(tpt, 64, PD, Access::ALL).unwrap();
    let reach = mem_access(buffer.stag(), buffer.at(), 8);
    (buffer, reach)
}

/// A last segment that ends `by` bytes beyond the next byte of its stream, whose numbers are about to wrap.
fn ahead(by: u32) -> Arrival {
    let next = Seq::new(u32::MAX - 1);
    Arrival {
        last: true,
        end: Seq::new(next.get().wrapping_add(by)),
        next,
        window: 100,
    }
}

fn refusal(segment: Result<Verdict<'_>, Refusal>) -> Option<Refusal> {
    segment.err()
}

#[test]
fn last_segment_spends_entry_after_placement() {
    let tpt = table();
    let (buffer, reach) = once(&tpt);
    for _ in 0..3 {
        let first = tpt.touch(&reach, &Arrival::in_order(false));
        assert!(matches!(first, Ok(Verdict::Place(_))));
    }
    let Ok(Verdict::Spends(place, spend)) = tpt.touch(&reach, &Arrival::in_order(true)) else {
        panic!("the first message that ends here");
    };
    assert_eq!(spend.stag(), buffer.stag());
    place.write(0, &[7; 8]).unwrap();
    drop(place);
    // The rest of a segment that arrives in parts is placed as long as the entry is there.
    assert!(tpt.place_remote(&reach).is_ok());
    drop(spend);
    let (stag, touched) = (reach.stag, Refusal::Touched { stag: reach.stag });
    assert_eq!(tpt.place_remote(&reach).unwrap_err(), touched);
    let second = refusal(tpt.touch(&reach, &Arrival::in_order(true)));
    assert_eq!(second, Some(touched));
    assert!(tpt.find_entry(stag).is_none());
    assert_eq!(buffer.read(0, 9), [7, 7, 7, 7, 7, 7, 7, 7, 0]);
}

#[test]
fn ordinary_entry_is_never_spent() {
    let tpt = table();
    let buffer = Buffer::new(&tpt, 64, PD, Access::ALL).unwrap();
    let reach = mem_access(buffer.stag(), buffer.at(), 8);
    for _ in 0..3 {
        let segment = tpt.touch(&reach, &Arrival::in_order(true)).unwrap();
        assert!(matches!(segment, Verdict::Place(p) if !p.is_one_touch()));
    }
    assert!(tpt.place_remote(&reach).is_ok());
}

#[test]
fn refused_segment_does_not_touch_the_entry() {
    let tpt = table();
    let (_buffer, good) = once(&tpt);
    let beyond = MemAccess { len: 65, ..good };
    let foreign = MemAccess { pd: Pd(2), ..good };
    for bad in [beyond, foreign] {
        assert!(refusal(tpt.touch(&bad, &Arrival::in_order(true))).is_some());
        assert!(tpt.spend(&bad).is_err());
    }
    let segment = tpt.touch(&good, &Arrival::in_order(true));
    assert!(matches!(segment, Ok(Verdict::Spends(..))));
}

#[test]
fn early_segment_spends_when_stream_catches_up() {
    let tpt = table();
    let (buffer, reach) = once(&tpt);
    let arrival = ahead(5);
    let Ok(Verdict::Ahead(place)) = tpt.touch(&reach, &arrival) else {
        panic!("inside the window");
    };
    place.write(0, &[9; 8]).unwrap();
    drop(place);
    assert_eq!(tpt.touched_at(reach.stag), Some(arrival.end));
    // The gap before it is filled meanwhile.
    let gap = Arrival {
        last: false,
        ..arrival
    };
    assert!(matches!(tpt.touch(&reach, &gap), Ok(Verdict::Place(_))));
    let at = |n: u32| Seq::new(arrival.next.get().wrapping_add(n));
    for next in 0..=5 {
        assert!(
            !tpt.expire_reached(reach.stag, arrival.end, at(next)),
            "{next}"
        );
    }
    assert!(
        !tpt.expire_reached(reach.stag, at(4), at(6)),
        "another segment's end"
    );
    assert!(tpt.place_remote(&reach).is_ok());
    assert!(tpt.expire_reached(reach.stag, arrival.end, at(6)));
    assert!(!tpt.expire_reached(reach.stag, arrival.end, at(6)), "once");
    assert!(tpt.place_remote(&reach).is_err());
    assert_eq!(buffer.read(0, 8), [9; 8]);
}

#[test]
fn second_touch_is_refused_and_removes_entry() {
    let tpt = table();
    for second in [Arrival::in_order(true), ahead(7), ahead(1000)] {
        let (_buffer, reach) = once(&tpt);
        assert!(matches!(
            tpt.touch(&reach, &ahead(5)),
            Ok(Verdict::Ahead(_))
        ));
        let (stag, touched) = (reach.stag, Refusal::Touched { stag: reach.stag });
        assert_eq!(refusal(tpt.touch(&reach, &second)), Some(touched));
        assert!(tpt.find_entry(stag).is_none());
        assert!(!tpt.expire_reached(stag, ahead(5).end, ahead(50).end));
    }
    let (_buffer, reach) = once(&tpt);
    assert!(matches!(
        tpt.touch(&reach, &ahead(5)),
        Ok(Verdict::Ahead(_))
    ));
    assert!(tpt.spend(&reach).is_err(), "a read is a touch, too");
    assert!(tpt.find_entry(reach.stag).is_none());
}

#[test]
fn segment_outside_window_is_dropped_without_touch() {
    let tpt = table();
    let (buffer, reach) = once(&tpt);
    for by in [100, 1000, u32::MAX - 1] {
        assert!(matches!(
            tpt.touch(&reach, &ahead(by)),
            Ok(Verdict::Dropped)
        ));
    }
    assert_eq!(tpt.touched_at(reach.stag), None);
    assert!(matches!(
        tpt.touch(&reach, &ahead(99)),
        Ok(Verdict::Ahead(_))
    ));
    drop(buffer);
}

#[test]
fn one_of_two_concurrent_messages_is_placed() {
    let tpt = table();
    for round in 0..500 {
        let (buffer, reach) = once(&tpt);
        let (won, ready) = (Count::new(0), Count::new(0));
        std::thread::scope(|scope| {
            for byte in [1_u8, 2] {
                let (tpt, won, ready) = (&tpt, &won, &ready);
                scope.spawn(move || {
                    ready.fetch_add(1, Ordering::SeqCst);
                    while ready.load(Ordering::SeqCst) < 2 {
                        core::hint::spin_loop();
                    }
                    match tpt.touch(&reach, &Arrival::in_order(true)) {
                        Ok(Verdict::Spends(place, spend)) => {
                            for at in 0..8 {
                                place.write(at, &[byte]).unwrap();
                            }
                            drop(place);
                            drop(spend);
                            won.fetch_add(u32::from(byte), Ordering::Relaxed);
                        }
                        Ok(other) => panic!("{other:?}"),
                        Err(refusal) => {
                            assert_eq!(refusal, Refusal::Touched { stag: reach.stag });
                        }
                    }
                });
            }
        });
        let won = won.into_inner() as u8;
        assert!(won == 1 || won == 2, "round {round}: {won}");
        assert_eq!(buffer.read(0, 8), [won; 8], "nothing of the other's");
        assert!(tpt.find_entry(reach.stag).is_none());
    }
    assert!(
        tpt.is_empty(),
        "a spent region is deregistered like any other"
    );
}

fn bind(window: Stag, region: &Buffer, key: u8) -> Bind {
    Bind {
        window,
        region: region.stag(),
        addr: region.at(),
        len: 8,
        access: Access::REMOTE_WRITE,
        pd: PD,
        qp: 5,
        key,
        zero_based: false,
        one_touch: true,
    }
}

#[test]
fn spent_window_is_rebound_by_its_old_stag() {
    for ty in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        let tpt = table();
        let region = Buffer::new(&tpt, 64, PD, Access::ALL).unwrap();
        let mut window = tpt.allocate_window(ty, PD).unwrap();
        let mut names = Vec::new();
        for key in 0..3 {
            window = tpt.bind(&bind(window, &region, key)).unwrap();
            assert!(!names.contains(&window), "{ty:?}");
            let reach = mem_access(window, region.at(), 8);
            drop(tpt.touch(&reach, &Arrival::in_order(true)).unwrap());
            for old in names.iter().chain([&window]) {
                let old = MemAccess {
                    stag: *old,
                    ..reach
                };
                assert!(tpt.place_remote(&old).is_err(), "{ty:?}");
            }
            names.push(window);
        }
        // The touch has unbound the window from its region.
        assert_eq!(tpt.deregister(region.stag()), Ok(()), "{ty:?}");
        assert_eq!(tpt.deregister(window), Ok(()), "{ty:?}");
        assert!(tpt.is_empty());
    }
}

#[test]
fn late_touch_does_not_affect_next_bind() {
    let tpt = table();
    let region = Buffer::new(&tpt, 64, PD, Access::ALL).unwrap();
    let window = tpt.allocate_window(WindowType::TwoB, PD).unwrap();
    let window = tpt.bind(&bind(window, &region, 9)).unwrap();
    let reach = mem_access(window, region.at(), 8);
    let Ok(Verdict::Spends(place, spend)) = tpt.touch(&reach, &Arrival::in_order(true)) else {
        panic!("the first touch");
    };
    drop(place);
    tpt.invalidate_local(window, PD).unwrap();
    assert_eq!(tpt.bind(&bind(window, &region, 9)), Ok(window));
    drop(spend);
    let segment = tpt.touch(&reach, &Arrival::in_order(true));
    assert!(matches!(segment, Ok(Verdict::Spends(..))), "untouched");
}

#[test]
fn spent_window_can_still_be_invalidated() {
    let tpt = table();
    let region = Buffer::new(&tpt, 64, PD, Access::ALL).unwrap();
    let window = tpt.allocate_window(WindowType::TwoB, PD).unwrap();
    let window = tpt.bind(&bind(window, &region, 9)).unwrap();
    let reach = mem_access(window, region.at(), 8);
    drop(tpt.touch(&reach, &Arrival::in_order(true)).unwrap());
    assert_eq!(tpt.invalidate_local(window, PD), Ok(()));
    assert_eq!(tpt.invalidate_remote(window, PD, 5), Ok(()));
    let never = Stag::new(window.get() ^ 0x40);
    let invalid = Err(Refusal::Stag { stag: never });
    assert_eq!(tpt.invalidate_local(never, PD), invalid);
    tpt.bind(&bind(window, &region, 10)).unwrap();
    let invalid = Err(Refusal::Stag { stag: window });
    assert_eq!(
        tpt.invalidate_local(window, PD),
        invalid,
        "another's by now"
    );
}

#[test]
fn spent_region_stays_busy_while_windows_remain() {
    for with_windows in [false, true] {
        let tpt = table();
        let region = Buffer::one_touch(&tpt, 64, PD, Access::ALL).unwrap();
        let stag = region.stag();
        let window = tpt.allocate_window(WindowType::One, PD).unwrap();
        let window = tpt.bind(&bind(window, &region, 0)).unwrap();
        drop(tpt.spend(&mem_access(stag, region.at(), 8)).unwrap());
        assert!(
            tpt.place_remote(&mem_access(window, region.at(), 8))
                .is_ok()
        );
        let busy = Misuse::Busy { stag, users: 1 };
        assert_eq!(tpt.deregister(stag), Err(busy));
        if with_windows {
            let bogus = Stag::new(stag.get() ^ 0x80);
            assert!(tpt.deregister_with_windows(bogus).is_err());
            assert!(
                tpt.place_remote(&mem_access(window, region.at(), 8))
                    .is_ok()
            );
            assert_eq!(tpt.deregister_with_windows(stag), Ok(()));
            assert!(
                tpt.place_remote(&mem_access(window, region.at(), 8))
                    .is_err()
            );
        } else {
            tpt.deregister(window).unwrap();
            assert_eq!(tpt.deregister(stag), Ok(()));
        }
        assert_eq!(tpt.deregister(stag), Err(Misuse::Stag(stag)));
    }
}

#[test]
fn reused_index_forgets_its_spent_entry() {
    let tpt = Arc::new(Tpt::new(1..2, Policy::Verbs, 42));
    let (buffer, reach) = once(&tpt);
    drop(tpt.spend(&reach).unwrap());
    let old = buffer.stag();
    drop(buffer);
    let window = tpt.allocate_window(WindowType::One, PD).unwrap();
    assert_eq!(window.index(), old.index());
    let refused = tpt.place_remote(&MemAccess { stag: old, ..reach });
    assert_eq!(refused.unwrap_err(), Refusal::Stag { stag: old });
}
