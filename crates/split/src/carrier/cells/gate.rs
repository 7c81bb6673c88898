//! Source validation of a listener: a connection request is taken only with a cookie that was sent to its source address. Until then
//! nothing is stored about a sender, and it is sent no more bytes than it sent. Answers to a batch of datagrams are sent with it or
//! dropped, since requests are repeated.

use verbena_cells::Cookies;
use verbena_cells::cookie::{Asked, Key, may_ask};
use verbena_stream::Time;
use verbena_wire::cell::PortAddress;
use verbena_wire::number::Qpn;

use super::line::Place;
use super::outgoing::Datagram;
use super::random;
use crate::carrier::Result;

/// Datagrams answered per batch.
const ANSWERS: usize = 256;
/// Of the senders without support for cookies, as many are reported per batch.
const TOLD: usize = 16;

/// The numbers at which units listened before there were cookies.
const OLD: [Qpn; 2] = [Qpn::wrapping(1), Qpn::wrapping(2)];

/// The cookies, and the answers of a batch.
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

    /// Sets the time for the next batch, and renews the key when it is due.
    pub(super) fn begin(&mut self, now: Time) -> Result<()> {
        self.now = now;
        if self.cookies.is_old(now) {
            self.cookies.renew(key()?, now);
        }
        Ok(())
    }

    /// Whether requests in this datagram may be taken; if not, an answer is queued.
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

    /// The answers of this batch.
    pub(super) fn answers(&self) -> &[Datagram] {
        &self.answers
    }

    /// The answers were sent; returns the senders without support for cookies.
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
