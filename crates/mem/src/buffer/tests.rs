//! Tests of owned memory: copies, bounds, and that it is freed after the last entry that translates to it.

use super::*;
use crate::{Bind, MemAccess, Policy, SharedMemoryError, WindowType};

#[test]
fn copies_stay_inside_the_buffer() {
    let tpt = Arc::new(Tpt::new(1..100, Policy::Verbs, 1));
    let buffer = Buffer::new(&tpt, 10, Pd(1), Access::ALL).unwrap();
    assert!(buffer.write(3, b"abc") && !buffer.write(8, b"abc") && !buffer.write(usize::MAX, b"a"));
    assert_eq!(buffer.read(2, 5), b"\0abc\0");
    assert!(buffer.read(8, 3).is_empty());
    let mut into = [9; 3];
    assert!(!buffer.read_into(8, &mut into) && !buffer.read_into(usize::MAX, &mut into));
    assert_eq!(into, [9; 3]);
    assert!(buffer.read_into(4, &mut into) && buffer.read_into(10, &mut []));
    assert_eq!(into, *b"bc\0");
    drop(buffer);
    assert!(tpt.is_empty());
}

/// A buffer that is registered and not written takes address space and no pages.
#[test]
fn sparse_buffer_takes_pages_when_written() {
    const LEN: usize = 256 << 20;
    let resident = || -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<usize>().unwrap() << 10
    };
    let tpt = Arc::new(Tpt::new(1..100, Policy::Verbs, 1));
    let before = resident();
    let buffer = Buffer::sparse(&tpt, LEN, Pd(1), Access::ALL).unwrap();
    let mut got = [1; 4];
    assert!(buffer.write(LEN - 3, b"end") && !buffer.write(LEN - 2, b"end"));
    assert!(buffer.read_into(LEN - 4, &mut got));
    assert_eq!(&got, b"\0end");
    assert!(resident() < before + LEN / 4);
    assert_eq!(
        buffer.export_region().unwrap_err(),
        Misuse::NotShared(buffer.stag())
    );
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
        addr: buffer.at(),
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
    let reach = MemAccess {
        stag,
        at,
        len: 10,
        pd: Pd(1),
        qp: 1,
        needs: Access::REMOTE_WRITE,
    };
    assert_eq!(tpt.place_remote(&reach).unwrap().write(0, &[1; 10]), Ok(10));
}

/// A second registration may outlive the buffer; the memory is freed after both.
#[test]
fn memory_lives_until_last_registration_ends() {
    let tpt = Arc::new(Tpt::new(1..100, Policy::Verbs, 1));
    let buffer = Buffer::new(&tpt, 10, Pd(1), Access::ALL).unwrap();
    let shared = tpt
        .register_shared(buffer.stag(), To::new(0), Pd(1), Access::ALL)
        .unwrap();
    let memory = Arc::downgrade(&buffer.memory);
    buffer.write(0, b"abc");
    drop(buffer);
    let reach = MemAccess {
        stag: shared,
        at: 0,
        len: 10,
        pd: Pd(1),
        qp: 1,
        needs: Access::LOCAL_READ,
    };
    assert!(memory.upgrade().is_some(), "freed under a registration");
    let mut copy = [0; 3];
    assert_eq!(tpt.gather_local(&reach).unwrap().read(0, &mut copy), Ok(3));
    assert_eq!(&copy, b"abc");
    tpt.deregister(shared).unwrap();
    assert!(memory.upgrade().is_none(), "no reference keeps it");
}

fn mem_access(stag: Stag, at: u64, len: u64, needs: Access) -> MemAccess {
    MemAccess {
        stag,
        at,
        len,
        pd: Pd(1),
        qp: 1,
        needs,
    }
}

/// Takes a buffer over into another table, as another process would; the memory is mapped once more.
fn adopt_copy(buffer: &Buffer, to: &Arc<Tpt>) -> Result<Buffer, Misuse> {
    let (export, fd) = buffer.export_region()?;
    Buffer::adopt(to, fd.try_clone_to_owned().unwrap(), export, Pd(1))
}

/// V1: peers and requests use the same STag and addresses, and both processes see the same memory.
#[test]
fn adopted_buffer_keeps_stag_address_and_bytes() {
    let [old, new] = [1, 2].map(|seed| Arc::new(Tpt::new(1..5000, Policy::Verbs, seed)));
    let ours = Buffer::shared(&old, 10_000, Pd(1), Access::ALL).unwrap();
    ours.write(9_000, b"before");
    let theirs = adopt_copy(&ours, &new).unwrap();
    let (stag, at) = (ours.stag(), ours.at());
    assert_eq!(
        (theirs.stag(), theirs.at(), theirs.len()),
        (stag, at, 10_000)
    );
    assert_ne!(theirs.memory.start(), ours.memory.start());
    assert_eq!(theirs.read(9_000, 6), b"before");
    // The address that the peer knows, in the new table.
    let place = new.place_remote(&mem_access(stag, at + 9_000, 6, Access::REMOTE_WRITE));
    assert_eq!(place.unwrap().write(0, b"behind"), Ok(6));
    assert_eq!(ours.read(9_000, 6), b"behind");
    ours.write(0, b"ours");
    assert_eq!(theirs.read(0, 4), b"ours");
    let beyond = mem_access(stag, at + 9_999, 2, Access::REMOTE_READ);
    assert!(matches!(
        new.gather_remote(&beyond),
        Err(crate::Refusal::Bounds { .. })
    ));
    // A second handover, after the first table is gone.
    drop(ours);
    drop(old);
    let third = Arc::new(Tpt::new(1..5000, Policy::Verbs, 3));
    let last = adopt_copy(&theirs, &third).unwrap();
    assert_eq!((last.stag(), last.at()), (stag, at));
    assert_eq!(last.read(9_000, 6), b"behind");
}

#[test]
fn occupied_index_is_refused_until_freed() {
    let [old, new] = [1, 2].map(|seed| Arc::new(Tpt::new(1..5000, Policy::Verbs, seed)));
    let ours = Buffer::shared(&old, 100, Pd(1), Access::ALL).unwrap();
    let first = adopt_copy(&ours, &new).unwrap();
    let taken = Misuse::IndexInUse(ours.stag());
    assert_eq!(adopt_copy(&ours, &new).unwrap_err(), taken);
    drop(first);
    assert!(new.is_empty());
    let again = adopt_copy(&ours, &new).unwrap();
    assert_eq!(again.stag(), ours.stag());
    let narrow = Arc::new(Tpt::new(6000..7000, Policy::Verbs, 1));
    let (stag, first, last) = (ours.stag(), 6000, 6999);
    let outside = Misuse::IndexOutOfRange { stag, first, last };
    assert_eq!(adopt_copy(&ours, &narrow).unwrap_err(), outside);
}

#[test]
fn unmappable_memory_cannot_be_handed_over() {
    let tpt = Arc::new(Tpt::new(1..5000, Policy::Verbs, 1));
    let buffer = Buffer::new(&tpt, 100, Pd(1), Access::ALL).unwrap();
    let private = Misuse::NotShared(buffer.stag());
    assert_eq!(buffer.export_region().unwrap_err(), private);
    assert_eq!(
        private.to_string(),
        format!(
            "STag {} refers to memory that is not shared: it cannot move to another process; allocate it with `shared_memory`",
            buffer.stag()
        )
    );
    let shared = Buffer::shared(&tpt, 100, Pd(1), Access::ALL).unwrap();
    let (export, fd) = shared.export_region().unwrap();
    let new = Arc::new(Tpt::new(1..5000, Policy::Verbs, 1));
    let (file, copy) = (std::fs::File::open("/proc/self/exe").unwrap(), || {
        fd.try_clone_to_owned().unwrap()
    });
    let refused = Buffer::adopt(&new, file.into(), export, Pd(1)).unwrap_err();
    assert_eq!(refused, Misuse::SharedMemory(SharedMemoryError::NotMemfd));
    let (size, len) = (100, 101);
    let longer = RegionExport { len, ..export };
    let refused = Buffer::adopt(&new, copy(), longer, Pd(1)).unwrap_err();
    assert_eq!(
        refused,
        Misuse::SharedMemory(SharedMemoryError::TooShort { size, len })
    );
    let start = To::new(u64::MAX - 10);
    let wraps = RegionExport { start, ..export };
    let refused = Buffer::adopt(&new, copy(), wraps, Pd(1)).unwrap_err();
    assert!(matches!(refused, Misuse::Range { .. }), "{refused}");
    assert!(new.is_empty(), "a refusal takes nothing");
}

#[test]
fn empty_shared_buffer_can_be_adopted() {
    let [old, new] = [1, 2].map(|seed| Arc::new(Tpt::new(1..5000, Policy::Verbs, seed)));
    let ours = Buffer::shared(&old, 0, Pd(1), Access::LOCAL_READ).unwrap();
    let theirs = adopt_copy(&ours, &new).unwrap();
    assert!(theirs.is_empty() && theirs.at() == ours.at());
}
