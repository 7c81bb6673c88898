//! One TLS connection between a socket and the bytes of a stream: the handshake, then records both ways.
//!
//! It reads and writes as the socket itself would, without blocking. Between two calls it keeps: ciphertext of an incomplete
//! record, plaintext without a place to go, ciphertext without room in the socket.
//! Each is bounded: by [`MAX_RECORD`] before the peer is authenticated, by [`BURST`] and a record afterwards.
//! A record that cannot be decrypted ends the connection, and so does an end without close_notify: no unauthenticated byte is given
//! to the reader.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, ServerConfig};
use verbena_mem::{Sources, Targets};
use verbena_nic::IoOutcome;

use super::PROTOCOL;
use super::error::{ALERT, TlsError};
use super::machine::{Encrypt, Machine, Step};
use super::stage::{self, BURST, MAX_RECORD, Stage};
use crate::sys::{Socket, read_into, write_from};

/// Reads from the socket per call while they complete no record: a peer may send empty ones for ever.
const READS_PER_CALL: usize = 4;
/// Capacity that a buffer keeps while it is empty.
const RETAINED_CAPACITY: usize = 32 << 10;

/// The alert for a peer that sends something else than TLS: a fatal `unexpected_message`.
const UNEXPECTED_MESSAGE: [u8; 7] = [ALERT, 3, 3, 0, 2, 2, 10];

/// One TLS connection.
pub(crate) struct Session {
    machine: Machine,
    state: State,
    /// The reader was told that nothing more comes.
    end_reported: bool,
    /// The peer has sent something.
    received_any: bool,
    /// close_notify was encrypted.
    closed: bool,
    /// Received and not decrypted.
    cipher: Vec<u8>,
    /// Decrypted and not read, from `read` on.
    plain: Vec<u8>,
    read: usize,
    /// Encrypted and not sent, from `sent` on.
    out: Vec<u8>,
    sent: usize,
}

/// The state of the receiving direction.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Handshake,
    Open,
    /// The peer sent close_notify; sending is still possible.
    Ended,
    Failed(TlsError),
}

/// The result of sending buffered bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Nothing is left.
    Done,
    /// The socket has no room.
    Full,
    Broken,
}

impl Session {
    pub(super) fn client(config: Arc<ClientConfig>) -> Result<Session, TlsError> {
        // No name is sent or checked (`enable_sni`, the verifiers).
        let name = ServerName::try_from("verbena.invalid");
        let name = name.map_err(|error| TlsError::Failed(error.to_string()))?;
        let machine = UnbufferedClientConnection::new(config, name)?;
        Ok(Session::new(Machine::Client(Box::new(machine))))
    }

    pub(super) fn server(config: Arc<ServerConfig>) -> Result<Session, TlsError> {
        let machine = UnbufferedServerConnection::new(config)?;
        Ok(Session::new(Machine::Server(Box::new(machine))))
    }

    fn new(machine: Machine) -> Session {
        Session {
            machine,
            state: State::Handshake,
            end_reported: false,
            received_any: false,
            closed: false,
            cipher: Vec::new(),
            plain: Vec::new(),
            read: 0,
            out: Vec::new(),
            sent: 0,
        }
    }

    /// The error, if it failed.
    pub(crate) fn failure(&self) -> Option<&TlsError> {
        match &self.state {
            State::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// The handshake is not complete.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.state == State::Handshake
    }

    /// A read would return something although the socket is not readable.
    pub(crate) fn has_unread(&self) -> bool {
        let more = match self.state {
            State::Handshake | State::Open => has_record(&self.cipher),
            State::Ended | State::Failed(_) => !self.end_reported,
        };
        more || self.read < self.plain.len()
    }

    /// Ciphertext waits for room in the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Fills the targets with plaintext, like [`Carrier::read`](verbena_nic::Carrier::read). Until the handshake is complete
    /// it advances that.
    pub(crate) fn read(&mut self, socket: &Socket, targets: &mut Targets<'_>) -> IoOutcome {
        let wanted = targets.bytes();
        if wanted == 0 {
            return IoOutcome::WouldBlock;
        }
        let Ok(got) = targets.fill_at(0, self.plain.get(self.read..).unwrap_or_default()) else {
            return IoOutcome::Fault;
        };
        self.read += got;
        if self.read == self.plain.len() {
            empty(&mut self.plain);
            self.read = 0;
        }
        if got > 0 {
            return IoOutcome::Bytes(got);
        }
        let moved = stage::with(|stage| self.receive(socket, targets, wanted, stage));
        // Sends handshake messages or an alert; without room in the socket they wait.
        self.flush(socket);
        moved
    }

    fn receive(
        &mut self,
        socket: &Socket,
        targets: &mut Targets<'_>,
        wanted: usize,
        stage: &mut Stage,
    ) -> IoOutcome {
        let came = &mut stage.received;
        let mut len = self.cipher.len();
        came[..len].copy_from_slice(&self.cipher);
        let (mut got, mut end) = (0, IoOutcome::WouldBlock);
        let (mut rest, mut receives, mut fault) = (Vec::new(), 0, false);
        loop {
            let used = self.decrypt(&mut came[..len], |bytes| {
                let copied = targets.fill_at(got, bytes);
                fault = copied.is_err();
                let n = copied.unwrap_or(0);
                rest.extend_from_slice(&bytes[n..]);
                got += n;
                !fault && got < wanted
            });
            came.copy_within(used..len, 0);
            len -= used;
            let over = matches!(self.state, State::Ended | State::Failed(_));
            if got > 0 || fault || over || receives == READS_PER_CALL {
                break;
            }
            receives += 1;
            let limit = match self.state {
                State::Handshake => MAX_RECORD,
                _ => came.len().min(len + wanted + MAX_RECORD),
            };
            if len >= limit {
                let error = "the peer sent more bytes than a handshake may have";
                self.state = State::Failed(TlsError::Failed(error.to_owned()));
                break;
            }
            match read_into(socket, &mut came[len..limit]) {
                IoOutcome::Bytes(n) => len += n,
                other => {
                    end = other;
                    break;
                }
            }
            self.check_first_bytes(&came[..len]);
        }
        empty(&mut self.cipher);
        self.cipher.extend_from_slice(&came[..len]);
        self.plain = rest;
        if got > 0 {
            return IoOutcome::Bytes(got);
        }
        if fault {
            return IoOutcome::Fault;
        }
        if matches!(end, IoOutcome::Eof | IoOutcome::Broken | IoOutcome::Fault)
            && self.failure().is_none()
        {
            self.state = State::Failed(TlsError::Ended);
        }
        self.end_reported = matches!(self.state, State::Ended | State::Failed(_));
        match self.state {
            State::Failed(_) => IoOutcome::Broken,
            State::Ended => IoOutcome::Eof,
            State::Handshake | State::Open => IoOutcome::WouldBlock,
        }
    }

    /// Checks the first bytes of all: from a peer that does not use TLS, the rest of a record is not awaited.
    fn check_first_bytes(&mut self, bytes: &[u8]) {
        if !self.received_any && !TlsError::may_be_tls(bytes) {
            self.out.extend_from_slice(&UNEXPECTED_MESSAGE);
            self.state = State::Failed(TlsError::NotTls);
        }
        self.received_any = true;
    }

    /// Decrypts until `input` has no complete record any more or `take` wants none; returns the bytes consumed.
    fn decrypt(&mut self, input: &mut [u8], mut take: impl FnMut(&[u8]) -> bool) -> usize {
        let mut used = 0;
        let mut wants = true;
        while wants && !matches!(self.state, State::Ended | State::Failed(_)) {
            let mut take = |bytes: &[u8]| wants = take(bytes);
            let rest = &mut input[used..];
            let (n, step) = self
                .machine
                .step(rest, Encrypt::Nothing, &mut self.out, &mut take);
            used += n;
            match step {
                Step::More | Step::Encrypted(_) => {}
                Step::Blocked => break,
                Step::Closed => self.state = State::Ended,
                Step::Failed(error) => {
                    self.fail(error, &mut input[used..]);
                    break;
                }
            }
        }
        if self.state == State::Handshake && !self.machine.is_handshaking() {
            self.state = match self.machine.protocol() {
                Some(PROTOCOL) => State::Open,
                _ => {
                    let error = "the peer did not agree on the protocol";
                    State::Failed(TlsError::Failed(error.to_owned()))
                }
            };
        }
        used
    }

    /// Fails the connection: only the alert is left to send.
    fn fail(&mut self, error: TlsError, rest: &mut [u8]) {
        self.state = State::Failed(error);
        // The alert precedes everything else.
        let _ = self
            .machine
            .step(rest, Encrypt::Nothing, &mut self.out, &mut |_| ());
    }

    /// Encrypts and sends the bytes of the sources, like [`Carrier::write`](verbena_nic::Carrier::write). Bytes reported as sent
    /// may wait for room: see [`flush`](Session::flush).
    pub(crate) fn write(&mut self, socket: &Socket, sources: &Sources<'_>) -> IoOutcome {
        if self.is_handshaking() {
            return IoOutcome::WouldBlock;
        }
        if self.failure().is_some() || self.closed {
            return IoOutcome::Broken;
        }
        match self.flush(socket) {
            Flush::Done => {}
            Flush::Full => return IoOutcome::WouldBlock,
            Flush::Broken => return IoOutcome::Broken,
        }
        stage::with(|stage| {
            stage.plain.clear();
            let Ok(n) = sources.copy_to(&mut stage.plain, BURST) else {
                return IoOutcome::Fault;
            };
            if n == 0 {
                return IoOutcome::WouldBlock;
            }
            let make = Encrypt::Data(&stage.plain, &mut stage.sealed);
            match self.encrypt(make) {
                Some(len) if self.send(socket, &stage.sealed[..len]) => IoOutcome::Bytes(n),
                _ => IoOutcome::Broken,
            }
        })
    }

    /// Encrypts; returns the length of the records. Received input that the machine consumes meanwhile is kept.
    fn encrypt(&mut self, mut make: Encrypt<'_>) -> Option<usize> {
        let (mut cipher, mut used) = (core::mem::take(&mut self.cipher), 0);
        let made = loop {
            let again = make.reborrow();
            let plain = &mut self.plain;
            let mut take = |bytes: &[u8]| plain.extend_from_slice(bytes);
            let rest = &mut cipher[used..];
            let (n, step) = self.machine.step(rest, again, &mut self.out, &mut take);
            used += n;
            match step {
                Step::More => {}
                Step::Closed => self.state = State::Ended,
                Step::Encrypted(len) => break Some(len),
                Step::Blocked => break None,
                Step::Failed(error) => {
                    self.fail(error, &mut cipher[used..]);
                    break None;
                }
            }
        };
        cipher.drain(..used);
        self.cipher = cipher;
        made
    }

    /// Sends records after those that wait; false if the connection is broken.
    fn send(&mut self, socket: &Socket, sealed: &[u8]) -> bool {
        let mut now = 0;
        while !self.has_unsent() && now < sealed.len() {
            match write_from(socket, &sealed[now..]) {
                IoOutcome::Bytes(n) => now += n,
                IoOutcome::WouldBlock => break,
                IoOutcome::Eof | IoOutcome::Broken | IoOutcome::Fault => return false,
            }
        }
        self.out.extend_from_slice(&sealed[now..]);
        true
    }

    /// Sends what waits for room.
    pub(crate) fn flush(&mut self, socket: &Socket) -> Flush {
        while self.has_unsent() {
            match write_from(socket, &self.out[self.sent..]) {
                IoOutcome::Bytes(n) => self.sent += n,
                IoOutcome::WouldBlock => return Flush::Full,
                IoOutcome::Eof | IoOutcome::Broken | IoOutcome::Fault => {
                    empty(&mut self.out);
                    self.sent = 0;
                    return Flush::Broken;
                }
            }
        }
        empty(&mut self.out);
        self.sent = 0;
        Flush::Done
    }

    /// Sends close_notify, once, and what waits.
    pub(crate) fn close(&mut self, socket: &Socket) -> Flush {
        let open = matches!(self.state, State::Open | State::Ended);
        if open && !self.closed {
            let sealed = &mut [0; 256];
            if let Some(len) = self.encrypt(Encrypt::CloseNotify(sealed)) {
                self.out.extend_from_slice(&sealed[..len]);
            }
        }
        self.closed = true;
        self.flush(socket)
    }
}

/// Whether a complete record is at the front.
fn has_record(cipher: &[u8]) -> bool {
    let len = cipher
        .get(3..5)
        .map(|len| u16::from_be_bytes([len[0], len[1]]));
    len.is_some_and(|len| cipher.len() - 5 >= usize::from(len))
}

/// Empties a buffer, which keeps up to [`RETAINED_CAPACITY`] bytes of capacity.
fn empty(buffer: &mut Vec<u8>) {
    if buffer.capacity() > RETAINED_CAPACITY {
        *buffer = Vec::new();
    } else {
        buffer.clear();
    }
}

impl core::fmt::Debug for Session {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Session")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
