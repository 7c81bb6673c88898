//! The descriptors of a connection: one socket, or both ends of a pair where a queue pair is its own peer; and TLS on the
//! socket if configured.
//! Between processes of one host the bytes of a running stream pass through rings in shared memory instead (`rings.rs`).
//! The queue pair's bytes pass only while a stream is attached: a thread that is late with a closed connection must not touch the
//! stream of the next one.

use std::sync::Arc;

use verbena_sync::atomic::{AtomicU8, AtomicU64, Ordering};

use verbena_mem::{Sources, Targets};
use verbena_nic::{Carrier, IoOutcome};
use verbena_sync::locks::{Mutex, OnceLock};

use super::rings::{ReadFrom, Rings};
use crate::capture::{self, StreamTap};
use crate::security::tls::{Flush, Session, TlsError};
use crate::sys::{self, Doorbell, Line, Socket};

/// Bytes read at once from the socket of a stream that is about to pass through rings.
const BEFORE_RING: usize = 16 << 10;

/// No stream is attached.
const SHUT: u8 = 0;
/// A stream is attached, without TLS.
const PLAIN: u8 = 1;
/// A stream is attached, with TLS.
const TLS: u8 = 2;
/// A stream is attached, and passes through rings from a position of each direction on.
const RINGS: u8 = 3;
/// A stream is attached, whose segments a port hands to the queue pair.
const SEGMENTS: u8 = 4;

/// A connection's descriptors.
#[derive(Debug)]
pub(crate) struct Transport {
    /// Writes go here; reads, too, unless `read_socket` is set.
    socket: Socket,
    read_socket: Option<Socket>,
    /// Locked only while bytes are moved, by the one thread that serves the connection.
    tls: Option<Box<Mutex<Session>>>,
    mode: AtomicU8,
    rings: OnceLock<Rings>,
    /// The port's connection, once its segments go to the queue pair.
    line: OnceLock<Arc<dyn Line>>,
    /// Bytes that were read from the socket and written to it, without TLS: positions of the stream. Changed by the one thread that serves the
    /// connection.
    socket_read: AtomicU64,
    socket_written: AtomicU64,
    /// Set once a capture was attached while the connection existed.
    tap: OnceLock<Box<StreamTap>>,
}

impl Transport {
    pub(crate) fn new(socket: Socket, other: Option<Socket>) -> Transport {
        Transport {
            socket,
            read_socket: other,
            tls: None,
            mode: AtomicU8::new(SHUT),
            rings: OnceLock::new(),
            line: OnceLock::new(),
            socket_read: AtomicU64::new(0),
            socket_written: AtomicU64::new(0),
            tap: OnceLock::new(),
        }
    }

    /// A socket, with TLS if there is a session.
    pub(super) fn with_tls_session(socket: Socket, tls: Option<Session>) -> Transport {
        let tls = tls.map(|session| Box::new(Mutex::new(session)));
        Transport {
            tls,
            ..Transport::new(socket, None)
        }
    }

    /// Duplicates the descriptors. No stream is attached to the copy.
    pub(crate) fn duplicate(&self) -> sys::Result<Transport> {
        let other = self
            .read_socket
            .as_ref()
            .map(Socket::duplicate)
            .transpose()?;
        Ok(Transport::new(self.socket.duplicate()?, other))
    }

    /// The socket for writes.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The socket for reads, if it is another one.
    pub(crate) fn separate_reader(&self) -> Option<&Socket> {
        self.read_socket.as_ref()
    }

    /// The socket for reads.
    pub(super) fn reader(&self) -> &Socket {
        self.read_socket.as_ref().unwrap_or(&self.socket)
    }

    pub(super) fn is_open(&self) -> bool {
        self.mode.load(Ordering::Acquire) != SHUT
    }

    pub(super) fn open(&self) {
        let how = match (&self.tls, self.rings.get()) {
            _ if self.line.get().is_some() => SEGMENTS,
            (Some(_), _) => TLS,
            (None, Some(_)) => RINGS,
            (None, None) => PLAIN,
        };
        self.mode.store(how, Ordering::Release);
    }

    /// The stream passes through these rings as soon as the peer does so, or this side writes; false if it has ended.
    pub(super) fn install_rings(&self, rings: Rings) -> bool {
        let fresh = self.rings.set(rings).is_ok();
        let open = |mode| (mode == PLAIN).then_some(RINGS);
        fresh
            && self
                .mode
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, open)
                .is_ok()
    }

    /// The doorbell of its rings, also of a stream that has ended.
    pub(super) fn doorbell(&self) -> Option<&Doorbell> {
        self.rings.get().map(Rings::doorbell)
    }

    /// The rings of the attached stream.
    #[inline]
    pub(super) fn rings(&self) -> Option<&Rings> {
        if self.mode.load(Ordering::Acquire) == RINGS {
            self.rings.get()
        } else {
            None
        }
    }

    /// The attached stream passes through rings or a port.
    #[inline]
    pub(super) fn passes_elsewhere(&self) -> bool {
        self.mode.load(Ordering::Acquire) >= RINGS
    }

    pub(super) fn shut(&self) {
        self.mode.store(SHUT, Ordering::Release);
        if let Some(line) = self.line.get() {
            line.discard();
        }
    }

    /// The port's connection whose segments go to the queue pair.
    #[inline]
    pub(super) fn line(&self) -> Option<&Arc<dyn Line>> {
        self.line.get()
    }

    /// The segments of the port's connection go to the queue pair from now on. `early` was read with the startup. False if the connection has
    /// ended.
    pub(super) fn take_over(&self, line: &Arc<dyn Line>, early: Vec<u8>, markers: bool) -> bool {
        let read = |bytes: &mut [u8]| sys::read_into(&self.socket, bytes);
        line.take_over(early, &read, markers) && self.line.set(line.clone()).is_ok()
    }

    /// Reads bytes that have no use any more.
    pub(super) fn discard_input(&self, waste: &mut [u8]) -> IoOutcome {
        match self.line.get() {
            Some(line) => line.end().unwrap_or(IoOutcome::WouldBlock),
            None => sys::read_into(self.reader(), waste),
        }
    }

    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Why TLS failed, if it did.
    pub(super) fn tls_failure(&self) -> Option<TlsError> {
        self.tls.as_ref()?.lock().failure().cloned()
    }

    /// The tap of its stream; the first call decides what it is.
    pub(super) fn tap(&self, new: impl FnOnce() -> StreamTap) -> &StreamTap {
        self.tap.get_or_init(|| Box::new(new()))
    }

    #[cold]
    fn capture_read(&self, targets: &Targets<'_>, moved: IoOutcome) {
        if let (IoOutcome::Bytes(n), Some(tap)) = (moved, self.tap.get()) {
            tap.pass(false, n, targets, &self.socket);
        }
    }

    #[cold]
    fn capture_written(&self, sources: &Sources<'_>, moved: IoOutcome) {
        if let (IoOutcome::Bytes(n), Some(tap)) = (moved, self.tap.get()) {
            tap.pass(true, n, sources, &self.socket);
        }
    }

    /// Reads into a local buffer, whether or not a stream is attached.
    pub(super) fn read_local(&self, bytes: &mut [u8]) -> IoOutcome {
        let moved = self.move_in(bytes);
        if capture::is_attached()
            && let (IoOutcome::Bytes(n), Some(tap)) = (moved, self.tap.get())
        {
            tap.pass(false, n, &&bytes[..n], &self.socket);
        }
        moved
    }

    fn move_in(&self, bytes: &mut [u8]) -> IoOutcome {
        let Some(tls) = &self.tls else {
            return self.count_read(sys::read_into(self.reader(), bytes));
        };
        let mut targets = Targets::new();
        targets.stage(bytes);
        tls.lock().read(&self.socket, &mut targets)
    }

    /// Writes from a local buffer, whether or not a stream is attached.
    pub(super) fn write_local(&self, bytes: &[u8]) -> IoOutcome {
        let moved = self.move_out(bytes);
        if capture::is_attached()
            && let (IoOutcome::Bytes(n), Some(tap)) = (moved, self.tap.get())
        {
            tap.pass(true, n, &bytes, &self.socket);
        }
        moved
    }

    fn move_out(&self, bytes: &[u8]) -> IoOutcome {
        if self.line.get().is_some() {
            let mut sources = Sources::new();
            sources.borrow_bytes(bytes);
            return self.write_line(&sources);
        }
        let Some(tls) = &self.tls else {
            if let Some(rings) = self.rings.get() {
                // The last bytes of a stream: the ring may be full, and a peer that has gone away does not empty it.
                rings.end_writing();
            }
            return self.count_written(sys::write_from(&self.socket, bytes));
        };
        let mut sources = Sources::new();
        sources.borrow_bytes(bytes);
        tls.lock().write(&self.socket, &sources)
    }

    fn count_read(&self, moved: IoOutcome) -> IoOutcome {
        count(&self.socket_read, moved)
    }

    fn count_written(&self, moved: IoOutcome) -> IoOutcome {
        count(&self.socket_written, moved)
    }

    /// Whether to watch for room in the socket; `unsent` if the caller has bytes to send.
    pub(super) fn wants_room(&self, unsent: bool) -> bool {
        match &self.tls {
            None => unsent,
            Some(tls) => {
                let tls = tls.lock();
                tls.has_unsent() || (unsent && !tls.is_handshaking())
            }
        }
    }

    /// Sends TLS's close_notify. True if nothing waits for room; an error if it can never be sent.
    pub(super) fn close_tls(&self) -> Result<bool, ()> {
        match self.tls.as_ref().map(|tls| tls.lock().close(&self.socket)) {
            None | Some(Flush::Done) => Ok(true),
            Some(Flush::Full) => Ok(false),
            Some(Flush::Broken) => Err(()),
        }
    }

    /// TLS holds decrypted bytes, of which the socket's readiness does not tell.
    pub(super) fn has_unread(&self) -> bool {
        self.with_tls(|tls| tls.has_unread())
    }

    /// TLS holds records that found no room in the socket.
    pub(super) fn has_unsent(&self) -> bool {
        self.with_tls(|tls| tls.has_unsent())
    }

    /// Sends such records; true if some still wait for room.
    pub(super) fn is_flush_blocked(&self) -> bool {
        self.with_tls(|tls| tls.has_unsent() && tls.flush(&self.socket) == Flush::Full)
    }

    fn read_rings(&self, targets: &mut Targets<'_>) -> IoOutcome {
        let Some(rings) = self.rings.get() else {
            return IoOutcome::WouldBlock;
        };
        let read = self.socket_read.load(Ordering::Relaxed);
        match rings.read(targets, &self.socket, read) {
            ReadFrom::Ring(moved) => moved,
            ReadFrom::Socket => self.count_read(Carrier::read(&mut self.reader(), targets)),
            ReadFrom::BeforeRing(most, looks) => {
                match self.read_before_ring(targets, most, looks) {
                    // The peer may have begun its ring and closed the socket between the two looks.
                    IoOutcome::Eof => match rings.read(targets, &self.socket, read) {
                        ReadFrom::Ring(moved) => moved,
                        ReadFrom::Socket | ReadFrom::BeforeRing(..) => IoOutcome::Eof,
                    },
                    moved => moved,
                }
            }
        }
    }

    /// Reads at most so many bytes from the socket; its end is looked for if there are none.
    fn read_before_ring(&self, targets: &mut Targets<'_>, most: u64, looks: bool) -> IoOutcome {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let len = most.min(targets.bytes()).min(BEFORE_RING);
        if len == 0 {
            let end = looks.then(|| sys::peek_end(self.reader()));
            return end.flatten().unwrap_or(IoOutcome::WouldBlock);
        }
        let mut bytes = [0; BEFORE_RING];
        let moved = self.move_in(&mut bytes[..len]);
        match moved {
            IoOutcome::Bytes(n) if targets.fill(&bytes[..n]).is_err() => IoOutcome::Fault,
            moved => moved,
        }
    }

    /// Reads the socket of a stream that had no rings.
    fn read_plain(&self, targets: &mut Targets<'_>) -> IoOutcome {
        match self.count_read(Carrier::read(&mut self.reader(), targets)) {
            // They may have been installed meanwhile, and the peer may have written to its ring before it closed the socket.
            IoOutcome::Eof if self.mode.load(Ordering::Acquire) == RINGS => {
                self.read_rings(targets)
            }
            moved => moved,
        }
    }

    fn write_rings(&self, sources: &Sources<'_>) -> IoOutcome {
        let Some(rings) = self.rings.get() else {
            return IoOutcome::WouldBlock;
        };
        let written = self.socket_written.load(Ordering::Relaxed);
        match rings.write(sources, written) {
            Some(moved) => moved,
            None => self.count_written(Carrier::write(&mut self.socket(), sources)),
        }
    }

    fn line_end(&self) -> IoOutcome {
        let end = self.line.get().and_then(|line| line.end());
        end.unwrap_or(IoOutcome::WouldBlock)
    }

    fn write_line(&self, sources: &Sources<'_>) -> IoOutcome {
        match self.line.get() {
            Some(line) => line.write(sources),
            None => IoOutcome::WouldBlock,
        }
    }

    /// Queries TLS while a stream is attached.
    #[inline]
    fn with_tls(&self, ask: impl FnOnce(&mut Session) -> bool) -> bool {
        if self.mode.load(Ordering::Relaxed) != TLS {
            return false;
        }
        self.tls.as_ref().is_some_and(|tls| ask(&mut tls.lock()))
    }
}

impl Carrier for &Transport {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        let moved = match (self.mode.load(Ordering::Acquire), &self.tls) {
            (PLAIN, _) => self.read_plain(targets),
            (RINGS, _) => self.read_rings(targets),
            (TLS, Some(tls)) => tls.lock().read(&self.socket, targets),
            // Its bytes arrive as segments; only its end is read.
            (SEGMENTS, _) => self.line_end(),
            _ => IoOutcome::WouldBlock,
        };
        if capture::is_attached() {
            self.capture_read(targets, moved);
        }
        moved
    }

    fn write(&mut self, sources: &Sources<'_>) -> IoOutcome {
        let moved = match (self.mode.load(Ordering::Acquire), &self.tls) {
            (PLAIN, _) => self.count_written(Carrier::write(&mut self.socket(), sources)),
            (RINGS, _) => self.write_rings(sources),
            (TLS, Some(tls)) => tls.lock().write(&self.socket, sources),
            (SEGMENTS, _) => self.write_line(sources),
            _ => IoOutcome::WouldBlock,
        };
        if capture::is_attached() {
            self.capture_written(sources, moved);
        }
        moved
    }

    fn undelivered(&self) -> Option<u64> {
        // Both ends of a pair close together. With TLS only what the peer's process sends counts: acknowledgements of TCP can be forged
        // on the way.
        let in_socket = match self.mode.load(Ordering::Acquire) {
            PLAIN | RINGS | SEGMENTS if self.read_socket.is_none() => self.socket.unacknowledged(),
            _ => return None,
        };
        // Either may have the last bytes, and the stream may have passed through both.
        let in_ring = self.rings.get().map_or(0, Rings::unread_in_ring);
        Some(in_ring.saturating_add(in_socket))
    }
}

/// Adds what was moved to a position. One thread at a time moves bytes in a direction.
fn count(position: &AtomicU64, moved: IoOutcome) -> IoOutcome {
    if let IoOutcome::Bytes(n) = moved {
        let before = position.load(Ordering::Relaxed);
        position.store(before + n as u64, Ordering::Relaxed);
    }
    moved
}

/// A line for one turn of sending: it accepts a number of bytes, and then none until the next turn.
///
/// While the peer reads as fast as this side writes, the socket never becomes full. Without a limit the thread would write for as long,
/// while other connections wait and, on a polling thread, the completion queue is not polled.
#[derive(Debug)]
pub(super) struct BudgetedTransport<'a> {
    transport: &'a Transport,
    left: usize,
}

impl BudgetedTransport<'_> {
    pub(super) fn new(line: &Transport, bytes: usize) -> BudgetedTransport<'_> {
        BudgetedTransport {
            transport: line,
            left: bytes,
        }
    }

    /// The limit is reached: there may still be room in the socket.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left == 0
    }
}

impl Carrier for BudgetedTransport<'_> {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        Carrier::read(&mut self.transport, targets)
    }

    fn undelivered(&self) -> Option<u64> {
        self.transport.undelivered()
    }

    fn write(&mut self, sources: &Sources<'_>) -> IoOutcome {
        if self.is_exhausted() {
            return IoOutcome::WouldBlock;
        }
        let moved = Carrier::write(&mut self.transport, sources);
        if let IoOutcome::Bytes(n) = moved {
            self.left = self.left.saturating_sub(n);
        }
        moved
    }
}

#[cfg(test)]
mod tests;
