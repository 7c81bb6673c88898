//! A TCP connection being opened to an iSCSI target, which becomes that of an iSCSI queue pair once it is established.
//! [`IscsiConnecting::is_connected`] does not block; after `patience` without an answer it returns [`Error::Timeout`].
//! The caller waits on the descriptor.

use core::net::SocketAddr;
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use verbena_nic::profile::Service;
use verbena_stream::Time;

use crate::core::Core;
use crate::error::Error;
use crate::iscsi::pair::{IscsiOptions, IscsiPair};
use crate::poll::queue::CompletionQueue;
use crate::sys::{self, Interest, Poller, Socket};

/// A connection being opened to a target. Its descriptor becomes writable when the attempt has succeeded or failed.
#[derive(Debug)]
pub struct IscsiConnecting {
    core: Arc<Core>,
    to: SocketAddr,
    socket: Socket,
    connect_timeout: Duration,
    deadline: Time,
}

impl IscsiConnecting {
    pub(crate) fn new(
        core: &Arc<Core>,
        to: SocketAddr,
        patience: Duration,
    ) -> Result<IscsiConnecting, Error> {
        // Checked before any packet is sent: a function without the iSCSI service may not connect to a target (V2).
        core.function.check_service(Service::Iscsi)?;
        let unreachable = |cause| Error::Unreachable { peer: to, cause };
        Ok(IscsiConnecting {
            socket: Socket::connect(to, None, None).map_err(unreachable)?,
            core: core.clone(),
            to,
            connect_timeout: patience,
            deadline: sys::now() + patience,
        })
    }

    /// Whether the connection is established; an error if the attempt failed or took longer than `patience`.
    pub fn is_connected(&self) -> Result<bool, Error> {
        let peer = self.to;
        let connected = self.socket.is_connected();
        let connected = connected.map_err(|cause| Error::Unreachable { peer, cause })?;
        if !connected && self.deadline.since(sys::now()).is_zero() {
            let limit = self.connect_timeout;
            return Err(Error::Timeout { peer, limit });
        }
        Ok(connected)
    }

    /// Blocks until the connection is established.
    pub(crate) fn wait(&self) -> Result<(), Error> {
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

    /// The queue pair on this connection, which must be established; `patience` is not checked again.
    pub fn pair(
        self,
        queues: (&CompletionQueue, &CompletionQueue),
        options: IscsiOptions,
    ) -> Result<IscsiPair, Error> {
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
        // Detects a target that has vanished while no request is outstanding.
        let _ = socket.set_keepalive(core.config.keep_alive);
        // Detects a target that has vanished with requests in flight; otherwise TCP retransmits them for about 15 minutes.
        let _ = socket.set_user_timeout(core.config.keep_alive * 2);
        IscsiPair::new(&core, socket, to, queues, options)
    }
}

impl AsFd for IscsiConnecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
