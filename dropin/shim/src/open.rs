//! Functions that open a file: for the file of a counter they open one with the counter's current value.
//! The mode of `open` is a variadic argument that is present only with some flags; on the supported architectures it is passed as a third
//! argument of any function would be.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::AtomicPtr;

use crate::{Buffer, sysfs};
use crate::{redirect_files, resolve};

/// Defines functions that open; the type of what follows the path differs.
macro_rules! define_opens {
    ($( $name:ident: ($( $before:ident: $b:ty ),*) path ($( $after:ident: $a:ty ),*) as $function:ty; )+) => {
        $(
            /// As the C library's, but for replaced paths.
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($( $before: $b, )* path: *const c_char, flags: c_int $( , $after: $a )*) -> c_int {
                let mut buffer = Buffer::uninit();
                let other = path_argument!(redirect_files(path, &mut buffer));
                if other != path && flags & libc::O_ACCMODE == libc::O_RDONLY {
                    let cloexec = flags & libc::O_CLOEXEC != 0;
                    // SAFETY: `other` is a C string in `buffer`, since it was replaced.
                    if let Some(fd) = unsafe { open_counter(other, cloexec) } {
                        return fd;
                    }
                }
                let fd = call_next!($name: $function, ($( $before, )* other, flags $( , $after )*));
                if other == path && flags & (libc::O_ACCMODE | libc::O_PATH) == libc::O_RDONLY {
                    // SAFETY: the caller guarantees that `path` is a C string, since the C library has opened it.
                    unsafe { replace_counter(fd, path, flags & libc::O_CLOEXEC) };
                }
                fd
            }
        )+
    };
}

define_opens! {
    open: () path (mode: c_uint) as unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
    open64: () path (mode: c_uint) as unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
    openat: (folder: c_int) path (mode: c_uint) as unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
    openat64: (folder: c_int) path (mode: c_uint) as unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
    // With `_FORTIFY_SOURCE`.
    __open_2: () path () as unsafe extern "C" fn(*const c_char, c_int) -> c_int;
    __open64_2: () path () as unsafe extern "C" fn(*const c_char, c_int) -> c_int;
    __openat_2: (folder: c_int) path () as unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;
    __openat64_2: (folder: c_int) path () as unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;
}

/// Defines functions that open a stream.
macro_rules! define_reopens {
    ($( $name:ident: ($( $after:ident: $a:ty ),*); )+) => {
        $(
            /// As the C library's, but for replaced paths.
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char $( , $after: $a )*) -> *mut c_void {
                type Function = unsafe extern "C" fn(*const c_char, *const c_char $( , $a )*) -> *mut c_void;
                let mut buffer = Buffer::uninit();
                let other = path_argument!(redirect_files(path, &mut buffer));
                call_next!($name: Function, (other, mode $( , $after )*))
            }
        )+
    };
}

define_reopens! {
    freopen: (stream: *mut c_void);
    freopen64: (stream: *mut c_void);
}

/// Defines functions that open a new stream.
macro_rules! define_fopens {
    ($( $name:ident; )+) => {
        $(
            /// As the C library's, but for replaced paths.
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut c_void {
                type Function = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void;
                let mut buffer = Buffer::uninit();
                let other = path_argument!(redirect_files(path, &mut buffer));
                // SAFETY: `other` is a C string in `buffer`, since it was replaced; the caller guarantees that `mode` is a C string.
                if other != path && let Some(stream) = unsafe { counter_stream(other, mode) } {
                    return stream;
                }
                let stream = call_next!($name: Function, (other, mode));
                if other == path && !stream.is_null() {
                    // SAFETY: the C library has opened the stream, so that both arguments are C strings; the stream is valid, and nothing was
                    // read from it.
                    unsafe { replace_counter_of_stream(stream, path, mode) };
                }
                stream
            }
        )+
    };
}

define_fopens! {
    fopen;
    fopen64;
}

/// Replaces a file that was opened for reading by another name than its own, if it is that of a counter, by one with the counter's current value:
/// relative to a folder, or below the real directory, as `glob` returns it.
///
/// # Safety
/// `path` is a C string if `fd` is not negative.
unsafe fn replace_counter(fd: c_int, path: *const c_char, cloexec: c_int) {
    // SAFETY: the path is that of an open file, so that the caller guarantees a C string.
    if fd < 0 || !resolve::may_be_inside(unsafe { CStr::from_ptr(path) }.to_bytes()) {
        return;
    }
    let mut buffer = Buffer::uninit();
    let Some(own) = resolve::path_inside(fd, &mut buffer) else {
        return;
    };
    // SAFETY: `own` is a C string in `buffer`.
    let Some(counter) = (unsafe { open_counter(own, false) }) else {
        return;
    };
    // Should that fail, the file says zero, as it does on the disk.
    // SAFETY: both descriptors are open; `counter` is not used after this.
    unsafe {
        libc::dup3(counter, fd, cloexec);
        libc::close(counter);
    }
}

/// The same for a stream from which nothing was read.
///
/// # Safety
/// `stream` is valid; `path` and `mode` are C strings.
unsafe fn replace_counter_of_stream(stream: *mut c_void, path: *const c_char, mode: *const c_char) {
    // SAFETY: the caller guarantees a C string.
    let Some(cloexec) = read_only(unsafe { CStr::from_ptr(mode) }) else {
        return;
    };
    // SAFETY: the caller guarantees a valid stream, and that `path` is a C string.
    unsafe {
        let fd = libc::fileno(stream.cast());
        replace_counter(fd, path, cloexec);
    }
}

/// For a mode of `fopen` that only reads: `O_CLOEXEC` or 0.
fn read_only(mode: &CStr) -> Option<c_int> {
    let mode = mode.to_bytes();
    let reads = mode.first() == Some(&b'r') && !mode.contains(&b'+');
    reads.then_some(if mode.contains(&b'e') {
        libc::O_CLOEXEC
    } else {
        0
    })
}

/// A file with a counter's value; none if the path is not that of a counter.
///
/// # Safety
/// `path` is a C string.
unsafe fn open_counter(path: *const c_char, cloexec: bool) -> Option<c_int> {
    // SAFETY: the caller guarantees that `path` is a C string, and keeps it during the call.
    let path = unsafe { CStr::from_ptr(path) };
    if !sysfs::changes(path.to_bytes()) {
        return None;
    }
    let mut text = [0_u8; 64];
    let text = resolve::counter_value(path, &mut text)?;
    let flags = if cloexec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: the name is a C string; the flags are integers.
    let fd = unsafe { libc::memfd_create(c"verbena-counter".as_ptr(), flags) };
    if fd < 0 {
        return None;
    }
    // SAFETY: `fd` is open, and `text` is a slice of this length.
    let written = unsafe {
        let written = libc::write(fd, text.as_ptr().cast(), text.len());
        written == text.len() as isize && libc::lseek(fd, 0, libc::SEEK_SET) == 0
    };
    if !written {
        // SAFETY: `fd` was created above, and is not used after this.
        unsafe { libc::close(fd) };
        return None;
    }
    Some(fd)
}

/// The same as a stream, for reading.
///
/// # Safety
/// `path` and `mode` are C strings.
unsafe fn counter_stream(path: *const c_char, mode: *const c_char) -> Option<*mut c_void> {
    // SAFETY: the caller guarantees that `mode` is a C string, and keeps it during the call.
    let mode = unsafe { CStr::from_ptr(mode) };
    let cloexec = read_only(mode)? != 0;
    // SAFETY: `path` is the C string of the caller, passed on unchanged.
    let fd = unsafe { open_counter(path, cloexec) }?;
    // SAFETY: `fd` is open, and `mode` is a C string.
    let stream = unsafe { libc::fdopen(fd, mode.as_ptr()) };
    if stream.is_null() {
        // SAFETY: `fd` was created by `open_counter`, and is not used after this.
        unsafe { libc::close(fd) };
        return None;
    }
    Some(stream.cast())
}
