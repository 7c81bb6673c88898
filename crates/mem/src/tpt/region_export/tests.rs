//! Tests of regions that are handed over: which cannot be, STags that are in use or out of range, and that each index is used once.

use std::collections::HashSet;
use std::sync::Arc;

use super::*;
use crate::att::Att;
use crate::{Bind, Buffer, Pd, Policy, WindowType};

const PD: Pd = Pd(1);

fn table(range: core::ops::Range<u32>, seed: u64) -> Arc<Tpt> {
    Arc::new(Tpt::new(range, Policy::Verbs, seed))
}

fn region(bytes: &mut [u8]) -> Region {
    Region {
        att: Att::direct(bytes.as_mut_ptr(), bytes.len() as u64),
        start: To::new(0x1234_0000),
        pd: PD,
        access: Access::ALL,
        one_touch: false,
    }
}

fn register(tpt: &Tpt, bytes: &mut [u8]) -> Result<Stag, Misuse> {
    // SAFETY: every test keeps the bytes until its table is dropped, and does not read them; the table chooses the index.
    unsafe { tpt.register(region(bytes)) }
}

fn register_at(tpt: &Tpt, stag: Stag, bytes: &mut [u8]) -> Result<Stag, Misuse> {
    // SAFETY: every test keeps the bytes until its table is dropped, and does not read them.
    unsafe { tpt.register_at(stag, region(bytes)) }
}

fn stag(index: u32, key: u8) -> Stag {
    Stag::from_parts(index, key).unwrap()
}

#[test]
fn register_at_gives_the_requested_stag() {
    let (tpt, mut bytes) = (table(1..5000, 1), vec![0; 100]);
    for (index, key) in [(1, 0), (7, 255), (4999, 42)] {
        let name = stag(index, key);
        assert_eq!(register_at(&tpt, name, &mut bytes), Ok(name));
        let entry = tpt.find_entry(name).unwrap();
        assert_eq!((entry.start.get(), entry.len), (0x1234_0000, 100));
        let other = stag(index, key.wrapping_add(1));
        assert!(tpt.find_entry(other).is_none(), "only under its own key");
        let export = tpt.export_region(name).unwrap();
        let (start, len, access) = (entry.start, 100, Access::ALL);
        let expected = RegionExport {
            stag: name,
            start,
            len,
            access,
        };
        assert_eq!(export, expected);
    }
    assert_eq!((tpt.len(), tpt.len_of(PD)), (3, 3));
}

#[test]
fn out_of_range_or_taken_stag_is_refused() {
    let (tpt, mut bytes) = (table(0..2000, 1), vec![0; 100]);
    for index in [0, 2000, 0xff_ffff] {
        let name = Stag::new(index << 8 | 1);
        let (first, last) = (1, 1999);
        let outside = Misuse::IndexOutOfRange {
            stag: name,
            first,
            last,
        };
        assert_eq!(register_at(&tpt, name, &mut bytes), Err(outside));
    }
    let own = Buffer::new(&tpt, 10, PD, Access::ALL).unwrap();
    let window = tpt.allocate_window(WindowType::TwoA, PD).unwrap();
    let later = tpt.allocate_stag(PD, 1).unwrap();
    let (_promised, reserved) = Buffer::pending(&tpt, 10, PD, Access::ALL).unwrap();
    let before = tpt.len();
    for taken in [own.stag(), window, later, reserved.stag()] {
        for key in [taken.key(), taken.key().wrapping_add(9)] {
            let name = stag(taken.index(), key);
            let refused = register_at(&tpt, name, &mut bytes);
            assert_eq!(refused, Err(Misuse::IndexInUse(name)));
        }
    }
    assert_eq!(tpt.len(), before, "a refusal takes nothing");
    let bad = Region {
        access: Access::REMOTE_WRITE,
        ..region(&mut bytes)
    };
    let name = stag((1..2000).find(|i| *i != own.stag().index()).unwrap(), 1);
    // SAFETY: rights to write for peers only are refused, so that `bytes` is not registered.
    let refused = unsafe { tpt.register_at(name, bad) };
    assert_eq!(refused, Err(Misuse::Rights(Access::REMOTE_WRITE)));
    assert_eq!(tpt.len(), before);
}

/// Fresh indexes, freed ones and those taken by number are one set: none is used twice, and none is lost.
#[test]
fn every_index_is_given_exactly_once() {
    const SIZE: u32 = 3000;
    for seed in 0..5 {
        let (tpt, mut bytes) = (table(1..SIZE, seed), vec![0; 8]);
        let mut names = HashSet::new();
        // Some are fresh, some taken by number before that, some of both freed again and taken by number or not.
        let mut fresh = Vec::new();
        for _ in 0..500 {
            fresh.push(register(&tpt, &mut bytes).unwrap());
        }
        for index in (1..SIZE).step_by(7) {
            let name = stag(index, 3);
            match register_at(&tpt, name, &mut bytes) {
                Ok(name) if index % 2 == 0 => tpt.deregister(name).unwrap(),
                Ok(name) => assert!(names.insert(name.index())),
                Err(refused) => {
                    assert_eq!(refused, Misuse::IndexInUse(name));
                    assert!(fresh.iter().any(|f| f.index() == index));
                }
            }
        }
        for (n, name) in fresh.into_iter().enumerate() {
            if n % 3 == 0 {
                tpt.deregister(name).unwrap();
                if n % 2 == 0 {
                    let again = stag(name.index(), 77);
                    assert_eq!(register_at(&tpt, again, &mut bytes), Ok(again));
                    assert!(names.insert(again.index()));
                }
            } else {
                assert!(names.insert(name.index()));
            }
        }
        while let Ok(name) = register(&tpt, &mut bytes) {
            assert!(names.insert(name.index()), "{name} given twice");
        }
        assert_eq!(names.len() as u32, SIZE - 1, "all of them, seed {seed}");
        assert_eq!(tpt.len(), SIZE - 1);
    }
}

#[test]
fn special_or_busy_regions_cannot_be_exported() {
    let tpt = table(1..5000, 1);
    let once = Buffer::one_touch(&tpt, 10, PD, Access::ALL).unwrap();
    let refused = tpt.export_region(once.stag());
    assert_eq!(refused, Err(Misuse::OneTouch(once.stag())));
    let (promised, reserved) = Buffer::pending(&tpt, 10, PD, Access::ALL).unwrap();
    let refused = tpt.export_region(promised.stag());
    assert_eq!(refused, Err(Misuse::Pending(promised.stag())));
    assert_eq!(reserved.complete().outcome, Ok(()));
    assert!(tpt.export_region(promised.stag()).is_ok());
    let later = tpt.allocate_stag(PD, 1).unwrap();
    assert_eq!(tpt.export_region(later), Err(Misuse::Stag(later)));
    let (_held, ticket) = Buffer::prepared(&tpt, later, 10, (PD, Access::ALL, false)).unwrap();
    tpt.execute(ticket, PD).unwrap();
    assert_eq!(tpt.export_region(later), Err(Misuse::Stag(later)));
    let region = Buffer::new(&tpt, 10, PD, Access::ALL).unwrap();
    let window = tpt.allocate_window(WindowType::One, PD).unwrap();
    let bind = Bind {
        window,
        region: region.stag(),
        addr: region.at(),
        len: 10,
        access: Access::REMOTE_READ,
        pd: PD,
        qp: 1,
        key: 0,
        zero_based: false,
        one_touch: false,
    };
    let bound = tpt.bind(&bind).unwrap();
    let (stag, windows) = (region.stag(), 1);
    let refused = Err(Misuse::BoundWindows { stag, windows });
    assert_eq!(tpt.export_region(stag), refused);
    assert!(tpt.export_region_with_windows(stag, 1).is_ok());
    assert_eq!(tpt.export_region(bound), Err(Misuse::Stag(bound)));
    tpt.deregister(bound).unwrap();
    assert!(tpt.export_region(stag).is_ok());
}
