//! A library for `LD_PRELOAD` that tells libibverbs when a checked program gives memory back (`verbena check`, docs/check.md): by `free`, `realloc`, `munmap`, `mremap`
//! or a mapping in place of another. All calls are passed on unchanged, and until libibverbs asks to be told nothing else happens.

#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// What is told: memory at this address, of this length, is freed (0) or about to be unmapped (1) or moved by `realloc` (2); then something else than 0 is returned if it
/// matters, and passed with 3 when the call has succeeded.
type Watch = unsafe extern "C" fn(what: c_int, at: usize, len: usize) -> usize;

const FREED: c_int = 0;
const UNMAPS: c_int = 1;
const REALLOCATES: c_int = 2;
const DONE: c_int = 3;

static WATCH: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Has a function told of memory from now on; null for none.
///
/// # Safety
/// `watch` is null or a function of the type `Watch` that can be called at any time by any thread, also while it allocates or frees memory itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_watch_memory(watch: *mut c_void) {
    WATCH.store(watch, Ordering::Release);
}

/// Tells of memory; 0 if it does not matter.
#[inline]
fn tell(what: c_int, at: usize, len: usize) -> usize {
    let watch = WATCH.load(Ordering::Acquire);
    // SAFETY: null becomes `None`; others came from `verbena_watch_memory`, whose caller guarantees their type.
    match unsafe { core::mem::transmute::<*mut c_void, Option<Watch>>(watch) } {
        // SAFETY: the caller of `verbena_watch_memory` guarantees that it can be called.
        Some(watch) => unsafe { watch(what, at, len) },
        None => 0,
    }
}

/// The function of the C library, or of the allocator of the program.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    /// A thread is looking for it, perhaps this one.
    searched: AtomicBool,
}

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
            searched: AtomicBool::new(false),
        }
    }

    /// Null if there is none, or while the search itself calls it.
    fn find(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() || self.searched.swap(true, Ordering::AcqRel) {
            return known;
        }
        // SAFETY: the name is a C string, and `RTLD_NEXT` a valid handle.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Release);
        self.searched.store(false, Ordering::Release);
        found
    }
}

macro_rules! next {
    ($name:ident: $function:ty) => {{
        static NEXT: Next = Next::new(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                // An identifier has no zero byte.
                Err(_) => c"",
            },
        );
        extern "C" fn find() {
            NEXT.find();
        }
        // When the library is loaded, so that later no call has to search.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static AT_LOAD: extern "C" fn() = find;
        // SAFETY: null becomes `None`, and the next function of this name has this type.
        unsafe { core::mem::transmute::<*mut c_void, Option<$function>>(NEXT.find()) }
    }};
}

fn usable(at: *mut c_void) -> usize {
    // SAFETY: null, or memory of the allocator whose function this is, since the program gives it back to that.
    unsafe { libc::malloc_usable_size(at) }
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(at: *mut c_void) {
    if !at.is_null() && !WATCH.load(Ordering::Relaxed).is_null() {
        tell(FREED, at as usize, usable(at));
    }
    // Memory that is freed while the function is searched stays allocated.
    if let Some(next) = next!(free: unsafe extern "C" fn(*mut c_void)) {
        // SAFETY: `at` is null or memory of the allocator, which the program does not use after its call of `free`.
        unsafe { next(at) };
    }
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(at: *mut c_void, len: usize) -> *mut c_void {
    let watched = !at.is_null() && !WATCH.load(Ordering::Relaxed).is_null();
    let told = match watched {
        true => tell(REALLOCATES, at as usize, usable(at)),
        false => 0,
    };
    let Some(next) = next!(realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void) else {
        return ptr::null_mut();
    };
    // SAFETY: `at` is null or memory of the allocator, as the program's call of `realloc` requires.
    let result = unsafe { next(at, len) };
    if told != 0 && result != at && (!result.is_null() || len == 0) {
        tell(DONE, told, 0);
    }
    result
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    let told = tell(UNMAPS, at as usize, len);
    let Some(next) = next!(munmap: unsafe extern "C" fn(*mut c_void, usize) -> c_int) else {
        return -1;
    };
    // SAFETY: the range is one that the program does not use after its call of `munmap`.
    let result = unsafe { next(at, len) };
    if told != 0 && result == 0 {
        tell(DONE, told, 0);
    }
    result
}

/// As the C library's. The last argument is there for `MREMAP_FIXED` only, and passed on in any case.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let told = tell(UNMAPS, at as usize, old);
    let shrinks = if new < old {
        tell(UNMAPS, at as usize + new, old - new)
    } else {
        0
    };
    type Mremap =
        unsafe extern "C" fn(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void;
    let Some(next) = next!(mremap: Mremap) else {
        return libc::MAP_FAILED;
    };
    // SAFETY: ranges and flags are those of the program's call of `mremap`, which answers for what it replaces.
    let result = unsafe { next(at, old, new, flags, to) };
    let moved = result != at && result != libc::MAP_FAILED;
    if moved && told != 0 {
        tell(DONE, told, 0);
    } else if result == at && shrinks != 0 {
        tell(DONE, shrinks, 0);
    }
    result
}

macro_rules! define_mmap {
    ($($name:ident)+) => {$(
        /// As the C library's.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void,
            len: usize,
            rights: c_int,
            flags: c_int,
            fd: c_int,
            offset: i64,
        ) -> *mut c_void {
            let replaces = flags & libc::MAP_FIXED != 0;
            let told = if replaces { tell(UNMAPS, at as usize, len) } else { 0 };
            type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
            let Some(next) = next!($name: Mmap) else {
                return libc::MAP_FAILED;
            };
            // SAFETY: arguments are those of the program's call, which answers for a mapping that this one replaces.
            let result = unsafe { next(at, len, rights, flags, fd, offset) };
            if told != 0 && result != libc::MAP_FAILED {
                tell(DONE, told, 0);
            }
            result
        }
    )+};
}

define_mmap! { mmap mmap64 }

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicUsize;

    use super::*;

    static TOLD: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn watch(what: c_int, at: usize, len: usize) -> usize {
        match what {
            UNMAPS if len == 12_288 => at,
            DONE => {
                TOLD.store(at, Ordering::Relaxed);
                0
            }
            _ => 0,
        }
    }

    #[test]
    fn memory_is_told_of_when_it_is_unmapped() {
        // In this process the functions of this library are those that the program calls.
        let map = |at, flags| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
            // SAFETY: new memory, or memory that this test has mapped.
            unsafe { mmap(at, 12_288, libc::PROT_READ, flags, -1, 0) }
        };
        // SAFETY: `watch` has the type, and calls nothing.
        unsafe { verbena_watch_memory(watch as *mut c_void) };
        let at = map(ptr::null_mut(), 0);
        assert_eq!(map(at, libc::MAP_FIXED), at);
        assert_eq!(TOLD.swap(0, Ordering::Relaxed), at as usize);
        // SAFETY: mapped above and not used any more.
        assert_eq!(unsafe { munmap(at, 12_288) }, 0);
        assert_eq!(TOLD.swap(0, Ordering::Relaxed), at as usize);
        // SAFETY: null is allowed.
        unsafe { verbena_watch_memory(ptr::null_mut()) };
    }
}
