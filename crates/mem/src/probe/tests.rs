//! Tests of probing: real mappings of every kind, and the fall-back for old kernels.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

use super::*;

/// Three pages: writable, read-only, closed. A page that is really gone could be taken by another test's memory.
fn three_pages() -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: fresh anonymous memory, used by this test only.
    unsafe {
        let at =
            mmap_anonymous(core::ptr::null_mut(), 3 * PAGE, rights, MapFlags::PRIVATE).unwrap();
        mprotect(at.add(PAGE), PAGE, MprotectFlags::READ).unwrap();
        mprotect(at.add(2 * PAGE), PAGE, MprotectFlags::empty()).unwrap();
        at.cast()
    }
}

#[test]
fn unmapped_and_read_only_memory() {
    let at = three_pages();
    let check =
        |offset, len, write| mapped(&Span::new(at.wrapping_add(offset), len), write).is_ok();
    assert!(check(0, PAGE, true) && check(10, 2 * PAGE - 10, false));
    assert!(!check(0, PAGE + 1, true), "the second page is read-only");
    assert!(!check(PAGE, PAGE + 1, false), "the third is closed");
    assert!(check(2 * PAGE, 0, true), "no bytes need no memory");
    // Nothing is ever mapped so low or so high, and the last one wraps.
    for nowhere in [PAGE, usize::MAX - 20, usize::MAX] {
        assert!(mapped(&Span::new(nowhere as *mut u8, 10), false).is_err());
    }
}

#[test]
fn the_list_of_mappings_answers_the_same() {
    let at = three_pages() as usize;
    assert!(listed(at, at + PAGE, true) && listed(at, at + 2 * PAGE, false));
    assert!(!listed(at, at + PAGE + 1, true) && !listed(at, at + 2 * PAGE + 1, false));
    let maps = "1000-2000 rw-p x\n2000-3000 r--p x\n5000-6000 rw-p x\nnonsense\n";
    assert!(covers(maps, 0x1800, 0x2800, false) && !covers(maps, 0x1800, 0x2800, true));
    assert!(!covers(maps, 0x2800, 0x5800, false) && !covers(maps, 0, 0x1001, false));
}
