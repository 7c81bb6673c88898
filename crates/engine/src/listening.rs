//! Listening at an address: taken, opened, handed on, and the requests that come there.
//! It promises that a request which is dropped without an answer is refused, and that a listener which was handed to another
//! process (V1) loses nobody who has come. It refuses to accept on the program's behalf.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::connection::Decision;
use crate::core::Core;
use crate::door::{Door, Waiting};
use crate::error::Error;
use crate::notice::Notify;
use crate::queue_pair::QueuePair;
use crate::sys::Listener;

/// An address to listen at.
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

    /// Where it is.
    pub fn local(&self) -> Result<SocketAddr, Error> {
        Ok(self.listener.local()?)
    }

    /// Listens; at most `backlog` requests wait for an answer.
    pub fn listen(self, backlog: usize) -> Result<Listening, Error> {
        self.core.check()?;
        let (door, waiting) = Door::open(&self.core, self.listener, backlog)?;
        Ok(Listening { door, waiting })
    }
}

/// A listening address. Its descriptor is readable while requests wait.
#[derive(Debug)]
pub struct Listening {
    door: Arc<Door>,
    waiting: Arc<Waiting>,
}

impl Listening {
    /// Where it listens.
    pub fn local(&self) -> Result<SocketAddr, Error> {
        self.door.check()?;
        self.door.local()
    }

    /// Waits for the next request; `None` if the descriptor was made non-blocking and none waits.
    pub fn next(&self) -> Result<Option<Incoming>, Error> {
        self.door.check()?;
        while self.waiting.channel.take()? {
            // Its peer may have given up since the ring.
            if let Some(decision) = self.waiting.next() {
                return Ok(Some(Incoming(decision)));
            }
            self.door.check()?;
        }
        Ok(None)
    }

    /// The oldest request that waits, if one does; whatever the descriptor says, this does not wait for one.
    pub fn try_next(&self) -> Result<Option<Incoming>, Error> {
        self.door.check()?;
        let Some(decision) = self.waiting.next() else {
            return Ok(None);
        };
        // Its ring is there, or comes at once.
        self.waiting.channel.take()?;
        Ok(Some(Incoming(decision)))
    }

    /// Takes nobody new until [`resume`](Listening::resume): who comes meanwhile waits in the system's queue. Those who have
    /// come are shown as ever.
    pub fn pause(&self) {
        self.door.pause();
    }

    /// Takes those who come, again.
    pub fn resume(&self) {
        self.door.resume();
    }

    /// Nobody who came is on the way to be shown, or waits for an answer.
    pub fn is_quiet(&self) -> bool {
        self.door.is_quiet() && self.waiting.is_empty()
    }

    /// The listening socket for another process, which goes on listening at it (V1). It is paused first.
    pub fn duplicate(&self) -> Result<OwnedFd, Error> {
        self.door.check()?;
        self.door.pause();
        Ok(self.door.duplicate()?)
    }

    /// Another process listens there now: closing this one must not end that.
    pub fn give_up(self) {
        self.door.give_up();
    }

    /// Who is told of every request that begins to wait, besides the descriptor.
    pub fn listen(&self, notify: Option<Arc<dyn Notify>>) {
        let before = core::mem::replace(&mut *self.waiting.told.write(), notify);
        // Without the lock: it is the program's.
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
        if self.door.lives() {
            self.door.close();
        }
    }
}

/// A request that waits for an answer; dropped without one, it is refused.
pub struct Incoming(Decision);

impl Incoming {
    /// Who asks.
    pub fn peer(&self) -> SocketAddr {
        self.0.connection.peer()
    }

    /// The address of ours that it dialled.
    pub fn local(&self) -> Result<SocketAddr, Error> {
        Ok(self.0.connection.line().socket().local()?)
    }

    /// Reads and atomics at once that it wants from us, and those that it serves; none of its startup said so if it is
    /// of the first revision.
    pub fn depths(&self) -> (u16, u16) {
        (self.0.proposal.ird, self.0.proposal.ord)
    }

    /// What it said with its request.
    pub fn private_data(&self) -> &[u8] {
        &self.0.proposal.private_data
    }

    /// Says yes: the connection is this queue pair's. `done` is told when it is.
    pub fn accept(
        self,
        qp: &QueuePair,
        private_data: &[u8],
        done: impl FnOnce(Result<Vec<u8>, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        qp.check_connectable()?;
        let connection = self.0.connection.clone();
        qp.check_own(&connection)?;
        let mut options = qp.options(private_data);
        if let Some(proven) = &self.0.proven {
            proven.prove_reply(&mut options)?;
        }
        connection.accept(options, Box::new(done))
    }

    /// Says no, with a reason that the peer's program can read.
    pub fn reject(self, private_data: &[u8]) {
        self.0.connection.clone().reject(private_data);
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Without effect on a request that was answered.
        self.0.connection.clone().reject(&[]);
    }
}

impl core::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Incoming").field(&self.peer()).finish()
    }
}
