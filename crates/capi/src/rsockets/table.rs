//! Which number is which socket.
//! It promises that a number is a descriptor of this process as long as the socket lives, so that no other thing gets it.
//! It refuses numbers that were not given out here.

use core::ffi::c_int;
use std::collections::HashMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, LazyLock, Once};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use verbena_rsocket::Stream;

use crate::errno::Errno;
use crate::home::{self, Home};

/// A socket.
#[derive(Clone)]
pub(super) enum Entry {
    Stream(Arc<Socket>),
    /// A plain UDP socket of the system, whose descriptor the number is.
    Datagram,
}

/// A stream socket and what C programs know of it.
pub(super) struct Socket {
    // Before the descriptor: its number must not be given to another while this one closes.
    pub(super) stream: Stream,
    /// `AF_INET` or `AF_INET6`.
    pub(super) family: c_int,
    /// Options without consequence, as they were set: level, name, value.
    pub(super) words: Mutex<Vec<(c_int, c_int, c_int)>>,
    /// Memory that was mapped for this side only: address and length.
    pub(super) local: Mutex<Vec<(usize, usize)>>,
    pub(super) home: Arc<Home>,
    /// The process that made it.
    process: u32,
    _fd: OwnedFd,
}

static TABLE: LazyLock<RwLock<HashMap<c_int, Entry>>> = LazyLock::new(RwLock::default);

/// The end of the program is seen to.
static LEAVING: Once = Once::new();

/// How long the end of the program waits for all its sockets together, those that were closed among them.
const PATIENCE: Duration = Duration::from_secs(5);

/// The program ends. The system would close its sockets in good order: so the peers of ours get what was sent, and the end.
extern "C" fn leave() {
    let Some(table) = TABLE.try_read() else {
        return;
    };
    let process = std::process::id();
    let streams = || {
        table.values().filter_map(|entry| match entry {
            // A forked child has none of its parent's, and cannot know who held which lock.
            Entry::Stream(socket) if socket.process == process => Some(&socket.stream),
            _ => None,
        })
    };
    streams().for_each(Stream::leave);
    let until = Instant::now() + PATIENCE;
    // Without it the system would break connections off that have acknowledgements to read.
    while !streams().all(Stream::has_left) && Instant::now() < until {
        std::thread::sleep(Duration::from_micros(200));
    }
    for home in home::all_running() {
        home.net.wait_closed(until);
    }
}

/// The socket of this number.
pub(super) fn get(number: c_int) -> Result<Entry, Errno> {
    let found = TABLE.read().get(&number).cloned();
    found.ok_or(Errno(libc::EBADF))
}

/// The stream socket of this number.
pub(super) fn stream(number: c_int) -> Result<Arc<Socket>, Errno> {
    match get(number)? {
        Entry::Stream(socket) => Ok(socket),
        Entry::Datagram => Err(Errno::NOSUPP),
    }
}

/// Gives a stream socket a number.
pub(super) fn add(
    home: Arc<Home>,
    stream: Stream,
    family: c_int,
    cloexec: bool,
) -> Result<c_int, Errno> {
    let flags = if cloexec { libc::EFD_CLOEXEC } else { 0 };
    // SAFETY: makes a descriptor.
    let number = unsafe { libc::eventfd(0, flags | libc::EFD_NONBLOCK) };
    if number < 0 {
        return Err(super::last());
    }
    // SAFETY: just made, and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    // A forked child inherits it.
    LEAVING.call_once(|| {
        // SAFETY: it may be called whenever a process ends. Refused without memory, and then nobody sees to it.
        unsafe { libc::atexit(leave) };
    });
    let socket = Socket {
        stream,
        family,
        words: Mutex::default(),
        local: Mutex::default(),
        home,
        process: std::process::id(),
        _fd: fd,
    };
    TABLE
        .write()
        .insert(number, Entry::Stream(Arc::new(socket)));
    Ok(number)
}

/// A descriptor of the system is a datagram socket.
pub(super) fn add_datagram(number: c_int) {
    TABLE.write().insert(number, Entry::Datagram);
}

/// The number means nothing any more.
pub(super) fn remove(number: c_int) -> Result<Entry, Errno> {
    let gone = TABLE.write().remove(&number);
    gone.ok_or(Errno(libc::EBADF))
}
