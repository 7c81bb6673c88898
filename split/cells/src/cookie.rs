//! Cookies: a listener lets the source address of a request prove that it receives answers, before anything of the request is kept.
//! A cookie is a keyed hash of the source address, the time and the request, so nothing is remembered of those that were given.
//! Answers to a datagram are never longer than the datagram. Randomness and the time come from the caller.

use core::time::Duration;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use verbena_split_wire::cell::{
    Body, Cell, Cells, Cookie, Kind, PacketSeq, PortAddress, RETRY_CELL, RejectReason, Terms,
};
use verbena_stream::Time;
use verbena_wire::number::Qpn;

use crate::descriptor::Peer;
use crate::port::reply_way;

/// A cookie is valid in the interval in which it was made, and in the next one.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Lifetime of a key; the previous one still verifies cookies.
pub const KEY_LIFE: Duration = Duration::from_secs(600);

/// Private data of the Reject for a peer whose version has no cookies. With it the answer is not longer than the request of a host of
/// the split driver.
const TOO_OLD: &[u8] = b"host too old";

/// A key for HMAC-SHA-256.
pub type Key = [u8; 32];

/// The result of [`Cookies::check_requests`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CookieCheck {
    /// A request has a valid cookie: the source address receives what is sent to it.
    pub proven: bool,
    /// A request comes from a peer whose version has no cookies; it was rejected.
    pub too_old: bool,
}

/// Makes and verifies cookies.
#[derive(Debug)]
pub struct Cookies {
    key: Key,
    last: Option<Key>,
    since: Time,
}

impl Cookies {
    /// Starts with a random key.
    pub fn new(key: Key, now: Time) -> Cookies {
        Cookies {
            key,
            last: None,
            since: now,
        }
    }

    /// The key has expired: call [`renew`](Cookies::renew).
    pub fn is_expired(&self, now: Time) -> bool {
        now.since(self.since) >= KEY_LIFE
    }

    /// Replaces the key by another random one.
    pub fn renew(&mut self, key: Key, now: Time) {
        self.last = Some(core::mem::replace(&mut self.key, key));
        self.since = now;
    }

    /// Looks for requests at the front of a datagram of `port` from `source`, and appends an answer to `answer` for each without a valid
    /// cookie: a Retry, or a Reject at a number for which `is_old` is true. Answers beyond the datagram's length are left out.
    pub fn check_requests(
        &self,
        (source, port): (&[u8], PortAddress),
        here: PortAddress,
        is_old: impl Fn(Qpn) -> bool,
        datagram: &[u8],
        now: Time,
        answer: &mut Vec<u8>,
    ) -> CookieCheck {
        let mut asked = CookieCheck::default();
        let limit = answer.len() + datagram.len();
        // Requests come first in a datagram, except for cells that end other connections.
        let cells = Cells::new(datagram).map_while(Result::ok);
        for cell in cells.take_while(|cell| !cell.body.kind().is_data()) {
            let ours = cell.route.to == here || cell.route.to == PortAddress::ANY;
            let Body::Connect { terms, cookie } = &cell.body else {
                continue;
            };
            if !ours || cell.route.from != port {
                continue;
            }
            let good = |cookie: &Cookie| self.is_valid(source, &cell, terms, cookie, now);
            let old = cookie.is_none() && is_old(cell.route.to_wqp);
            if cookie.as_ref().is_some_and(good) {
                asked.proven = true;
                continue;
            }
            asked.too_old |= old;
            let (reason, private) = (RejectReason::Consumer, TOO_OLD);
            let echo = cell.packet;
            let body = match old {
                true => Body::Reject {
                    echo,
                    reason,
                    private,
                },
                false => Body::Retry {
                    echo,
                    cookie: make(&self.key, source, &cell, terms, interval(now)),
                },
            };
            let peer = Peer {
                port,
                wqp: cell.route.from_wqp,
            };
            let said = Cell {
                route: reply_way(here, peer, cell.route.to_wqp),
                connected: true,
                packet: PacketSeq::default(),
                body,
            };
            if answer.len() + said.len() <= limit {
                said.emit(answer);
            }
        }
        asked
    }

    fn is_valid(
        &self,
        source: &[u8],
        cell: &Cell<'_>,
        terms: &Terms<'_>,
        cookie: &Cookie,
        now: Time,
    ) -> bool {
        let spans = [Some(interval(now)), interval(now).checked_sub(1)];
        let keys = [Some(&self.key), self.last.as_ref()];
        let mut good = false;
        for key in keys.into_iter().flatten() {
            for span in spans.into_iter().flatten() {
                let mac = hash(key, source, cell, terms, span);
                // In constant time: the duration does not show how much of a guess was right.
                good |= mac.is_some_and(|mac| mac.verify_truncated_left(&cookie.0).is_ok());
            }
        }
        good
    }
}

/// Makes a datagram with requests that have no cookie long enough for the answers to it, by zeros behind its last cell.
pub fn pad(datagram: &mut Vec<u8>) {
    if !may_contain_connect(datagram) {
        return;
    }
    let asks = |cell: &Cell<'_>| matches!(cell.body, Body::Connect { cookie: None, .. });
    let cells = Cells::new(datagram).map_while(Result::ok);
    let needed = cells.filter(asks).count() * RETRY_CELL;
    if datagram.len() < needed {
        datagram.resize(needed, 0);
    }
}

/// A datagram may contain a request: its first cell is not a data cell. This is a cheap test, since most datagrams are data.
pub fn may_contain_connect(datagram: &[u8]) -> bool {
    let first = datagram.first().map(|byte| byte & 0x0f);
    first.is_some_and(|kind| kind > Kind::Write as u8)
}

fn interval(now: Time) -> u64 {
    now.since(Time::ZERO).as_secs() / INTERVAL.as_secs()
}

/// Covers everything in the request, and its source.
fn hash(
    key: &Key,
    source: &[u8],
    cell: &Cell<'_>,
    terms: &Terms<'_>,
    span: u64,
) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    let way = &cell.route;
    mac.update(&span.to_be_bytes());
    // UDP and Ethernet sources have fixed lengths that differ, so the length identifies the kind.
    mac.update(&[source.len() as u8, u8::from(terms.acknowledged)]);
    mac.update(source);
    mac.update(&way.from.0);
    mac.update(&way.from_wqp.get().to_be_bytes());
    mac.update(&way.to_wqp.get().to_be_bytes());
    mac.update(&cell.packet.get().to_be_bytes());
    mac.update(&terms.max_payload.to_be_bytes());
    mac.update(terms.private);
    Some(mac)
}

fn make(key: &Key, source: &[u8], cell: &Cell<'_>, terms: &Terms<'_>, span: u64) -> Cookie {
    let mut cookie = Cookie([0; Cookie::LEN]);
    // HMAC accepts a key of any length (RFC 2104, section 2).
    if let Some(mac) = hash(key, source, cell, terms, span) {
        let bytes = mac.finalize().into_bytes();
        for (to, from) in cookie.0.iter_mut().zip(bytes) {
            *to = from;
        }
    }
    cookie
}

#[cfg(test)]
mod tests;
