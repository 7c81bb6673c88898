//! Tests of the access checks: each one failing alone (M6, M7).

use std::sync::Arc;

use verbena_wire::To;

use super::*;
use crate::att::Att;

fn stag() -> Stag {
    Stag::new(0x101)
}

fn entry(kind: Kind) -> Entry {
    Entry {
        kind,
        start: To::new(1000),
        len: 100,
        pd: Pd(1),
        policy: Policy::Verbs,
        access: (Access::LOCAL_WRITE | Access::REMOTE_READ).into(),
        one_touch: false,
        invalidatable: false,
        att: Arc::new(Att::direct(core::ptr::null_mut(), 100)),
        att_offset: 0,
        parent: None,
    }
}

fn mem_access(at: u64, len: u64) -> MemAccess {
    MemAccess {
        stag: stag(),
        at,
        len,
        pd: Pd(1),
        qp: 5,
        needs: Access::REMOTE_READ,
    }
}

fn verbs(kind: Kind, reach: &MemAccess) -> Result<(), Refusal> {
    remote(&entry(kind), reach)
}

#[test]
fn valid_access_passes_local_and_remote_checks() {
    let good = mem_access(1000, 100);
    assert_eq!(verbs(Kind::Region, &good), Ok(()));
    assert_eq!(local(&entry(Kind::Region), &good), Ok(()));
}

#[test]
fn bounds_are_exact_to_the_byte() {
    for (at, len, ok) in [
        (1000, 0, true),
        (1099, 1, true),
        (1100, 0, true),
        (999, 1, false),
        (999, 0, false),
        (1100, 1, false),
        (1000, 101, false),
    ] {
        assert_eq!(
            verbs(Kind::Region, &mem_access(at, len)).is_ok(),
            ok,
            "{at} {len}"
        );
    }
    let (at, len) = (u64::MAX, 2);
    let wrapped = verbs(Kind::Region, &mem_access(at, len));
    assert_eq!(wrapped, Err(Refusal::Wrap { at, len }));
}

#[test]
fn another_domain_is_refused() {
    let mut foreign = mem_access(1000, 1);
    foreign.pd = Pd(2);
    let refused = Err(Refusal::Domain {
        stag: stag(),
        owner: 1,
        requester: 2,
    });
    assert_eq!(verbs(Kind::Region, &foreign), refused);
    assert_eq!(local(&entry(Kind::Region), &foreign), refused);
    assert_eq!(verbs(Kind::Window(Scope::Domain), &foreign), refused);
    assert_eq!(verbs(Kind::Window(Scope::Both(5)), &foreign), refused);
    let tied = verbs(Kind::Window(Scope::QueuePair(5)), &foreign);
    assert_eq!(tied, Ok(()), "type 2A asks for the queue pair only");
}

#[test]
fn a_window_of_another_queue_pair_is_refused() {
    let refused = Err(Refusal::Scope { stag: stag() });
    for scope in [Scope::QueuePair(6), Scope::Both(6)] {
        assert_eq!(verbs(Kind::Window(scope), &mem_access(1000, 1)), refused);
    }
}

#[test]
fn a_missing_right_is_refused() {
    let mut greedy = mem_access(1000, 1);
    greedy.needs = Access::REMOTE_WRITE;
    let refused = verbs(Kind::Region, &greedy);
    assert!(matches!(refused, Err(Refusal::Right { .. })));
    greedy.needs = Access::LOCAL_READ;
    let refused = local(&entry(Kind::Region), &greedy);
    assert!(matches!(refused, Err(Refusal::Right { .. })));
}

#[test]
fn access_to_another_stag_kind_is_refused() {
    let refused = Err(Refusal::Kind { stag: stag() });
    let good = mem_access(1000, 1);
    assert_eq!(local(&entry(Kind::Window(Scope::Domain)), &good), refused);
    assert_eq!(local(&entry(Kind::Iscsi), &good), refused);
    assert_eq!(verbs(Kind::Iscsi, &good), refused);
    let windows_only = |kind| Entry {
        policy: Policy::WindowsOnly,
        ..entry(kind)
    };
    assert_eq!(remote(&windows_only(Kind::Region), &good), refused);
    let window = windows_only(Kind::Window(Scope::Domain));
    assert_eq!(remote(&window, &good), Ok(()));
}
