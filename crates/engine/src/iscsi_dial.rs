//! A target that is being dialled: a connection under way, which becomes that of an iSCSI queue pair once it is there.
//! It promises that asking never waits, and that a target which does not answer is an error in its time.
//! It refuses to wait by itself: whoever has time to sleep has a descriptor to sleep on, or asks for it.

use core::net::SocketAddr;
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use verbena_nic::profile::Service;
use verbena_stream::Time;

use crate::core::Core;
use crate::error::Error;
use crate::iscsi_pair::{IscsiOptions, IscsiPair};
use crate::queue::CompletionQueue;
use crate::sys::{self, Interest, Poller, Socket};

/// A target that is being dialled. Its descriptor is writable when there is news.
#[derive(Debug)]
pub struct IscsiDial {
    core: Arc<Core>,
    to: SocketAddr,
    socket: Socket,
    patience: Duration,
    end: Time,
}

impl IscsiDial {
    pub(crate) fn new(
        core: &Arc<Core>,
        to: SocketAddr,
        patience: Duration,
    ) -> Result<IscsiDial, Error> {
        // Before anybody is bothered: a device of other services has nothing to say to a target (V2).
        core.function.check_service(Service::Iscsi)?;
        let unreachable = |cause| Error::Unreachable { peer: to, cause };
        Ok(IscsiDial {
            socket: Socket::connect(to, None, None).map_err(unreachable)?,
            core: core.clone(),
            to,
            patience,
            end: sys::now() + patience,
        })
    }

    /// Whether it has answered; an error if it refused, or took too long.
    pub fn is_connected(&self) -> Result<bool, Error> {
        let peer = self.to;
        let connected = self.socket.connected();
        let connected = connected.map_err(|cause| Error::Unreachable { peer, cause })?;
        if !connected && self.end.since(sys::now()).is_zero() {
            let limit = self.patience;
            return Err(Error::Timeout { peer, limit });
        }
        Ok(connected)
    }

    /// Waits until it has answered.
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
            poller.wait(&mut ready, Some(self.end.since(sys::now())))?;
        }
        Ok(())
    }

    /// The queue pair of the connection, which is there. How long it was waited for is not asked again.
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
        let same_host = to.ip().is_loopback() || socket.same_host();
        if !core.config.pacing.or(!same_host) {
            // Who may not choose keeps what the system chose: slower, and as good.
            let _ = socket.set_unpaced();
        }
        // A target that vanished without a word is noticed even if nobody asks it for anything.
        let _ = socket.keep_alive(core.config.keep_alive);
        // And one that vanished with requests on their way to it; without this TCP repeats them for a quarter of an hour.
        let _ = socket.give_up_after(core.config.keep_alive * 2);
        IscsiPair::new(&core, socket, to, queues, options)
    }
}

impl AsFd for IscsiDial {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
