//! A stream socket: fresh, bound, listening, connecting, connected, shut down and closed. It behaves as a TCP socket and may be used by
//! any number of threads; calls block unless told otherwise. Datagrams and urgent data are not supported.

mod connecting;
mod transfer;

use core::any::Any;
use core::net::SocketAddr;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena::Listener;
use verbena::cm::BoundListener;

use crate::closing::flush_and_wait;
use crate::error::Error;
use crate::link::{Link, Phase};
use crate::net::Net;
use crate::notifier::{Notifier, Waiters, Watch};
use crate::options::{Linger, Options};

pub use transfer::Flags;

/// A direction of a connection, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Receiving.
    Read,
    /// Sending.
    Write,
    /// Both.
    Both,
}

/// What can be done without blocking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Receiving or accepting returns at once.
    pub readable: bool,
    /// Sending returns at once.
    pub writable: bool,
    /// There is an error to be taken.
    pub error: bool,
    /// The connection is over in both directions.
    pub hangup: bool,
}

/// The state of a socket.
enum State {
    /// Bound to one address or none; to the unspecified address of both families by two.
    Unconnected(Vec<BoundListener>),
    Listening(Arc<[Listener]>),
    Connected(Arc<Link>),
    Closed,
}

/// A socket.
pub struct Stream {
    net: Arc<Net>,
    state: Mutex<State>,
    options: Mutex<Options>,
    nonblocking: AtomicBool,
    /// The error of a connection that failed, until it is taken.
    error: Mutex<Option<Error>>,
    waiters: Arc<Waiters>,
}

impl Stream {
    /// A fresh socket.
    pub fn new(net: &Arc<Net>) -> Stream {
        Stream::with(net, Options::default())
    }

    /// The same with options.
    pub fn with(net: &Arc<Net>, options: Options) -> Stream {
        Stream {
            net: net.clone(),
            state: Mutex::new(State::Unconnected(Vec::new())),
            options: Mutex::new(options),
            nonblocking: AtomicBool::new(false),
            error: Mutex::new(None),
            waiters: Arc::default(),
        }
    }

    /// The options; sizes apply when it connects or accepts.
    pub fn options(&self) -> Options {
        *self.options.lock()
    }

    /// Changes the options.
    pub fn set_options(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.options.lock());
    }

    /// Makes calls non-blocking or blocking.
    pub fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    /// Calls do not block.
    pub fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// It listens.
    pub fn is_listening(&self) -> bool {
        matches!(*self.state.lock(), State::Listening(_))
    }

    /// Takes the error of a connection that failed.
    pub fn take_error(&self) -> Option<Error> {
        if let Ok(link) = self.link()
            && let Phase::Failed(error) = link.phase()
        {
            self.fail(&error);
        }
        self.error.lock().take()
    }

    /// Connecting has failed, and the error was not taken yet.
    pub fn connect_failed(&self) -> bool {
        let link = self.link();
        link.is_ok_and(|link| matches!(link.phase(), Phase::Failed(_)))
    }

    /// Connecting failed: the socket is fresh and unbound again, and keeps the error for [`take_error`](Stream::take_error).
    fn fail(&self, error: &Error) {
        let gone = {
            let mut state = self.state.lock();
            match &*state {
                State::Connected(_) => {
                    core::mem::replace(&mut *state, State::Unconnected(Vec::new()))
                }
                _ => return,
            }
        };
        drop(gone);
        *self.error.lock() = Some(error.clone());
    }

    pub(crate) fn link(&self) -> Result<Arc<Link>, Error> {
        match &*self.state.lock() {
            State::Connected(link) => Ok(link.clone()),
            State::Closed => Err(Error::Closed),
            _ => Err(Error::NotConnected),
        }
    }

    /// The local address; fails before the socket is bound or connected.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        let link = match &*self.state.lock() {
            State::Unconnected(bound_listeners) => {
                let bound = bound_listeners.first().ok_or(Error::NotConnected)?;
                return Ok(bound.local_addr()?);
            }
            State::Listening(listeners) => {
                let listener = listeners.first().ok_or(Error::NotConnected)?;
                return Ok(listener.local_addr()?);
            }
            State::Connected(link) => link.clone(),
            State::Closed => return Err(Error::Closed),
        };
        link.addrs()
            .map(|(ours, _)| ours)
            .ok_or(Error::NotConnected)
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Result<SocketAddr, Error> {
        let ends = self.link()?.addrs();
        ends.map(|(_, theirs)| theirs).ok_or(Error::NotConnected)
    }

    /// What can be done without blocking.
    pub fn readiness(&self) -> Readiness {
        let link = match &*self.state.lock() {
            State::Connected(link) => link.clone(),
            State::Listening(listeners) => {
                return Readiness {
                    readable: listeners.iter().any(has_request),
                    ..Readiness::default()
                };
            }
            // As a TCP socket that was never connected.
            State::Unconnected(_) | State::Closed => {
                return Readiness {
                    writable: true,
                    hangup: true,
                    error: self.error.lock().is_some(),
                    ..Readiness::default()
                };
            }
        };
        let state = link.state();
        Readiness {
            readable: state.readable,
            writable: state.writable,
            error: state.failed,
            hangup: state.hangup,
        }
    }

    /// Signals `alarm` when there may be a change, as long as the watch lives. Before each wait: [`Notifier::clear`],
    /// [`arm`](Stream::arm), then check.
    pub fn watch(&self, alarm: &Notifier) -> Watch {
        self.waiters.add(alarm)
    }

    /// Asks for a signal at the next change.
    pub fn arm(&self) {
        if let Ok(link) = self.link() {
            link.arm();
        }
    }

    /// Waits until `look` returns something else than `WouldBlock`: polls for a short time, then sleeps.
    fn wait<R>(
        &self,
        until: Option<Instant>,
        mut look: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let spin = Instant::now() + self.options.lock().polling;
        loop {
            match look() {
                Err(Error::WouldBlock) => {}
                found => return found,
            }
            if Instant::now() >= spin {
                break;
            }
            core::hint::spin_loop();
        }
        let alarm = Notifier::current()?;
        let _watch = self.watch(&alarm);
        loop {
            alarm.clear();
            self.arm();
            match look() {
                Err(Error::WouldBlock) => alarm.wait(until)?,
                found => return found,
            }
        }
    }

    /// Ends one direction or both: the peer reads the end after everything that was sent.
    pub fn shutdown(&self, half: Half) -> Result<(), Error> {
        let link = self.link()?;
        if let Phase::Connecting | Phase::Failed(_) = link.phase() {
            return Err(Error::NotConnected);
        }
        if half != Half::Write {
            link.shut_read();
        }
        if half != Half::Read {
            match self.wait(None, || link.end()) {
                // The peer has closed before.
                Err(Error::Reset) => return Err(Error::NotConnected),
                ended => ended?,
            }
        }
        Ok(())
    }

    /// Closes it: what was sent still reaches the peer. Blocks only as long as the socket lingers; the rest is done in the background
    /// ([`Net::closing`]).
    pub fn close(&self) {
        self.close_keeping(None);
    }

    /// The same; `kept` lives until the background is done with the connection.
    pub fn close_keeping(&self, kept: Option<Arc<dyn Any + Send + Sync>>) {
        let before = core::mem::replace(&mut *self.state.lock(), State::Closed);
        self.waiters.notify();
        let State::Connected(link) = before else {
            return;
        };
        let left = match self.options.lock().linger {
            _ if !matches!(link.phase(), Phase::Connected) => true,
            Linger::Off => link.finish(),
            Linger::For(Duration::ZERO) => true,
            Linger::For(time) => flush_and_wait(&link, Instant::now() + time),
        };
        if !left {
            self.net.closing.finish(&self.net, &link, kept);
        }
    }

    /// For a process that ends without closing the socket: sends everything and the end of the stream, as far as possible without waiting
    /// for the peer.
    pub fn end_at_exit(&self) {
        if let Some(state) = self.state.try_lock()
            && let State::Connected(link) = &*state
        {
            link.end_at_exit();
        }
    }

    /// All of that has reached the peer's adapter, or never will. Does not block: true also while another thread holds the lock.
    pub fn is_exit_drained(&self) -> bool {
        let Some(state) = self.state.try_lock() else {
            return true;
        };
        match &*state {
            State::Connected(link) => link.is_exit_drained(),
            _ => true,
        }
    }
}

/// A request waits to be accepted.
fn has_request(listener: &Listener) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&now)).is_ok_and(|n| n > 0)
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.state.lock() {
            State::Unconnected(_) => "fresh",
            State::Listening(_) => "listening",
            State::Connected(_) => "linked",
            State::Closed => "closed",
        };
        f.debug_tuple("Stream").field(&state).finish()
    }
}

#[cfg(test)]
mod tests;
