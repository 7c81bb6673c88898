//! The simple memory refuses what it must; others are compared with it, so its limits are tested here.
//! Each reason has one fault, and a refused access moves no byte.

use verbena_stream::AccessFault;
use verbena_wire::rdmap::AtomicOp;
use verbena_wire::{Stag, To};

use super::{Memory, RegionSpec, Right, Rights};
use crate::work::TaggedAddr;

const STAG: Stag = Stag::new(0x700);

fn addr(to: u64) -> TaggedAddr {
    TaggedAddr {
        stag: STAG,
        to: To::new(to),
    }
}

fn memory(rights: Rights) -> Memory {
    let mut memory = Memory::default();
    memory.register(&RegionSpec {
        at: addr(1000),
        bytes: vec![1; 16],
        rights,
    });
    memory
}

fn open() -> Memory {
    memory(Rights {
        remote_write: true,
        remote_read: true,
        remote_atomic: true,
        local_write: true,
    })
}

#[test]
fn writes_outside_the_region_are_refused() {
    let mut m = open();
    for (to, len, fine) in [
        (1000, 16, true),
        (1015, 1, true),
        (1016, 0, true),
        (1016, 1, false),
        (1000, 17, false),
        (999, 1, false),
        (0, 16, false),
    ] {
        let written = m.write(addr(to), &vec![2; len], Right::RemoteWrite);
        let expected = if fine {
            Ok(())
        } else {
            Err(AccessFault::Bounds)
        };
        assert_eq!(written, expected, "{to}+{len}");
    }
    assert!(m.regions().all(|(_, _, guarded)| guarded.is_intact()));
}

#[test]
fn each_refusal_has_its_fault() {
    let m = open();
    let other = TaggedAddr {
        stag: Stag::new(0x701),
        ..addr(1000)
    };
    let bad = m.check(other, 1, Right::RemoteRead);
    assert_eq!(bad, Err(AccessFault::InvalidStag));
    let bad = m.check(addr(u64::MAX), 2, Right::RemoteRead);
    assert_eq!(bad, Err(AccessFault::Wrap));
    let shut = memory(Rights::default());
    for right in [
        Right::RemoteWrite,
        Right::RemoteRead,
        Right::RemoteAtomic,
        Right::LocalWrite,
    ] {
        assert_eq!(shut.check(addr(1000), 1, right), Err(AccessFault::Rights));
    }
}

#[test]
fn invalidated_region_refuses_access_and_invalidation() {
    let mut m = open();
    assert_eq!(m.invalidate(STAG), Ok(()));
    let bad = m.check(addr(1000), 1, Right::RemoteRead);
    assert_eq!(bad, Err(AccessFault::InvalidStag));
    assert_eq!(m.invalidate(STAG), Err(AccessFault::CannotInvalidate));
}

#[test]
fn atomic_returns_the_old_value_and_stores() {
    let mut m = open();
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    assert_eq!(m.atomic(addr(1008), &add), Ok(0x0101_0101_0101_0101));
    assert_eq!(m.atomic(addr(1008), &add), Ok(0x0101_0101_0101_0102));
    assert_eq!(m.atomic(addr(1009), &add), Err(AccessFault::Bounds));
}
