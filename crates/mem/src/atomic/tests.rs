//! Tests of atomics: values, alignment, and concurrent threads that use the grant or processor atomics (M15).

use core::sync::atomic::{AtomicU64, Ordering};

use verbena_wire::{Stag, To};

use super::*;
use crate::{Access, Att, MemAccess, Pd, Policy, Region, Tpt};

fn table(words: &mut [u64]) -> (Tpt, Stag) {
    let tpt = Tpt::new(1..2000, Policy::Verbs, 1);
    let att = Att::direct(words.as_mut_ptr().cast(), size_of_val(words) as u64);
    let region = Region {
        att,
        start: To::new(0),
        pd: Pd(1),
        access: Access::LOCAL_WRITE | Access::REMOTE_ATOMIC,
        one_touch: false,
    };
    // SAFETY: the words outlive the table in every test.
    let stag = unsafe { tpt.register(region) }.unwrap();
    (tpt, stag)
}

fn at(stag: Stag, at: u64) -> MemAccess {
    MemAccess {
        stag,
        at,
        len: 8,
        pd: Pd(1),
        qp: 1,
        needs: Access::REMOTE_ATOMIC,
    }
}

#[test]
fn each_operation_returns_the_value_before() {
    let mut words = [5, 7];
    let (tpt, stag) = table(&mut words);
    let run = |op| execute(&tpt.place_remote(&at(stag, 8)).unwrap(), op);
    assert_eq!(run(AtomicOp::FetchAdd { add: 3, mask: 0 }), Ok(Some(7)));
    let swap = |compare, swap| AtomicOp::CmpSwap {
        swap,
        swap_mask: u64::MAX,
        compare,
        compare_mask: u64::MAX,
    };
    assert_eq!(run(swap(9, 1)), Ok(Some(10)), "no match, no change");
    assert_eq!(run(swap(10, 1)), Ok(Some(10)));
    let masked = AtomicOp::FetchAdd {
        add: 0xffff_ffff,
        mask: 1 << 31,
    };
    assert_eq!(run(masked), Ok(Some(1)));
    drop(tpt);
    assert_eq!(words, [5, 0]);
}

#[test]
fn an_unaligned_word_is_refused() {
    let mut words = [0; 2];
    let (tpt, stag) = table(&mut words);
    for offset in 1..8 {
        let grant = tpt.place_remote(&at(stag, offset)).unwrap();
        assert_eq!(
            execute(&grant, AtomicOp::FetchAdd { add: 1, mask: 0 }),
            Ok(None)
        );
    }
    assert_eq!(words, [0, 0]);
}

#[test]
fn concurrent_atomics_lose_no_update() {
    let mut words = [0];
    let (tpt, stag) = table(&mut words);
    // SAFETY: `words` outlives the scope, and all threads access it by atomics.
    let word = unsafe { AtomicU64::from_ptr(words.as_mut_ptr()) };
    let masked = AtomicOp::FetchAdd {
        add: 1,
        mask: 1 << 62,
    };
    std::thread::scope(|scope| {
        for op in [AtomicOp::FetchAdd { add: 1, mask: 0 }, masked] {
            let tpt = &tpt;
            scope.spawn(move || {
                for _ in 0..20_000 {
                    execute(&tpt.place_remote(&at(stag, 0)).unwrap(), op).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..20_000 {
                word.fetch_add(1, Ordering::SeqCst);
            }
        });
    });
    assert_eq!(word.load(Ordering::SeqCst), 60_000);
}
