//! The function that a call is passed on to: the C library's of the same name, or Verbena's with the prefix `r`. A function that was
//! found is not looked up again, and Verbena's library is loaded when the program makes its first TCP socket. A function that is not
//! found fails with `ENOSYS`.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// The cached address of a function.
pub(crate) struct Slot(AtomicPtr<c_void>);

impl Slot {
    pub(crate) const fn new() -> Slot {
        Slot(AtomicPtr::new(core::ptr::null_mut()))
    }
}

/// Returns the cached address, or calls `find` without changing `errno`.
fn lookup_cached(slot: &Slot, find: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let known = slot.0.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: takes no argument; returns a pointer to the calling thread's `errno`, valid as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` is valid for reads as long as this thread runs, and no other thread accesses it.
    let before = unsafe { *errno };
    let found = find();
    // SAFETY: `find` ran on this thread, whose `errno` is still valid for writes; no other thread accesses it.
    unsafe { *errno = before };
    slot.0.store(found, Ordering::Release);
    found
}

/// The next function of this name in search order after this library's; null if there is none.
pub(crate) fn next_symbol(slot: &Slot, name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string, which is borrowed for the call, and `RTLD_NEXT` is a valid handle.
    lookup_cached(slot, || unsafe {
        libc::dlsym(libc::RTLD_NEXT, name.as_ptr())
    })
}

/// Verbena's function of this name; null if the library cannot be loaded.
pub(crate) fn verbena_symbol(slot: &Slot, name: &CStr) -> *mut c_void {
    static LIBRARY: Slot = Slot::new();
    let library = lookup_cached(&LIBRARY, || {
        // SAFETY: the name is a C string literal; loading the library runs no code with preconditions.
        unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW) }
    });
    if library.is_null() {
        return library;
    }
    // SAFETY: `library` was returned by `dlopen` and is never closed; the name is a C string, which is borrowed for the call.
    lookup_cached(slot, || unsafe { libc::dlsym(library, name.as_ptr()) })
}

/// Sets `errno` and returns -1.
pub(crate) fn fail_with(number: c_int) -> c_int {
    // SAFETY: the pointer is to the calling thread's `errno`, and no other thread accesses it.
    unsafe { *libc::__errno_location() = number };
    -1
}

/// Calls the C library's function of this name.
macro_rules! call_next {
    ($name:ident($( $arg:expr => $ty:ty ),*) -> $ret:ty) => {{
        static SLOT: crate::symbols::Slot = crate::symbols::Slot::new();
        type Function = unsafe extern "C" fn($( $ty ),*) -> $ret;
        let name = const { crate::symbols::name(concat!(stringify!($name), "\0").as_bytes()) };
        let found = crate::symbols::next_symbol(&SLOT, name);
        // SAFETY: `found` is null, which becomes `None`, or the address of the C library's function, whose prototype is `Function`.
        match unsafe { core::mem::transmute::<*mut core::ffi::c_void, Option<Function>>(found) } {
            // SAFETY: the arguments are those of the exported function, whose caller guarantees the C library's contract.
            Some(function) => unsafe { function($( $arg ),*) },
            None => crate::symbols::fail_with(libc::ENOSYS) as $ret,
        }
    }};
}
pub(crate) use call_next;

/// Calls Verbena's function of this name.
macro_rules! call_verbena {
    ($name:ident($( $arg:expr => $ty:ty ),*) -> $ret:ty) => {{
        static SLOT: crate::symbols::Slot = crate::symbols::Slot::new();
        type Function = unsafe extern "C" fn($( $ty ),*) -> $ret;
        let name = const { crate::symbols::name(concat!(stringify!($name), "\0").as_bytes()) };
        let found = crate::symbols::verbena_symbol(&SLOT, name);
        // SAFETY: `found` is null, which becomes `None`, or the address of Verbena's function, whose prototype is `Function`.
        match unsafe { core::mem::transmute::<*mut core::ffi::c_void, Option<Function>>(found) } {
            // SAFETY: the arguments are those of the exported function, whose caller guarantees the contract of the call that it replaces.
            Some(function) => unsafe { function($( $arg ),*) },
            None => crate::symbols::fail_with(libc::ENOSYS) as $ret,
        }
    }};
}
pub(crate) use call_verbena;

/// Converts a name with its terminating zero.
pub(crate) const fn name(bytes: &[u8]) -> &CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => name,
        // Only for a name with an inner zero; an empty name is looked up and not found.
        Err(_) => c"",
    }
}
