//! A library for `LD_PRELOAD` that shows programs the files a kernel driver would have for an adapter (docs/dropin.md).
//! Queries about `/dev/infiniband/uverbs*` are answered as if they were about `/dev/null`: UCX ignores an adapter without that
//! file, and never opens it. Paths of the adapter's sysfs files are replaced by paths below a real directory (`sysfs`).
//! All other paths are passed on unchanged, and functions behave and fail as the C library's.

#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Buffer for a replaced path.
type Buffer = MaybeUninit<[u8; libc::PATH_MAX as usize]>;

/// The beginning of the paths of the kernel's device files.
const UVERBS: &[u8] = b"/dev/infiniband/uverbs";
/// A character device that all users may read and write.
const STAND_IN: &CStr = c"/dev/null";

/// The bytes of a path, if it begins as one that is replaced; the length of other paths is not determined.
///
/// # Safety
/// `path` is null or a C string that lives as long as the result.
unsafe fn candidate<'a>(path: *const c_char) -> Option<&'a [u8]> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a C string has at least its zero; the second byte is read only if the first is not zero.
    let [first, second] = unsafe {
        let first = (*path).to_ne_bytes()[0];
        if first != b'/' {
            return None;
        }
        [first, (*path.add(1)).to_ne_bytes()[0]]
    };
    let known = first == b'/' && matches!(second, b's' | b'd' | b'/' | b'.');
    // SAFETY: `path` is not null, so the caller guarantees a C string.
    known.then(|| unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// The path to use instead; it may lie in `buffer`.
///
/// # Safety
/// As for [`candidate`].
unsafe fn redirect(path: *const c_char, buffer: &mut Buffer) -> *const c_char {
    // SAFETY: the caller guarantees that `path` is null or a C string that is not written during the call.
    let Some(bytes) = (unsafe { candidate(path) }) else {
        return path;
    };
    if bytes.starts_with(UVERBS) {
        return STAND_IN.as_ptr();
    }
    sysfs::replacement(bytes, buffer).unwrap_or(path)
}

/// The path for functions that open: device files are not replaced, since they cannot be opened.
///
/// # Safety
/// As for [`candidate`].
unsafe fn redirect_files(path: *const c_char, buffer: &mut Buffer) -> *const c_char {
    // SAFETY: the caller guarantees that `path` is null or a C string, and keeps it while the bytes are used.
    let bytes = unsafe { candidate(path) };
    let replaced = bytes.and_then(|bytes| sysfs::replacement(bytes, buffer));
    replaced.unwrap_or(path)
}

/// The next function of this name in the order of symbol search; null if there is none. `slot` caches it.
fn next_symbol(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = preserve_errno(|| {
        // SAFETY: `name` is a C string, and `RTLD_NEXT` is a valid handle.
        unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
    });
    slot.store(found, Ordering::Relaxed);
    found
}

/// Restores `errno` after `work`.
fn preserve_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: `__errno_location` returns this thread's own variable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` is valid for reads as long as this thread runs, and no other thread accesses it.
    let before = unsafe { *errno };
    let result = work();
    // SAFETY: `work` ran on this thread, whose `errno` is still valid for writes.
    unsafe { *errno = before };
    result
}

/// The result of a failed call.
trait FailureValue {
    const FAILED: Self;
}

impl FailureValue for c_int {
    const FAILED: c_int = -1;
}

impl FailureValue for isize {
    const FAILED: isize = -1;
}

impl<T> FailureValue for *mut T {
    const FAILED: *mut T = core::ptr::null_mut();
}

/// Fails as a function that the system does not have.
fn fail_enosys<T: FailureValue>() -> T {
    // SAFETY: `__errno_location` returns this thread's own variable, which is valid for writes.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    T::FAILED
}

macro_rules! symbol_name {
    ($name:ident) => {
        // An identifier has no zero byte; if it had, an empty name would be looked up, and not found.
        CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).unwrap_or(c"")
    };
}

/// Calls the C library's function of the same name, of the given type.
macro_rules! call_next {
    ($name:ident: $function:ty, ($( $argument:expr ),*)) => {{
        static SLOT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
        extern "C" fn find() {
            $crate::next_symbol(&SLOT, symbol_name!($name));
        }
        // When the library is loaded: the lookup takes a lock, which a signal handler must not.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static AT_LOAD: extern "C" fn() = find;
        let next = $crate::next_symbol(&SLOT, symbol_name!($name));
        // SAFETY: the C library's function of this name has this type; a null pointer becomes `None`.
        let next: Option<$function> = unsafe { core::mem::transmute(next) };
        match next {
            // SAFETY: the caller guarantees what the C library's function requires; a replaced path is a C string, too.
            Some(next) => unsafe { next($( $argument ),*) },
            None => $crate::fail_enosys(),
        }
    }};
}

/// `path_argument!(redirect(path, &mut buffer))`: looks at the path that a program passes to a replaced function. It compiles only inside an
/// `unsafe fn`, which is that function.
///
/// # Safety
/// The caller of the replaced function guarantees that `path` is null or a C string, and that no thread writes it before the function returns: the
/// function of the C library requires the same.
macro_rules! path_argument {
    ($function:ident($path:ident, &mut $buffer:ident)) => {{
        #[allow(unsafe_op_in_unsafe_fn, reason = "the section Safety of the macro")]
        let other = $function($path, &mut $buffer);
        other
    }};
}

mod open;
mod resolve;
mod sysfs;

/// Defines functions that call the C library's of the same name with the path replaced; arguments may be before and behind it.
macro_rules! define_redirected {
    ($( $name:ident: ($( $before:ident: $b:ty ),*) path ($( $after:ident: $a:ty ),*) -> $result:ty; )+) => {
        $(
            /// As the C library's, but for replaced paths.
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($( $before: $b, )* path: *const c_char, $( $after: $a ),*) -> $result {
                let mut buffer = Buffer::uninit();
                let path = path_argument!(redirect(path, &mut buffer));
                call_next!($name: unsafe extern "C" fn($( $b, )* *const c_char, $( $a ),*) -> $result, ($( $before, )* path $( , $after )*))
            }
        )+
    };
}

define_redirected! {
    stat: () path (to: *mut c_void) -> c_int;
    lstat: () path (to: *mut c_void) -> c_int;
    stat64: () path (to: *mut c_void) -> c_int;
    lstat64: () path (to: *mut c_void) -> c_int;
    fstatat: (folder: c_int) path (to: *mut c_void, flags: c_int) -> c_int;
    fstatat64: (folder: c_int) path (to: *mut c_void, flags: c_int) -> c_int;
    statx: (folder: c_int) path (flags: c_int, mask: c_uint, to: *mut c_void) -> c_int;
    access: () path (mode: c_int) -> c_int;
    eaccess: () path (mode: c_int) -> c_int;
    euidaccess: () path (mode: c_int) -> c_int;
    faccessat: (folder: c_int) path (mode: c_int, flags: c_int) -> c_int;
    chdir: () path () -> c_int;
    opendir: () path () -> *mut c_void;
    readlink: () path (to: *mut c_char, size: usize) -> isize;
    readlinkat: (folder: c_int) path (to: *mut c_char, size: usize) -> isize;
    __readlink_chk: () path (to: *mut c_char, size: usize, room: usize) -> isize;
    __readlinkat_chk: (folder: c_int) path (to: *mut c_char, size: usize, room: usize) -> isize;
    getxattr: () path (name: *const c_char, to: *mut c_void, size: usize) -> isize;
    lgetxattr: () path (name: *const c_char, to: *mut c_void, size: usize) -> isize;
    listxattr: () path (to: *mut c_char, size: usize) -> isize;
    llistxattr: () path (to: *mut c_char, size: usize) -> isize;
    scandir: () path (list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int;
    scandir64: () path (list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int;
    scandirat: (folder: c_int) path (list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int;
    scandirat64: (folder: c_int) path (list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int;
    // Paths that are found are those of the replacement directory, and can be opened by any function.
    glob: () path (flags: c_int, failed: *const c_void, found: *mut c_void) -> c_int;
    glob64: () path (flags: c_int, failed: *const c_void, found: *mut c_void) -> c_int;
    // The symbols of `stat` and the functions like it before glibc 2.33.
    __xstat: (version: c_int) path (to: *mut c_void) -> c_int;
    __lxstat: (version: c_int) path (to: *mut c_void) -> c_int;
    __xstat64: (version: c_int) path (to: *mut c_void) -> c_int;
    __lxstat64: (version: c_int) path (to: *mut c_void) -> c_int;
    __fxstatat: (version: c_int, folder: c_int) path (to: *mut c_void, flags: c_int) -> c_int;
    __fxstatat64: (version: c_int, folder: c_int) path (to: *mut c_void, flags: c_int) -> c_int;
}

/// Defines functions about the file system of a path: for replaced paths, that of `/sys`.
macro_rules! define_statfs {
    ($( $name:ident; )+) => {
        $(
            /// As the C library's, but for replaced paths.
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(path: *const c_char, to: *mut c_void) -> c_int {
                let mut buffer = Buffer::uninit();
                let other = path_argument!(redirect_files(path, &mut buffer));
                let path = if other == path { path } else { c"/sys".as_ptr() };
                call_next!($name: unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int, (path, to))
            }
        )+
    };
}

define_statfs! {
    statfs;
    statfs64;
    statvfs;
    statvfs64;
}

#[cfg(test)]
mod tests;
