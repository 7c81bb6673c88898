//! Tests of owned memory: copies, bounds, and that it outlives what may reach it.

use super::*;
use crate::{Bind, Policy, Reach, WindowType};

#[test]
fn copies_stay_inside() {
    let tpt = Arc::new(Tpt::new(1..100, Policy::Verbs, 1));
    let buffer = Buffer::new(&tpt, 10, Pd(1), Access::ALL).unwrap();
    assert!(buffer.write(3, b"abc") && !buffer.write(8, b"abc") && !buffer.write(usize::MAX, b"a"));
    assert_eq!(buffer.read(2, 5), b"\0abc\0");
    assert!(buffer.read(8, 3).is_empty());
    drop(buffer);
    assert!(tpt.is_empty());
}

#[test]
fn memory_under_a_window_is_not_freed() {
    let tpt = Arc::new(Tpt::new(1..100, Policy::Verbs, 1));
    let buffer = Buffer::new(&tpt, 10, Pd(1), Access::ALL).unwrap();
    let window = tpt.allocate_window(WindowType::One, Pd(1)).unwrap();
    let bind = Bind {
        window,
        region: buffer.stag(),
        at: buffer.at(),
        len: 10,
        access: Access::REMOTE_WRITE,
        pd: Pd(1),
        qp: 1,
        key: 0,
        zero_based: false,
        one_touch: false,
    };
    let stag = tpt.bind(&bind).unwrap();
    let at = buffer.at();
    drop(buffer);
    let reach = Reach {
        stag,
        at,
        len: 10,
        pd: Pd(1),
        qp: 1,
        needs: Access::REMOTE_WRITE,
    };
    assert_eq!(tpt.place_remote(&reach).unwrap().write(0, &[1; 10]), 10);
}

/// A second registration may outlive the owner; nothing says that it may not, so the memory outlives both.
#[test]
fn memory_that_is_registered_once_more_is_not_freed() {
    let tpt = Arc::new(Tpt::new(1..100, Policy::Verbs, 1));
    let buffer = Buffer::new(&tpt, 10, Pd(1), Access::ALL).unwrap();
    let shared = tpt
        .register_shared(buffer.stag(), To::new(0), Pd(1), Access::ALL)
        .unwrap();
    let memory = Arc::downgrade(&buffer.memory);
    buffer.write(0, b"abc");
    drop(buffer);
    let reach = Reach {
        stag: shared,
        at: 0,
        len: 10,
        pd: Pd(1),
        qp: 1,
        needs: Access::LOCAL_READ,
    };
    assert!(memory.upgrade().is_some(), "freed under a registration");
    let mut copy = [0; 3];
    assert_eq!(tpt.gather_local(&reach).unwrap().read(0, &mut copy), 3);
    assert_eq!(&copy, b"abc");
    tpt.deregister(shared).unwrap();
    assert!(memory.upgrade().is_none(), "kept by nobody");
}
