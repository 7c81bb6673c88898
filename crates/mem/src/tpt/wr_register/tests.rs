//! Tests of registrations by work request (M4): each check, retries, room, and what is removed when an STag is freed.

use std::sync::atomic::{AtomicU32 as Count, Ordering};

use verbena_wire::To;

use super::*;
use crate::access::Access;
use crate::att::{Page, PageSize};
use crate::buffer::Buffer;
use crate::check::MemAccess;
use crate::entry::Policy;
use crate::refusal::Refusal;
use crate::tpt::{Layout, Region};
use crate::window::{Bind, WindowType};

const PD: Pd = Pd(1);

fn table() -> Arc<Tpt> {
    Arc::new(Tpt::new(1..100, Policy::Verbs, 42))
}

fn prepare(tpt: &Arc<Tpt>, stag: Stag) -> (Buffer, Ticket) {
    Buffer::prepared(tpt, stag, 64, (PD, Access::ALL, false)).unwrap()
}

fn mem_access(stag: Stag, buffer: &Buffer) -> MemAccess {
    MemAccess {
        stag,
        at: buffer.at(),
        len: 64,
        pd: PD,
        qp: 5,
        needs: Access::REMOTE_WRITE,
    }
}

#[test]
fn stag_is_usable_after_execute_only() {
    let tpt = table();
    let stag = tpt.allocate_stag(PD, 1).unwrap();
    let (buffer, ticket) = prepare(&tpt, stag);
    assert_eq!(ticket.stag(), stag);
    let reach = mem_access(stag, &buffer);
    let invalid = Refusal::Stag { stag };
    assert_eq!(tpt.place_remote(&reach).unwrap_err(), invalid);
    assert_eq!(tpt.gather_local(&reach).unwrap_err(), invalid);
    assert!(!tpt.is_pending(stag), "it refuses like an invalid one");
    assert!(!tpt.is_finished(ticket));
    assert_eq!(tpt.execute(ticket, PD), Ok(()));
    assert!(tpt.place_remote(&reach).is_ok());
    assert!(!tpt.is_finished(ticket), "peers reach it");
    assert_eq!(tpt.execute(ticket, PD), Err(Misuse::Stag(stag)), "once");
    assert!(!tpt.discard(ticket));
}

#[test]
fn failed_execute_leaves_registration_prepared() {
    let tpt = table();
    let stag = tpt.allocate_stag(PD, 0).unwrap();
    let (_buffer, ticket) = prepare(&tpt, stag);
    let space = Misuse::Space {
        stag,
        pages: 1,
        room: 0,
    };
    assert_eq!(tpt.execute(ticket, PD), Err(space));
    let domain = Misuse::Domain {
        stag,
        owner: 1,
        requester: 2,
    };
    assert_eq!(tpt.execute(ticket, Pd(2)), Err(domain));
    // Another instance: one that is not next yet.
    let stag = tpt.allocate_stag(PD, 1).unwrap();
    let (_first, now) = prepare(&tpt, stag);
    let (_second, then) = prepare(&tpt, Tpt::next_stag(stag));
    let early = Misuse::Instance {
        stag: then.stag(),
        next: stag.key(),
    };
    assert_eq!(tpt.execute(then, PD), Err(early));
    tpt.execute(now, PD).unwrap();
    let early = Misuse::Instance {
        stag: then.stag(),
        next: then.stag().key(),
    };
    assert_eq!(
        tpt.execute(then, PD),
        Err(early),
        "what stands there goes first"
    );
    tpt.invalidate_local(stag, PD).unwrap();
    assert_eq!(tpt.execute(then, PD), Ok(()), "tried again");
    assert!(tpt.find_entry(stag).is_none() && tpt.find_entry(then.stag()).is_some());
    assert!(tpt.is_finished(now) && !tpt.is_finished(then));
}

#[test]
fn only_an_allocated_stag_takes_registrations() {
    let tpt = table();
    let region = Buffer::new(&tpt, 8, PD, Access::ALL).unwrap();
    let window = tpt.allocate_window(WindowType::One, PD).unwrap();
    let never = Stag::new(0xff_ff00);
    for stag in [region.stag(), window, never] {
        let prepared = Buffer::prepared(&tpt, stag, 8, (PD, Access::ALL, false));
        assert_eq!(prepared.unwrap_err(), Misuse::Stag(stag));
    }
    let stag = tpt.allocate_stag(PD, 1).unwrap();
    let (_buffer, ticket) = prepare(&tpt, stag);
    tpt.deregister(stag).unwrap();
    assert_eq!(tpt.execute(ticket, PD), Err(Misuse::Stag(stag)));
    assert!(!tpt.discard(ticket), "it went with its STag");
    assert!(tpt.prepared.lock().entries.is_empty());
}

#[test]
fn invalid_registrations_are_not_prepared() {
    let tpt = table();
    let stag = tpt.allocate_stag(PD, 1).unwrap();
    let draft = |at: *mut u8, len, access| {
        Draft::from(Region {
            att: crate::att::Att::direct(at, len),
            start: To::new(0),
            pd: PD,
            access,
            one_touch: false,
        })
    };
    let unmapped = draft(4096 as *mut u8, 10, Access::LOCAL_READ);
    // SAFETY: the page at 4096 is not mapped, which the call detects: nothing is registered.
    let unmapped = unsafe { tpt.prepare(stag, unmapped) };
    assert!(matches!(unmapped, Err(Misuse::Unmapped { .. })));
    let rights = draft(core::ptr::null_mut(), 0, Access::REMOTE_WRITE);
    // SAFETY: the region has no bytes, and its rights are refused.
    let rights = unsafe { tpt.prepare(stag, rights) };
    assert_eq!(rights, Err(Misuse::Rights(Access::REMOTE_WRITE)));
    let room = tpt.allocate_stag(PD, MAX_PAGES + 1);
    assert!(matches!(room, Err(Misuse::Pages { .. })));
}

#[test]
fn page_room_is_released_with_its_stag() {
    let tpt = Arc::new(Tpt::new(1..4, Policy::Verbs, 42));
    let stags: Vec<_> = (1..4).map(|n| tpt.allocate_stag(PD, n).unwrap()).collect();
    assert_eq!(
        (tpt.len(), tpt.len_of(PD), tpt.page_quota().used),
        (3, 3, 6)
    );
    assert_eq!(tpt.allocate_stag(PD, 1), Err(Misuse::Full(3)));
    let (buffer, ticket) = prepare(&tpt, stags[2]);
    tpt.execute(ticket, PD).unwrap();
    tpt.invalidate_remote(stags[2], PD, 5).unwrap();
    assert_eq!(tpt.page_quota().used, 6, "it may be used again");
    drop(buffer);
    tpt.deregister(stags[2]).unwrap();
    assert_eq!((tpt.len(), tpt.page_quota().used), (2, 3));
    let again = tpt.allocate_stag(PD, 9).unwrap();
    assert!(!stags.contains(&again) && again.index() == stags[2].index());
    for stag in [stags[0], stags[1], again] {
        tpt.deregister(stag).unwrap();
    }
    assert_eq!((tpt.len(), tpt.page_quota().used), (0, 0));
}

#[test]
fn page_list_must_fit_the_stag_room() {
    #[repr(align(4096))]
    struct Pages([u8; 3 * 4096]);
    let tpt = table();
    let mut memory = Box::new(Pages([0; 3 * 4096]));
    let base = memory.0.as_mut_ptr();
    let draft = |pages: &[usize]| Draft {
        layout: Layout::Pages {
            size: PageSize::K4,
            pages: pages
                .iter()
                .map(|n| Page::at(base.wrapping_add(n * 4096)))
                .collect(),
            first_offset: 0,
            len: pages.len() as u64 * 4096,
        },
        start: To::new(0),
        pd: PD,
        access: Access::ALL,
        one_touch: false,
    };
    let stag = tpt.allocate_stag(PD, 2).unwrap();
    // SAFETY: the memory lives until the table is dropped, and is read only afterwards.
    let three = unsafe { tpt.prepare(stag, draft(&[2, 0, 1])) }.unwrap();
    let space = Misuse::Space {
        stag,
        pages: 3,
        room: 2,
    };
    assert_eq!(tpt.execute(three, PD), Err(space));
    assert!(tpt.discard(three) && !tpt.discard(three));
    // SAFETY: the pages are of the same memory, which outlives the table and is read only afterwards.
    let two = unsafe { tpt.prepare(stag, draft(&[2, 0])) }.unwrap();
    tpt.execute(two, PD).unwrap();
    let reach = MemAccess {
        stag,
        at: 4095,
        len: 2,
        pd: PD,
        qp: 5,
        needs: Access::REMOTE_WRITE,
    };
    tpt.place_remote(&reach).unwrap().write(0, &[7, 8]).unwrap();
    drop(tpt);
    assert_eq!((memory.0[3 * 4096 - 1], memory.0[0]), (7, 8));
}

#[test]
fn spent_stag_takes_its_next_registration() {
    let tpt = table();
    let stag = tpt.allocate_stag(PD, 1).unwrap();
    let once = (PD, Access::ALL, true);
    let (first, now) = Buffer::prepared(&tpt, stag, 64, once).unwrap();
    let (_second, then) = prepare(&tpt, Tpt::next_stag(stag));
    tpt.execute(now, PD).unwrap();
    drop(tpt.spend(&mem_access(stag, &first)).unwrap());
    assert_eq!(
        tpt.place_remote(&mem_access(stag, &first)).unwrap_err(),
        Refusal::Touched { stag }
    );
    assert_eq!(tpt.execute(then, PD), Ok(()));
}

#[test]
fn concurrent_execute_succeeds_once() {
    let tpt = table();
    for _ in 0..200 {
        let stag = tpt.allocate_stag(PD, 1).unwrap();
        let (_buffer, ticket) = prepare(&tpt, stag);
        let done = Count::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    if tpt.execute(ticket, PD).is_ok() {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 1);
        tpt.deregister(stag).unwrap();
    }
    assert_eq!((tpt.len(), tpt.prepared.lock().entries.len()), (0, 0));
}

#[test]
fn stag_with_bound_windows_is_busy() {
    let tpt = table();
    let stag = tpt.allocate_stag(PD, 1).unwrap();
    let (buffer, ticket) = prepare(&tpt, stag);
    tpt.execute(ticket, PD).unwrap();
    let window = tpt.allocate_window(WindowType::TwoB, PD).unwrap();
    let window = tpt
        .bind(&Bind {
            window,
            region: stag,
            addr: buffer.at(),
            len: 64,
            access: Access::REMOTE_WRITE,
            pd: PD,
            qp: 5,
            key: 3,
            zero_based: false,
            one_touch: false,
        })
        .unwrap();
    assert!(tpt.invalidate_local(stag, PD).is_err(), "peers reach it");
    let busy = Misuse::Busy { stag, users: 1 };
    assert_eq!(tpt.deregister(stag), Err(busy));
    assert!(tpt.place_remote(&mem_access(window, &buffer)).is_ok());
    assert_eq!(tpt.deregister_with_windows(stag), Ok(()));
    assert!(tpt.place_remote(&mem_access(window, &buffer)).is_err());
}

/// M4: the room of all STags together is limited, and a failed allocation takes none.
#[test]
fn page_room_is_limited_per_table() {
    let tpt = table();
    tpt.set_page_limit(10);
    let first = tpt.allocate_stag(PD, 6).unwrap();
    let refused = tpt.allocate_stag(PD, 5);
    assert_eq!(refused, Err(Misuse::PagesExhausted { pages: 5, left: 4 }));
    assert_eq!(
        (tpt.len(), tpt.page_quota()),
        (1, PageQuota { used: 6, limit: 10 })
    );
    let second = tpt.allocate_stag(PD, 4).unwrap();
    assert_eq!(tpt.allocate_stag(PD, 0).map(drop), Ok(()), "none is needed");
    // A registration uses the room that its STag has, and takes none; only freeing the STag gives it back.
    let (_buffer, ticket) = prepare(&tpt, second);
    tpt.execute(ticket, PD).unwrap();
    assert_eq!(tpt.page_quota().used, 10);
    tpt.deregister(first).unwrap();
    assert_eq!(tpt.page_quota().used, 4);
    // A limit below what is taken: that stays, and nothing more can be taken.
    tpt.set_page_limit(1);
    let refused = tpt.allocate_stag(PD, 1);
    assert_eq!(refused, Err(Misuse::PagesExhausted { pages: 1, left: 0 }));
    // A failed allocation because of no free index takes no room either.
    tpt.set_page_limit(1000);
    let full = core::iter::repeat_with(|| tpt.allocate_stag(PD, 1)).find_map(Result::err);
    assert_eq!(full, Some(Misuse::Full(99)));
    let used = tpt.page_quota().used;
    assert!(tpt.allocate_stag(PD, 1).is_err());
    assert_eq!(tpt.page_quota().used, used);
}
