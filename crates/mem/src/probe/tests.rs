//! Tests of probing: real mappings of every kind, and the fall-back for old kernels.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect};

use super::*;

/// Three pages: writable, read-only, no access. An unmapped page could be mapped again by another test.
fn three_pages() -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses unused addresses; `mprotect` changes pages of this new mapping only.
    unsafe {
        let at =
            mmap_anonymous(core::ptr::null_mut(), 3 * PAGE, rights, MapFlags::PRIVATE).unwrap();
        mprotect(at.add(PAGE), PAGE, MprotectFlags::READ).unwrap();
        mprotect(at.add(2 * PAGE), PAGE, MprotectFlags::empty()).unwrap();
        at.cast()
    }
}

#[test]
fn unmapped_and_read_only_memory_is_refused() {
    let at = three_pages();
    let check =
        |offset, len, write| check_mapped(&Span::new(at.wrapping_add(offset), len), write).is_ok();
    assert!(check(0, PAGE, true) && check(10, 2 * PAGE - 10, false));
    assert!(!check(0, PAGE + 1, true), "the second page is read-only");
    assert!(!check(PAGE, PAGE + 1, false), "the third is closed");
    assert!(check(2 * PAGE, 0, true), "no bytes need no memory");
    // These addresses are never mapped, and the last range wraps.
    for nowhere in [PAGE, usize::MAX - 20, usize::MAX] {
        assert!(check_mapped(&Span::new(nowhere as *mut u8, 10), false).is_err());
    }
}

#[test]
fn proc_maps_gives_the_same_answer() {
    let at = three_pages() as usize;
    let listed = |start, end, write| read_maps(start, end, write).is_ok_and(|mapped| mapped);
    assert!(listed(at, at + PAGE, true) && listed(at, at + 2 * PAGE, false));
    assert!(!listed(at, at + PAGE + 1, true) && !listed(at, at + 2 * PAGE + 1, false));
    assert!(!listed(PAGE, PAGE + 10, false));
    let file = parse_vma("7f00-9000 r-xp 00000000 fe:00 1234    /a name");
    let vma = Vma {
        start: 0x7f00,
        end: 0x9000,
        read: true,
        write: false,
        file: true,
    };
    assert_eq!(file, Some(vma));
    let anonymous = parse_vma("7f00-9000 -w-p 00000000 00:00 0").unwrap();
    assert!(anonymous.write && !anonymous.read && !anonymous.file);
    for wrong in ["", "nonsense", "7f00 r-xp 0 0 0", "x-9000 rw-p 0 0 0"] {
        assert_eq!(parse_vma(wrong), None);
    }
}

#[test]
fn probing_leaves_pages_untouched() {
    const LEN: usize = 256 * PAGE;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: fresh anonymous memory, used by this test only.
    let at = unsafe { mmap_anonymous(core::ptr::null_mut(), LEN, rights, MapFlags::PRIVATE) };
    let at = at.unwrap();
    for write in [false, true] {
        check_mapped(&Span::new(at.cast(), LEN), write).unwrap();
        assert!(read_maps(at as usize, at as usize + LEN, write).is_ok_and(|mapped| mapped));
    }
    let mut present = [0_u8; LEN / PAGE];
    // SAFETY: one byte for each page of the mapping.
    let asked = unsafe { libc::mincore(at, LEN, present.as_mut_ptr()) };
    assert_eq!((asked, present), (0, [0; LEN / PAGE]));
}

#[test]
fn pages_beyond_end_of_file_are_refused() {
    let file = memfd_create("probe", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, PAGE as u64 + 1).unwrap();
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED;
    // SAFETY: a fresh mapping, used by this test only.
    let at = unsafe { mmap(core::ptr::null_mut(), 3 * PAGE, rights, flags, &file, 0) };
    let at = at.unwrap();
    check_mapped(&Span::new(at.cast(), 2 * PAGE), true).unwrap();
    assert!(check_mapped(&Span::new(at.cast(), 2 * PAGE + 1), true).is_err());
}
