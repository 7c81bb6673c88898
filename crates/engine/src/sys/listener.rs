//! A listening TCP socket.
//! Accepted sockets are non-blocking and close-on-exec, and an IPv6 listener leaves the IPv4 port free. When descriptors run out, `accept`
//! fails and the connection stays in the backlog: the caller must pause before it tries again.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketType, sockopt};

use super::fd::{FLAGS, Fd};
use super::socket::{FromIp, Socket};
use super::{Error, Result};

/// The backlog; the system may allow fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 1024;

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    fd: Fd,
    /// Bound without `SO_REUSEADDR`, which is set when it listens.
    exclusive: bool,
}

impl Listener {
    /// Listens at `at`; for port zero the system chooses one. With `reuse`, old connections of the port in TIME_WAIT do not
    /// conflict, as servers need it; a second listener fails all the same.
    pub fn bind(at: SocketAddr, reuse: bool) -> Result<Listener> {
        let listener = Listener::reserve(at, reuse)?;
        listener.listen()?;
        Ok(listener)
    }

    /// Binds `at` without listening yet: connections are refused until [`listen`](Listener::listen).
    pub fn reserve(at: SocketAddr, reuse: bool) -> Result<Listener> {
        let fd = bind_socket(at, SocketType::STREAM, reuse)?;
        Ok(Listener {
            fd,
            exclusive: false,
        })
    }

    /// The same, exclusively: a second socket for `at` fails with `EADDRINUSE`, in this process or another, before either
    /// listens. Connections of the port in TIME_WAIT do not conflict.
    ///
    /// Linux lets two bound sockets share a port if both have `SO_REUSEADDR` and neither listens, so this one does not have it
    /// while it is only bound. Its connections need it, so that a server can be started again while they are in TIME_WAIT.
    pub fn reserve_exclusive(at: SocketAddr) -> Result<Listener> {
        let fd = match bind_socket(at, SocketType::STREAM, false) {
            Err(error) if error.is_in_use() => {
                // Perhaps only by connections in TIME_WAIT.
                let fd = bind_socket(at, SocketType::STREAM, true)?;
                reuse_address(&fd, false)?;
                fd
            }
            bound => bound?,
        };
        Ok(Listener {
            fd,
            exclusive: true,
        })
    }

    /// The same for an address that this host need not have (IP_FREEBIND): its port is reserved.
    pub fn reserve_foreign(at: SocketAddr) -> Result<Listener> {
        let fd = bind_socket_with(at, SocketType::STREAM, |fd| {
            let set = match at {
                SocketAddr::V4(_) => sockopt::set_ip_freebind(fd, true),
                SocketAddr::V6(_) => sockopt::set_ipv6_freebind(fd, true),
            };
            set.map_err(Error::of("setsockopt IP_FREEBIND"))
        })?;
        Ok(Listener {
            fd,
            exclusive: true,
        })
    }

    /// Takes over a listening socket of another process.
    pub fn adopt(fd: OwnedFd) -> Result<Listener> {
        let listening =
            sockopt::socket_acceptconn(&fd).map_err(Error::of("getsockopt SO_ACCEPTCONN"))?;
        if !listening {
            return Err(Error::new("accept", Errno::INVAL));
        }
        // The file status flags are those that the other process set.
        rustix::io::ioctl_fionbio(&fd, true).map_err(Error::of("ioctl FIONBIO"))?;
        Ok(Listener {
            fd: fd.into(),
            exclusive: false,
        })
    }

    /// A duplicate of the descriptor.
    pub fn duplicate(&self) -> Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).map_err(Error::of("fcntl"))
    }

    /// Starts listening.
    pub fn listen(&self) -> Result<()> {
        if self.exclusive {
            reuse_address(&self.fd, true)?;
        }
        net::listen(&self.fd, BACKLOG).map_err(Error::of("listen"))
    }

    /// The next connection and its source; none if none is pending.
    pub fn accept(&self) -> Result<Option<(Socket, SocketAddr)>> {
        loop {
            let (fd, from) = match net::acceptfrom_with(&self.fd, FLAGS) {
                Ok((fd, from)) => (fd, from),
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) if is_connection_error(errno) => continue,
                Err(errno) => return Err(Error::new("accept", errno)),
            };
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            // A connection that has failed meanwhile has no options and no address, and is skipped.
            if let (Ok(socket), Some(from)) = (Socket::adopt(fd), from) {
                return Ok(Some((socket, from)));
            }
        }
    }

    /// Stops listening, even if duplicates of the descriptor exist: later connections are refused.
    pub fn shutdown(&self) {
        // shutdown(2) works on a listening socket; it cannot fail here.
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
    }

    /// Its local address.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        let name = net::getsockname(&self.fd).map_err(Error::of("getsockname"))?;
        SocketAddr::try_from(name).map_err(Error::of("getsockname"))
    }
}

/// A socket of this kind bound to `at`.
pub(super) fn bind_socket(at: SocketAddr, kind: SocketType, reuse: bool) -> Result<Fd> {
    bind_socket_with(at, kind, |fd| {
        if reuse {
            reuse_address(fd, true)?;
        }
        Ok(())
    })
}

/// The same with options that must be set before it is bound.
pub(super) fn bind_socket_with(
    at: SocketAddr,
    kind: SocketType,
    set_options: impl FnOnce(&Fd) -> Result<()>,
) -> Result<Fd> {
    let family = AddressFamily::from_ip(at.ip());
    let fd = net::socket_with(family, kind, FLAGS, None).map_err(Error::of("socket"))?;
    let fd = Fd::from(fd);
    if at.is_ipv6() {
        // Otherwise it would take the IPv4 port as well, which another listener may need.
        sockopt::set_ipv6_v6only(&fd, true).map_err(Error::of("setsockopt IPV6_V6ONLY"))?;
    }
    set_options(&fd)?;
    net::bind(&fd, &at).map_err(Error::of("bind"))?;
    Ok(fd)
}

fn reuse_address(fd: &Fd, reuse: bool) -> Result<()> {
    sockopt::set_socket_reuseaddr(fd, reuse).map_err(Error::of("setsockopt SO_REUSEADDR"))
}

/// Linux reports errors of the new connection in `accept` (accept(2)); the next one may be fine.
fn is_connection_error(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NONET
    )
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
