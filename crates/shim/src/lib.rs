//! A library for `LD_PRELOAD` that answers questions about `/dev/infiniband/uverbs*` as if they were about `/dev/null`.
//! It promises to pass everything else on untouched, to allocate nothing, and to leave `errno` to those who set it.
//! It refuses to open device files: UCX passes over an adapter whose file it cannot see, and never opens it itself; what it reads
//! of an adapter's attributes is in `attributes`.

#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// What the kernel would call the device files of adapters.
const PREFIX: &CStr = c"/dev/infiniband/uverbs";
/// A character device that everybody may read and write.
const STAND_IN: &CStr = c"/dev/null";

/// The path to ask about instead.
///
/// # Safety
/// `path` is null or begins a text that ends in a zero, as the caller of a C function guarantees during the call.
unsafe fn redirect(path: *const c_char) -> *const c_char {
    if path.is_null() {
        return path;
    }
    for (at, expected) in PREFIX.to_bytes().iter().enumerate() {
        // SAFETY: the caller's text is readable up to its zero, and all bytes before this one were none.
        let byte = unsafe { *path.add(at) };
        // Signed on some machines, not on others.
        if byte.to_ne_bytes() != [*expected] {
            return path;
        }
    }
    STAND_IN.as_ptr()
}

/// The function of this name behind ours; null if there is none. `slot` keeps it.
fn next(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the C library hands out the calling thread's own variable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: the name ends in a zero, and the handle is one that dlsym knows.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    // SAFETY: as above.
    unsafe { *errno = before };
    slot.store(found, Ordering::Relaxed);
    found
}

/// Says in C's words that there is no such function.
fn absent() -> c_int {
    // SAFETY: the C library hands out the calling thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

macro_rules! name {
    ($name:ident) => {
        // A name has no zero inside; if it had, an empty one would be looked for and not found.
        CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).unwrap_or(c"")
    };
}

mod attributes;

/// Defines functions that call their namesakes with the path changed: arguments before it, and behind it.
macro_rules! redirected {
    ($( $name:ident: ($( $before:ident: $b:ty ),*) path ($( $after:ident: $a:ty ),*); )+) => {
        $(
            /// As the C library's, but for the one path.
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($( $before: $b, )* path: *const c_char, $( $after: $a ),*) -> c_int {
                type Function = unsafe extern "C" fn($( $b, )* *const c_char, $( $a ),*) -> c_int;
                let next = next(&slots::$name, name!($name));
                // SAFETY: the C library's function of this name has this type; a null pointer becomes `None`.
                let next: Option<Function> = unsafe { core::mem::transmute(next) };
                let Some(next) = next else { return absent() };
                // SAFETY: the caller guarantees what the C library asks for, and the other path is a text too.
                unsafe { next($( $before, )* redirect(path), $( $after ),*) }
            }
        )+

        /// Where each found function is kept.
        #[allow(non_upper_case_globals, reason = "each has the name of its function")]
        mod slots {
            use super::{AtomicPtr, c_void};
            $( pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut()); )+
        }

        /// Finds all of them when the library is loaded: looking for one takes a lock, which a signal's handler must not.
        extern "C" fn find_all() {
            $( next(&slots::$name, name!($name)); )+
            attributes::find_all();
        }
    };
}

redirected! {
    stat: () path (to: *mut c_void);
    lstat: () path (to: *mut c_void);
    stat64: () path (to: *mut c_void);
    lstat64: () path (to: *mut c_void);
    fstatat: (folder: c_int) path (to: *mut c_void, flags: c_int);
    fstatat64: (folder: c_int) path (to: *mut c_void, flags: c_int);
    statx: (folder: c_int) path (flags: c_int, mask: c_uint, to: *mut c_void);
    access: () path (mode: c_int);
    eaccess: () path (mode: c_int);
    euidaccess: () path (mode: c_int);
    faccessat: (folder: c_int) path (mode: c_int, flags: c_int);
    // What `stat` and its like were before glibc 2.33.
    __xstat: (version: c_int) path (to: *mut c_void);
    __lxstat: (version: c_int) path (to: *mut c_void);
    __xstat64: (version: c_int) path (to: *mut c_void);
    __lxstat64: (version: c_int) path (to: *mut c_void);
    __fxstatat: (version: c_int, folder: c_int) path (to: *mut c_void, flags: c_int);
    __fxstatat64: (version: c_int, folder: c_int) path (to: *mut c_void, flags: c_int);
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = find_all;

#[cfg(test)]
mod tests;
