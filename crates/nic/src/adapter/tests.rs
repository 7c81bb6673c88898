//! Tests of the adapter: shares are disjoint, numbers are relative, and removed functions are gone.

mod isolation;

use verbena_mem::Access;

use super::*;
use crate::error::Kind;

fn small() -> Shares {
    Shares {
        qps: 10,
        cqs: 10,
        srqs: 10,
        ssqs: 10,
        pds: 10,
        stags: 10,
        event_queues: 8,
        vectors: 8,
    }
}

#[test]
fn functions_have_disjoint_ranges_and_relative_numbers() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    adapter.add_function(small()).unwrap();
    adapter.add_function(Shares { qps: 3, ..small() }).unwrap();
    assert_eq!(adapter.functions(), 3);
    let ranges: Vec<Ranges> = (0..3).map(|n| adapter.ranges(n).unwrap()).collect();
    assert_eq!(ranges[0].qps, 2..12);
    assert_eq!(ranges[1].qps, 12..22);
    assert_eq!(ranges[2].qps, 22..25);
    assert_eq!(ranges[2].stags, 21..31);
    for number in 0..3 {
        let function = adapter.function(number).unwrap();
        assert_eq!(function.number(), number);
        let pd = function.allocate_pd().unwrap();
        assert_eq!(pd.0, 1, "every function begins with its own first");
        assert_eq!(function.create_cq(1).unwrap().number(), 1);
    }
}

#[test]
fn a_function_cannot_name_memory_of_another() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let (mine, other) = (
        adapter.function(0).unwrap(),
        adapter.add_function(small()).unwrap(),
    );
    let (pd, _) = (mine.allocate_pd().unwrap(), other.allocate_pd().unwrap());
    let buffer = mine.register_buffer(pd, 8, Access::ALL).unwrap();
    assert!(other.deregister(buffer.stag()).is_err());
    assert!(other.tpt().find_entry(buffer.stag()).is_none());
    assert!(mine.tpt().find_entry(buffer.stag()).is_some());
}

#[test]
fn shares_beyond_the_remainder_are_refused() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let whole = Ranges::WHOLE.shares();
    for (at, (object, most)) in whole.each().into_iter().enumerate() {
        let mut shares = small();
        let share = [
            &mut shares.qps,
            &mut shares.cqs,
            &mut shares.srqs,
            &mut shares.ssqs,
            &mut shares.pds,
            &mut shares.stags,
            &mut shares.event_queues,
            &mut shares.vectors,
        ];
        *share.into_iter().nth(at).unwrap() = most;
        let refused = adapter.add_function(shares).unwrap_err();
        let taken = small().each()[at].1;
        let expected = Error::Share {
            object,
            requested: most,
            available: most - taken,
        };
        assert_eq!(refused, expected);
        assert_eq!(refused.kind(), Kind::Exhausted);
        let said = refused.to_string();
        assert!(said.contains(&most.to_string()), "{said}");
        assert!(said.contains(&(most - taken).to_string()), "{said}");
    }
    let rest = adapter.available_shares();
    assert_eq!(rest.stags, whole.stags - 10);
    let last = adapter.add_function(rest).unwrap();
    assert_eq!(last.number(), 1, "the refused ones left nothing behind");
    assert_eq!(adapter.ranges(1).unwrap().stags.end, 1 << 24);
    assert_eq!(adapter.available_shares(), Shares::NONE);
    assert!(adapter.function(2).is_err());
    // A function without any shares is allowed.
    adapter.add_function(Shares::NONE).unwrap();
}

#[test]
fn freed_ranges_are_reused_last() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let rest = adapter.available_shares();
    let half = Shares {
        stags: rest.stags / 2,
        ..small()
    };
    let first = adapter.add_function(half).unwrap().number();
    let before = adapter.ranges(first).unwrap();
    adapter.remove_function(first).unwrap();
    assert!(adapter.function(first).is_err());
    assert_eq!(adapter.available_shares(), rest);
    let second = adapter.add_function(half).unwrap().number();
    assert_ne!(second, first, "a number never comes again");
    let after = adapter.ranges(second).unwrap();
    assert_eq!(after.stags.start, before.stags.end, "the old ones rest");
    // Only the old ones are left now, in one range.
    let third = adapter.add_function(half).unwrap().number();
    assert_eq!(adapter.ranges(third).unwrap().stags, before.stags);
}

#[test]
fn share_needs_one_contiguous_range() {
    let third = Ranges::WHOLE.shares().stags / 3;
    let share = Shares {
        stags: third,
        ..small()
    };
    let adapter = Adapter::new(share, Policy::Verbs, 1).unwrap();
    let middle = adapter.add_function(share).unwrap().number();
    let third_one = adapter.add_function(share).unwrap().number();
    adapter.remove_function(middle).unwrap();
    let more = Shares {
        stags: third + 1,
        ..small()
    };
    let refused = adapter.add_function(more).unwrap_err();
    let (object, asked) = (Object::Stag, third + 1);
    let left = third;
    assert_eq!(
        refused,
        Error::Share {
            object,
            requested: asked,
            available: left
        }
    );
    adapter.remove_function(third_one).unwrap();
    adapter.add_function(more).unwrap();
}

#[test]
fn function_count_is_limited() {
    let adapter = Adapter::new(Shares::NONE, Policy::Verbs, 1).unwrap();
    for _ in 1..MAX_FUNCTIONS {
        adapter.add_function(Shares::NONE).unwrap();
    }
    let refused = adapter.add_function(Shares::NONE).unwrap_err();
    let (object, limit) = (Object::Function, MAX_FUNCTIONS);
    assert_eq!(refused, Error::Limit { object, limit });
    adapter.remove_function(7).unwrap();
    let fresh = adapter.add_function(Shares::NONE).unwrap();
    assert_eq!(fresh.number(), MAX_FUNCTIONS);
    assert_eq!(adapter.functions(), MAX_FUNCTIONS);
    assert!(!adapter.numbers().contains(&7));
}

#[test]
fn removing_physical_or_missing_function_fails() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    assert_eq!(adapter.remove_function(0), Err(Error::Physical));
    let (object, number) = (Object::Function, 1);
    assert_eq!(
        adapter.remove_function(1),
        Err(Error::NoSuch { object, number })
    );
}
