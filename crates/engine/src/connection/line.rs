//! The descriptors that a connection's bytes pass: one socket, or the two ends of a pair where a queue pair is its own peer;
//! and TLS on that socket, if the settings want it.
//! It promises that nothing passes before the stream has begun or after it was given up: whoever comes late with a
//! connection of the past must not touch the stream of the next one. It refuses to know what passes.

use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use verbena_mem::{Sources, Targets};
use verbena_nic::{Carrier, Moved};

use crate::sys::{self, Socket};
use crate::tls::{Flush, Session, TlsError};

/// No stream of a queue pair is on the line.
const SHUT: u8 = 0;
/// One is, and its bytes are those of the socket.
const PLAIN: u8 = 1;
/// One is, behind TLS.
const TLS: u8 = 2;

/// A connection's descriptors.
#[derive(Debug)]
pub(crate) struct Line {
    /// Bytes leave here, and come here, too, unless there is another end for them.
    socket: Socket,
    other: Option<Socket>,
    /// Held only while bytes are moved, by the one thread that is at work on the connection.
    tls: Option<Box<Mutex<Session>>>,
    open: AtomicU8,
}

impl Line {
    pub(crate) fn new(socket: Socket, other: Option<Socket>) -> Line {
        Line {
            socket,
            other,
            tls: None,
            open: AtomicU8::new(SHUT),
        }
    }

    /// A socket with TLS on it, if there is a session for it.
    pub(super) fn secured(socket: Socket, tls: Option<Session>) -> Line {
        let tls = tls.map(|session| Box::new(Mutex::new(session)));
        Line {
            tls,
            ..Line::new(socket, None)
        }
    }

    /// The same descriptors under other numbers. No stream is on them.
    pub(crate) fn duplicate(&self) -> sys::Result<Line> {
        let other = self.other.as_ref().map(Socket::duplicate).transpose()?;
        Ok(Line::new(self.socket.duplicate()?, other))
    }

    /// Where bytes leave.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Where bytes come, if not at the same socket.
    pub(crate) fn other(&self) -> Option<&Socket> {
        self.other.as_ref()
    }

    /// Where bytes come.
    pub(super) fn reads(&self) -> &Socket {
        self.other.as_ref().unwrap_or(&self.socket)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire) != SHUT
    }

    pub(super) fn open(&self) {
        let how = if self.tls.is_some() { TLS } else { PLAIN };
        self.open.store(how, Ordering::Release);
    }

    pub(super) fn shut(&self) {
        self.open.store(SHUT, Ordering::Release);
    }

    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Why there is no TLS with the peer, if that is so.
    pub(super) fn tls_failure(&self) -> Option<TlsError> {
        self.tls.as_ref()?.lock().failure().cloned()
    }

    /// Reads into a buffer of our own, whether or not a stream is on the line.
    pub(super) fn take(&self, bytes: &mut [u8]) -> Moved {
        let Some(tls) = &self.tls else {
            return sys::read_into(self.reads(), bytes);
        };
        let mut targets = Targets::new();
        targets.stage(bytes);
        tls.lock().read(&self.socket, &mut targets)
    }

    /// Writes from a buffer of our own, whether or not a stream is on the line.
    pub(super) fn put(&self, bytes: &[u8]) -> Moved {
        let Some(tls) = &self.tls else {
            return sys::write_from(&self.socket, bytes);
        };
        let mut sources = Sources::new();
        sources.own(bytes);
        tls.lock().write(&self.socket, &sources)
    }

    /// Room in the socket is of use to a startup that has something to say, or not.
    pub(super) fn wants_room(&self, unsent: bool) -> bool {
        match &self.tls {
            None => unsent,
            Some(tls) => {
                let tls = tls.lock();
                tls.has_unsent() || (unsent && !tls.is_handshaking())
            }
        }
    }

    /// Says by TLS that nothing more comes from us. True if nothing waits for room; an error if none will ever leave.
    pub(super) fn close_tls(&self) -> Result<bool, ()> {
        match self.tls.as_ref().map(|tls| tls.lock().close(&self.socket)) {
            None | Some(Flush::Done) => Ok(true),
            Some(Flush::Full) => Ok(false),
            Some(Flush::Broken) => Err(()),
        }
    }

    /// TLS has something for the reader that the socket does not tell of.
    pub(super) fn has_unread(&self) -> bool {
        self.with_tls(|tls| tls.has_unread())
    }

    /// TLS has something to send that found no room.
    pub(super) fn has_unsent(&self) -> bool {
        self.with_tls(|tls| tls.has_unsent())
    }

    /// Sends what TLS could not send before; true if something still waits for room.
    pub(super) fn is_backed_up(&self) -> bool {
        self.with_tls(|tls| tls.has_unsent() && tls.flush(&self.socket) == Flush::Full)
    }

    /// What TLS says while a stream is on it.
    #[inline]
    fn with_tls(&self, ask: impl FnOnce(&mut Session) -> bool) -> bool {
        if self.open.load(Ordering::Relaxed) != TLS {
            return false;
        }
        self.tls.as_ref().is_some_and(|tls| ask(&mut tls.lock()))
    }
}

impl Carrier for &Line {
    fn read(&mut self, targets: &mut Targets<'_>) -> Moved {
        match (self.open.load(Ordering::Acquire), &self.tls) {
            (PLAIN, _) => Carrier::read(&mut self.reads(), targets),
            (TLS, Some(tls)) => tls.lock().read(&self.socket, targets),
            _ => Moved::Nothing,
        }
    }

    fn write(&mut self, sources: &Sources<'_>) -> Moved {
        match (self.open.load(Ordering::Acquire), &self.tls) {
            (PLAIN, _) => Carrier::write(&mut self.socket(), sources),
            (TLS, Some(tls)) => tls.lock().write(&self.socket, sources),
            _ => Moved::Nothing,
        }
    }

    fn undelivered(&self) -> Option<u64> {
        // The two ends of a pair close together. With TLS only what the peer's process says counts: what its TCP says can
        // be forged on the way.
        let plain = self.open.load(Ordering::Acquire) == PLAIN;
        (plain && self.other.is_none()).then(|| self.socket.unacknowledged())
    }
}

/// A line for one turn of sending: it takes some bytes, and then none until the next turn.
///
/// While a peer reads as fast as we write, a socket is never full. Whoever went on until it is would be away for as long as
/// the peer keeps up, with others waiting for their turn and with a completion queue that nobody polls.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    line: &'a Line,
    left: usize,
}

impl Turn<'_> {
    pub(super) fn new(line: &Line, bytes: usize) -> Turn<'_> {
        Turn { line, left: bytes }
    }

    /// It took all it takes: there may be room.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }
}

impl Carrier for Turn<'_> {
    fn read(&mut self, targets: &mut Targets<'_>) -> Moved {
        Carrier::read(&mut self.line, targets)
    }

    fn undelivered(&self) -> Option<u64> {
        self.line.undelivered()
    }

    fn write(&mut self, sources: &Sources<'_>) -> Moved {
        if self.is_over() {
            return Moved::Nothing;
        }
        let moved = Carrier::write(&mut self.line, sources);
        if let Moved::Bytes(n) = moved {
            self.left = self.left.saturating_sub(n);
        }
        moved
    }
}

#[cfg(test)]
mod tests;
