//! Tests of the adapter: shares are disjoint, numbers are relative, and what is gone is gone.

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
fn a_queue_pair_is_found_by_the_adapters_number() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    adapter.add_function(small()).unwrap();
    assert_eq!(adapter.number_of_qp(1, 4), Ok(14));
    let (function, qp) = adapter.find_qp(14).unwrap();
    assert_eq!((function.number(), qp), (1, 4));
    for (function, qp) in [(0, 0), (0, 1), (0, 12), (1, u32::MAX), (2, 2)] {
        assert!(adapter.number_of_qp(function, qp).is_err());
    }
    for number in [0, 1, 22, u32::MAX] {
        assert_eq!(adapter.find_qp(number).unwrap_err().kind(), Kind::Misuse);
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
    assert!(other.tpt().look(buffer.stag()).is_none());
    assert!(mine.tpt().look(buffer.stag()).is_some());
}

#[test]
fn what_is_not_left_cannot_be_given_out() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let all = Shares {
        stags: WHOLE.stags,
        ..small()
    };
    let refused = adapter.add_function(all).unwrap_err();
    assert_eq!(refused.kind(), Kind::Exhausted);
    let rest = Shares {
        stags: WHOLE.stags - 10,
        ..small()
    };
    let last = adapter.add_function(rest).unwrap();
    assert_eq!(last.number(), 1, "the refused one left nothing behind");
    assert_eq!(adapter.ranges(1).unwrap().stags.end, 1 << 24);
    assert!(adapter.function(2).is_err());
}
