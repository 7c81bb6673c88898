//! Tests of shared memory: which descriptors are not accepted, and that it cannot be truncated while mapped.

use std::os::fd::AsRawFd;

use super::*;

fn copy_of(mapping: &Mapping) -> OwnedFd {
    mapping.fd().try_clone_to_owned().unwrap()
}

fn put(mapping: &Mapping, at: usize, byte: u8) {
    assert!(at < mapping.len());
    // SAFETY: inside the mapping; no other thread accesses it in these tests.
    unsafe { mapping.start().add(at).write_volatile(byte) };
}

fn get(mapping: &Mapping, at: usize) -> u8 {
    assert!(at < mapping.len());
    // SAFETY: `at` is inside the mapping, which lives as long as `mapping`; no other thread accesses it in these tests.
    unsafe { mapping.start().add(at).read_volatile() }
}

fn raw(flags: MemfdFlags, size: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("test", flags | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, size).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn both_mappings_are_the_same_memory() {
    let ours = Mapping::new(10_000).unwrap();
    let theirs = Mapping::adopt(copy_of(&ours), 10_000).unwrap();
    assert_ne!(ours.start(), theirs.start());
    assert!(ours.start().cast::<[u64; 512]>().is_aligned());
    put(&ours, 9_999, 7);
    assert_eq!((get(&theirs, 0), get(&theirs, 9_999)), (0, 7));
    drop(ours);
    put(&theirs, 0, 8);
    assert_eq!(get(&theirs, 0), 8, "it outlives the one that made it");
    let all = Mapping::adopt_all(copy_of(&theirs)).unwrap();
    assert_eq!((all.len(), get(&all, 9_999)), (10_000, 7));
}

#[test]
fn mapping_is_sealed_and_close_on_exec() {
    let ours = Mapping::new(10_000).unwrap();
    for size in [0, 9_999, 10_001] {
        assert_eq!(ftruncate(ours.fd(), size), Err(Errno::PERM));
    }
    let more = fcntl_add_seals(ours.fd(), SealFlags::WRITE);
    assert_eq!(more, Err(Errno::PERM));
    let flags = rustix::io::fcntl_getfd(ours.fd()).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn descriptors_other_than_sealed_memfd_are_refused() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    for fd in [OwnedFd::from(reader), file.into()] {
        assert_eq!(
            Mapping::adopt(fd, 1).unwrap_err(),
            SharedMemoryError::NotMemfd
        );
    }
    // A file on a tmpfs has F_SEAL_SEAL from the start, and none of the others.
    match rustix::fs::open(
        "/dev/shm",
        rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::RUSR,
    ) {
        Ok(fd) => {
            ftruncate(&fd, 100).unwrap();
            let refused = Mapping::adopt(fd, 1).unwrap_err();
            assert!(
                matches!(refused, SharedMemoryError::Unsealed { .. }),
                "{refused}"
            );
        }
        Err(errno) => println!("not shown: no file in /dev/shm ({errno})"),
    }
}

/// Each of them could be truncated or lacks the final seal: an access beyond the end would raise SIGBUS.
#[test]
fn unsealed_memfd_is_refused() {
    let (shrink, grow) = (SealFlags::SHRINK, SealFlags::GROW);
    for has in [
        SealFlags::empty(),
        shrink,
        grow,
        shrink | grow,
        shrink | SealFlags::SEAL,
        grow | SealFlags::SEAL,
    ] {
        let refused = Mapping::adopt(raw(MemfdFlags::empty(), 100, has), 100).unwrap_err();
        let (has, needs) = (has.bits(), SEALS.bits());
        assert_eq!(refused, SharedMemoryError::Unsealed { has, needs });
    }
}

#[test]
fn short_or_read_only_memfd_is_refused() {
    let short = raw(MemfdFlags::empty(), 100, SEALS);
    let refused = Mapping::adopt(short, 101).unwrap_err();
    let (size, len) = (100, 101);
    assert_eq!(refused, SharedMemoryError::TooShort { size, len });
    let closed = raw(MemfdFlags::empty(), 100, SEALS | SealFlags::WRITE);
    let refused = Mapping::adopt(closed, 100).unwrap_err();
    assert!(matches!(
        refused,
        SharedMemoryError::System { call: "mmap", .. }
    ));
    let ours = Mapping::new(100).unwrap();
    let path = format!("/proc/self/fd/{}", ours.fd().as_raw_fd());
    let only_read = std::fs::File::open(path).unwrap();
    let refused = Mapping::adopt(only_read.into(), 100).unwrap_err();
    assert!(matches!(
        refused,
        SharedMemoryError::System { call: "mmap", .. }
    ));
}

/// If the system supports huge pages; none need be free, since none is accessed.
#[test]
fn huge_pages_are_refused() {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let Ok(fd) = memfd_create("test", flags) else {
        println!("not shown: no huge pages here");
        return;
    };
    ftruncate(&fd, 1 << 30).unwrap();
    fcntl_add_seals(&fd, SEALS).unwrap();
    assert_eq!(
        Mapping::adopt(fd, 100).unwrap_err(),
        SharedMemoryError::NotMemfd
    );
}

#[test]
fn empty_mapping_works_and_oversized_one_fails() {
    let nothing = Mapping::new(0).unwrap();
    assert!(nothing.is_empty());
    assert!(Mapping::adopt(copy_of(&nothing), 0).unwrap().is_empty());
    let refused = Mapping::new(usize::MAX).unwrap_err();
    assert!(
        matches!(refused, SharedMemoryError::System { .. }),
        "{refused}"
    );
    let refused = Mapping::adopt(copy_of(&nothing), usize::MAX).unwrap_err();
    assert!(
        matches!(refused, SharedMemoryError::TooShort { .. }),
        "{refused}"
    );
}

#[test]
fn drop_unmaps_and_closes_the_file() {
    let ours = Mapping::new(100).unwrap();
    let (start, fd) = (ours.start().as_ptr(), ours.fd().as_raw_fd());
    // Found by its inode, since other tests map and open files at the same time.
    let inode = fstat(ours.fd()).unwrap().st_ino;
    let listed = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines()
            .any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string()))
    };
    assert!(listed(), "{start:?}");
    drop(ours);
    assert!(!listed());
    let path = format!("/proc/self/fd/{fd}");
    let same = std::fs::metadata(path).is_ok_and(|meta| {
        use std::os::unix::fs::MetadataExt;
        meta.ino() == inode
    });
    assert!(!same, "the file is still open");
}
