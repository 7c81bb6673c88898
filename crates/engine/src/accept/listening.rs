//! Listeners at an address: bound, listening, handed over to another process, and the connection requests received there.
//! A request that is dropped without an answer is rejected. A listener that is handed over (V1) loses no connection that was accepted.
//! Requests are accepted by the program only.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::accept::acceptor::{Acceptor, PendingRequests};
use crate::accept::request::Request;
use crate::core::Core;
use crate::error::Error;
use crate::notify::Notify;
use crate::roce::cm::{RoceCm, ServiceGuard};
use crate::sys::Listener;
use crate::verbs::queue_pair::QueuePair;

/// A bound address, not listening yet.
#[derive(Debug)]
pub struct Reservation {
    core: Arc<Core>,
    listener: Listener,
}

impl Reservation {
    pub(crate) fn new(core: &Arc<Core>, listener: Listener) -> Result<Reservation, Error> {
        let core = core.clone();
        Ok(Reservation { core, listener })
    }

    /// Its address.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.listener.local_addr()?)
    }

    /// Listens; at most `backlog` requests wait for an answer.
    pub fn listen(self, backlog: usize) -> Result<Listening, Error> {
        self.core.check()?;
        let at = self.listener.local_addr()?;
        // First, so that a peer that finds the TCP port open finds the other one, too.
        let roce = if self.core.port.has_address(at.ip()) {
            // The port carries TCP only.
            None
        } else {
            RoceCm::prepare_listener(&self.core, at)?
        };
        let (acceptor, waiting) = Acceptor::open(&self.core, self.listener, backlog)?;
        if let Some(roce) = &roce {
            roce.listen(at, &acceptor);
        }
        Ok(Listening {
            roce,
            acceptor,
            waiting,
        })
    }
}

/// A listener. Its descriptor is readable while requests wait.
#[derive(Debug)]
pub struct Listening {
    /// Present if requests are received over RoCEv2, too.
    roce: Option<ServiceGuard>,
    acceptor: Arc<Acceptor>,
    waiting: Arc<PendingRequests>,
}

impl Listening {
    /// Its address.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        self.acceptor.check()?;
        self.acceptor.local_addr()
    }

    /// Waits for the next request; `None` if the descriptor was made non-blocking and none waits.
    pub fn next(&self) -> Result<Option<Incoming>, Error> {
        self.acceptor.check()?;
        while self.waiting.channel.take()? {
            // The peer may have closed since the notification.
            if let Some(request) = self.waiting.next() {
                return Ok(Some(Incoming(request)));
            }
            self.acceptor.check()?;
        }
        Ok(None)
    }

    /// The oldest request that waits, if any; does not block, whatever the mode of the descriptor.
    pub fn try_next(&self) -> Result<Option<Incoming>, Error> {
        self.acceptor.check()?;
        Ok(self.waiting.try_next().map(Incoming))
    }

    /// Stops accepting until [`resume`](Listening::resume): new connections wait in the system's backlog. Those already accepted
    /// are still reported.
    pub fn pause(&self) {
        self.acceptor.pause();
    }

    /// Accepts new connections again.
    pub fn resume(&self) {
        self.acceptor.resume();
    }

    /// No accepted connection is in startup or waits for an answer.
    pub fn is_drained(&self) -> bool {
        self.acceptor.is_idle() && self.waiting.is_empty()
    }

    /// Duplicates the listening socket for another process, which continues listening (V1). This listener is paused first.
    pub fn duplicate(&self) -> Result<OwnedFd, Error> {
        self.acceptor.check()?;
        self.acceptor.pause();
        Ok(self.acceptor.duplicate()?)
    }

    /// Drops the listener without ending the listening socket, which another process has taken over.
    pub fn close_handed_over(mut self) {
        if let Some(roce) = self.roce.take() {
            roce.hand_over();
        }
        self.acceptor.mark_handed_over();
    }

    /// Sets a callback that is notified of every new request, in addition to the descriptor.
    pub fn set_notify(&self, notify: Option<Arc<dyn Notify>>) {
        let before = core::mem::replace(&mut *self.waiting.notify.write(), notify);
        // Dropped after the lock is released: it runs code of the program.
        drop(before);
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiting.channel.as_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.acceptor.is_alive() {
            // First: no request may arrive after those that wait are rejected.
            drop(self.roce.take());
            self.acceptor.close();
        }
    }
}

/// A connection request; it is rejected if dropped without an answer.
pub struct Incoming(Request);

impl Incoming {
    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr()
    }

    /// The local address that the peer connected to.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        self.0.local_addr()
    }

    /// Reads and atomics at once that the connection would serve (IRD) and may issue (ORD); those of our settings if its startup
    /// negotiates none (MPA revision 1).
    pub fn depths(&self) -> (u16, u16) {
        self.0.depths()
    }

    /// The private data of its request.
    pub fn private_data(&self) -> &[u8] {
        self.0.private_data()
    }

    /// Accepts: the connection becomes this queue pair's. `done` is called when it is established or has failed.
    pub fn accept(
        self,
        qp: &QueuePair,
        private_data: &[u8],
        done: impl FnOnce(Result<Vec<u8>, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        qp.check_connectable()?;
        self.0.accept(qp, private_data, Box::new(done))
    }

    /// Rejects, with private data for the peer's program.
    pub fn reject(self, private_data: &[u8]) {
        self.0.reject(private_data);
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Has no effect on a request that was answered.
        self.0.reject(&[]);
    }
}

impl core::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Incoming").field(&self.peer_addr()).finish()
    }
}
