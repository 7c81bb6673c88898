//! The same functions without protection, for other processors, loom and Miri.
//! A fault in them ends the process.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

/// A fault is not caught.
pub(super) const CATCHES: bool = false;

/// # Safety
/// As for [`super::copy`], and both sides are mapped until this returns. The other functions of this file require the same of their pointers.
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> c_int {
    // SAFETY: the caller guarantees that `len` bytes at `from` and `to` are mapped, that they do not overlap, and that no reference to those at `to` exists.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
    0
}

pub(super) use copy as copy_long;

pub(super) fn long() -> usize {
    usize::MAX
}

pub(super) unsafe fn copy_word(to: *mut u8, from: *const u8, len: usize) -> c_int {
    // SAFETY: the caller guarantees that `len` bytes at `from` and `to` are mapped, and that no reference to those at `to` exists; the
    // alignment of the wider stores is checked here.
    unsafe {
        if len == 8 && to.addr().is_multiple_of(8) {
            to.cast::<u64>()
                .write_volatile(from.cast::<u64>().read_unaligned());
        } else if len == 4 && to.addr().is_multiple_of(4) {
            to.cast::<u32>()
                .write_volatile(from.cast::<u32>().read_unaligned());
        } else {
            (0..len).for_each(|at| to.add(at).write_volatile(from.add(at).read()));
        }
    }
    0
}

pub(super) unsafe fn fetch_add(word: *mut u64, add: u64, before: *mut u64) -> c_int {
    // SAFETY: the caller guarantees that `word` is mapped, writable and aligned, and that `before` is a variable of its own.
    unsafe { *before = AtomicU64::from_ptr(word).fetch_add(add, Ordering::SeqCst) };
    0
}

pub(super) unsafe fn compare_exchange(
    word: *mut u64,
    expected: u64,
    new: u64,
    before: *mut u64,
) -> c_int {
    let order = Ordering::SeqCst;
    // SAFETY: the caller guarantees that `word` is mapped, writable and aligned; `before` is a variable of the caller.
    unsafe {
        let word = AtomicU64::from_ptr(word);
        let (Ok(value) | Err(value)) = word.compare_exchange(expected, new, order, order);
        *before = value;
    }
    0
}

pub(super) unsafe fn leave(_: *mut core::ffi::c_void) -> bool {
    false
}
