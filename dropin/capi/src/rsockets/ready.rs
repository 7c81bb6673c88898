//! `rpoll` and `rselect`: waiting for rsockets and other descriptors at once.
//! The thread polls for the setting `polling_time`, then sleeps on a descriptor of its own that every socket signals; sockets are checked
//! again after they are armed, so no event is lost. Signal masks are not supported.

use core::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, timeval};
use verbena_rsocket::{Notifier, Readiness, Stream};

use super::cancel;
use super::table::{Entry, Socket};
use super::{defaults, int_result, table};
use crate::caller::arg_ref;
use crate::errno::Errno;

/// Waits until a descriptor is ready; returns how many are.
///
/// # Safety
/// `fds` is null or points to `nfds` entries that are valid for reads and writes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rpoll(
    fds: *mut pollfd,
    nfds: nfds_t,
    timeout: c_int,
) -> c_int {
    if fds.is_null() || nfds == 0 {
        return pass_on!(cancel::poll(fds, nfds, timeout));
    }
    // SAFETY: `fds` is not null, so the caller guarantees `nfds` entries.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds, nfds as usize) };
    let until = u64::try_from(timeout).ok();
    let until = until.map(|millis| Instant::now() + Duration::from_millis(millis));
    int_result(wait(fds, until))
}

/// The descriptors to wait for.
struct PollSet<'a> {
    fds: &'a mut [pollfd],
    sockets: Vec<Option<Arc<Socket>>>,
    /// The entries that are no rsockets, and one for the alarm; the descriptors of rsockets are replaced by -1, which `poll` ignores.
    others: Vec<pollfd>,
    mixed: bool,
}

fn wait(fds: &mut [pollfd], until: Option<Instant>) -> Result<c_int, Errno> {
    let mut wanted = PollSet::new(fds);
    if wanted.sockets.iter().all(Option::is_none) {
        return wanted.poll_others(until);
    }
    let spin = Instant::now() + defaults::options().polling;
    loop {
        let ready = wanted.check()?;
        let now = Instant::now();
        if ready > 0 || until.is_some_and(|until| now >= until) {
            return Ok(ready);
        }
        if now >= spin {
            break;
        }
        core::hint::spin_loop();
    }
    let alarm = Notifier::current()?;
    let sockets = wanted.sockets.iter().flatten();
    let _watches: Vec<_> = sockets.map(|own| own.stream.watch(&alarm)).collect();
    loop {
        alarm.clear();
        for own in wanted.sockets.iter().flatten() {
            own.stream.arm();
        }
        let ready = wanted.check()?;
        if ready > 0 || until.is_some_and(|until| Instant::now() >= until) {
            return Ok(ready);
        }
        wanted.sleep(&alarm, until)?;
    }
}

impl PollSet<'_> {
    fn new(fds: &mut [pollfd]) -> PollSet<'_> {
        let own = |fd: &pollfd| match table::get(fd.fd) {
            Ok(Entry::Stream(own)) => Some(own),
            _ => None,
        };
        let sockets: Vec<_> = fds.iter().map(own).collect();
        let mut others: Vec<pollfd> = fds.to_vec();
        for (fd, own) in others.iter_mut().zip(&sockets) {
            if own.is_some() {
                fd.fd = -1;
            }
            fd.revents = 0;
        }
        let mixed = others.iter().any(|fd| fd.fd >= 0);
        PollSet {
            fds,
            sockets,
            others,
            mixed,
        }
    }

    /// Checks without waiting.
    fn check(&mut self) -> Result<c_int, Errno> {
        if self.mixed {
            poll(&mut self.others, 0)?;
        }
        let mut ready = 0;
        for ((fd, own), other) in self.fds.iter_mut().zip(&self.sockets).zip(&self.others) {
            fd.revents = match own {
                Some(own) => socket_events(&own.stream, fd.events),
                None => other.revents,
            };
            ready += c_int::from(fd.revents != 0);
        }
        Ok(ready)
    }

    /// Sleeps until a descriptor may be ready. No lock is held during the wait, which is in the C library: the thread may be cancelled.
    fn sleep(&mut self, alarm: &Notifier, until: Option<Instant>) -> Result<(), Errno> {
        let count = self.others.len();
        self.others.push(pollfd {
            fd: alarm.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let slept = poll(&mut self.others, millis(until));
        self.others.truncate(count);
        slept.map(drop)
    }

    fn poll_others(&mut self, until: Option<Instant>) -> Result<c_int, Errno> {
        let ready = poll(self.fds, millis(until))?;
        Ok(ready)
    }
}

fn poll(fds: &mut [pollfd], timeout: c_int) -> Result<c_int, Errno> {
    // SAFETY: pointer and count are those of a slice.
    let n = unsafe { cancel::poll(fds.as_mut_ptr(), fds.len() as nfds_t, timeout) };
    if n < 0 { Err(Errno::last()) } else { Ok(n) }
}

/// Remaining milliseconds, rounded up; -1 for no limit.
fn millis(until: Option<Instant>) -> c_int {
    let Some(until) = until else { return -1 };
    let left = until.saturating_duration_since(Instant::now());
    c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
}

/// A failed attempt to connect is writable and nothing else to a caller that waits for that, as in librdmacm: `rstream` takes
/// `POLLERR` for an error of `rpoll` itself, and would not ask for `SO_ERROR`.
fn socket_events(stream: &Stream, wanted: i16) -> i16 {
    let (ready, writable) = (stream.readiness(), libc::POLLOUT | libc::POLLWRNORM);
    if ready.error && wanted & writable != 0 && stream.connect_failed() {
        return wanted & writable;
    }
    events(ready, wanted)
}

fn events(ready: Readiness, wanted: i16) -> i16 {
    let rows = [
        (ready.readable, libc::POLLIN | libc::POLLRDNORM),
        (ready.writable, libc::POLLOUT | libc::POLLWRNORM),
    ];
    let asked = rows.into_iter().filter(|(is, _)| *is);
    let asked = asked.fold(0, |all, (_, bits)| all | bits) & wanted;
    let rows = [(ready.error, libc::POLLERR), (ready.hangup, libc::POLLHUP)];
    let set = rows.into_iter().filter(|(is, _)| *is);
    set.fold(asked, |all, (_, bit)| all | bit)
}

/// Waits until a descriptor of the sets is ready; returns how many are.
///
/// # Safety
/// The sets and the timeout are null or valid during the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: `select` requires of the three sets and of `timeout` what this function does.
    int_result(unsafe { select(nfds, [readfds, writefds, exceptfds], timeout) })
}

/// The poll events of each set, and those that put a descriptor into it.
const SETS: [(i16, i16); 3] = [
    (libc::POLLIN, libc::POLLIN | libc::POLLHUP | libc::POLLERR),
    (libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
    (libc::POLLPRI, libc::POLLPRI),
];

/// # Safety
/// As [`verbena_rselect`].
unsafe fn select(
    nfds: c_int,
    sets: [*mut fd_set; 3],
    timeout: *const timeval,
) -> Result<c_int, Errno> {
    if !(0..=libc::FD_SETSIZE as c_int).contains(&nfds) {
        return Err(Errno::INVAL);
    }
    let until = match arg_ref!(timeout) {
        None => None,
        Some(time) => {
            let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::INVAL)?;
            let micros = u64::try_from(time.tv_usec).map_err(|_| Errno::INVAL)?;
            let time = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
            // A time beyond the clock's range has no end.
            Instant::now().checked_add(time)
        }
    };
    let mut fds = Vec::new();
    for fd in 0..nfds {
        let mut wanted = 0;
        for (set, (ask, _)) in sets.iter().zip(SETS) {
            // SAFETY: the set is not null, so the caller guarantees that it is valid; `fd` is below `FD_SETSIZE`.
            if !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) } {
                wanted |= ask;
            }
        }
        if wanted != 0 {
            fds.push(pollfd {
                fd,
                events: wanted,
                revents: 0,
            });
        }
    }
    wait(&mut fds, until)?;
    if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
        return Err(Errno(libc::EBADF));
    }
    let mut ready = 0;
    for (set, (ask, tell)) in sets.into_iter().zip(SETS) {
        if set.is_null() {
            continue;
        }
        // SAFETY: `set` is not null, so the caller guarantees that it is valid for writes.
        unsafe { libc::FD_ZERO(set) };
        for fd in &fds {
            if fd.events & ask != 0 && fd.revents & tell != 0 {
                // SAFETY: `set` is not null, so the caller guarantees that it is valid; `fd.fd` is below `nfds`, which is at most `FD_SETSIZE`.
                unsafe { libc::FD_SET(fd.fd, set) };
                ready += 1;
            }
        }
    }
    Ok(ready)
}
