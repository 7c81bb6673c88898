//! Tests of windows that are handed over: peers reach the same bytes afterwards or none, and invalid windows change no table.
//! Two tables stand for the two processes; their regions have the same STag and different memory.

use core::ops::Range;
use std::sync::Arc;

use verbena_wire::To;

use super::*;
use crate::att::Att;
use crate::check::MemAccess;
use crate::refusal::Refusal;
use crate::touch::Arrival;
use crate::tpt::Verdict;
use crate::{Policy, Region};

const PD: Pd = Pd(1);
/// The domain in the other process.
const OTHER_PD: Pd = Pd(4);
const START: u64 = 0x1234_0000;
const LEN: u64 = 4096;
/// The queue pair that binds, and its number in the other process.
const QP: u32 = 7;
const OTHER_QP: u32 = 9;
const RIGHTS: Access = Access::REMOTE_WRITE;

/// A table with one region.
struct World {
    tpt: Arc<Tpt>,
    region: Stag,
    pd: Pd,
    _bytes: Vec<u8>,
}

impl World {
    fn new(seed: u64, pd: Pd, stag: Option<Stag>) -> World {
        let tpt = Arc::new(Tpt::new(1..5000, Policy::Verbs, seed));
        let mut bytes = vec![0; LEN as usize];
        let region = Region {
            att: Att::direct(bytes.as_mut_ptr(), LEN),
            start: To::new(START),
            pd,
            access: Access::ALL,
            one_touch: false,
        };
        // SAFETY: the bytes are kept until the table is dropped, and are not read.
        let region = unsafe {
            match stag {
                None => tpt.register(region),
                Some(stag) => tpt.register_at(stag, region),
            }
        };
        World {
            region: region.unwrap(),
            tpt,
            pd,
            _bytes: bytes,
        }
    }

    fn bind(&self, ty: WindowType, one_touch: bool, zero_based: bool) -> Stag {
        let window = self.tpt.allocate_window(ty, self.pd).unwrap();
        let bind = Bind {
            window,
            region: self.region,
            addr: START + 64,
            len: 32,
            access: RIGHTS,
            pd: self.pd,
            qp: QP,
            key: window.key().wrapping_add(1),
            zero_based,
            one_touch,
        };
        self.tpt.bind(&bind).unwrap()
    }

    fn access(&self, stag: Stag, qp: u32, range: Range<u64>) -> MemAccess {
        MemAccess {
            stag,
            at: range.start,
            len: range.end - range.start,
            pd: self.pd,
            qp,
            needs: RIGHTS,
        }
    }

    fn write(&self, stag: Stag, qp: u32, range: Range<u64>) -> Result<(), Refusal> {
        let access = self.access(stag, qp, range);
        self.tpt.place_remote(&access).map(drop)
    }
}

/// As [`WindowExport`] arrives: the queue pair has another number.
fn renumbered(mut export: WindowExport) -> WindowExport {
    if let Some(binding) = &mut export.binding {
        binding.qp = binding.qp.map(|_| OTHER_QP);
    }
    export
}

#[test]
fn imported_window_grants_the_same_range() {
    for ty in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        for zero_based in [false, true] {
            if zero_based && ty == WindowType::One {
                continue;
            }
            let here = World::new(1, PD, None);
            let there = World::new(2, OTHER_PD, Some(here.region));
            let stag = here.bind(ty, false, zero_based);
            let export = here.tpt.export_window(stag, true).unwrap();
            assert_eq!(
                there.tpt.import_window(&renumbered(export), OTHER_PD),
                Ok(stag)
            );
            let first = if zero_based { 0 } else { START + 64 };
            let entry = there.tpt.find_entry(stag).unwrap();
            assert_eq!((entry.att_offset, entry.len, entry.pd), (64, 32, OTHER_PD));
            assert!(there.write(stag, OTHER_QP, first..first + 32).is_ok());
            assert!(there.write(stag, OTHER_QP, first..first + 33).is_err());
            let other = there.write(stag, QP, first..first + 1);
            assert_eq!(other.is_ok(), ty == WindowType::One, "{ty:?} {other:?}");
            // The region counts it, and it can be invalidated as before.
            let busy = there.tpt.deregister(there.region);
            assert!(
                matches!(busy, Err(Misuse::Busy { users: 1, .. })),
                "{busy:?}"
            );
            let invalidated = there.tpt.invalidate_remote(stag, OTHER_PD, OTHER_QP);
            assert_eq!(invalidated.is_ok(), ty != WindowType::One);
            there.tpt.deregister(stag).unwrap();
            there.tpt.deregister(there.region).unwrap();
            assert!(here.write(stag, QP, first..first + 32).is_ok(), "it stayed");
        }
    }
}

#[test]
fn invalidated_window_stays_invalid() {
    let here = World::new(1, PD, None);
    let there = World::new(2, OTHER_PD, Some(here.region));
    let stag = here.bind(WindowType::TwoB, false, false);
    here.tpt.invalidate_local(stag, PD).unwrap();
    let export = here.tpt.export_window(stag, true).unwrap();
    assert_eq!((export.binding, export.spent), (None, false));
    there.tpt.import_window(&export, OTHER_PD).unwrap();
    let refused = there.write(stag, OTHER_QP, START + 64..START + 65);
    assert_eq!(refused, Err(Refusal::Stag { stag }));
    // It is a window of its type, which can be bound again.
    let bind = Bind {
        window: stag,
        region: there.region,
        addr: START,
        len: 8,
        access: RIGHTS,
        pd: OTHER_PD,
        qp: OTHER_QP,
        key: stag.key().wrapping_add(1),
        zero_based: false,
        one_touch: false,
    };
    let again = there.tpt.bind(&bind).unwrap();
    assert!(there.write(again, OTHER_QP, START..START + 8).is_ok());
    assert!(there.write(stag, OTHER_QP, START..START + 8).is_err());
}

#[test]
fn touched_window_stays_touched() {
    let here = World::new(1, PD, None);
    let there = World::new(2, OTHER_PD, Some(here.region));
    let stag = here.bind(WindowType::TwoA, true, false);
    let export = here.tpt.export_window(stag, true).unwrap();
    assert!(export.binding.is_some_and(|binding| binding.one_touch));
    there
        .tpt
        .import_window(&renumbered(export), OTHER_PD)
        .unwrap();
    let last = Arrival::in_order(true);
    let access = there.access(stag, OTHER_QP, START + 64..START + 72);
    let touched = there.tpt.touch(&access, &last).unwrap();
    let Verdict::Spends(place, spend) = touched else {
        panic!("{touched:?}");
    };
    // While a message ends in it, it stays where it is.
    let refused = there.tpt.export_window(stag, true);
    assert_eq!(refused, Err(Misuse::Touching(stag)));
    drop(place);
    drop(spend);
    let export = there.tpt.export_window(stag, true).unwrap();
    assert_eq!((export.binding, export.spent), (None, true));
    let third = World::new(3, PD, Some(here.region));
    third.tpt.import_window(&export, PD).unwrap();
    let refused = third.write(stag, QP, START + 64..START + 72);
    assert_eq!(refused, Err(Refusal::Touched { stag }));
    assert_eq!(third.tpt.invalidate_local(stag, PD), Ok(()));
}

#[test]
fn window_with_open_request_stays() {
    let here = World::new(1, PD, None);
    let stag = here.bind(WindowType::One, false, false);
    let later = Stag::from_parts(stag.index(), stag.key().wrapping_add(1)).unwrap();
    for (window, bound) in [(stag, false), (later, true), (later, false)] {
        let refused = here.tpt.export_window(window, bound);
        assert_eq!(refused, Err(Misuse::WindowRequest(window)));
    }
    // Any queue pair of the domain could touch it, in both processes.
    let once = here.bind(WindowType::One, true, false);
    let refused = here.tpt.export_window(once, true);
    assert_eq!(refused, Err(Misuse::OneTouch(once)));
    let region = here.region;
    assert_eq!(
        here.tpt.export_window(region, true),
        Err(Misuse::Stag(region))
    );
}

#[test]
fn invalid_windows_are_refused() {
    let here = World::new(1, PD, None);
    let there = World::new(2, OTHER_PD, Some(here.region));
    let stag = here.bind(WindowType::TwoB, false, false);
    let export = renumbered(here.tpt.export_window(stag, true).unwrap());
    let good = export.binding.unwrap();
    let before = there.tpt.len();
    let elsewhere = Stag::new(there.region.get() ^ 0x100);
    let bindings = [
        WindowBinding { len: 0, ..good },
        WindowBinding { len: LEN, ..good },
        WindowBinding {
            len: u64::MAX,
            ..good
        },
        WindowBinding {
            addr: START - 1,
            ..good
        },
        WindowBinding {
            addr: u64::MAX,
            ..good
        },
        WindowBinding { qp: None, ..good },
        WindowBinding {
            access: Access::ALL,
            ..good
        },
        WindowBinding {
            access: Access::BIND,
            ..good
        },
        WindowBinding {
            region: elsewhere,
            ..good
        },
        WindowBinding {
            region: stag,
            ..good
        },
    ];
    let bound = |binding: &WindowBinding| WindowExport {
        binding: Some(*binding),
        ..export
    };
    let mut invalid: Vec<WindowExport> = bindings.iter().map(bound).collect();
    invalid.push(WindowExport {
        spent: true,
        ..export
    });
    let window_type = WindowType::One;
    invalid.push(WindowExport {
        window_type,
        ..export
    });
    for stag in [
        Stag::new(0),
        Stag::new(5000 << 8),
        Stag::new(u32::MAX),
        there.region,
    ] {
        invalid.push(WindowExport { stag, ..export });
    }
    for window in &invalid {
        let refused = there.tpt.import_window(window, OTHER_PD);
        assert!(refused.is_err(), "{window:?}");
        assert_eq!(there.tpt.len(), before, "{window:?}");
    }
    // Another domain than the region's.
    assert!(there.tpt.import_window(&export, PD).is_err());
    there.tpt.deregister(there.region).unwrap();
    assert!(there.tpt.is_empty());
}
