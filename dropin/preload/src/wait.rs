//! Waiting for several descriptors some of which are rsockets: `poll`, `ppoll`, `select`, `pselect`. Calls without an rsocket go to the C
//! library unchanged. With one, the signal mask of `ppoll` and `pselect` is not changed atomically with the wait, but just before and
//! just after it.

use core::ffi::c_int;
use core::ptr;

use libc::{fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::fd_table;
use crate::symbols::{call_next, call_verbena};

/// # Safety
/// `fds` is null or points to `count` entries that are valid for reads.
unsafe fn any_rsocket_in_poll(fds: *const pollfd, count: nfds_t) -> bool {
    if fds.is_null() || count == 0 {
        return false;
    }
    // SAFETY: `fds` is not null, and the caller guarantees `count` entries that are valid for reads.
    let fds = unsafe { core::slice::from_raw_parts(fds, count as usize) };
    fds.iter().any(|fd| fd_table::is_rsocket(fd.fd))
}

/// # Safety
/// Each of the sets is null or valid for reads.
unsafe fn any_rsocket_in_sets(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    let count = count.clamp(0, libc::FD_SETSIZE as c_int);
    let there = sets.into_iter().filter(|set| !set.is_null());
    // SAFETY: `fd` is below `FD_SETSIZE`, and `set` is not null, so the caller guarantees that it is valid.
    let mut ours =
        there.flat_map(|set| (0..count).filter(move |fd| unsafe { libc::FD_ISSET(*fd, set) }));
    ours.any(fd_table::is_rsocket)
}

/// Calls `what` with another signal mask.
///
/// # Safety
/// `mask` is null or valid for reads.
unsafe fn with_signal_mask(mask: *const sigset_t, what: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return what();
    }
    // SAFETY: `sigset_t` is a C structure of integers, for which zeros are valid.
    let mut before: sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: `mask` is not null, so the caller guarantees that it is valid; `before` is a local.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut before) };
    let result = what();
    // SAFETY: `before` is a local that the first call has filled in; a null pointer asks for no old mask. `errno` is not changed.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// As the C library's, for rsockets too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller of `poll` guarantees `count` entries at `fds`.
    if unsafe { any_rsocket_in_poll(fds, count) } {
        return call_verbena!(rpoll(fds => *mut pollfd, count => nfds_t, timeout => c_int) -> c_int);
    }
    call_next!(poll(fds => *mut pollfd, count => nfds_t, timeout => c_int) -> c_int)
}

/// The variant of `poll` in programs built with `_FORTIFY_SOURCE`.
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
        // SAFETY: `abort` has no preconditions. The C library aborts, too.
        unsafe { libc::abort() }
    }
    // SAFETY: the caller guarantees `room` bytes at `fds`, which are at least `count` entries.
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
    // SAFETY: the caller of `ppoll` guarantees `count` entries at `fds`.
    if !unsafe { any_rsocket_in_poll(fds, count) } {
        return call_next!(ppoll(fds => *mut pollfd, count => nfds_t, timeout => *const timespec, mask => *const sigset_t) -> c_int);
    }
    // SAFETY: the caller guarantees that `timeout` is null or valid for reads during this call.
    let millis = unsafe { timeout.as_ref() }.map_or(-1, |time| {
        let millis = time.tv_sec.saturating_mul(1000) + (time.tv_nsec + 999_999) / 1_000_000;
        c_int::try_from(millis).unwrap_or(c_int::MAX)
    });
    let wait =
        || call_verbena!(rpoll(fds => *mut pollfd, count => nfds_t, millis => c_int) -> c_int);
    // SAFETY: the caller guarantees that `mask` is null or valid for reads.
    unsafe { with_signal_mask(mask, wait) }
}

/// The variant of `ppoll` in programs built with `_FORTIFY_SOURCE`.
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
        // SAFETY: `abort` has no preconditions. The C library aborts, too.
        unsafe { libc::abort() }
    }
    // SAFETY: the caller guarantees `room` bytes at `fds`, which are at least `count` entries; `timeout` and `mask` are passed on unchanged
    // under the same contract.
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
    // SAFETY: the caller of `select` guarantees that each set is null or valid.
    if unsafe { any_rsocket_in_sets(count, [read, write, except]) } {
        return call_verbena!(rselect(count => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, timeout => *mut timeval) -> c_int);
    }
    call_next!(select(count => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, timeout => *mut timeval) -> c_int)
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
    // SAFETY: the caller of `pselect` guarantees that each set is null or valid.
    if !unsafe { any_rsocket_in_sets(count, [read, write, except]) } {
        return call_next!(pselect(count => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, timeout => *const timespec, mask => *const sigset_t) -> c_int);
    }
    // SAFETY: the caller guarantees that `timeout` is null or valid for reads during this call.
    let mut time = unsafe { timeout.as_ref() }.map(|time| timeval {
        tv_sec: time.tv_sec,
        tv_usec: (time.tv_nsec + 999) / 1000,
    });
    let time = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let wait = || call_verbena!(rselect(count => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, time => *mut timeval) -> c_int);
    // SAFETY: the caller guarantees that `mask` is null or valid for reads.
    unsafe { with_signal_mask(mask, wait) }
}
