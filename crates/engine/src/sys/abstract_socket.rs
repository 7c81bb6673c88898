//! A Unix listener with an abstract name, which has no file and is free again when its owner is gone.
//! Sending never blocks, and the user of a client is the one that the kernel reports (SO_PEERCRED). Receiving never blocks, either.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};

use super::fd::{FLAGS, Fd};
use super::peer_credentials::PeerCredentials;
use super::{Error, Result};

/// The backlog of pending connections.
const BACKLOG: i32 = 8;

/// A listening socket with an abstract name.
#[derive(Debug)]
pub struct AbstractListener {
    fd: Fd,
}

impl AbstractListener {
    /// Binds the name and listens.
    pub fn bind(name: &str) -> Result<AbstractListener> {
        let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
        let fd = Fd::from(fd.map_err(Error::of("socket"))?);
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(Error::of("bind"))?;
        net::bind(&fd, &name).map_err(Error::of("bind"))?;
        net::listen(&fd, BACKLOG).map_err(Error::of("listen"))?;
        Ok(AbstractListener { fd })
    }

    /// The next client; none if none is pending.
    pub fn accept(&self) -> Result<Option<AbstractClient>> {
        loop {
            match net::accept_with(&self.fd, FLAGS) {
                Ok(fd) => return Ok(Some(AbstractClient { fd: fd.into() })),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(Error::new("accept", errno)),
            }
        }
    }
}

impl AsFd for AbstractListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A connected client.
#[derive(Debug)]
pub struct AbstractClient {
    fd: Fd,
}

impl AbstractClient {
    /// Its user when it connected.
    pub fn peer_uid(&self) -> Result<u32> {
        Ok(PeerCredentials::of(&self.fd)?.user)
    }

    /// Takes what the client has sent; true if it is exactly this request.
    pub fn has_sent(&self, request: &[u8]) -> bool {
        let mut got = [0; 64];
        let got = &mut got[..(request.len() + 1).min(64)];
        let read = net::recv(&self.fd, &mut *got, RecvFlags::DONTWAIT);
        read.is_ok_and(|(n, _)| got.get(..n) == Some(request))
    }

    /// Receives bytes; 0 of them if the client has closed its sending direction, `None` if none are there.
    pub fn receive(&self, into: &mut [u8]) -> Result<Option<usize>> {
        loop {
            match net::recv(&self.fd, &mut *into, RecvFlags::DONTWAIT) {
                Ok((n, _)) => return Ok(Some(n)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new("recv", errno)),
            }
        }
    }

    /// Sends all of this short line or nothing; false if there is no room.
    pub fn send(&self, bytes: &[u8]) -> Result<bool> {
        loop {
            match net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(n) if n == bytes.len() => return Ok(true),
                // The kernel takes a write that fits one of its buffers as a whole, so this is not expected; a partial line is an error.
                Ok(_) => return Err(Error::new("send", Errno::MSGSIZE)),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new("send", errno)),
            }
        }
    }
}

impl AbstractClient {
    /// Sends as much as there is room for; returns the number of bytes, 0 if there is no room.
    pub fn send_part(&self, bytes: &[u8]) -> Result<usize> {
        loop {
            match net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(n) => return Ok(n),
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new("send", errno)),
            }
        }
    }
}

impl AsFd for AbstractClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The effective user id of this process.
pub fn effective_uid() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether the program has more rights than its caller, by a setuid or setgid bit or by file capabilities: then the caller's
/// environment must not influence it (getauxval(3), AT_SECURE).
pub fn is_privileged() -> bool {
    // SAFETY: reads the auxiliary vector; takes no pointer.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};

    #[test]
    fn client_user_is_known_and_send_never_blocks() {
        let name = format!("verbena-test/{}", std::process::id());
        let local = AbstractListener::bind(&name).unwrap();
        assert!(AbstractListener::bind(&name).unwrap_err().is_in_use());
        assert!(local.accept().unwrap().is_none());
        let to = SocketAddr::from_abstract_name(&name).unwrap();
        let mut reader = UnixStream::connect_addr(&to).unwrap();
        let visitor = local.accept().unwrap().unwrap();
        assert_eq!(visitor.peer_uid().unwrap(), effective_uid());
        let line = [7; 100];
        let mut sent = 0;
        while visitor.send(&line).unwrap() {
            sent += line.len();
        }
        let mut got = vec![0; sent];
        reader.read_exact(&mut got).unwrap();
        assert!(visitor.send(&line).unwrap(), "there is room again");
        // Shut down, not only dropped: a child that another test forks at this moment has a copy.
        reader.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(visitor.send(&line).is_err());
        drop(local);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while AbstractListener::bind(&name).is_err() {
            assert!(std::time::Instant::now() < end, "the name is free again");
        }
    }
}
