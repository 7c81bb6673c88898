//! Socket options, and the flag for non-blocking mode. An option has the value that was set; sizes apply to connections that are made later.
//! Unknown options fail with `ENOPROTOOPT`.

use core::ffi::{c_int, c_long, c_void};
use std::time::Duration;

use libc::{linger, socklen_t, timeval};
use verbena_rsocket::{Linger, Options};

use super::table::{Entry, Socket};
use super::{checked, int_result, table};
use crate::errno::Errno;

/// The options of rsockets and their level (`rdma/rsocket.h`).
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;

/// The value of `TCP_MAXSEG` unless it is set: the payload of an Ethernet frame.
const MAXSEG: c_int = 1460;

/// Options that are stored and returned; all but `IPV6_V6ONLY` have no effect here.
const STORED_OPTIONS: &[(c_int, c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
];

/// The size that an option sets.
fn size(options: &mut Options, level: c_int, name: c_int) -> Option<&mut usize> {
    Some(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => &mut options.recv_buffer,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => &mut options.send_buffer,
        (SOL_RDMA, RDMA_SQSIZE) => &mut options.sends,
        (SOL_RDMA, RDMA_RQSIZE) => &mut options.messages,
        (SOL_RDMA, RDMA_INLINE) => &mut options.inline,
        (SOL_RDMA, RDMA_IOMAPSIZE) => &mut options.maps,
        _ => return None,
    })
}

/// Reads a value from the program.
///
/// # Safety
/// `at` is null or points to `len` bytes that are valid for reads, and any bytes are a `T`.
unsafe fn value<T: Copy>(at: *const c_void, len: socklen_t) -> Result<T, Errno> {
    if at.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    if (len as usize) < size_of::<T>() {
        return Err(Errno::INVAL);
    }
    // SAFETY: there are enough bytes, and the caller guarantees that any bytes are a valid `T`; it need not be aligned.
    Ok(unsafe { at.cast::<T>().read_unaligned() })
}

/// Sets an option.
///
/// # Safety
/// `at` points to `len` bytes that are valid for reads.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    at: *const c_void,
    len: socklen_t,
) -> c_int {
    int_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            // SAFETY: the caller guarantees `len` bytes at `at`.
            unsafe { set(&own, level, name, at, len) }?;
            Ok(0)
        }
        // Queue sizes have no meaning for a datagram socket.
        Entry::Datagram if level == SOL_RDMA => Ok(0),
        Entry::Datagram => {
            let done = pass_on!(libc::setsockopt(socket, level, name, at, len));
            Ok(checked(done as isize)? as c_int)
        }
    }))
}

/// # Safety
/// As [`verbena_rsetsockopt`].
unsafe fn set(
    own: &Socket,
    level: c_int,
    name: c_int,
    at: *const c_void,
    len: socklen_t,
) -> Result<(), Errno> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            // SAFETY: the caller guarantees `len` bytes at `at`, and any bytes are a valid `linger`.
            let linger: linger = unsafe { value(at, len) }?;
            // As in Linux, the time is ignored if lingering is off, and a negative one is very long.
            let seconds = u64::from(linger.l_linger as u32);
            own.stream.set_options(|options| {
                options.linger = match linger.l_onoff {
                    0 => Linger::Off,
                    _ => Linger::For(Duration::from_secs(seconds)),
                }
            });
            return Ok(());
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => {
            // SAFETY: the caller guarantees `len` bytes at `at`, and any bytes are a valid `timeval`.
            let time: timeval = unsafe { value(at, len) }?;
            let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno(libc::EDOM))?;
            let micros = u64::try_from(time.tv_usec).map_err(|_| Errno(libc::EDOM))?;
            let time = Duration::from_secs(seconds) + Duration::from_micros(micros);
            let time = (!time.is_zero()).then_some(time);
            own.stream.set_options(|options| match name {
                libc::SO_RCVTIMEO => options.recv_timeout = time,
                _ => options.send_timeout = time,
            });
            return Ok(());
        }
        _ => {}
    }
    // SAFETY: the caller guarantees `len` bytes at `at`, and any bytes are a valid `c_int`.
    let number = unsafe { value::<c_int>(at, len) };
    let is_size = size(&mut own.stream.options(), level, name).is_some();
    if is_size {
        let number = usize::try_from(number?).map_err(|_| Errno::INVAL)?;
        own.stream.set_options(|options| {
            if let Some(place) = size(options, level, name) {
                *place = number;
            }
        });
        return Ok(());
    }
    if !STORED_OPTIONS.contains(&(level, name)) {
        return Err(Errno(libc::ENOPROTOOPT));
    }
    let number = number?;
    if (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) {
        own.stream
            .set_options(|options| options.v6_only = number != 0);
    }
    let mut words = own.stored_options.lock();
    words.retain(|(l, n, _)| (*l, *n) != (level, name));
    words.push((level, name, number));
    Ok(())
}

/// Returns an option.
///
/// # Safety
/// `len` is null or valid, and `at` is null or has room for `*len` bytes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    at: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    int_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            // SAFETY: the caller guarantees that `len` is null or valid, and that `at` is null or has room for `*len` bytes, during this call.
            let to = unsafe { ValueBuffer::new(at, len) }?;
            get(&own, level, name, to)?;
            Ok(0)
        }
        Entry::Datagram => {
            let done = pass_on!(libc::getsockopt(socket, level, name, at, len));
            Ok(checked(done as isize)? as c_int)
        }
    }))
}

fn get(own: &Socket, level: c_int, name: c_int, to: ValueBuffer) -> Result<(), Errno> {
    let mut options = own.stream.options();
    let timed = |time: Option<Duration>| {
        let time = time.unwrap_or_default();
        timeval {
            tv_sec: time.as_secs() as libc::time_t,
            tv_usec: time.subsec_micros().into(),
        }
    };
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let (l_onoff, l_linger) = match options.linger {
                Linger::Off => (0, 0),
                Linger::For(time) => (1, time.as_secs() as c_int),
            };
            return to.put(linger { l_onoff, l_linger });
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            return to.put(timed(options.recv_timeout));
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
            return to.put(timed(options.send_timeout));
        }
        (libc::IPPROTO_TCP, libc::TCP_INFO) => {
            // The numbers of the TCP connection below do not describe this socket.
            to.zero();
            return Ok(());
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            let error = own.stream.take_error();
            error.map_or(0, |error| Errno::from(error).0)
        }
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => own.family,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => own.stream.is_listening().into(),
        _ => match size(&mut options, level, name) {
            Some(size) => c_int::try_from(*size).unwrap_or(c_int::MAX),
            None => stored_option(own, level, name)?,
        },
    };
    to.put(number)
}

fn stored_option(own: &Socket, level: c_int, name: c_int) -> Result<c_int, Errno> {
    if !STORED_OPTIONS.contains(&(level, name)) {
        return Err(Errno(libc::ENOPROTOOPT));
    }
    let words = own.stored_options.lock();
    let set = words.iter().find(|(l, n, _)| (*l, *n) == (level, name));
    // Some programs compute with this one.
    let usual = if name == libc::TCP_MAXSEG && level == libc::IPPROTO_TCP {
        MAXSEG
    } else {
        0
    };
    Ok(set.map_or(usual, |(_, _, number)| *number))
}

/// The memory of a program that an option's value is written to. Both pointers are valid until the call of the program that they came with returns.
struct ValueBuffer {
    at: *mut u8,
    len: *mut socklen_t,
}

impl ValueBuffer {
    /// `EFAULT` if one of them is null.
    ///
    /// # Safety
    /// `len` is null or valid for reads and writes, and `at` is null or valid for writes of `*len` bytes, as long as the result is used.
    unsafe fn new(at: *mut c_void, len: *mut socklen_t) -> Result<ValueBuffer, Errno> {
        if at.is_null() || len.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        Ok(ValueBuffer { at: at.cast(), len })
    }

    /// Writes the value, or the part of it that there is room for, and its size.
    fn put<T: Copy>(self, value: T) -> Result<(), Errno> {
        // SAFETY: by the contract of `new`, there are `*len` bytes at `at`; no more than these and no more than the size of the local `value` are copied.
        unsafe {
            let room = (*self.len as usize).min(size_of::<T>());
            core::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), self.at, room);
            *self.len = room as socklen_t;
        }
        Ok(())
    }

    /// Fills all of it with zeros.
    fn zero(self) {
        // SAFETY: by the contract of `new`, there are `*len` bytes at `at`.
        unsafe { core::ptr::write_bytes(self.at, 0, *self.len as usize) };
    }
}

/// Reads or sets the flags of a socket. In C the last argument may be missing; it is used only with commands that have it.
///
/// # Safety
/// No requirements.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rfcntl(
    socket: c_int,
    command: c_int,
    argument: c_long,
) -> c_int {
    int_result(table::get(socket).and_then(|entry| match (entry, command) {
        (Entry::Stream(own), libc::F_GETFL) => {
            let flag = if own.stream.is_nonblocking() {
                libc::O_NONBLOCK
            } else {
                0
            };
            Ok(libc::O_RDWR | flag)
        }
        (Entry::Stream(own), libc::F_SETFL) => {
            let wanted = argument & c_long::from(libc::O_NONBLOCK) != 0;
            own.stream.set_nonblocking(wanted);
            Ok(0)
        }
        (Entry::Stream(_), libc::F_GETFD | libc::F_SETFD) => {
            // A system call, not the C library's `fcntl`: under `libverbena-rsocket.so` that name leads back here for the
            // descriptor of a stream socket.
            // SAFETY: `fcntl(2)` with a command that takes a number and touches no memory.
            let done = unsafe { libc::syscall(libc::SYS_fcntl, socket, command, argument) };
            Ok(checked(done as isize)? as c_int)
        }
        (Entry::Datagram, _) => {
            // SAFETY: descriptor, command and argument are passed on unchanged, under the contract of `fcntl`.
            let done = unsafe { libc::fcntl(socket, command, argument) };
            Ok(checked(done as isize)? as c_int)
        }
        _ => Err(Errno::INVAL),
    }))
}
