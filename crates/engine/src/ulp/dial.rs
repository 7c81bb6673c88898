//! A TCP connection being opened, which becomes that of a queue pair of an upper-layer protocol once it is established.
//! [`UlpConnecting::is_connected`] does not block; after `connect_timeout` without an answer it returns [`Error::Timeout`].
//! The caller waits on the descriptor.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use verbena_nic::{UlpInit, UlpQp};
use verbena_stream::Time;

use crate::core::Core;
use crate::error::Error;
use crate::poll::queue::CompletionQueue;
use crate::sys::{self, Interest, Poller, Socket};
use crate::ulp::pair::{UlpOptions, UlpPair};

/// A connection being opened. Its descriptor becomes writable when the attempt has succeeded or failed.
#[derive(Debug)]
pub struct UlpConnecting {
    core: Arc<Core>,
    to: SocketAddr,
    socket: Socket,
    options: UlpOptions,
    deadline: Time,
}

impl UlpConnecting {
    pub(crate) fn new(
        core: &Arc<Core>,
        to: SocketAddr,
        options: UlpOptions,
    ) -> Result<UlpConnecting, Error> {
        // Checked before any packet is sent: a function without the service may not connect (V2).
        core.function.check_service(options.service)?;
        let unreachable = |cause| Error::Unreachable { peer: to, cause };
        let socket = match core.port.route(None, to.ip()) {
            Some(_) => core.port.open()?.connect(to, None),
            None => Socket::connect(to, None, None),
        };
        Ok(UlpConnecting {
            socket: socket.map_err(unreachable)?,
            core: core.clone(),
            to,
            options,
            deadline: sys::now() + options.connect_timeout,
        })
    }

    /// A connection that the program has established itself, for example one that it accepted.
    pub(crate) fn adopt(
        core: &Arc<Core>,
        stream: OwnedFd,
        options: UlpOptions,
    ) -> Result<UlpConnecting, Error> {
        core.function.check_service(options.service)?;
        let socket = Socket::from_passed_fd(stream)?;
        Ok(UlpConnecting {
            to: socket.peer_addr()?,
            socket,
            core: core.clone(),
            options,
            deadline: sys::now() + options.connect_timeout,
        })
    }

    /// Takes receives from the shared receive queue of this number.
    pub fn set_srq(&mut self, srq: u32) {
        self.options.srq = Some(srq);
    }

    /// Whether the connection is established; an error if the attempt failed or took longer than `connect_timeout`.
    pub fn is_connected(&self) -> Result<bool, Error> {
        let peer = self.to;
        let connected = self.socket.is_connected();
        let connected = connected.map_err(|cause| Error::Unreachable { peer, cause })?;
        if !connected && self.deadline.since(sys::now()).is_zero() {
            let limit = self.options.connect_timeout;
            return Err(Error::Timeout { peer, limit });
        }
        Ok(connected)
    }

    /// Blocks until the connection is established.
    pub fn wait(&self) -> Result<(), Error> {
        let poller = Poller::new()?;
        let interest = Interest {
            read: false,
            write: true,
            oneshot: false,
        };
        poller.add(&self.socket, 0, interest)?;
        let mut ready = Vec::new();
        while !self.is_connected()? {
            poller.wait(&mut ready, Some(self.deadline.since(sys::now())))?;
        }
        Ok(())
    }

    /// The queue pair on this connection, made by `make`. The connection must be established; `connect_timeout` is not checked again.
    pub fn into_pair<Q: UlpQp + 'static>(
        self,
        queues: (&CompletionQueue, &CompletionQueue),
        make: impl FnOnce(UlpInit) -> Q,
    ) -> Result<UlpPair<Q>, Error> {
        let (core, socket, to) = (self.core, self.socket, self.to);
        core.check()?;
        if let Some(bytes) = core.config.buffers {
            socket.set_buffers(Some(bytes))?;
        }
        let same_host = to.ip().is_loopback() || socket.is_same_host();
        if !core.config.pacing.resolve(!same_host) {
            // If the system does not allow another congestion control, the default works too, only slower.
            let _ = socket.set_unpaced();
        }
        // Detects a peer that has vanished while no request is outstanding.
        let _ = socket.set_keepalive(core.config.keep_alive);
        // Detects a peer that has vanished with requests in flight; otherwise TCP retransmits them for about 15 minutes.
        let _ = socket.set_user_timeout(core.config.keep_alive * 2);
        UlpPair::new(&core, (socket, to), queues, self.options, make)
    }
}

impl AsFd for UlpConnecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
