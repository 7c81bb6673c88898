//! Waiting for several descriptors of which some are rsockets: `poll`, `ppoll`, `select`, `pselect`.
//! It promises that calls without an rsocket go to the C library unchanged. It refuses to change the signal mask in one step
//! with waiting, as `ppoll` and `pselect` do for other descriptors: it is changed just before and just after.

use core::ffi::c_int;
use core::ptr;

use libc::{fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::mine;
use crate::next::{next, ours};

/// # Safety
/// `fds` is null or begins `count` entries.
unsafe fn any_in(fds: *const pollfd, count: nfds_t) -> bool {
    if fds.is_null() || count == 0 {
        return false;
    }
    // SAFETY: the caller's word.
    let fds = unsafe { core::slice::from_raw_parts(fds, count as usize) };
    fds.iter().any(|fd| mine::is(fd.fd))
}

/// # Safety
/// The sets are null or the program's.
unsafe fn any_of(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    let count = count.clamp(0, libc::FD_SETSIZE as c_int);
    let there = sets.into_iter().filter(|set| !set.is_null());
    // SAFETY: below the size of the sets, which are the program's.
    let mut ours =
        there.flat_map(|set| (0..count).filter(move |fd| unsafe { libc::FD_ISSET(*fd, set) }));
    ours.any(mine::is)
}

/// Does something under another signal mask.
///
/// # Safety
/// `mask` is null or the program's.
unsafe fn masked(mask: *const sigset_t, what: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return what();
    }
    // SAFETY: zeroes are a set; it is written before it is used.
    let mut before: sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: both are sets.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut before) };
    let result = what();
    // SAFETY: as above; `errno` is not touched by it.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// As the C library's, for rsockets too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the program's word.
    if unsafe { any_in(fds, count) } {
        return ours!(rpoll(fds => *mut pollfd, count => nfds_t, timeout => c_int) -> c_int);
    }
    next!(poll(fds => *mut pollfd, count => nfds_t, timeout => c_int) -> c_int)
}

/// What `poll` is in programs that are built with checks.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: ends the process, as the C library does.
        unsafe { libc::abort() }
    }
    // SAFETY: the program's word.
    unsafe { poll(fds, count, timeout) }
}

/// As the C library's, for rsockets too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's word.
    if !unsafe { any_in(fds, count) } {
        return next!(ppoll(fds => *mut pollfd, count => nfds_t, timeout => *const timespec, mask => *const sigset_t) -> c_int);
    }
    // SAFETY: null or the program's.
    let millis = unsafe { timeout.as_ref() }.map_or(-1, |time| {
        let millis = time.tv_sec.saturating_mul(1000) + (time.tv_nsec + 999_999) / 1_000_000;
        c_int::try_from(millis).unwrap_or(c_int::MAX)
    });
    let wait = || ours!(rpoll(fds => *mut pollfd, count => nfds_t, millis => c_int) -> c_int);
    // SAFETY: the program's word.
    unsafe { masked(mask, wait) }
}

/// What `ppoll` is in programs that are built with checks.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: ends the process, as the C library does.
        unsafe { libc::abort() }
    }
    // SAFETY: the program's word.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// As the C library's, for rsockets too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the program's word.
    if unsafe { any_of(count, [read, write, except]) } {
        return ours!(rselect(count => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, timeout => *mut timeval) -> c_int);
    }
    next!(select(count => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, timeout => *mut timeval) -> c_int)
}

/// As the C library's, for rsockets too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's word.
    if !unsafe { any_of(count, [read, write, except]) } {
        return next!(pselect(count => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, timeout => *const timespec, mask => *const sigset_t) -> c_int);
    }
    // SAFETY: null or the program's.
    let mut time = unsafe { timeout.as_ref() }.map(|time| timeval {
        tv_sec: time.tv_sec,
        tv_usec: (time.tv_nsec + 999) / 1000,
    });
    let time = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let wait = || ours!(rselect(count => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, time => *mut timeval) -> c_int);
    // SAFETY: the program's word.
    unsafe { masked(mask, wait) }
}
