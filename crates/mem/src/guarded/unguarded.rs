//! The same functions without protection, for other processors, loom and Miri.
//! A fault in them ends the process.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

// SAFETY, of all: the caller's contract is that of the guarded functions; in addition the memory must be mapped.
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> c_int {
    // SAFETY: see above.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
    0
}

pub(super) use copy as copy_long;

pub(super) fn long() -> usize {
    usize::MAX
}

pub(super) unsafe fn store_8(to: *mut u8, value: u8) -> c_int {
    // SAFETY: see above.
    unsafe { to.write_volatile(value) };
    0
}

pub(super) unsafe fn store_32(to: *mut u32, value: u32) -> c_int {
    // SAFETY: see above.
    unsafe { to.write_volatile(value) };
    0
}

pub(super) unsafe fn store_64(to: *mut u64, value: u64) -> c_int {
    // SAFETY: see above.
    unsafe { to.write_volatile(value) };
    0
}

pub(super) unsafe fn fetch_add(word: *mut u64, add: u64, before: *mut u64) -> c_int {
    // SAFETY: see above; the word is aligned.
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
    // SAFETY: see above; the word is aligned.
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
