//! Who may ask a carrier that listens for a connection: senders that have shown a cookie which was sent to their address.
//! Until then nothing is kept of them, and no more bytes are sent to them than came. What is answered to a batch of datagrams
//! leaves with it, or not at all: who asks asks again.

use verbena_cells::Cookies;
use verbena_cells::cookie::{Asked, Key, may_ask};
use verbena_stream::Time;
use verbena_wire::cell::PortAddress;
use verbena_wire::number::Qpn;

use super::line::Place;
use super::outgoing::Datagram;
use super::random;
use crate::carrier::Result;

/// Datagrams that are answered per batch.
const ANSWERS: usize = 256;
/// Of those that are too old, so many are told of.
const TOLD: usize = 16;

/// The numbers at which units took requests before there were cookies.
const OLD: [Qpn; 2] = [Qpn::wrapping(1), Qpn::wrapping(2)];

/// The gate.
#[derive(Debug)]
pub(super) struct Gate {
    here: PortAddress,
    cookies: Cookies,
    now: Time,
    answers: Vec<Datagram>,
    too_old: Vec<Place>,
}

impl Gate {
    pub(super) fn new(here: PortAddress) -> Result<Gate> {
        Ok(Gate {
            here,
            cookies: Cookies::new(key()?, Time::ZERO),
            now: Time::ZERO,
            answers: Vec::new(),
            too_old: Vec::new(),
        })
    }

    /// What comes now is judged by this time.
    pub(super) fn begin(&mut self, now: Time) -> Result<()> {
        self.now = now;
        if self.cookies.is_old(now) {
            self.cookies.renew(key()?, now);
        }
        Ok(())
    }

    /// May requests in this datagram be taken? If not, an answer waits.
    pub(super) fn judge(&mut self, place: Place, port: PortAddress, datagram: &[u8]) -> bool {
        if !may_ask(datagram) {
            return false;
        }
        let mut bytes = Vec::new();
        let source = place.source();
        let from = (source.as_slice(), port);
        let is_old = |listener| OLD.contains(&listener);
        let asked: Asked = self
            .cookies
            .judge(from, self.here, is_old, datagram, self.now, &mut bytes);
        if !bytes.is_empty() && self.answers.len() < ANSWERS {
            let answer = Datagram { port, place, bytes };
            self.answers.push(answer);
        }
        if asked.too_old && self.too_old.len() < TOLD {
            self.too_old.push(place);
        }
        asked.proven
    }

    /// What is to be said, of this batch.
    pub(super) fn answers(&self) -> &[Datagram] {
        &self.answers
    }

    /// It was said. Those that were too old.
    pub(super) fn answered(&mut self) -> impl Iterator<Item = Place> {
        self.answers.clear();
        self.too_old.drain(..)
    }
}

/// 256 random bits.
fn key() -> Result<Key> {
    let mut key = [0; 32];
    for part in key.chunks_exact_mut(8) {
        part.copy_from_slice(&random()?.to_ne_bytes());
    }
    Ok(key)
}
