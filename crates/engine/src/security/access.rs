//! Which source addresses may reach the adapter (settings `allow` and `deny`), and how refused ones are reported.
//!
//! An address in a network of `deny` is refused; of the others, an empty `allow` admits all, a non-empty one those in its networks.
//! Listeners check before they read from a connection, datagram sockets before they parse a datagram.
//!
//! Every refusal is counted. Each source is reported at most once in a minute: its first refusal at once, later ones, with their
//! number, at the first refusal after that minute. At most 256 sources are tracked at a time; further ones are reported as one.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use verbena_stream::Time;
use verbena_sync::atomic::{AtomicU64, Ordering};
use verbena_sync::locks::{Mutex, RwLock};

use crate::config::{Networks, Settings};
use crate::guard::catch_panic;
use crate::sys;

pub use crate::security::source::source_of;

/// How long a source is not reported again.
const PERIOD: Duration = Duration::from_secs(60);
/// Sources that are tracked at a time.
const SOURCES: usize = 256;

/// Which setting refused a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedBy {
    /// `deny` names it.
    Deny,
    /// `allow` does not.
    Allow,
    /// It did not prove that it has the `key`.
    Key,
    /// It does not use TLS, and `tls` requires it.
    NoTls,
    /// It uses TLS, and `tls` is off.
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

/// A report of refused connections or datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The source; none stands for all sources beyond the tracked ones.
    pub source: Option<IpAddr>,
    /// Which setting refused it this time.
    pub by: RefusedBy,
    /// Connections and datagrams of this source that were refused since its last report.
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

/// A callback for refusals.
type RefusalCallback = Arc<dyn Fn(&Refusal) + Send + Sync>;

/// The settings `allow` and `deny`, with what they refused.
pub struct AccessList {
    allow: Networks,
    deny: Networks,
    refused: AtomicU64,
    recent: Mutex<Recent>,
    callbacks: RwLock<Vec<(u64, RefusalCallback)>>,
}

impl AccessList {
    /// The lists of these settings.
    pub fn new(settings: &Settings) -> AccessList {
        AccessList {
            allow: settings.allow.clone(),
            deny: settings.deny.clone(),
            refused: AtomicU64::new(0),
            recent: Mutex::default(),
            callbacks: RwLock::default(),
        }
    }

    /// Whether this source may reach the adapter. If not, the refusal is counted and reported.
    #[inline]
    pub fn admits(&self, source: IpAddr) -> bool {
        let refused = self.refused_by(source);
        if let Some(by) = refused {
            self.refuse(source, by);
        }
        refused.is_none()
    }

    /// The list that refuses this source, if one does. It is neither counted nor reported.
    #[inline]
    pub(crate) fn refused_by(&self, source: IpAddr) -> Option<RefusedBy> {
        if self.allow.is_empty() && self.deny.is_empty() {
            return None;
        }
        let source = source.to_canonical();
        if self.deny.contains(source) {
            Some(RefusedBy::Deny)
        } else if self.allow.is_empty() || self.allow.contains(source) {
            None
        } else {
            Some(RefusedBy::Allow)
        }
    }

    /// Counts a refusal of this source and reports it when due.
    pub(crate) fn refuse(&self, source: IpAddr, by: RefusedBy) {
        let source = source.to_canonical();
        self.refused.fetch_add(1, Ordering::Relaxed);
        let observer = self.recent.lock().record(source, sys::now());
        if let Some((source, count)) = observer {
            self.report(&Refusal { source, by, count });
        }
    }

    fn report(&self, refusal: &Refusal) {
        // Called without the lock: the callbacks are the program's code.
        let all: Vec<RefusalCallback> = self
            .callbacks
            .read()
            .iter()
            .map(|(_, t)| t.clone())
            .collect();
        for observer in all {
            catch_panic(|| observer(refusal));
        }
    }

    /// Connections and datagrams that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Calls `told` at each report from now on, on the thread that refused the source and without any lock; it must not block.
    pub fn on_refusal(&self, observer: impl Fn(&Refusal) + Send + Sync + 'static) {
        self.add(0, Arc::new(observer));
    }

    pub(crate) fn add(&self, token: u64, observer: RefusalCallback) {
        self.callbacks.write().push((token, observer));
    }

    pub(crate) fn remove(&self, token: u64) {
        let mut observer = self.callbacks.write();
        let gone: Vec<_> = observer.extract_if(.., |(t, _)| *t == token).collect();
        drop(observer);
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

/// Sources that were reported within [`PERIOD`].
#[derive(Default)]
struct Recent {
    sources: HashMap<IpAddr, SourceReports>,
    /// The sources beyond [`SOURCES`], together.
    others: Option<SourceReports>,
}

struct SourceReports {
    reported_at: Time,
    /// Refusals since the last report.
    unreported: u64,
}

impl SourceReports {
    /// Counts a refusal; returns the number to report when a report is due.
    fn record(&mut self, now: Time) -> Option<u64> {
        self.unreported += 1;
        if now < self.reported_at + PERIOD {
            return None;
        }
        self.reported_at = now;
        Some(core::mem::take(&mut self.unreported))
    }
}

impl Recent {
    /// Counts a refusal of this source; returns the source and the number to report when a report is due.
    fn record(&mut self, source: IpAddr, now: Time) -> Option<(Option<IpAddr>, u64)> {
        if let Some(since) = self.sources.get_mut(&source) {
            return since.record(now).map(|count| (Some(source), count));
        }
        if self.sources.len() >= SOURCES {
            self.sources
                .retain(|_, since| now < since.reported_at + PERIOD);
        }
        let fresh = SourceReports {
            reported_at: now,
            unreported: 0,
        };
        if self.sources.len() < SOURCES {
            self.sources.insert(source, fresh);
            return Some((Some(source), 1));
        }
        match &mut self.others {
            Some(since) => since.record(now).map(|count| (None, count)),
            None => {
                self.others = Some(fresh);
                Some((None, 1))
            }
        }
    }
}

#[cfg(test)]
mod tests;
