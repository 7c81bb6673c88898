//! Copies from and to registered memory that survive its unmapping.
//!
//! A program may unmap, truncate or protect memory that it has registered. System calls answer that with `EFAULT`; a copy in user space
//! would get `SIGSEGV` or `SIGBUS`. The functions here are one piece of assembly without stack frames, and [`catch_faults`] installs a
//! handler that continues a fault within that piece at its failure exit, as the kernel does with its exception table: the copy returns
//! [`Unmapped`]. Faults elsewhere go to the handler that was there before. Other processors than x86-64 copy without protection.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

/// Registered memory is not mapped any more, or not with the rights that it had. A part of it may have been copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmapped;

#[cfg_attr(
    all(target_arch = "x86_64", not(loom), not(miri)),
    path = "guarded/x86_64.rs"
)]
#[cfg_attr(
    not(all(target_arch = "x86_64", not(loom), not(miri))),
    path = "guarded/unguarded.rs"
)]
mod arch;

/// Result of `arch::long`, set by [`catch_faults`]. Not asked for each copy, so that the instruction counts of the benchmarks, which do not
/// call it, are those of loops: callgrind counts a string copy as one instruction for each byte.
static LONG_COPY_MIN: AtomicUsize = AtomicUsize::new(usize::MAX);

fn check_copied(answer: c_int) -> Result<(), Unmapped> {
    if answer == 0 { Ok(()) } else { Err(Unmapped) }
}

/// Copies `len` bytes.
///
/// # Safety
/// Each side is memory of this process that the caller may read or write, or is registered memory under a grant; no reference to the
/// bytes at `to` exists, and the two do not overlap.
#[inline]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<(), Unmapped> {
    // SAFETY: the caller guarantees that the `len` bytes at `from` and `to` are its own or under a grant, that they do not overlap, and that no reference to
    // those at `to` exists. That they are mapped is not required.
    check_copied(unsafe {
        if len < LONG_COPY_MIN.load(Ordering::Relaxed) {
            arch::copy(to, from, len)
        } else {
            arch::copy_long(to, from, len)
        }
    })
}

/// Copies one to eight bytes that lie in one aligned word at `to`, in ascending order and each once: by one store if they are eight or
/// four aligned bytes.
///
/// # Safety
/// As [`copy`], and `len` is as said.
#[inline]
pub(crate) unsafe fn copy_word(to: *mut u8, from: *const u8, len: usize) -> Result<(), Unmapped> {
    debug_assert!((1..=8).contains(&len) && to.addr() % 8 + len <= 8);
    // SAFETY: the caller guarantees that the `len` bytes at `from` and `to` are its own or under a grant, that they do not overlap, and
    // that no reference to those at `to` exists.
    check_copied(unsafe { arch::copy_word(to, from, len) })
}

/// Adds to a word atomically, and returns the value before.
///
/// # Safety
/// As [`copy`], and the word is aligned.
pub(crate) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Unmapped> {
    let mut before = 0;
    // SAFETY: the caller guarantees that `word` is its own or under a grant, and aligned; `before` is a local variable.
    check_copied(unsafe { arch::fetch_add(word, add, &raw mut before) }).map(|()| before)
}

/// Writes `new` atomically if the word is `expected`, and returns the value before.
///
/// # Safety
/// As [`copy`], and the word is aligned.
pub(crate) unsafe fn compare_exchange(
    word: *mut u64,
    expected: u64,
    new: u64,
) -> Result<u64, Unmapped> {
    let mut before = 0;
    // SAFETY: the caller guarantees that `word` is aligned and its own or under a grant until this returns; `before` is a local variable.
    check_copied(unsafe { arch::compare_exchange(word, expected, new, &raw mut before) })
        .map(|()| before)
}

/// Signals of an access to memory that is unmapped or protected, and of one beyond the end of a mapped file.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The actions that were installed before this module's.
static PREVIOUS_ACTIONS: [OnceLock<libc::sigaction>; 2] = [const { OnceLock::new() }; 2];

/// From now on a fault in a copy from or to registered memory ends the copy instead of the process. Handlers of other faults that are
/// installed before keep working; one that is installed later and does not call the previous handler ends this protection.
pub fn catch_faults() {
    static INSTALLED: Once = Once::new();
    LONG_COPY_MIN.store(arch::long(), Ordering::Relaxed);
    INSTALLED.call_once(|| SIGNALS.into_iter().zip(&PREVIOUS_ACTIONS).for_each(install));
}

/// [`catch_faults`] was called and protects copies on this processor.
pub fn catches_faults() -> bool {
    arch::CATCHES && PREVIOUS_ACTIONS[0].get().is_some()
}

fn install((signal, before): (c_int, &OnceLock<libc::sigaction>)) {
    // SAFETY: zeroes are a valid action, the default one.
    let (mut present, mut action): (libc::sigaction, libc::sigaction) =
        unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
    // SAFETY: writes the present action, which is a local variable.
    unsafe { libc::sigaction(signal, core::ptr::null(), &raw mut present) };
    // Stored before the handler can need it.
    before.get_or_init(|| present);
    action.sa_sigaction = on_fault as *const () as usize;
    // On the alternate stack where there is one: a stack overflow is a fault, too.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: a valid action that lives until the call returns; `on_fault` calls async-signal-safe functions and the previous handler.
    unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) };
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes the context of the interrupted thread as third argument.
    if unsafe { arch::leave(context) } {
        return;
    }
    let known = SIGNALS.iter().position(|one| *one == signal);
    let before = known.and_then(|at| PREVIOUS_ACTIONS[at].get());
    match before {
        Some(before)
            if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN =>
        {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: an action with this flag has a handler of this type; the address is not null.
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { core::mem::transmute(before.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: an action without the flag has a handler of this type; the address is not null.
                let handler: extern "C" fn(c_int) =
                    unsafe { core::mem::transmute(before.sa_sigaction) };
                handler(signal);
            }
        }
        _ => {
            // The default: the instruction is executed again and faults without a handler; a signal that was sent is raised again.
            // SAFETY: zeroes are the default action; `info` is valid until the handler returns, and both calls are async-signal-safe.
            unsafe {
                let action: libc::sigaction = core::mem::zeroed();
                libc::sigaction(signal, &raw const action, core::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
