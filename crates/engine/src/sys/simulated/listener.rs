//! A simulated listening TCP socket.
//! Descriptors are not passed to other processes.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::simulated::{Descriptor, point, wake, with};
use super::{Error, Result, Socket};

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    fd: Descriptor,
}

impl Listener {
    /// Listens at `at`; for port zero the system chooses one.
    pub fn bind(at: SocketAddr, reuse: bool) -> Result<Listener> {
        let listener = Listener::reserve(at, reuse)?;
        listener.listen()?;
        Ok(listener)
    }

    /// Binds `at` without listening yet: connections are refused until [`listen`](Listener::listen).
    pub fn reserve(at: SocketAddr, reuse: bool) -> Result<Listener> {
        point();
        let id = with(|world| world.bind(at, reuse)).map_err(Error::of("bind"))?;
        let fd = Descriptor::of(id)?;
        Ok(Listener { fd })
    }

    /// The same, exclusively.
    pub fn reserve_exclusive(at: SocketAddr) -> Result<Listener> {
        Listener::reserve(at, false)
    }

    /// The same: a simulated host has every address.
    pub fn reserve_foreign(at: SocketAddr) -> Result<Listener> {
        Listener::reserve(at, false)
    }

    /// Sockets of other processes are not simulated.
    pub fn adopt(_: OwnedFd) -> Result<Listener> {
        Err(Error::new("accept", Errno::OPNOTSUPP))
    }

    /// Sockets are not passed to other processes.
    pub fn duplicate(&self) -> Result<OwnedFd> {
        Err(Error::new("fcntl", Errno::OPNOTSUPP))
    }

    /// Starts listening.
    pub fn listen(&self) -> Result<()> {
        self.set_listening(true);
        Ok(())
    }

    fn set_listening(&self, listening: bool) {
        point();
        with(|world| {
            if let Some(listener) = world.listener(self.fd.raw()) {
                listener.listening = listening;
            }
        });
    }

    /// The next connection and its source; none if none is pending.
    pub fn accept(&self) -> Result<Option<(Socket, SocketAddr)>> {
        point();
        let Some((id, from)) = with(|world| world.accept(self.fd.raw())) else {
            return Ok(None);
        };
        let socket = Socket::from_descriptor(Descriptor::of(id)?);
        wake();
        Ok(Some((socket, from)))
    }

    /// Stops listening: later connections are refused.
    pub fn shutdown(&self) {
        self.set_listening(false);
    }

    /// Its local address.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        with(|world| world.listener_addr(self.fd.raw()))
            .ok_or(Error::new("getsockname", Errno::BADF))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
