//! Parts of files as mapped memory: a memfd stands for the dmabuf, since few kernels have one that a test can create.
//! Ranges, rights and kinds of descriptors that are refused.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

use super::*;

fn memfd(bytes: &[u8]) -> File {
    // SAFETY: a new descriptor, which the file owns from here on.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"dmabuf".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn part_begins_at_any_byte() {
    let bytes: Vec<u8> = (0..10_000).map(|n| (n % 251) as u8).collect();
    let file = memfd(&bytes);
    let part = Dmabuf::map_file(file.as_raw_fd(), 5_000, 4_000, true).unwrap();
    // SAFETY: 4000 bytes are mapped there until `part` is dropped, and no other thread writes them.
    let seen = unsafe { core::slice::from_raw_parts(part.start() as *const u8, 4_000) };
    assert_eq!(seen, &bytes[5_000..9_000]);
}

#[test]
fn ranges_outside_of_file_are_einval() {
    let file = memfd(&[0; 4096]);
    let map = |offset, len| {
        Dmabuf::map_file(file.as_raw_fd(), offset, len, true)
            .err()
            .map(|errno| errno.0)
    };
    for (offset, len) in [(0, 4097), (4096, 1), (1, 4096), (u64::MAX, 2), (0, 0)] {
        assert_eq!(
            map(offset, len),
            Some(libc::EINVAL),
            "{len} bytes at {offset}"
        );
    }
    assert_eq!(map(4095, 1), None);
}

#[test]
fn unmappable_descriptors_are_eopnotsupp() {
    let refused = |fd| Dmabuf::map(fd, 0, 4096, true).err().map(|errno| errno.0);
    assert_eq!(refused(-1), Some(libc::EOPNOTSUPP));
    // Open, but no dmabuf.
    assert_eq!(refused(memfd(&[0; 4096]).as_raw_fd()), Some(libc::EINVAL));
    let directory = File::open("/").unwrap();
    let map = Dmabuf::map_file(directory.as_raw_fd(), 0, 1, false);
    assert!(map.is_err());
}

#[test]
fn readonly_descriptor_cannot_be_written() {
    let file = File::open("/proc/self/exe").unwrap();
    let map = |write| {
        Dmabuf::map_file(file.as_raw_fd(), 0, 1, write)
            .err()
            .map(|errno| errno.0)
    };
    assert_eq!(map(true), Some(libc::EACCES));
    assert_eq!(map(false), None);
}
