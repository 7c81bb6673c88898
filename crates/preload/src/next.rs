//! Whom a call is passed on to: the C library's function of the same name, or Verbena's with an `r` before it.
//! It promises to look for each once, and to load Verbena only when a program makes its first TCP socket.
//! It refuses to guess: a function that is not there is `ENOSYS`.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Where a found function is kept.
pub(crate) struct Slot(AtomicPtr<c_void>);

impl Slot {
    pub(crate) const fn new() -> Slot {
        Slot(AtomicPtr::new(core::ptr::null_mut()))
    }
}

/// Looks without leaving a trace in `errno`.
fn look(slot: &Slot, find: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let known = slot.0.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the C library hands out the calling thread's own variable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let found = find();
    // SAFETY: as above.
    unsafe { *errno = before };
    slot.0.store(found, Ordering::Release);
    found
}

/// The function of this name behind ours; null if there is none.
pub(crate) fn behind(slot: &Slot, name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in a zero, and the handle is one that dlsym knows.
    look(slot, || unsafe {
        libc::dlsym(libc::RTLD_NEXT, name.as_ptr())
    })
}

/// Verbena's function of this name; null if the library is not there.
pub(crate) fn verbenas(slot: &Slot, name: &CStr) -> *mut c_void {
    static LIBRARY: Slot = Slot::new();
    let library = look(&LIBRARY, || {
        // SAFETY: loads a library that does nothing when it is loaded.
        unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW) }
    });
    if library.is_null() {
        return library;
    }
    // SAFETY: the handle was just opened and is never closed.
    look(slot, || unsafe { libc::dlsym(library, name.as_ptr()) })
}

/// Says in C's words that something cannot be done.
pub(crate) fn refuse(number: c_int) -> c_int {
    // SAFETY: the C library hands out the calling thread's own variable.
    unsafe { *libc::__errno_location() = number };
    -1
}

/// Calls the C library's function of this name.
macro_rules! next {
    ($name:ident($( $arg:expr => $ty:ty ),*) -> $ret:ty) => {{
        static SLOT: crate::next::Slot = crate::next::Slot::new();
        type Function = unsafe extern "C" fn($( $ty ),*) -> $ret;
        let name = const { crate::next::name(concat!(stringify!($name), "\0").as_bytes()) };
        let found = crate::next::behind(&SLOT, name);
        // SAFETY: the function of this name has this type; a null pointer becomes `None`.
        match unsafe { core::mem::transmute::<*mut core::ffi::c_void, Option<Function>>(found) } {
            // SAFETY: the program guarantees what the C library asks for.
            Some(function) => unsafe { function($( $arg ),*) },
            None => crate::next::refuse(libc::ENOSYS) as $ret,
        }
    }};
}
pub(crate) use next;

/// Calls Verbena's function of this name.
macro_rules! ours {
    ($name:ident($( $arg:expr => $ty:ty ),*) -> $ret:ty) => {{
        static SLOT: crate::next::Slot = crate::next::Slot::new();
        type Function = unsafe extern "C" fn($( $ty ),*) -> $ret;
        let name = const { crate::next::name(concat!(stringify!($name), "\0").as_bytes()) };
        let found = crate::next::verbenas(&SLOT, name);
        // SAFETY: the function of this name has this type; a null pointer becomes `None`.
        match unsafe { core::mem::transmute::<*mut core::ffi::c_void, Option<Function>>(found) } {
            // SAFETY: the program guarantees what the call asks for.
            Some(function) => unsafe { function($( $arg ),*) },
            None => crate::next::refuse(libc::ENOSYS) as $ret,
        }
    }};
}
pub(crate) use ours;

/// A name with its zero.
pub(crate) const fn name(bytes: &[u8]) -> &CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => name,
        // No name has a zero inside; if one had, an empty one would be looked for and not found.
        Err(_) => c"",
    }
}
