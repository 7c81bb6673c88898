//! Which source addresses may reach the adapter (settings `allow` and `deny`), and what is told of those that may not, or do
//! not know the `key`.
//!
//! An address that a network in `deny` holds is refused; of the others, an empty `allow` admits all, and one that is not empty
//! those that it holds. Listeners ask before they read from a connection, datagram sockets before they look at a datagram.
//!
//! Every refusal is counted. Each source is told of once in a minute: its first refusal at once, and later ones, with their
//! number, when one of them comes after that time. At most 256 sources are known at a time; further ones are told of
//! together, as often as one source.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use verbena_stream::Time;

use crate::config::{Networks, Settings};
use crate::pipeline::shield;
use crate::sys;

/// How long nothing more is told of a source.
const PERIOD: Duration = Duration::from_secs(60);
/// Sources that are known at a time.
const SOURCES: usize = 256;

/// The source that an address counts for where limits are per source: an address of IPv4, of this machine or of its link counts for
/// itself, any other address of IPv6 for its network of 64 bits, which is what a host has to itself (RFC 6177). All hosts of a
/// link have the same 64 bits in their link-local addresses.
#[must_use]
pub fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() && !ip.is_unicast_link_local() => {
            IpAddr::V6((ip.to_bits() & !u128::from(u64::MAX)).into())
        }
        whole => whole,
    }
}

/// Which setting refused a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedBy {
    /// `deny` names it.
    Deny,
    /// `allow` does not.
    Allow,
    /// It did not prove that it knows the `key`.
    Key,
    /// It speaks no TLS, which `tls` demands.
    NoTls,
    /// It speaks TLS, and `tls` is off.
    TlsOff,
    /// Its TLS handshake failed: another key or certificate, or another protocol.
    Tls,
}

impl fmt::Display for RefusedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RefusedBy::Deny => "deny",
            RefusedBy::Allow => "allow",
            RefusedBy::Key => "key",
            RefusedBy::NoTls => "no-tls",
            RefusedBy::TlsOff => "tls-off",
            RefusedBy::Tls => "tls",
        })
    }
}

/// What is told of a source that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The source; none stands for all that are not told of one by one, because there are too many.
    pub source: Option<IpAddr>,
    /// Which setting refused it this time.
    pub by: RefusedBy,
    /// Connections and datagrams of it that were refused since it was told of last.
    pub count: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Some(source) => write!(f, "refused {source}")?,
            None => f.write_str("refused further addresses")?,
        }
        match self.by {
            RefusedBy::Deny => f.write_str(": the setting `deny` names it")?,
            RefusedBy::Allow => f.write_str(": the setting `allow` does not name it")?,
            RefusedBy::Key => f.write_str(": it does not have the same `key` as this adapter")?,
            RefusedBy::NoTls => f.write_str(": the peer speaks no TLS (setting `tls`)")?,
            RefusedBy::TlsOff => {
                f.write_str(": the peer speaks TLS, and the setting `tls` is off here")?;
            }
            RefusedBy::Tls => {
                f.write_str(": its TLS handshake failed, as with another key or certificate")?;
            }
        }
        if self.count > 1 {
            write!(f, " ({} times)", self.count)?;
        }
        Ok(())
    }
}

/// Is told of refusals.
type Told = Arc<dyn Fn(&Refusal) + Send + Sync>;

/// The settings `allow` and `deny`, with what they refused.
pub struct AccessList {
    allow: Networks,
    deny: Networks,
    refused: AtomicU64,
    recent: Mutex<Recent>,
    told: RwLock<Vec<(u64, Told)>>,
}

impl AccessList {
    /// The lists of these settings.
    pub fn new(settings: &Settings) -> AccessList {
        AccessList {
            allow: settings.allow.clone(),
            deny: settings.deny.clone(),
            refused: AtomicU64::new(0),
            recent: Mutex::default(),
            told: RwLock::default(),
        }
    }

    /// Whether this source may reach the adapter. If not, that is counted and told.
    #[inline]
    pub fn admits(&self, source: IpAddr) -> bool {
        (self.allow.is_empty() && self.deny.is_empty()) || self.judge(source)
    }

    fn judge(&self, source: IpAddr) -> bool {
        let source = source.to_canonical();
        let by = if self.deny.hold(source) {
            RefusedBy::Deny
        } else if self.allow.is_empty() || self.allow.hold(source) {
            return true;
        } else {
            RefusedBy::Allow
        };
        self.refuse(source, by);
        false
    }

    /// This source is refused: counts and tells it.
    pub(crate) fn refuse(&self, source: IpAddr, by: RefusedBy) {
        let source = source.to_canonical();
        self.refused.fetch_add(1, Ordering::Relaxed);
        let told = self.recent.lock().note(source, sys::now());
        if let Some((source, count)) = told {
            self.tell(&Refusal { source, by, count });
        }
    }

    fn tell(&self, refusal: &Refusal) {
        // Not under the lock: they are the program's.
        let all: Vec<Told> = self.told.read().iter().map(|(_, t)| t.clone()).collect();
        for told in all {
            shield(|| told(refusal));
        }
    }

    /// Connections and datagrams that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Tells `told` of refusals from now on, on whatever thread noticed and without any lock; it must not wait.
    pub fn on_refusal(&self, told: impl Fn(&Refusal) + Send + Sync + 'static) {
        self.add(0, Arc::new(told));
    }

    pub(crate) fn add(&self, token: u64, told: Told) {
        self.told.write().push((token, told));
    }

    pub(crate) fn remove(&self, token: u64) {
        let mut told = self.told.write();
        let gone: Vec<_> = told.extract_if(.., |(t, _)| *t == token).collect();
        drop(told);
        drop(gone);
    }
}

impl fmt::Debug for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessList")
            .field("allow", &self.allow)
            .field("deny", &self.deny)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

/// Sources that were told of a short while ago.
#[derive(Default)]
struct Recent {
    sources: HashMap<IpAddr, Since>,
    /// All that find no room among them.
    others: Option<Since>,
}

struct Since {
    told: Time,
    /// Refusals that were not told of.
    untold: u64,
}

impl Since {
    /// One more refusal; how many to tell of, if it is time to.
    fn note(&mut self, now: Time) -> Option<u64> {
        self.untold += 1;
        if now < self.told + PERIOD {
            return None;
        }
        self.told = now;
        Some(core::mem::take(&mut self.untold))
    }
}

impl Recent {
    /// One more refusal of this source; whom to tell of, and how many.
    fn note(&mut self, source: IpAddr, now: Time) -> Option<(Option<IpAddr>, u64)> {
        if let Some(since) = self.sources.get_mut(&source) {
            return since.note(now).map(|count| (Some(source), count));
        }
        if self.sources.len() >= SOURCES {
            self.sources.retain(|_, since| now < since.told + PERIOD);
        }
        let fresh = Since {
            told: now,
            untold: 0,
        };
        if self.sources.len() < SOURCES {
            self.sources.insert(source, fresh);
            return Some((Some(source), 1));
        }
        match &mut self.others {
            Some(since) => since.note(now).map(|count| (None, count)),
            None => {
                self.others = Some(fresh);
                Some((None, 1))
            }
        }
    }
}

#[cfg(test)]
mod tests;
