//! The table of rsockets by number. A number is a descriptor of this process as long as the socket lives, so that the system does not give it
//! to another file. Numbers that are not in the table are `EBADF`.

use core::ffi::c_int;
use std::collections::HashMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, LazyLock, Once};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use verbena_rsocket::Stream;

use crate::errno::Errno;
use crate::function::{self, AdapterFunction};

/// An rsocket.
#[derive(Clone)]
pub(super) enum Entry {
    Stream(Arc<Socket>),
    /// A UDP socket of the system; the number is its descriptor.
    Datagram,
}

/// A stream socket and its attributes that only the C API has.
pub(super) struct Socket {
    // Declared before the descriptor, so dropped first: the number must not be reused while the stream closes.
    pub(super) stream: Stream,
    /// `AF_INET` or `AF_INET6`.
    pub(super) family: c_int,
    /// Options without effect, as they were set: level, name, value.
    pub(super) stored_options: Mutex<Vec<(c_int, c_int, c_int)>>,
    /// Memory that was mapped with `PROT_NONE`: address and length.
    pub(super) local_maps: Mutex<Vec<(usize, usize)>>,
    pub(super) function: Arc<AdapterFunction>,
    /// The process that created it.
    process: u32,
    _fd: OwnedFd,
}

static TABLE: LazyLock<RwLock<HashMap<c_int, Entry>>> = LazyLock::new(RwLock::default);

/// [`leave`] has been registered with `atexit`.
static EXIT_HOOK: Once = Once::new();

/// How long the exit of the process waits for all its sockets together, including closed ones.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs when the process exits. The system would close TCP sockets in order: so peers of these get the bytes that were sent, and the end.
extern "C" fn leave() {
    let Some(table) = TABLE.try_read() else {
        return;
    };
    let process = std::process::id();
    let streams = || {
        table.values().filter_map(|entry| match entry {
            // Sockets of the parent of a forked child are left alone: their locks may be held by threads that the child does not have.
            Entry::Stream(socket) if socket.process == process => Some(&socket.stream),
            _ => None,
        })
    };
    streams().for_each(Stream::end_at_exit);
    let until = Instant::now() + EXIT_TIMEOUT;
    // Otherwise the system would reset connections that have unread acknowledgements.
    while !streams().all(Stream::is_exit_drained) && Instant::now() < until {
        std::thread::sleep(Duration::from_micros(200));
    }
    for home in function::all_running() {
        home.net.wait_closed(until);
    }
}

/// The socket with this number.
pub(super) fn get(number: c_int) -> Result<Entry, Errno> {
    let found = TABLE.read().get(&number).cloned();
    found.ok_or(Errno(libc::EBADF))
}

/// The stream socket with this number.
pub(super) fn stream(number: c_int) -> Result<Arc<Socket>, Errno> {
    match get(number)? {
        Entry::Stream(socket) => Ok(socket),
        Entry::Datagram => Err(Errno::NOSUPP),
    }
}

/// Adds a stream socket; returns its number.
pub(super) fn add(
    function: Arc<AdapterFunction>,
    stream: Stream,
    family: c_int,
    cloexec: bool,
) -> Result<c_int, Errno> {
    let flags = if cloexec { libc::EFD_CLOEXEC } else { 0 };
    // SAFETY: `eventfd` takes integers and touches no memory of the program.
    let number = unsafe { libc::eventfd(0, flags | libc::EFD_NONBLOCK) };
    if number < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor was created above, and this is its only owner.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    // A forked child inherits the handler.
    EXIT_HOOK.call_once(|| {
        // SAFETY: `leave` can be called at any time. Without memory `atexit` fails, and sockets are not closed in order.
        unsafe { libc::atexit(leave) };
    });
    let socket = Socket {
        stream,
        family,
        stored_options: Mutex::default(),
        local_maps: Mutex::default(),
        function,
        process: std::process::id(),
        _fd: fd,
    };
    TABLE
        .write()
        .insert(number, Entry::Stream(Arc::new(socket)));
    Ok(number)
}

/// Adds a datagram socket of the system.
pub(super) fn add_datagram(number: c_int) {
    TABLE.write().insert(number, Entry::Datagram);
}

/// Removes a number.
pub(super) fn remove(number: c_int) -> Result<Entry, Errno> {
    let gone = TABLE.write().remove(&number);
    gone.ok_or(Errno(libc::EBADF))
}
