//! Attributes of adapters that the kernel would have as files, for programs that read these files themselves.
//! It promises that what the kernel does have is what they get, and that only files that are missing are stood in for.
//! It refuses all but the kind of a GID: UCX takes an adapter without it for one of the older kind, and drops its datagrams.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::AtomicPtr;

use crate::{absent, next};

/// Where the files would be, in parts: between them stand the adapter's name, the port and the index.
const PARTS: [&[u8]; 3] = [b"/sys/class/infiniband/", b"/ports/", b"/gid_attrs/types/"];
/// What they would say.
const KIND: &[u8] = b"RoCE v2\n";

/// The path is that of such a file.
///
/// # Safety
/// `path` is null or begins a text that ends in a zero.
unsafe fn names_kind(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the caller's word.
    let mut rest = unsafe { CStr::from_ptr(path) }.to_bytes();
    for part in PARTS {
        let Some(behind) = rest.strip_prefix(part) else {
            return false;
        };
        // One name, without a slash; at the end it is the last.
        let end = behind.iter().position(|byte| *byte == b'/');
        let end = end.unwrap_or(behind.len());
        if end == 0 {
            return false;
        }
        rest = &behind[end..];
    }
    rest.is_empty()
}

/// A file that says it; -1 if the system has no room for one.
fn kind() -> c_int {
    // SAFETY: a name, and flags that the system knows.
    let fd = unsafe { libc::memfd_create(c"verbena-gid-type".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return -1;
    }
    // SAFETY: writes bytes of ours to a descriptor of ours, and goes back to its beginning.
    unsafe {
        let written = libc::write(fd, KIND.as_ptr().cast(), KIND.len());
        if written != KIND.len() as isize || libc::lseek(fd, 0, libc::SEEK_SET) != 0 {
            libc::close(fd);
            return -1;
        }
    }
    fd
}

/// What an open came to, or the stand-in for a file that is missing.
///
/// # Safety
/// `path` is null or begins a text that ends in a zero.
unsafe fn or_kind(opened: c_int, path: *const c_char) -> c_int {
    if opened >= 0 {
        return opened;
    }
    // SAFETY: the C library hands out the calling thread's own variable.
    let missing = unsafe { *libc::__errno_location() } == libc::ENOENT;
    // SAFETY: the caller's word.
    if missing && unsafe { names_kind(path) } {
        return kind();
    }
    opened
}

macro_rules! opens {
    ($( $name:ident: ($( $before:ident: $b:ty ),*); )+) => {
        $(
            /// As the C library's, but for the files that are stood in for. The mode is there or not, as the flags say;
            /// on the machines we know it is passed as a third argument of any function would be.
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($( $before: $b, )* path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
                type Function = unsafe extern "C" fn($( $b, )* *const c_char, c_int, ...) -> c_int;
                let next = next(&slots::$name, name!($name));
                // SAFETY: the C library's function of this name has this type; a null pointer becomes `None`.
                let next: Option<Function> = unsafe { core::mem::transmute(next) };
                let Some(next) = next else { return absent() };
                // SAFETY: the caller guarantees what the C library asks for.
                unsafe { or_kind(next($( $before, )* path, flags, mode), path) }
            }
        )+

        /// Where each found function is kept.
        #[allow(non_upper_case_globals, reason = "each has the name of its function")]
        mod slots {
            use super::{AtomicPtr, c_void};
            $( pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut()); )+
        }

        /// Finds all of them when the library is loaded.
        pub(crate) fn find_all() {
            $( next(&slots::$name, name!($name)); )+
        }
    };
}

opens! {
    open: ();
    open64: ();
    openat: (folder: c_int);
    openat64: (folder: c_int);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &CStr) -> bool {
        // SAFETY: a text.
        unsafe { names_kind(path.as_ptr()) }
    }

    #[test]
    fn only_the_kind_of_a_gid_is_stood_in_for() {
        assert!(named(
            c"/sys/class/infiniband/verbena0/ports/1/gid_attrs/types/0"
        ));
        assert!(named(
            c"/sys/class/infiniband/other/ports/1/gid_attrs/types/12"
        ));
        for path in [
            c"/sys/class/infiniband/verbena0/ports/1/gid_attrs/types/",
            c"/sys/class/infiniband/verbena0/ports/1/gid_attrs/types/0/1",
            c"/sys/class/infiniband//ports/1/gid_attrs/types/0",
            c"/sys/class/infiniband/verbena0/ports/1/gid_attrs/ndevs/0",
            c"/sys/class/infiniband/verbena0",
            c"",
        ] {
            assert!(!named(path), "{path:?}");
        }
        // SAFETY: null is allowed.
        assert!(!unsafe { names_kind(core::ptr::null()) });
    }

    #[test]
    fn the_stand_in_says_it_once() {
        use std::io::Read;
        use std::os::fd::FromRawFd;
        // SAFETY: a descriptor that nobody else has.
        let mut file = unsafe { std::fs::File::from_raw_fd(kind()) };
        let mut said = String::new();
        file.read_to_string(&mut said).unwrap();
        assert_eq!(said, "RoCE v2\n");
    }
}
