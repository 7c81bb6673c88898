//! Source validation of a listener: a connection request is taken only with a cookie that was sent to its source address. Until then
//! nothing is stored about a sender, and it is sent no more bytes than it sent. Answers to a batch of datagrams are sent with it or
//! dropped, since requests are repeated.

use verbena_cells::Cookies;
use verbena_cells::cookie::{CookieCheck, Key, may_contain_connect};
use verbena_split_wire::cell::PortAddress;
use verbena_stream::Time;
use verbena_wire::number::Qpn;

use super::datagram::{Datagram, PeerAddr};
use super::random;
use crate::carrier::Result;

/// Datagrams answered per batch.
const ANSWERS: usize = 256;
/// Of the senders without support for cookies, as many are reported per batch.
const MAX_REPORTED: usize = 16;

/// The numbers at which units listened before there were cookies.
const LEGACY_LISTENERS: [Qpn; 2] = [Qpn::wrapping(1), Qpn::wrapping(2)];

/// The cookies, and the answers of a batch.
#[derive(Debug)]
pub(super) struct CookieFilter {
    local_port: PortAddress,
    cookies: Cookies,
    now: Time,
    answers: Vec<Datagram>,
    legacy_senders: Vec<PeerAddr>,
}

impl CookieFilter {
    pub(super) fn new(here: PortAddress) -> Result<CookieFilter> {
        Ok(CookieFilter {
            local_port: here,
            cookies: Cookies::new(key()?, Time::ZERO),
            now: Time::ZERO,
            answers: Vec::new(),
            legacy_senders: Vec::new(),
        })
    }

    /// Sets the time for the next batch, and renews the key when it is due.
    pub(super) fn begin_batch(&mut self, now: Time) -> Result<()> {
        self.now = now;
        if self.cookies.is_expired(now) {
            self.cookies.renew(key()?, now);
        }
        Ok(())
    }

    /// Whether requests in this datagram may be taken; if not, an answer is queued.
    pub(super) fn check(&mut self, place: PeerAddr, port: PortAddress, datagram: &[u8]) -> bool {
        if !may_contain_connect(datagram) {
            return false;
        }
        let mut bytes = Vec::new();
        let source = place.cookie_bytes();
        let from = (source.as_slice(), port);
        let is_old = |listener| LEGACY_LISTENERS.contains(&listener);
        let asked: CookieCheck = self.cookies.check_requests(
            from,
            self.local_port,
            is_old,
            datagram,
            self.now,
            &mut bytes,
        );
        if !bytes.is_empty() && self.answers.len() < ANSWERS {
            let answer = Datagram {
                port,
                addr: place,
                bytes,
            };
            self.answers.push(answer);
        }
        if asked.too_old && self.legacy_senders.len() < MAX_REPORTED {
            self.legacy_senders.push(place);
        }
        asked.proven
    }

    /// The answers of this batch.
    pub(super) fn answers(&self) -> &[Datagram] {
        &self.answers
    }

    /// The answers were sent; returns the senders without support for cookies.
    pub(super) fn finish_batch(&mut self) -> impl Iterator<Item = PeerAddr> {
        self.answers.clear();
        self.legacy_senders.drain(..)
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
