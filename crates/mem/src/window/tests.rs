//! Tests of the rules of binding: each broken alone.

use std::sync::Arc;

use super::*;
use crate::att::Att;
use crate::entry::Policy;

fn region() -> Entry {
    Entry {
        kind: Kind::Region,
        start: To::new(1000),
        len: 100,
        pd: Pd(1),
        policy: Policy::Verbs,
        access: Access::ALL.into(),
        one_touch: false,
        invalidatable: false,
        att: Arc::new(Att::direct(core::ptr::null_mut(), 100)),
        att_offset: 0,
        parent: None,
    }
}

fn bind() -> Bind {
    Bind {
        window: Stag::new(0x201),
        region: Stag::new(0x301),
        addr: 1010,
        len: 20,
        access: Access::REMOTE_WRITE,
        pd: Pd(1),
        qp: 5,
        key: 9,
        zero_based: false,
        one_touch: false,
    }
}

fn broken(change: impl FnOnce(&mut Bind, &mut Entry)) -> bool {
    let (mut bind, mut region) = (bind(), region());
    change(&mut bind, &mut region);
    entry_for(&bind, WindowType::TwoB, &region).is_err()
}

#[test]
fn valid_bind_covers_its_part_of_region() {
    let window = entry_for(&bind(), WindowType::TwoB, &region()).unwrap();
    assert_eq!(
        (window.start.get(), window.len, window.att_offset),
        (1010, 20, 10)
    );
    assert_eq!(window.kind, Kind::Window(Scope::Both(5)));
    assert_eq!(window.parent, Some(3));
    let mut zero = bind();
    zero.zero_based = true;
    let window = entry_for(&zero, WindowType::TwoA, &region()).unwrap();
    assert_eq!((window.start.get(), window.att_offset), (0, 10));
    assert_eq!(window.offset_of(5), 15);
}

#[test]
fn each_bind_rule_is_enforced() {
    assert!(!broken(|_, _| {}));
    assert!(broken(|_, r| r.kind = Kind::Window(Scope::Domain)));
    assert!(broken(|b, _| b.pd = Pd(2)));
    assert!(broken(|_, r| r.access = Access::LOCAL_WRITE.into()));
    assert!(broken(|_, r| r.access = Access::BIND.into()));
    assert!(broken(|b, _| b.access = Access::LOCAL_READ));
    assert!(broken(|b, _| b.addr = 999));
    assert!(broken(|b, _| b.len = 91));
    assert!(broken(|b, _| b.addr = u64::MAX));
    let mut zero = bind();
    zero.zero_based = true;
    assert!(entry_for(&zero, WindowType::One, &region()).is_err());
}
