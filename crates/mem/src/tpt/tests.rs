//! Tests of the table: registration and its errors, keys, sharing, windows, revocation under use, scale.

#[cfg(not(loom))]
mod model;

use super::*;
use crate::att::{Page, PageSize};
use crate::window::{Bind, WindowType};

fn table() -> Tpt {
    Tpt::new(1..100_000, Policy::Verbs, 42)
}

fn region(bytes: &mut [u8], access: Access) -> Region {
    Region {
        att: Att::direct(bytes.as_mut_ptr(), bytes.len() as u64),
        start: To::new(bytes.as_ptr() as u64),
        pd: Pd(1),
        access,
        one_touch: false,
    }
}

fn register(tpt: &Tpt, bytes: &mut [u8], access: Access) -> Stag {
    // SAFETY: every test keeps the bytes until its table is dropped, and reads them only afterwards or by grants.
    unsafe { tpt.register(region(bytes, access)) }.unwrap()
}

fn mem_access(stag: Stag, at: *const u8, len: u64, needs: Access) -> MemAccess {
    MemAccess {
        stag,
        at: at as u64,
        len,
        pd: Pd(1),
        qp: 5,
        needs,
    }
}

#[test]
fn grant_writes_only_its_own_bytes() {
    let tpt = table();
    let mut bytes = vec![0; 100];
    let at = bytes.as_ptr();
    let stag = register(&tpt, &mut bytes, Access::ALL);
    let place = tpt.place_remote(&mem_access(
        stag,
        at.wrapping_add(10),
        20,
        Access::REMOTE_WRITE,
    ));
    assert_eq!(
        place.unwrap().write(5, &[7; 30]),
        Ok(15),
        "no byte beyond the grant"
    );
    let gather = tpt
        .gather_remote(&mem_access(stag, at, 100, Access::REMOTE_READ))
        .unwrap();
    let mut copy = [0; 100];
    assert_eq!(gather.read(0, &mut copy), Ok(100));
    drop(gather);
    tpt.deregister(stag).unwrap();
    assert_eq!(copy[..], bytes[..]);
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(i, b)| *b == if (15..30).contains(&i) { 7 } else { 0 })
    );
}

#[test]
fn invalid_registrations_are_refused() {
    let tpt = table();
    let mut bytes = [0; 8];
    let try_it = |region| {
        // SAFETY: the registration fails, or is of memory that this test keeps.
        unsafe { tpt.register(region) }
    };
    let rights = try_it(region(&mut bytes, Access::REMOTE_WRITE));
    assert_eq!(rights, Err(Misuse::Rights(Access::REMOTE_WRITE)));
    let mut wraps = region(&mut bytes, Access::LOCAL_READ);
    wraps.start = To::new(u64::MAX - 6);
    assert!(matches!(try_it(wraps), Err(Misuse::Range { .. })));
    let mut unmapped = region(&mut bytes, Access::LOCAL_READ);
    unmapped.att = Att::direct(4096 as *mut u8, 10);
    assert!(matches!(try_it(unmapped), Err(Misuse::Unmapped { .. })));
    let constant: &'static [u8] = b"in a read-only page of the program";
    let mut read_only = region(&mut bytes, Access::LOCAL_WRITE);
    read_only.att = Att::direct(constant.as_ptr().cast_mut(), constant.len() as u64);
    assert!(matches!(
        try_it(read_only),
        Err(Misuse::Unmapped { write: true, .. })
    ));
    assert!(tpt.is_empty());
}

#[test]
fn old_stag_of_reused_index_is_refused() {
    let tpt = Tpt::new(1..3, Policy::Verbs, 42);
    let mut bytes = [0; 8];
    let first = register(&tpt, &mut bytes, Access::ALL);
    tpt.deregister(first).unwrap();
    assert_eq!(tpt.deregister(first), Err(Misuse::Stag(first)));
    let mut again = vec![register(&tpt, &mut bytes, Access::ALL)];
    again.push(register(&tpt, &mut bytes, Access::ALL));
    // SAFETY: the table is full, so that `bytes` is not registered.
    let full = unsafe { tpt.register(region(&mut bytes, Access::ALL)) };
    assert_eq!(full, Err(Misuse::Full(2)));
    let reused = again.iter().find(|s| s.index() == first.index()).unwrap();
    assert_ne!(reused.key(), first.key());
    let old = tpt.gather_local(&mem_access(first, bytes.as_ptr(), 1, Access::LOCAL_READ));
    assert!(matches!(old, Err(Refusal::Stag { .. })));
}

/// Steps from each index to the next, within a segment: an affine order has one, and with two indexes a peer could predict all.
fn steps(stags: &[Stag]) -> std::collections::HashSet<u32> {
    let pairs = stags.windows(2);
    pairs
        .map(|pair| pair[1].index().wrapping_sub(pair[0].index()) % 1024)
        .collect()
}

#[test]
fn indexes_follow_no_constant_step() {
    let tpt = table();
    let mut bytes = [0; 8];
    let stags: Vec<Stag> = (0..3000)
        .map(|_| register(&tpt, &mut bytes, Access::ALL))
        .collect();
    for few in stags.chunks(64) {
        assert!(few.len() < 32 || steps(few).len() > few.len() * 3 / 4);
    }
    let mut of_segments: Vec<u32> = stags.iter().map(|stag| (stag.index() - 1) / 1024).collect();
    of_segments.dedup();
    assert!(of_segments.len() <= 4, "filled one after the other");
}

#[test]
fn keys_of_a_reused_index_are_drawn_anew() {
    let tpt = Tpt::new(1..2, Policy::Verbs, 42);
    let mut bytes = [0; 8];
    let mut steps = std::collections::HashSet::new();
    let mut last: Option<Stag> = None;
    for turn in 0..2000 {
        let stag = match turn % 3 {
            0 => register(&tpt, &mut bytes, Access::ALL),
            1 => tpt.allocate_window(WindowType::TwoA, Pd(1)).unwrap(),
            _ => tpt.allocate_stag(Pd(1), 1).unwrap(),
        };
        if let Some(last) = last {
            assert_ne!(last.key(), stag.key());
            steps.insert(stag.key().wrapping_sub(last.key()));
        }
        tpt.deregister(stag).unwrap();
        last = Some(stag);
    }
    assert!(steps.len() > 200, "{}", steps.len());
}

/// The simulator repeats a run from its seed.
#[test]
fn stags_follow_from_the_seed_alone() {
    let stags = |seed| {
        let tpt = Tpt::new(1..100_000, Policy::Verbs, seed);
        let mut bytes = [0; 8];
        let mut next = || register(&tpt, &mut bytes, Access::ALL);
        (0..100).map(|_| next()).collect::<Vec<_>>()
    };
    assert_eq!(stags(7), stags(7));
    let shared = stags(7).iter().filter(|s| stags(8).contains(s)).count();
    assert!(shared < 3, "{shared}");
}

#[test]
fn entries_are_counted_by_domain() {
    let tpt = table();
    let mut bytes = [0; 8];
    let region = register(&tpt, &mut bytes, Access::ALL);
    let shared = tpt.register_shared(region, To::new(0), Pd(2), Access::LOCAL_READ);
    let window = tpt.allocate_window(WindowType::One, Pd(2)).unwrap();
    assert_eq!((tpt.len_of(Pd(1)), tpt.len_of(Pd(2))), (1, 2));
    for stag in [region, shared.unwrap(), window] {
        tpt.deregister(stag).unwrap();
    }
    assert_eq!((tpt.len_of(Pd(1)), tpt.len_of(Pd(2))), (0, 0));
}

#[test]
fn index_zero_is_never_used() {
    let tpt = Tpt::new(0..5, Policy::Verbs, 3);
    let mut bytes = [0; 8];
    for _ in 0..4 {
        assert_ne!(register(&tpt, &mut bytes, Access::ALL).index(), 0);
    }
    // SAFETY: every index is taken, so that `bytes` is not registered.
    assert!(unsafe { tpt.register(region(&mut bytes, Access::ALL)) }.is_err());
    let zero = mem_access(Stag::new(0), bytes.as_ptr(), 1, Access::LOCAL_READ);
    assert!(tpt.gather_local(&zero).is_err());
}

#[test]
fn shared_registration_has_own_domain_and_rights() {
    let tpt = table();
    let mut bytes = [9; 16];
    let first = register(&tpt, &mut bytes, Access::LOCAL_WRITE);
    let second = tpt
        .register_shared(
            first,
            To::new(0),
            Pd(2),
            Access::LOCAL_WRITE | Access::REMOTE_READ,
        )
        .unwrap();
    let mut there = mem_access(second, core::ptr::null(), 16, Access::REMOTE_READ);
    there.pd = Pd(2);
    assert_eq!(tpt.gather_remote(&there).unwrap().len(), 16);
    let mut here = mem_access(first, bytes.as_ptr(), 16, Access::REMOTE_READ);
    assert!(
        tpt.gather_remote(&here).is_err(),
        "the first grants no such right"
    );
    tpt.deregister(first).unwrap();
    assert_eq!(
        tpt.gather_remote(&there).unwrap().len(),
        16,
        "the second stays"
    );
    here.stag = second;
    assert!(tpt.gather_remote(&here).is_err(), "another domain");
}

#[test]
fn rights_change_under_the_same_stag() {
    let tpt = table();
    let mut bytes = [0; 64];
    let at = bytes.as_ptr();
    let stag = register(&tpt, &mut bytes, Access::LOCAL_WRITE | Access::REMOTE_READ);
    let write = mem_access(stag, at, 8, Access::REMOTE_WRITE);
    assert!(tpt.place_remote(&write).is_err());
    // The rights can be changed while a grant is held.
    let read = mem_access(stag, at, 8, Access::REMOTE_READ);
    let held = tpt.gather_remote(&read).unwrap();
    tpt.change_access(stag, Access::ALL).unwrap();
    assert!(tpt.place_remote(&write).is_ok());
    tpt.change_access(stag, Access::LOCAL_READ).unwrap();
    assert!(tpt.place_remote(&write).is_err() && tpt.gather_remote(&read).is_err());
    assert_eq!(held.read(0, &mut [0; 8]), Ok(8));
    drop(held);
    let refused = tpt.change_access(stag, Access::REMOTE_WRITE);
    assert!(matches!(refused, Err(Misuse::Rights(_))));
    assert_eq!(
        tpt.find_entry(stag).unwrap().access.get(),
        Access::LOCAL_READ
    );
    tpt.deregister(stag).unwrap();
    let gone = tpt.change_access(stag, Access::ALL);
    assert!(matches!(gone, Err(Misuse::Stag(_))));
}

#[test]
fn read_only_memory_gets_no_right_to_write() {
    let tpt = table();
    static FIXED: [u8; 16] = [1; 16];
    let at = FIXED.as_ptr().cast_mut();
    let entry = Region {
        att: Att::direct(at, 16),
        start: To::new(at as u64),
        pd: Pd(1),
        access: Access::REMOTE_READ,
        one_touch: false,
    };
    // SAFETY: a static, which stays mapped; the registration does not allow writes.
    let stag = unsafe { tpt.register(entry) }.unwrap();
    assert!(tpt.change_access(stag, Access::ALL).is_err());
    let write = mem_access(stag, at, 8, Access::REMOTE_WRITE);
    assert!(tpt.place_remote(&write).is_err());
}

fn bind(window: Stag, region: Stag, at: u64, len: u64) -> Bind {
    Bind {
        window,
        region,
        addr: at,
        len,
        access: Access::REMOTE_WRITE,
        pd: Pd(1),
        qp: 5,
        key: 0x77,
        zero_based: false,
        one_touch: false,
    }
}

#[test]
fn a_type_1_window_is_rebound_and_unbound() {
    let tpt = table();
    let mut bytes = [0; 64];
    let base = bytes.as_ptr() as u64;
    let region = register(&tpt, &mut bytes, Access::ALL);
    let window = tpt.allocate_window(WindowType::One, Pd(1)).unwrap();
    let first = tpt.bind(&bind(window, region, base, 8)).unwrap();
    let second = tpt.bind(&bind(first, region, base + 8, 8)).unwrap();
    assert!(first.key() != second.key() && first.index() == second.index());
    let write = |stag, at| {
        let reach = mem_access(stag, (base + at) as *const u8, 8, Access::REMOTE_WRITE);
        tpt.place_remote(&reach).is_ok()
    };
    assert!(!write(first, 0) && !write(second, 0) && write(second, 8));
    let busy = tpt.deregister(region);
    assert!(matches!(busy, Err(Misuse::Busy { users: 1, .. })));
    assert!(
        tpt.invalidate_local(second, Pd(1)).is_err(),
        "type 1 is unbound by a bind"
    );
    let unbound = tpt.bind(&bind(second, region, base, 0)).unwrap();
    assert!(!write(second, 8) && !write(unbound, 8));
    tpt.deregister(region).unwrap();
    tpt.deregister(unbound).unwrap();
    assert!(tpt.is_empty());
}

#[test]
fn type_2_window_is_invalidated_by_either_side() {
    for (ty, remote) in [(WindowType::TwoA, false), (WindowType::TwoB, true)] {
        let tpt = table();
        let mut bytes = [0; 64];
        let base = bytes.as_ptr() as u64;
        let region = register(&tpt, &mut bytes, Access::ALL);
        let window = tpt.allocate_window(ty, Pd(1)).unwrap();
        let bound = tpt.bind(&bind(window, region, base, 8)).unwrap();
        assert_eq!(bound.key(), 0x77, "the consumer's key");
        assert!(
            tpt.bind(&bind(bound, region, base, 8)).is_err(),
            "bound already"
        );
        assert!(
            tpt.invalidate_remote(bound, Pd(1), 6).is_err(),
            "another queue pair"
        );
        if remote {
            tpt.invalidate_remote(bound, Pd(1), 5).unwrap();
        } else {
            tpt.invalidate_local(bound, Pd(1)).unwrap();
        }
        let reach = mem_access(bound, base as *const u8, 8, Access::REMOTE_WRITE);
        assert!(tpt.place_remote(&reach).is_err());
        assert!(tpt.invalidate_local(bound, Pd(1)).is_err(), "gone");
        tpt.bind(&bind(window, region, base, 8)).unwrap();
    }
}

#[test]
fn a_peer_cannot_invalidate_a_region() {
    let tpt = table();
    let mut bytes = [0; 8];
    let stag = register(&tpt, &mut bytes, Access::ALL);
    assert_eq!(
        tpt.invalidate_remote(stag, Pd(1), 5),
        Err(Refusal::Kind { stag })
    );
}

#[test]
fn deregistration_waits_for_grants_and_stops_new() {
    let tpt = table();
    let mut bytes = vec![0_u8; 4096];
    let at = bytes.as_ptr() as usize;
    for _ in 0..50 {
        let stag = register(&tpt, &mut bytes, Access::ALL);
        let stop = core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let reach = mem_access(stag, at as *const u8, 4096, Access::REMOTE_WRITE);
                    while let Ok(grant) = tpt.place_remote(&reach) {
                        assert!(!stop.load(core::sync::atomic::Ordering::SeqCst));
                        grant.write(0, &[1; 4096]).unwrap();
                        assert!(!stop.load(core::sync::atomic::Ordering::SeqCst));
                    }
                });
            }
            std::thread::yield_now();
            tpt.deregister(stag).unwrap();
            stop.store(true, core::sync::atomic::Ordering::SeqCst);
        });
    }
}

#[test]
fn hundred_thousand_regions_are_found() {
    let tpt = Tpt::new(1..200_000, Policy::Verbs, 7);
    let mut bytes = [0; 64];
    let at = bytes.as_ptr();
    let stags: Vec<Stag> = (0..100_000)
        .map(|_| register(&tpt, &mut bytes, Access::LOCAL_READ))
        .collect();
    let unique: std::collections::HashSet<u32> = stags.iter().map(|s| s.index()).collect();
    assert_eq!(unique.len(), 100_000);
    assert_eq!(tpt.len(), 100_000);
    for stag in &stags {
        assert!(
            tpt.gather_local(&mem_access(*stag, at, 64, Access::LOCAL_READ))
                .is_ok()
        );
        tpt.deregister(*stag).unwrap();
    }
    assert!(tpt.is_empty());
}

/// Removing a region unbinds its windows, also while other threads use and unbind them.
#[cfg(not(loom))]
#[test]
fn removing_a_region_unbinds_its_windows() {
    let tpt = table();
    let mut bytes = vec![0; 64];
    let (at, access) = (bytes.as_ptr() as u64, Access::ALL);
    let region = register(&tpt, &mut bytes, access);
    let windows: Vec<Stag> = [WindowType::One, WindowType::TwoA, WindowType::TwoB]
        .map(|ty| tpt.allocate_window(ty, Pd(1)).unwrap())
        .to_vec();
    let bound: Vec<Stag> = windows
        .iter()
        .map(|window| tpt.bind(&bind(*window, region, at, 64)).unwrap())
        .collect();
    assert!(matches!(
        tpt.deregister(region),
        Err(Misuse::Busy { users: 3, .. })
    ));
    let writes = |stag: Stag| {
        let place = tpt.place_remote(&mem_access(stag, at as *const u8, 8, Access::REMOTE_WRITE));
        place.map(|place| place.write(0, &[1; 8]))
    };
    std::thread::scope(|scope| {
        for stag in &bound {
            scope.spawn(|| while writes(*stag).is_ok() {});
        }
        // Unbinds one of them at the same time.
        scope.spawn(|| tpt.invalidate_local(bound[1], Pd(1)));
        tpt.deregister_with_windows(region).unwrap();
        for stag in &bound {
            assert!(writes(*stag).is_err());
        }
    });
    assert!(tpt.deregister_with_windows(region).is_err());
    assert!(tpt.deregister_with_windows(windows[0]).is_err());
    // The windows are still allocated, and can be freed by any key they had.
    for window in windows {
        tpt.deregister(window).unwrap();
    }
    assert_eq!(tpt.len_of(Pd(1)), 0);
}

#[test]
fn bound_window_is_freed_by_its_old_key() {
    let tpt = table();
    let mut bytes = vec![0; 64];
    let at = bytes.as_ptr() as u64;
    let region = register(&tpt, &mut bytes, Access::ALL);
    let window = tpt.allocate_window(WindowType::One, Pd(1)).unwrap();
    let bound = tpt.bind(&bind(window, region, at, 64)).unwrap();
    assert_ne!(bound, window);
    tpt.deregister(window).unwrap();
    assert!(
        tpt.find_entry(bound).is_none(),
        "no STag reaches it any more"
    );
    tpt.deregister(region).unwrap();
}

/// A bind that found its window before it was freed must not change the next entry at its index.
#[cfg(not(loom))]
#[test]
fn bind_racing_window_free_binds_nothing() {
    // So few indexes that the next region gets the window's.
    let tpt = Tpt::new(1..3, Policy::Verbs, 42);
    let (mut bytes, mut others) = (vec![0; 64], vec![0; 64]);
    let (at, other) = (bytes.as_ptr() as u64, others.as_ptr() as u64);
    let shared = register(&tpt, &mut bytes, Access::ALL);
    for round in 0..2000 {
        let window = tpt.allocate_window(WindowType::One, Pd(1)).unwrap();
        let gate = std::sync::Barrier::new(2);
        let (last, next) = std::thread::scope(|scope| {
            let binder = scope.spawn(|| {
                gate.wait();
                // Bound and unbound in turn, until the window is gone.
                let mut last = window;
                for len in [64, 0].into_iter().cycle() {
                    match tpt.bind(&bind(last, shared, at, len)) {
                        Ok(stag) => last = stag,
                        Err(_) => break,
                    }
                }
                last
            });
            gate.wait();
            (0..round % 64).for_each(|_| core::hint::spin_loop());
            tpt.deregister(window).unwrap();
            let next = register(&tpt, &mut others, Access::ALL);
            (binder.join().unwrap(), next)
        });
        let entry = tpt.find_entry(next).expect("the region stands");
        assert_eq!((entry.kind, entry.start.get()), (Kind::Region, other));
        assert!(tpt.find_entry(last).is_none_or(|entry| !entry.is_window()));
        tpt.deregister(next).unwrap();
    }
    tpt.deregister(shared).expect("no window is left on it");
    assert!(tpt.is_empty());
}

/// Which bytes of a grant to read a grant to write overwrites, whatever STags name the memory.
#[test]
fn overlaps_are_found_by_address() {
    const PAGE: usize = 4096;
    let tpt = table();
    let mut bytes = vec![0; 6 * PAGE];
    let skip = bytes.as_ptr().align_offset(PAGE);
    let start = bytes[skip..].as_mut_ptr();
    let len = 4 * PAGE as u64;
    let at = |page: usize| Page::at(start.wrapping_add(page * PAGE));
    let plain = Att::direct(start, len);
    let turned = Att::paged(PageSize::K4, &[at(3), at(1), at(0), at(2)], 0, len).unwrap();
    let apart = Att::direct(start.wrapping_add(4 * PAGE), 100);
    let named = |att: Att| Region {
        att,
        start: To::new(0),
        pd: Pd(1),
        access: Access::ALL,
        one_touch: false,
    };
    // SAFETY: the bytes outlive the table, and only the table accesses them.
    let keys = [plain, turned, apart].map(|att| unsafe { tpt.register(named(att)) }.unwrap());
    let [plain, turned, apart] = keys;
    let ask = |source: (Stag, u64, u64), target: (Stag, u64, u64)| {
        let near = |(stag, at, len): (Stag, u64, u64), needs| MemAccess {
            stag,
            at,
            len,
            pd: Pd(1),
            qp: 5,
            needs,
        };
        let source = tpt
            .gather_remote(&near(source, Access::REMOTE_READ))
            .unwrap();
        let target = tpt
            .place_remote(&near(target, Access::REMOTE_WRITE))
            .unwrap();
        let mut found = Vec::new();
        source.overlaps(&target, |at, len| found.push((at, len)));
        found
    };
    assert_eq!(ask((plain, 10, 20), (plain, 25, 100)), [(15, 5)]);
    assert_eq!(ask((plain, 10, 20), (plain, 30, 100)), []);
    assert_eq!(ask((plain, 0, 100), (apart, 0, 100)), []);
    // Byte 100 of the first page is byte 2 * 4096 + 100 of the list in another order, and the other way round.
    assert_eq!(
        ask((plain, 100, 10), (turned, 2 * 4096 + 105, 50)),
        [(5, 5)]
    );
    assert_eq!(
        ask((turned, 0, len), (plain, 4000, 200)),
        [(4096, 104), (2 * 4096 + 4000, 96)]
    );
}

#[test]
fn memory_on_demand_is_registered_unmapped() {
    let tpt = table();
    let nowhere = core::ptr::without_provenance_mut::<u8>(0x1000);
    let at = |att| Region {
        att,
        start: To::new(0x1000),
        pd: Pd(1),
        access: Access::ALL,
        one_touch: false,
    };
    // SAFETY: it is refused, and the bytes at that address are never accessed.
    let refused = unsafe { tpt.register(at(Att::direct(nowhere, 64))) };
    assert!(matches!(refused, Err(Misuse::Unmapped { .. })));
    // SAFETY: the test makes no access to it, but for the prefetch, which does not fault.
    let stag = unsafe { tpt.register(at(Att::on_demand(nowhere, 64))) }.unwrap();
    // Neither more rights nor another registration of it need the memory.
    tpt.change_access(stag, Access::LOCAL_READ).unwrap();
    tpt.change_access(stag, Access::ALL).unwrap();
    let again = tpt.register_shared(stag, To::new(0), Pd(1), Access::ALL);
    tpt.deregister(again.unwrap()).unwrap();
    let access = |at: usize, len| mem_access(stag, at as *const u8, len, Access::LOCAL_WRITE);
    assert_eq!(tpt.prefetch(&access(0x1000, 64), false), Ok(()));
    assert_eq!(
        tpt.prefetch(&access(0x1000, 64), true),
        Err(Refusal::Unmapped)
    );
    let beyond = tpt.prefetch(&access(0x1000, 65), true);
    assert!(matches!(beyond, Err(Refusal::Bounds { .. })));
    tpt.deregister(stag).unwrap();
    let gone = tpt.prefetch(&access(0x1000, 64), false);
    assert_eq!(gone, Err(Refusal::Stag { stag }));
}

#[test]
fn null_region_reads_zeros_after_writes() {
    let tpt = table();
    let region = Region {
        att: Att::null().unwrap(),
        start: To::new(0),
        pd: Pd(1),
        access: Access::LOCAL_READ | Access::LOCAL_WRITE,
        one_touch: false,
    };
    // SAFETY: it has no memory of the test.
    let stag = unsafe { tpt.register(region) }.unwrap();
    let at = |needs| MemAccess {
        stag,
        at: u64::MAX - 5000,
        len: 5000,
        pd: Pd(1),
        qp: 5,
        needs,
    };
    let place = tpt.place_local(&at(Access::LOCAL_WRITE)).unwrap();
    assert_eq!(place.write(0, &[7; 5000]), Ok(5000));
    let mut copy = [9; 5000];
    let gather = tpt.gather_local(&at(Access::LOCAL_READ)).unwrap();
    assert_eq!(gather.read(0, &mut copy), Ok(5000));
    assert!(copy.iter().all(|byte| *byte == 0));
    let mut spans = crate::span::Spans::new();
    assert_eq!(gather.spans(&mut spans), 5000);
    let remote = tpt.gather_remote(&at(Access::REMOTE_READ));
    assert!(matches!(remote, Err(Refusal::Right { .. })));
}
