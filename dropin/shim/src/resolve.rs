//! The directory that replaces `/sys`: a function of `libibverbs.so.1` beside this library returns it, which is loaded for that on the first
//! access, and again if the directory has been removed. During the call, paths of the calling thread are not replaced; other threads wait.
//! `realpath` and the functions like it are here, too: their results are translated back to names below `/sys`.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::io::Write as _;

use crate::{Buffer, preserve_errno, redirect};

const LIBRARY: &CStr = c"libibverbs.so.1";

/// The directory without a slash at its end; strings that were stored here are never freed.
static ROOT: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
/// The process that is resolving it. Not only a flag: a child may be forked while another thread of the parent resolves.
static RESOLVER: AtomicI32 = AtomicI32::new(0);
/// It could not be resolved, and is not tried again.
static UNRESOLVABLE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static RESOLVING: Cell<bool> = const { Cell::new(false) };
}

/// The directory; none if there is none, or if this thread is resolving it.
pub(crate) fn root() -> Option<&'static [u8]> {
    if UNRESOLVABLE.load(Ordering::Relaxed) || RESOLVING.get() {
        return None;
    }
    preserve_errno(|| {
        let known = ROOT.load(Ordering::Acquire);
        if !known.is_null() && exists(known) {
            return bytes(known);
        }
        resolve_root(known);
        bytes(ROOT.load(Ordering::Acquire))
    })
}

fn bytes(text: *mut c_char) -> Option<&'static [u8]> {
    // SAFETY: a C string of `ROOT`, which is never freed.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

fn exists(path: *const c_char) -> bool {
    // SAFETY: a C string of `ROOT`; the other arguments are integers.
    unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::F_OK) == 0 }
}

/// Resolves it, or waits for the thread that does; `before` is the value that was known.
fn resolve_root(before: *mut c_char) {
    // SAFETY: `getpid` takes nothing and always succeeds.
    let process = unsafe { libc::getpid() };
    let take = |from| {
        let taken = RESOLVER.compare_exchange(from, process, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    };
    loop {
        let holder = RESOLVER.load(Ordering::Relaxed);
        if holder != process && take(holder) {
            break;
        }
        // SAFETY: `sched_yield` takes nothing and touches no memory.
        unsafe { libc::sched_yield() };
        if ROOT.load(Ordering::Acquire) != before || UNRESOLVABLE.load(Ordering::Relaxed) {
            return;
        }
    }
    if ROOT.load(Ordering::Acquire) == before {
        RESOLVING.set(true);
        match query_root() {
            Some(root) => ROOT.store(root, Ordering::Release),
            None => UNRESOLVABLE.store(true, Ordering::Relaxed),
        }
        RESOLVING.set(false);
    }
    RESOLVER.store(0, Ordering::Release);
}

/// A function of the library beside this one.
fn verbs_symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `Dl_info` is a C structure of pointers, for which zeros are valid.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: `info` is a local; any address may be looked up.
    let found = unsafe { libc::dladdr(ptr::from_ref(&ROOT).cast(), &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dladdr` succeeded, so it is a C string of the dynamic linker, valid as long as this library is loaded.
    let own = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    let folder = own.iter().rposition(|byte| *byte == b'/')?;
    let mut path = [0_u8; libc::PATH_MAX as usize];
    let parts = own[..=folder].iter().chain(LIBRARY.to_bytes_with_nul());
    if folder + 1 + LIBRARY.count_bytes() >= path.len() {
        return None;
    }
    for (to, from) in path.iter_mut().zip(parts) {
        *to = *from;
    }
    // SAFETY: `path` and `name` are C strings; the library is never unloaded.
    let function = unsafe {
        let library = libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, name.as_ptr())
    };
    (!function.is_null()).then_some(function)
}

/// Resolves the directory; the result is never freed.
fn query_root() -> Option<*mut c_char> {
    type Root = unsafe extern "C" fn(*mut c_char, usize) -> c_int;
    let root = verbs_symbol(c"verbena_sysfs_root")?;
    // SAFETY: `verbena_sysfs_root` of libibverbs has this type.
    let root: Root = unsafe { core::mem::transmute(root) };
    let mut path = [0 as c_char; libc::PATH_MAX as usize];
    // SAFETY: `path` has room for `path.len()` bytes.
    if unsafe { root(path.as_mut_ptr(), path.len()) } != 0 {
        return None;
    }
    // Without symbolic links, as the results of `realpath` are.
    let whole: *mut c_char = call_next!(
        realpath: unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char,
        (path.as_ptr(), ptr::null_mut())
    );
    (!whole.is_null()).then_some(whole)
}

/// Whether a path that is not replaced may lead into the directory: relative to another folder, or by the directory's own name. Only if the
/// directory is known: before, there is no descriptor in it, and its name is not known.
pub(crate) fn may_be_inside(path: &[u8]) -> bool {
    let root = bytes(ROOT.load(Ordering::Acquire));
    root.is_some_and(|root| !path.starts_with(b"/") || path.starts_with(root))
}

/// The path of an open file that lies in the directory, as a C string in `buffer`.
pub(crate) fn path_inside(fd: c_int, buffer: &mut Buffer) -> Option<*const c_char> {
    let root = bytes(ROOT.load(Ordering::Acquire))?;
    let mut link = [0_u8; 32];
    // The longest text leaves a zero behind it.
    write!(&mut link[..], "/proc/self/fd/{fd}").ok()?;
    let (to, room) = (buffer.as_mut_ptr().cast::<u8>(), size_of::<Buffer>() - 1);
    let at = libc::AT_FDCWD;
    // SAFETY: `link` is a C string; `buffer` has room for `room` bytes and one more.
    let len = preserve_errno(|| unsafe {
        libc::syscall(libc::SYS_readlinkat, at, link.as_ptr(), to, room)
    });
    let len = usize::try_from(len).ok()?;
    // SAFETY: the kernel has written `len` bytes to `buffer`, at most `room`.
    let path = unsafe {
        to.add(len).write(0);
        core::slice::from_raw_parts(to, len)
    };
    let rest = path.strip_prefix(root)?;
    rest.starts_with(b"/").then(|| to.cast_const().cast())
}

/// The current value of a counter's file; none if the path is not that of a counter.
pub(crate) fn counter_value<'a>(path: &CStr, to: &'a mut [u8]) -> Option<&'a [u8]> {
    type Counter = unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> c_int;
    let asked = preserve_errno(|| {
        RESOLVING.set(true);
        let counter = verbs_symbol(c"verbena_sysfs_counter");
        let len = counter.map_or(-1, |counter| {
            // SAFETY: `verbena_sysfs_counter` of libibverbs has this type.
            let counter: Counter = unsafe { core::mem::transmute(counter) };
            // SAFETY: `path` is a C string, and `to` has room for `to.len()` bytes.
            unsafe { counter(path.as_ptr(), to.as_mut_ptr().cast(), to.len()) }
        });
        RESOLVING.set(false);
        len
    });
    to.get(..usize::try_from(asked).ok()?)
}

/// Changes a path below the directory into one below `/sys`, in place.
///
/// # Safety
/// `path` is null or a C string that is valid for writes.
unsafe fn restore_sys_path(path: *mut c_char) -> *mut c_char {
    if path.is_null() {
        return path;
    }
    let Some(root) = bytes(ROOT.load(Ordering::Acquire)) else {
        return path;
    };
    // SAFETY: `path` is not null, so the caller guarantees a C string.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    let Some(rest) = text.strip_prefix(root) else {
        return path;
    };
    if !rest.is_empty() && !rest.starts_with(b"/") {
        return path;
    }
    const SYS: &[u8] = b"/sys";
    if root.len() < SYS.len() {
        return path;
    }
    let len = rest.len();
    let from = root.len();
    // SAFETY: `SYS` is not longer than `root`, so both copies stay within the string and its zero; `copy` permits overlap.
    unsafe {
        ptr::copy(path.add(from), path.add(SYS.len()), len + 1);
        ptr::copy_nonoverlapping(SYS.as_ptr().cast(), path, SYS.len());
    }
    path
}

/// Defines functions that return a path.
macro_rules! define_realpaths {
    ($( $name:ident: ($( $after:ident: $a:ty ),*); )+) => {
        $(
            /// As the C library's, but for replaced paths.
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(path: *const c_char $( , $after: $a )*) -> *mut c_char {
                type Function = unsafe extern "C" fn(*const c_char $( , $a )*) -> *mut c_char;
                let mut buffer = Buffer::uninit();
                let path = path_argument!(redirect(path, &mut buffer));
                let found = call_next!($name: Function, (path $( , $after )*));
                // SAFETY: null, or a C string that the C library wrote for the caller.
                unsafe { restore_sys_path(found) }
            }
        )+
    };
}

define_realpaths! {
    realpath: (to: *mut c_char);
    __realpath_chk: (to: *mut c_char, room: usize);
    canonicalize_file_name: ();
}
