//! Tests of pending entries: failing accesses, how entries end, notified queue pairs, and what becomes of their indexes.

use super::*;
use crate::check::MemAccess;
use crate::entry::Policy;
use crate::refusal::Refusal;
use crate::window::Bind;

fn table() -> Arc<Tpt> {
    Arc::new(Tpt::new(1..100, Policy::Verbs, 42))
}

fn draft(bytes: &mut [u8], access: Access) -> Draft {
    Draft {
        layout: Layout::Built(Att::direct(bytes.as_mut_ptr(), bytes.len() as u64)),
        start: To::new(0),
        pd: Pd(1),
        access,
        one_touch: false,
    }
}

fn reserve(tpt: &Arc<Tpt>, bytes: &mut [u8]) -> Reserved {
    // SAFETY: every test keeps the bytes until its table is dropped.
    unsafe { tpt.reserve(draft(bytes, Access::ALL)) }.unwrap()
}

fn mem_access(stag: Stag, len: u64) -> MemAccess {
    MemAccess {
        stag,
        at: 0,
        len,
        pd: Pd(1),
        qp: 5,
        needs: Access::REMOTE_WRITE,
    }
}

#[test]
fn pending_entry_grants_access_once_complete() {
    let (tpt, mut bytes) = (table(), [0; 64]);
    let reserved = reserve(&tpt, &mut bytes);
    let stag = reserved.stag();
    let pending = Refusal::Pending { stag };
    assert_eq!(tpt.place_remote(&mem_access(stag, 8)).unwrap_err(), pending);
    assert_eq!(tpt.gather_local(&mem_access(stag, 8)).unwrap_err(), pending);
    assert!(tpt.is_pending(stag) && tpt.has_pending() && tpt.find_entry(stag).is_none());
    assert_eq!(tpt.len_of(Pd(1)), 1, "its domain is in use");
    assert_eq!(reserved.complete().outcome, Ok(()));
    assert_eq!(
        tpt.place_remote(&mem_access(stag, 8))
            .unwrap()
            .write(0, &[7; 8]),
        Ok(8)
    );
    assert!(!tpt.is_pending(stag) && !tpt.has_pending());
    tpt.deregister(stag).unwrap();
    assert_eq!(bytes[..9], [7, 7, 7, 7, 7, 7, 7, 7, 0]);
    assert!(tpt.is_empty());
}

#[test]
fn pending_entry_is_checked_at_once() {
    let (tpt, mut bytes) = (table(), [0; 64]);
    // SAFETY: `bytes` outlives the table, which is dropped at the end of the test.
    let reserved = unsafe { tpt.reserve(draft(&mut bytes, Access::LOCAL_READ)) }.unwrap();
    let stag = reserved.stag();
    let other_key = Stag::from_parts(stag.index(), stag.key().wrapping_add(1)).unwrap();
    let refused = |reach: &MemAccess| tpt.place_remote(reach).unwrap_err();
    assert!(matches!(
        refused(&mem_access(other_key, 8)),
        Refusal::Stag { .. }
    ));
    assert!(matches!(
        refused(&mem_access(stag, 65)),
        Refusal::Bounds { .. }
    ));
    assert!(matches!(
        refused(&mem_access(stag, 8)),
        Refusal::Right { .. }
    ));
    let foreign = MemAccess {
        pd: Pd(2),
        ..mem_access(stag, 8)
    };
    assert!(matches!(refused(&foreign), Refusal::Domain { .. }));
    let invalidate = tpt.invalidate_local(stag, Pd(1));
    assert_eq!(
        invalidate,
        Err(Refusal::Kind { stag }),
        "as for a valid region"
    );
    assert!(reserved.fail().is_empty());
}

#[test]
fn unmapped_memory_fails_the_pending_entry() {
    let tpt = table();
    let mut bad = draft(&mut [0; 8], Access::LOCAL_READ);
    bad.layout = Layout::Built(Att::direct(4096 as *mut u8, 100));
    // SAFETY: the memory is never mapped, so that the entry fails.
    let reserved = unsafe { tpt.reserve(bad) }.unwrap();
    let stag = reserved.stag();
    assert!(tpt.wait(stag, 7) && tpt.wait(stag, 8) && tpt.wait(stag, 7));
    let settled = reserved.complete();
    assert!(matches!(settled.outcome, Err(Misuse::Unmapped { .. })));
    assert_eq!(settled.waiters, [7, 8]);
    assert!(tpt.is_empty() && !tpt.has_pending());
    let gone = tpt.gather_local(&mem_access(stag, 1)).unwrap_err();
    assert_eq!(gone, Refusal::Stag { stag });
    assert!(!tpt.wait(stag, 7), "nothing to wait for");
}

#[test]
fn page_list_is_verified_on_completion() {
    let (tpt, mut bytes) = (table(), vec![0; 3 * 4096]);
    let first = bytes.as_mut_ptr();
    let page = |n: usize| Page::at(first.wrapping_add(n * 4096));
    let pages = |len| Layout::Pages {
        size: PageSize::K4,
        pages: Box::new([page(2), page(0)]),
        first_offset: 0,
        len,
    };
    let (good, bad) = (pages(8192), pages(8193));
    for (layout, works) in [(good, true), (bad, false)] {
        let draft = Draft {
            layout,
            ..draft(&mut [], Access::ALL)
        };
        // SAFETY: the pages are those of `bytes`, which outlives the table.
        let settled = unsafe { tpt.reserve(draft) }.unwrap().complete();
        assert_eq!(settled.outcome.is_ok(), works);
    }
    assert_eq!(tpt.len(), 1);
}

#[test]
fn invalid_drafts_are_refused_at_once() {
    let (tpt, mut bytes) = (table(), [0; 8]);
    // SAFETY: rights to write for peers only are refused, so that `bytes` is not registered.
    let rights = unsafe { tpt.reserve(draft(&mut bytes, Access::REMOTE_WRITE)) };
    assert_eq!(rights.unwrap_err(), Misuse::Rights(Access::REMOTE_WRITE));
    let wraps = Draft {
        start: To::new(u64::MAX - 6),
        ..draft(&mut bytes, Access::ALL)
    };
    // SAFETY: a range that wraps around is refused, so that nothing is registered.
    let wraps = unsafe { tpt.reserve(wraps) };
    assert!(matches!(wraps.unwrap_err(), Misuse::Range { .. }));
    assert!(tpt.is_empty());
}

#[test]
fn pending_entry_is_deregistered_once() {
    let (tpt, mut bytes) = (table(), [0; 64]);
    let reserved = reserve(&tpt, &mut bytes);
    let stag = reserved.stag();
    assert!(tpt.wait(stag, 3));
    tpt.deregister(stag).unwrap();
    assert_eq!(tpt.deregister(stag), Err(Misuse::Stag(stag)));
    assert_eq!(
        tpt.gather_local(&mem_access(stag, 1)).unwrap_err(),
        Refusal::Stag { stag }
    );
    assert_eq!(
        tpt.len(),
        1,
        "the index is kept until the one who was to complete it knows"
    );
    let settled = reserved.complete();
    assert_eq!(settled.outcome, Err(Misuse::Stag(stag)));
    assert_eq!(settled.waiters, [3]);
    assert!(tpt.is_empty());
}

#[test]
fn dropped_reservation_leaves_no_entry() {
    let (tpt, mut bytes) = (table(), [0; 64]);
    drop(reserve(&tpt, &mut bytes));
    assert!(tpt.is_empty() && !tpt.has_pending());
}

#[test]
fn pending_region_or_window_refuses_bind() {
    let (tpt, mut bytes) = (table(), [0; 64]);
    let region = reserve(&tpt, &mut bytes);
    let window = tpt.reserve_window(WindowType::One, Pd(1)).unwrap();
    let bind = Bind {
        window: window.stag(),
        region: region.stag(),
        addr: 0,
        len: 8,
        access: Access::REMOTE_WRITE,
        pd: Pd(1),
        qp: 5,
        key: 1,
        zero_based: false,
        one_touch: false,
    };
    assert_eq!(tpt.bind(&bind), Err(Misuse::Pending(bind.window)));
    let unbound = tpt.place_remote(&mem_access(bind.window, 1)).unwrap_err();
    assert!(
        matches!(unbound, Refusal::Stag { .. }),
        "as any unbound window"
    );
    assert_eq!(window.complete().outcome, Ok(()));
    assert_eq!(tpt.bind(&bind), Err(Misuse::Pending(bind.region)));
    assert_eq!(region.complete().outcome, Ok(()));
    let bound = tpt.bind(&bind).unwrap();
    assert!(tpt.place_remote(&mem_access(bound, 8)).is_ok());
}

#[test]
fn a_pending_window_that_is_freed_stays_freed() {
    let tpt = table();
    let window = tpt.reserve_window(WindowType::TwoA, Pd(1)).unwrap();
    let stag = window.stag();
    let other_key = Stag::from_parts(stag.index(), stag.key().wrapping_add(1)).unwrap();
    assert_eq!(tpt.deregister(other_key), Err(Misuse::Stag(other_key)));
    tpt.deregister(stag).unwrap();
    assert_eq!(tpt.deregister(stag), Err(Misuse::Stag(stag)));
    assert_eq!(window.complete().outcome, Err(Misuse::Stag(stag)));
    assert!(tpt.is_empty());
}

#[test]
fn shared_registration_waits_for_its_source() {
    let (tpt, mut bytes) = (table(), [0; 64]);
    let first = reserve(&tpt, &mut bytes);
    let share = || tpt.reserve_shared(first.stag(), To::new(100), Pd(2), Access::LOCAL_READ);
    let early = share().unwrap();
    let shared = share().unwrap();
    assert_eq!(early.complete().outcome, Err(Misuse::Pending(first.stag())));
    let sync = tpt.register_shared(first.stag(), To::new(0), Pd(2), Access::LOCAL_READ);
    assert_eq!(sync, Err(Misuse::Pending(first.stag())));
    assert_eq!(first.complete().outcome, Ok(()));
    let stag = shared.stag();
    assert_eq!(shared.complete().outcome, Ok(()));
    let reach = MemAccess {
        at: 100,
        pd: Pd(2),
        needs: Access::LOCAL_READ,
        ..mem_access(stag, 64)
    };
    assert!(tpt.gather_local(&reach).is_ok());
}

/// A wait that comes while the entry is being completed is in the list of waiters, or returns false.
#[test]
fn waiter_is_reported_or_wait_returns_false() {
    for turn in 0..300 {
        let (tpt, mut bytes) = (table(), [0; 8]);
        let reserved = reserve(&tpt, &mut bytes);
        let stag = reserved.stag();
        let go = std::sync::Barrier::new(2);
        let (waits, told) = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                go.wait();
                for _ in 0..turn % 7 {
                    std::hint::spin_loop();
                }
                tpt.wait(stag, 1)
            });
            go.wait();
            let settled = reserved.complete();
            (waiter.join().unwrap(), settled.waiters == [1])
        });
        assert_eq!(waits, told);
    }
}
