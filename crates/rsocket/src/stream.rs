//! A stream socket: from nothing over bound, listening or connecting to connected, shut down and closed.
//! It promises what a TCP socket promises, for any number of threads at once; a call waits unless it is told not to.
//! It refuses datagrams, urgent data, and to change what a connection was made with.

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
use verbena::{Berth, Listener};

use crate::alarm::{Alarm, Waiters, Watch};
use crate::closing::settle;
use crate::error::Error;
use crate::link::{Link, Phase};
use crate::net::Net;
use crate::options::{Linger, Options};

pub use transfer::Flags;

/// A half of a connection, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// What comes.
    Read,
    /// What goes.
    Write,
    /// Both.
    Both,
}

/// What can be done without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Receiving or accepting returns at once.
    pub readable: bool,
    /// Sending returns at once.
    pub writable: bool,
    /// There is an error to be asked for.
    pub error: bool,
    /// The connection is over in both directions.
    pub hangup: bool,
}

/// Where a socket stands.
enum State {
    /// Bound to one address, or to none; to all of both families by two.
    Fresh(Vec<Berth>),
    Listening(Arc<[Listener]>),
    Linked(Arc<Link>),
    Closed,
}

/// A socket.
pub struct Stream {
    net: Arc<Net>,
    state: Mutex<State>,
    options: Mutex<Options>,
    nonblocking: AtomicBool,
    /// The error of a connection that failed, until somebody asks.
    error: Mutex<Option<Error>>,
    waiters: Arc<Waiters>,
}

impl Stream {
    /// A socket that is nothing yet.
    pub fn new(net: &Arc<Net>) -> Stream {
        Stream::with(net, Options::default())
    }

    /// The same with options.
    pub fn with(net: &Arc<Net>, options: Options) -> Stream {
        Stream {
            net: net.clone(),
            state: Mutex::new(State::Fresh(Vec::new())),
            options: Mutex::new(options),
            nonblocking: AtomicBool::new(false),
            error: Mutex::new(None),
            waiters: Arc::default(),
        }
    }

    /// What it shall be like; sizes count when it connects or accepts.
    pub fn options(&self) -> Options {
        *self.options.lock()
    }

    /// Changes that.
    pub fn set_options(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.options.lock());
    }

    /// Calls do not wait from now on, or do again.
    pub fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    /// Calls do not wait.
    pub fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// It listens.
    pub fn is_listening(&self) -> bool {
        matches!(*self.state.lock(), State::Listening(_))
    }

    /// The error of a connection that failed; told once.
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

    /// Connecting failed: the socket is as before, and tells the error to whoever asks.
    fn fail(&self, error: &Error) {
        let gone = {
            let mut state = self.state.lock();
            match &*state {
                State::Linked(_) => core::mem::replace(&mut *state, State::Fresh(Vec::new())),
                _ => return,
            }
        };
        drop(gone);
        *self.error.lock() = Some(error.clone());
    }

    pub(crate) fn link(&self) -> Result<Arc<Link>, Error> {
        match &*self.state.lock() {
            State::Linked(link) => Ok(link.clone()),
            State::Closed => Err(Error::Closed),
            _ => Err(Error::NotConnected),
        }
    }

    /// Our address; none that can be told before it is bound or connected.
    pub fn local(&self) -> Result<SocketAddr, Error> {
        let link = match &*self.state.lock() {
            State::Fresh(berths) => {
                let berth = berths.first().ok_or(Error::NotConnected)?;
                return Ok(berth.local()?);
            }
            State::Listening(listeners) => {
                let listener = listeners.first().ok_or(Error::NotConnected)?;
                return Ok(listener.local()?);
            }
            State::Linked(link) => link.clone(),
            State::Closed => return Err(Error::Closed),
        };
        link.ends().map(|(ours, _)| ours).ok_or(Error::NotConnected)
    }

    /// The peer's address.
    pub fn peer(&self) -> Result<SocketAddr, Error> {
        let ends = self.link()?.ends();
        ends.map(|(_, theirs)| theirs).ok_or(Error::NotConnected)
    }

    /// What can be done without waiting.
    pub fn readiness(&self) -> Readiness {
        let link = match &*self.state.lock() {
            State::Linked(link) => link.clone(),
            State::Listening(listeners) => {
                return Readiness {
                    readable: listeners.iter().any(has_request),
                    ..Readiness::default()
                };
            }
            // As TCP sockets that were never connected.
            State::Fresh(_) | State::Closed => {
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
            hangup: state.over,
        }
    }

    /// Rings `alarm` when there may be news, as long as the watch lives. Before each wait: [`Alarm::silence`],
    /// [`arm`](Stream::arm), then look.
    pub fn watch(&self, alarm: &Alarm) -> Watch {
        self.waiters.add(alarm)
    }

    /// Asks to be told of the next news.
    pub fn arm(&self) {
        if let Ok(link) = self.link() {
            link.arm();
        }
    }

    /// Waits until `look` finds something: polls for a little while, then sleeps.
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
        let alarm = Alarm::mine()?;
        let _watch = self.watch(&alarm);
        loop {
            alarm.silence();
            self.arm();
            match look() {
                Err(Error::WouldBlock) => alarm.wait(until)?,
                found => return found,
            }
        }
    }

    /// Ends one half or both: the peer reads the end behind all that was sent.
    pub fn shutdown(&self, half: Half) -> Result<(), Error> {
        let link = self.link()?;
        if let Phase::Joining | Phase::Failed(_) = link.phase() {
            return Err(Error::NotConnected);
        }
        if half != Half::Write {
            link.deafen();
        }
        if half != Half::Read {
            match self.wait(None, || link.end()) {
                // The peer has gone before.
                Err(Error::Reset) => return Err(Error::NotConnected),
                ended => ended?,
            }
        }
        Ok(())
    }

    /// Closes it: what was sent still reaches the peer. Waits only as long as the socket lingers; the rest is done in the
    /// background ([`Net::closing`]).
    pub fn close(&self) {
        self.close_keeping(None);
    }

    /// The same; `kept` lives until the background is done with the connection.
    pub fn close_keeping(&self, kept: Option<Arc<dyn Any + Send + Sync>>) {
        let before = core::mem::replace(&mut *self.state.lock(), State::Closed);
        self.waiters.ring();
        let State::Linked(link) = before else { return };
        let left = match self.options.lock().linger {
            _ if !matches!(link.phase(), Phase::Joined) => true,
            Linger::Usual => link.finish(),
            Linger::For(Duration::ZERO) => true,
            Linger::For(time) => settle(&link, Instant::now() + time),
        };
        if !left {
            self.net.closing.finish(&self.net, &link, kept);
        }
    }

    /// The process ends without closing it: what was sent leaves, and the end behind it, as far as that goes without waiting
    /// for the peer.
    pub fn leave(&self) {
        if let Some(state) = self.state.try_lock()
            && let State::Linked(link) = &*state
        {
            link.leave();
        }
    }

    /// All of that has reached the peer's adapter, or never will; waits for nothing.
    pub fn has_left(&self) -> bool {
        let Some(state) = self.state.try_lock() else {
            return true;
        };
        match &*state {
            State::Linked(link) => link.has_left(),
            _ => true,
        }
    }
}

/// Somebody waits to be accepted.
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
            State::Fresh(_) => "fresh",
            State::Listening(_) => "listening",
            State::Linked(_) => "linked",
            State::Closed => "closed",
        };
        f.debug_tuple("Stream").field(&state).finish()
    }
}

#[cfg(test)]
mod tests;
