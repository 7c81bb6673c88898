//! The state machine of rustls, for either side, one step at a time: records in, plaintext and records out.
//! It has no input buffer: input that a step did not consume must be passed again to the next one.

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};

use super::TlsError;

/// One side of a connection.
pub(super) enum Machine {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// What to write as soon as records can be encrypted.
pub(super) enum Encrypt<'a> {
    Nothing,
    Data(&'a [u8], &'a mut [u8]),
    CloseNotify(&'a mut [u8]),
}

/// The result of one step.
pub(super) enum Step {
    /// There is more to do.
    More,
    /// The next record is not complete.
    Blocked,
    /// This many bytes were encrypted.
    Encrypted(usize),
    Closed,
    Failed(TlsError),
}

impl Machine {
    pub(super) fn is_handshaking(&self) -> bool {
        match self {
            Machine::Client(c) => c.is_handshaking(),
            Machine::Server(s) => s.is_handshaking(),
        }
    }

    pub(super) fn protocol(&self) -> Option<&[u8]> {
        match self {
            Machine::Client(c) => c.alpn_protocol(),
            Machine::Server(s) => s.alpn_protocol(),
        }
    }

    pub(super) fn step(
        &mut self,
        input: &mut [u8],
        make: Encrypt<'_>,
        out: &mut Vec<u8>,
        take: &mut dyn FnMut(&[u8]),
    ) -> (usize, Step) {
        match self {
            Machine::Client(c) => step(c.process_tls_records(input), make, out, take),
            Machine::Server(s) => step(s.process_tls_records(input), make, out, take),
        }
    }
}

/// One step: how many bytes of the input it consumed, and its result.
fn step<Side>(
    status: UnbufferedStatus<'_, '_, Side>,
    make: Encrypt<'_>,
    out: &mut Vec<u8>,
    take: &mut dyn FnMut(&[u8]),
) -> (usize, Step) {
    let mut used = status.discard;
    let step = match status.state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Step::More,
                Some(Ok(record)) => {
                    used += record.discard;
                    take(record.payload);
                }
                Some(Err(error)) => break Step::Failed(error.into()),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let at = out.len();
            if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
                out.resize(at + size.required_size, 0);
                // It fits after the resize.
                let _ = data.encode(&mut out[at..]);
            }
            Step::More
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // It is in `out`, before whatever is encrypted later.
            data.done();
            Step::More
        }
        Ok(ConnectionState::WriteTraffic(traffic)) => write(traffic, make),
        Ok(ConnectionState::BlockedHandshake) => Step::Blocked,
        Ok(ConnectionState::PeerClosed) => Step::Closed,
        Ok(ConnectionState::Closed) => Step::Blocked,
        // Early data is never accepted.
        Ok(_) => Step::Failed(TlsError::Failed("unexpected data".to_owned())),
        Err(error) => Step::Failed(error.into()),
    };
    (used, step)
}

fn write<Side>(mut traffic: WriteTraffic<'_, Side>, make: Encrypt<'_>) -> Step {
    let made = match make {
        Encrypt::Nothing => return Step::Blocked,
        Encrypt::Data(plain, sealed) => traffic.encrypt(plain, sealed),
        Encrypt::CloseNotify(sealed) => traffic.queue_close_notify(sealed),
    };
    match made {
        Ok(len) => Step::Encrypted(len),
        Err(EncryptError::InsufficientSize(_)) => Step::Blocked,
        Err(error) => Step::Failed(TlsError::Failed(error.to_string())),
    }
}

impl Encrypt<'_> {
    /// A copy for the next attempt.
    pub(super) fn reborrow(&mut self) -> Encrypt<'_> {
        match self {
            Encrypt::Nothing => Encrypt::Nothing,
            Encrypt::Data(plain, sealed) => Encrypt::Data(plain, sealed),
            Encrypt::CloseNotify(sealed) => Encrypt::CloseNotify(sealed),
        }
    }
}
