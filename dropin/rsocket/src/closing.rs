//! Connections of closed sockets whose last bytes are in flight: one thread of each [`Net`] drives them in the background.
//! They are limited in number, in buffer memory and in time; beyond that the oldest is aborted. The thread ends when none is left.
//! A socket whose close waits (`SO_LINGER`) comes here when its time is over.

use core::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Error;
use crate::link::Link;
use crate::net::Net;
use crate::notifier::{Notifier, Watch};

/// The limits.
struct Bounds {
    connections: usize,
    /// Bytes of their send and receive buffers.
    bytes: usize,
    /// Time limit of each connection.
    time: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections: 1024,
            bytes: 1 << 30,
            time: Duration::from_secs(60),
        }
    }
}

/// How long the thread stays without work, so that a program that closes many sockets does not start one for each.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a close blocks if the thread cannot be started.
const BLOCKING_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// An object of the caller that is kept alive as long as the connection.
pub(crate) type KeptObject = Option<Arc<dyn Any + Send + Sync>>;

/// A closing connection.
struct Closing {
    link: Arc<Link>,
    until: Instant,
    _watch: Watch,
    _kept: KeptObject,
}

/// The connections of a [`Net`] that are closing, oldest first.
#[derive(Default)]
pub(crate) struct ClosingLinks(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    closing: VecDeque<Closing>,
    bounds: Bounds,
    /// Signalled when there is work; `Some` while the thread runs.
    notifier: Option<Notifier>,
}

impl Inner {
    fn is_over_full(&self) -> bool {
        let bytes: usize = self.closing.iter().map(|one| one.link.buffers()).sum();
        self.closing.len() > self.bounds.connections || bytes > self.bounds.bytes
    }
}

impl ClosingLinks {
    /// Takes a connection over. Returns at once, unless no thread can be started.
    pub(crate) fn finish(&self, net: &Arc<Net>, link: &Arc<Link>, kept: KeptObject) {
        let mut broken = Vec::new();
        let added = self.add(net, link, kept, &mut broken);
        // Outside the lock: ending a connection calls the adapter.
        drop(broken);
        if added.is_err() {
            flush_and_wait(link, Instant::now() + BLOCKING_CLOSE_TIMEOUT);
        }
    }

    fn add(
        &self,
        net: &Arc<Net>,
        link: &Arc<Link>,
        kept: KeptObject,
        broken: &mut Vec<Closing>,
    ) -> Result<(), Error> {
        let mut inner = self.0.lock();
        let alarm = match &inner.notifier {
            Some(alarm) => alarm.clone(),
            None => {
                let alarm = Notifier::new()?;
                let (its, net) = (alarm.clone(), Arc::downgrade(net));
                let started = verbena::unstable::spawn("verbena-rclose", move || run(&net, &its));
                started.map_err(verbena::Error::from)?;
                inner.notifier = Some(alarm.clone());
                alarm
            }
        };
        let until = Instant::now() + inner.bounds.time;
        inner.closing.push_back(Closing {
            link: link.clone(),
            until,
            _watch: link.watch(&alarm),
            _kept: kept,
        });
        while inner.is_over_full() {
            broken.extend(inner.closing.pop_front());
        }
        alarm.notify();
        Ok(())
    }

    /// None is left. Does not block: false while the lock is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.0
            .try_lock()
            .is_some_and(|inner| inner.closing.is_empty())
    }

    /// The number of closing connections.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().closing.len()
    }

    /// Drives every connection once; returns the time of the next turn at the latest, or `None` if the thread is to end.
    fn turn(&self, idle_since: &mut Instant) -> Option<Instant> {
        let now = Instant::now();
        let links: Vec<_> = {
            let inner = self.0.lock();
            let each = inner.closing.iter();
            each.map(|one| (one.link.clone(), one.until)).collect()
        };
        // Without the lock, for which a closing program waits.
        let over = |(link, until): &(Arc<Link>, Instant)| *until <= now || link.finish();
        let over: Vec<_> = links.into_iter().filter(over).collect();
        let mut inner = self.0.lock();
        let is_over = |one: &Closing| over.iter().any(|(link, _)| Arc::ptr_eq(link, &one.link));
        let all = core::mem::take(&mut inner.closing).into_iter();
        let (gone, left): (VecDeque<Closing>, _) = all.partition(is_over);
        inner.closing = left;
        let next = inner.closing.front().map(|one| one.until);
        if next.is_some() || !gone.is_empty() {
            *idle_since = now;
        }
        let ends = *idle_since + IDLE_TIMEOUT;
        let is_idle = next.is_none() && now >= ends;
        if is_idle {
            inner.notifier = None;
        }
        // Without the lock, too: this ends connections.
        drop(inner);
        drop((gone, over));
        (!is_idle).then_some(next.unwrap_or(ends))
    }
}

/// The thread.
fn run(net: &Weak<Net>, alarm: &Notifier) {
    let mut idle_since = Instant::now();
    loop {
        alarm.clear();
        // Not held while waiting: a `Net` that its owner drops ends this thread.
        let Some(strong) = net.upgrade() else { return };
        let Some(until) = strong.closing.turn(&mut idle_since) else {
            return;
        };
        drop(strong);
        let _ = alarm.wait(Some(until));
    }
}

/// Ends the stream and waits until everything has reached the peer's adapter; signals do not shorten it. False if the time is over before.
pub(crate) fn flush_and_wait(link: &Arc<Link>, until: Instant) -> bool {
    let Ok(alarm) = Notifier::current() else {
        return link.finish();
    };
    let _watch = link.watch(&alarm);
    loop {
        alarm.clear();
        if link.finish() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        // Whatever ended the wait, the loop checks again.
        let _ = alarm.wait(Some(until));
    }
}

impl core::fmt::Debug for ClosingLinks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("ClosingLinks").field(&self.len()).finish()
    }
}

#[cfg(test)]
mod tests;
