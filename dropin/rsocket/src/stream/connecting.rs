//! Bind, listen, accept and connect. A request without a valid hello is rejected and does not disturb the accepting thread. An outgoing
//! connection uses the bound address, but not the bound port.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use verbena::Listener;
use verbena::cm::{BoundListener, ConnectRequest};

use super::{State, Stream};
use crate::error::Error;
use crate::hello::Hello;
use crate::link::{Link, Phase};
use crate::net::LinkEvents;
use crate::notifier::Waiters;

/// Limit on further ports of the system's choice, if the first is in use for IPv4.
const MAX_PORT_RETRIES: usize = 64;

/// The unspecified IPv4 address.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn new_events(waiters: &Arc<Waiters>) -> Arc<LinkEvents> {
    Arc::new(LinkEvents {
        connect_result: Mutex::new(None),
        lost: AtomicBool::new(false),
        waiters: waiters.clone(),
    })
}

/// The next request of the first listener that has one.
fn next_request(listeners: &[Listener]) -> Result<Option<ConnectRequest>, Error> {
    for listener in listeners {
        if let Some(request) = listener.try_next()? {
            return Ok(Some(request));
        }
    }
    Ok(None)
}

impl Stream {
    /// Binds to an address; port 0 chooses a free one. The unspecified IPv6 address includes IPv4, unless the options say otherwise.
    pub fn bind(&self, at: SocketAddr) -> Result<(), Error> {
        let both = at.is_ipv6() && at.ip().is_unspecified() && !self.options().v6_only;
        let mut state = self.state.lock();
        match &*state {
            State::Unconnected(bound_listeners) if bound_listeners.is_empty() => {}
            State::Closed => return Err(Error::Closed),
            _ => return Err(Error::Invalid("the socket has an address already")),
        }
        *state = State::Unconnected(if both {
            self.bind_both_families(at)?
        } else {
            vec![self.net.device.bind_reuse_addr(at)?]
        });
        Ok(())
    }

    /// Binds to the unspecified addresses of both families. A port of the system's choice must be free for both; the system considers IPv6
    /// alone.
    fn bind_both_families(&self, at: SocketAddr) -> Result<Vec<BoundListener>, Error> {
        // Rejected ports are kept until one succeeds, so that none is offered twice.
        let mut offered = Vec::new();
        loop {
            let v6 = self.net.device.bind_reuse_addr(at)?;
            match self
                .net
                .device
                .bind_reuse_addr((ANY.ip(), v6.local_addr()?.port()))
            {
                Ok(v4) => return Ok(vec![v6, v4]),
                Err(_) if at.port() == 0 && offered.len() < MAX_PORT_RETRIES => offered.push(v6),
                Err(taken) => return Err(taken.into()),
            }
        }
    }

    /// Listens; at most `backlog` requests wait.
    pub fn listen(&self, backlog: usize) -> Result<(), Error> {
        let mut state = self.state.lock();
        let mut bound_listeners =
            match core::mem::replace(&mut *state, State::Unconnected(Vec::new())) {
                State::Unconnected(bound_listeners) => bound_listeners,
                other => {
                    let listens = matches!(other, State::Listening(_));
                    *state = other;
                    // Calling it again is allowed, and keeps the backlog.
                    let refused = Error::Invalid("only a socket without a connection can listen");
                    return listens.then_some(()).ok_or(refused);
                }
            };
        if bound_listeners.is_empty() {
            bound_listeners.push(self.net.device.bind_reuse_addr(ANY)?);
        }
        let begin = |socket: BoundListener| {
            let listener = socket.listen(backlog.max(1))?;
            let waiters = self.waiters.clone();
            listener.on_request(Arc::new(move || waiters.notify()));
            Ok(listener)
        };
        let listeners = bound_listeners.into_iter().map(begin);
        *state = State::Listening(listeners.collect::<Result<_, Error>>()?);
        Ok(())
    }

    /// The next connection.
    pub fn accept(&self) -> Result<Stream, Error> {
        if self.is_nonblocking() {
            return self.try_accept();
        }
        self.wait(None, || self.try_accept())
    }

    fn try_accept(&self) -> Result<Stream, Error> {
        let listeners = match &*self.state.lock() {
            State::Listening(listeners) => listeners.clone(),
            State::Closed => return Err(Error::Closed),
            _ => return Err(Error::Invalid("the socket does not listen")),
        };
        while let Some(request) = next_request(&listeners)? {
            let Ok(hello) = Hello::from_bytes(request.private_data()) else {
                request.reject(b"");
                continue;
            };
            let stream = Stream::with(&self.net, self.options());
            let news = new_events(&stream.waiters);
            match Link::accept(&self.net, news, self.options(), request, &hello) {
                Ok(link) => {
                    *stream.state.lock() = State::Connected(link);
                    return Ok(stream);
                }
                // The peer is gone.
                Err(Error::Adapter(error)) if error.fault() == verbena::Fault::Peer => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::WouldBlock)
    }

    /// Connects. A non-blocking socket returns [`Error::InProgress`], is writable when connecting has ended, and keeps the error if it
    /// failed.
    pub fn connect(&self, to: SocketAddr) -> Result<(), Error> {
        let link = {
            let mut state = self.state.lock();
            match &*state {
                State::Unconnected(bound_listeners) => {
                    let bound = bound_listeners
                        .first()
                        .map(BoundListener::local_addr)
                        .transpose()?;
                    let from = bound.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
                    let news = new_events(&self.waiters);
                    let link = Link::dial(&self.net, news, self.options(), from, to)?;
                    *state = State::Connected(link);
                    None
                }
                State::Connected(link) => Some(link.clone()),
                State::Listening(_) => return Err(Error::Invalid("the socket listens")),
                State::Closed => return Err(Error::Closed),
            }
        };
        if let Some(link) = link {
            return self.connect_again(&link);
        }
        *self.error.lock() = None;
        if self.is_nonblocking() {
            return Err(Error::InProgress);
        }
        self.wait(None, || self.connect_result())
    }

    /// Handles a connect call on a socket that has started to connect.
    fn connect_again(&self, link: &Arc<Link>) -> Result<(), Error> {
        match link.phase() {
            Phase::Connecting if self.is_nonblocking() => Err(Error::Already),
            // An earlier call was interrupted by a signal.
            Phase::Connecting => self.wait(None, || self.connect_result()),
            Phase::Connected => Err(Error::Connected),
            Phase::Failed(error) => {
                self.fail(&error);
                Err(self.error.lock().take().unwrap_or(error))
            }
        }
    }

    fn connect_result(&self) -> Result<(), Error> {
        let link = self.link()?;
        match link.phase() {
            Phase::Connecting => Err(Error::WouldBlock),
            Phase::Connected => Ok(()),
            Phase::Failed(error) => {
                self.fail(&error);
                Err(self.error.lock().take().unwrap_or(error))
            }
        }
    }

    /// It is connected; false while it is connecting.
    pub fn is_connected(&self) -> bool {
        let link = self.link();
        link.is_ok_and(|link| matches!(link.phase(), Phase::Connected))
    }
}
