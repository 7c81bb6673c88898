//! A simulated TCP connection, or one end of a socket pair.
//! No call blocks. Options that only change the timing or the packets of a real network are accepted and have no effect.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::path::path_digest;
use super::simulated::{Descriptor, Stream, point, wake, with};
use super::{Error, Line, Result, TcpNumbers};

/// The segment size of every connection: messages of a few kilobytes need several.
const MSS: u32 = 1460;

/// A connection.
#[derive(Debug)]
pub struct Socket {
    fd: Descriptor,
}

impl Socket {
    pub(super) fn from_descriptor(fd: Descriptor) -> Socket {
        Socket { fd }
    }

    pub(super) fn descriptor(&self) -> &Descriptor {
        &self.fd
    }

    /// Ports are not simulated.
    #[must_use]
    pub fn with_line(self, _: Arc<dyn Line>) -> Socket {
        self
    }

    /// Ports are not simulated.
    pub fn line(&self) -> Option<&Arc<dyn Line>> {
        None
    }

    /// TCP is not simulated.
    pub fn numbers(&self) -> Option<TcpNumbers> {
        None
    }

    /// Segments are not simulated.
    pub fn end_segments(&self) {}

    /// Connects to `to`, from the address `from` if given.
    pub fn connect(to: SocketAddr, from: Option<IpAddr>, _: Option<u8>) -> Result<Socket> {
        point();
        let id = with(|world| world.new_client(from, to));
        let fd = Descriptor::of(id)?;
        with(|world| world.connect(id)).map_err(Error::of("connect"))?;
        wake();
        Ok(Socket { fd })
    }

    /// Connects again with a socket whose connection was refused.
    pub fn reconnect(&self, to: SocketAddr) -> Result<()> {
        point();
        with(|world| world.reconnect(self.fd.raw(), to)).map_err(Error::of("connect"))?;
        wake();
        Ok(())
    }

    /// Two connected ends.
    pub fn pair() -> Result<(Socket, Socket)> {
        let (a, b) = with(|world| world.new_pair());
        let (a, b) = (Descriptor::of(a)?, Descriptor::of(b)?);
        Ok((Socket { fd: a }, Socket { fd: b }))
    }

    /// Sockets of other processes are not simulated.
    pub fn from_passed_fd(_: OwnedFd) -> Result<Socket> {
        Err(Error::new("recvmsg", Errno::OPNOTSUPP))
    }

    /// A duplicate of the descriptor.
    pub fn duplicate(&self) -> Result<Socket> {
        let fd = self.fd.duplicate()?;
        Ok(Socket { fd })
    }

    fn stream<R>(&self, act: impl FnOnce(&mut Stream) -> R) -> Result<R> {
        with(|world| world.stream(self.fd.raw()).map(act)).ok_or(Error::new("socket", Errno::BADF))
    }

    /// Whether the connection is established; an error if it failed. Clears the pending error.
    pub fn is_connected(&self) -> Result<bool> {
        point();
        match self.stream(|stream| stream.error.take())? {
            Some(errno) => Err(Error::new("connect", errno)),
            None => Ok(true),
        }
    }

    /// Our address; an error for an end of a pair.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        let found = self.stream(|stream| stream.local)?;
        found.ok_or(Error::new("getsockname", Errno::AFNOSUPPORT))
    }

    /// The peer's address; an error for an end of a pair.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        let found = self.stream(|stream| stream.remote)?;
        found.ok_or(Error::new("getpeername", Errno::AFNOSUPPORT))
    }

    /// Sends FIN; reading continues.
    pub fn shutdown_write(&self) -> Result<()> {
        point();
        with(|world| world.shutdown_write(self.fd.raw())).map_err(Error::of("shutdown"))?;
        wake();
        Ok(())
    }

    /// Resets the connection.
    pub fn abort(self) {
        self.set_abortive();
    }

    /// The same when the socket is closed.
    pub fn set_abortive(&self) {
        // Fails only for a socket that is closed already.
        let _ = self.stream(|stream| stream.abortive = true);
    }

    /// Without effect.
    pub fn set_traffic_class(&self, _: u8, _: IpAddr) -> Result<()> {
        Ok(())
    }

    /// Without effect: the peer's host does not fail.
    pub fn set_keepalive(&self, _: Duration) -> Result<()> {
        Ok(())
    }

    /// Without effect: the peer's host does not fail.
    pub fn set_user_timeout(&self, _: Duration) -> Result<()> {
        Ok(())
    }

    /// The maximum segment size; none for an end of a pair.
    pub fn mss(&self) -> Option<u32> {
        self.local_addr().ok().map(|_| MSS)
    }

    /// The peer's TCP is never silent.
    pub fn silence(&self) -> Option<Duration> {
        None
    }

    /// Without effect: the seed decides the sizes.
    pub fn set_buffers(&self, _: Option<usize>) -> Result<()> {
        Ok(())
    }

    /// The socket is readable when this many bytes are there, or no more can come.
    pub fn set_low_water(&self, bytes: usize) -> Result<()> {
        self.stream(|stream| stream.low_water = bytes)?;
        wake();
        Ok(())
    }

    /// The simulated network does not pace.
    pub fn set_unpaced(&self) -> Result<bool> {
        Ok(false)
    }

    /// All sockets are on one host.
    pub fn is_same_host(&self) -> bool {
        true
    }

    /// A digest of both addresses, the same at both ends.
    pub fn path_digest(&self) -> Option<u64> {
        Some(path_digest(self.local_addr().ok()?, self.peer_addr().ok()?))
    }

    /// Written bytes are acknowledged at once.
    pub fn unacknowledged(&self) -> u64 {
        self.unsent()
    }

    /// Written bytes are sent at once.
    pub fn unsent(&self) -> u64 {
        0
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
