//! Permits of connections during their startup: how many there are at once, and which one ends when there are too many.
//!
//! Source addresses share them ([`shares`](crate::accept::shares)). A connection waits for its peer until its MPA Request has arrived, and again
//! after it was answered and is being closed; between these it waits for the program.

use core::net::IpAddr;
use std::sync::{Arc, Weak};

use verbena_sync::locks::Mutex;

use crate::accept::shares::{Shares, Source};
use crate::connection::Connection;

/// Permits of all listeners of an engine.
pub(crate) struct Permits(Mutex<Shares<Weak<Connection>>>);

impl Permits {
    pub(crate) fn new(limit: u32) -> Arc<Permits> {
        Arc::new(Permits(Mutex::new(Shares::new(limit as usize))))
    }

    /// A permit for a new connection, and the connection that must end for it; none if the new one is refused.
    pub(crate) fn take(
        self: &Arc<Self>,
        peer: IpAddr,
    ) -> Option<(Permit, Option<Weak<Connection>>)> {
        let source = Source::of(peer);
        let (number, displaced) = self.0.lock().enter(source)?;
        let permit = Permit {
            permits: self.clone(),
            source,
            number,
        };
        Some((permit, displaced))
    }
}

/// One permit; given back when it is dropped.
pub(crate) struct Permit {
    permits: Arc<Permits>,
    source: Source,
    number: u64,
}

impl Permit {
    /// Sets the connection that holds it, which may be displaced from now on.
    pub(crate) fn set_connection(&self, connection: &Arc<Connection>) {
        let connection = Arc::downgrade(connection);
        let mut table = self.permits.0.lock();
        table.wait_for_peer(self.source, self.number, Some(connection));
    }

    /// The request is complete: the program has to decide.
    pub(crate) fn set_awaiting_decision(&self) {
        let mut table = self.permits.0.lock();
        table.wait_for_program(self.source, self.number);
    }

    /// The request was answered, and the connection stays only until the peer closes.
    pub(crate) fn set_answered(&self) {
        let mut table = self.permits.0.lock();
        table.wait_for_peer(self.source, self.number, None);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.0.lock().leave(self.source, self.number);
    }
}
