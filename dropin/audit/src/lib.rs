//! A library for `LD_AUDIT`: the dynamic linker asks it before each search, and gets Verbena's path for every name of libibverbs and
//! librdmacm, be it a full path, found by `DT_RPATH`, or that of a copy with a hash in its name, as Python wheels carry them.
//! It is linked without the C library: the dynamic linker would load a second copy of it for this library alone. So code here must
//! not panic, allocate, or call anything; `cargo xtask dropin` fails to link it otherwise.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_uint};

mod folder;
mod name;

use name::Kind;

/// The release of the interface that glibc 2.35 came with. Before it, an audit library makes calls between libraries slower,
/// and this one is not used.
const VERSION: c_uint = 2;
/// The name is that of a `dlopen` call or of a `DT_NEEDED` entry, not a path that the linker tries.
const LA_SER_ORIG: c_uint = 1;

/// Longest path.
const MAX_PATH: usize = 4096;
/// Copies with different names in one process; `cargo xtask dropin` makes as many files.
pub const ALIASES: usize = 8;
/// Longest name of a copy.
const MAX_NAME: usize = 128;

/// Both libraries, and one file per copy.
const TARGETS: usize = 2 + ALIASES;

struct StringTable<const LEN: usize, const COUNT: usize>(UnsafeCell<[[u8; LEN]; COUNT]>);

// SAFETY: used only in calls of the dynamic linker, which makes one at a time, under its lock.
unsafe impl<const LEN: usize, const COUNT: usize> Sync for StringTable<LEN, COUNT> {}

impl<const LEN: usize, const COUNT: usize> StringTable<LEN, COUNT> {
    const fn new() -> Self {
        StringTable(UnsafeCell::new([[0; LEN]; COUNT]))
    }

    /// The bytes of one entry; a null pointer if there is none.
    fn at(&self, index: usize) -> *mut u8 {
        if index >= COUNT {
            return core::ptr::null_mut();
        }
        self.0.get().cast::<u8>().wrapping_add(index * LEN)
    }
}

/// Paths that were returned to the dynamic linker, which must stay valid.
static PATHS: StringTable<MAX_PATH, TARGETS> = StringTable::new();
/// Names of copies, by the number of their file.
static COPY_NAMES: StringTable<MAX_NAME, ALIASES> = StringTable::new();

/// The first call of the dynamic linker: which release of the interface is used, 0 for none.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(offered: c_uint) -> c_uint {
    if offered < VERSION { 0 } else { VERSION }
}

/// Called before the search for a library: returns the name to search for.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    _cookie: *mut usize,
    flag: c_uint,
) -> *const c_char {
    if flag != LA_SER_ORIG || name.is_null() {
        return name;
    }
    // SAFETY: `name` is not null, so the dynamic linker guarantees a C string.
    let found = unsafe { redirected(name.cast()) };
    found.map_or(name, |path| path.cast_const().cast())
}

/// # Safety
/// `name` is a C string.
unsafe fn redirected(name: *const u8) -> Option<*mut u8> {
    // SAFETY: the caller guarantees that `name` is a C string, which is not written during the call.
    let (base, kind) = unsafe { name::classify(name) }?;
    let (target, file) = match kind {
        Kind::Verbs => (0, &b"libibverbs.so.1\0"[..]),
        Kind::Cm => (1, &b"librdmacm.so.1\0"[..]),
        // SAFETY: `base` is the end of `name`, so a C string.
        Kind::Copy => (
            2 + unsafe { copy_number(base) }?,
            &b"libverbena-alias-\0"[..],
        ),
    };
    let path = PATHS.at(target);
    // SAFETY: `path` has room for `PATH` bytes. It is a C string once it is written; until then its first byte is zero.
    unsafe {
        if *path != 0 {
            return Some(path);
        }
        let mut at = folder::library_folder(path, MAX_PATH)?;
        // The file name, and for a copy its number and suffix, must fit.
        if at + file.len() + 8 > MAX_PATH {
            *path = 0;
            return None;
        }
        for byte in file {
            // Volatile, so that the compiler does not turn this loop into a call of memcpy, which does not exist here.
            core::ptr::write_volatile(path.wrapping_add(at), *byte);
            at += 1;
        }
        if target >= 2 {
            at -= 1;
            for byte in [b'0'.wrapping_add((target - 2) as u8), b'.', b's', b'o', 0] {
                *path.wrapping_add(at) = byte;
                at += 1;
            }
        }
    }
    Some(path)
}

/// The number of a copy's file, the same for the same name; none if all are taken. Each name needs a file of its own: glibc keeps
/// a changed name only with the first library that it finds at a place, and fails when it looks for the versions of the second.
///
/// # Safety
/// `base` is a C string.
unsafe fn copy_number(base: *const u8) -> Option<usize> {
    let mut number = 0;
    while number < ALIASES {
        let known = COPY_NAMES.at(number);
        // SAFETY: `base` is a C string, and an entry is zeros or a C string; no more than the `NAME` bytes of the entry are written.
        unsafe {
            if *known == 0 {
                let mut at = 0;
                while at < MAX_NAME {
                    let byte = *base.wrapping_add(at);
                    core::ptr::write_volatile(known.wrapping_add(at), byte);
                    if byte == 0 {
                        return Some(number);
                    }
                    at += 1;
                }
                // Too long to be kept.
                *known = 0;
                return None;
            }
            if name::equal(known, base) {
                return Some(number);
            }
        }
        number += 1;
    }
    None
}

#[cfg(test)]
mod tests;
