//! A meeting place for processes of this machine: an abstract name, without a file, that is free again when its owner is gone.
//! It promises that sending never waits, and that a visitor's user is what the system says, not what it claims.
//! It refuses to read: whoever visits has nothing to say.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketType, sockopt};

use super::fd::Fd;
use super::socket::FLAGS;
use super::{Error, Result};

/// Visitors that may wait to be let in.
const BACKLOG: i32 = 8;

/// A name that others can visit.
#[derive(Debug)]
pub struct Local {
    fd: Fd,
}

impl Local {
    /// Takes the name.
    pub fn bind(name: &str) -> Result<Local> {
        let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
        let fd = Fd::from(fd.map_err(Error::of("socket"))?);
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(Error::of("bind"))?;
        net::bind(&fd, &name).map_err(Error::of("bind"))?;
        net::listen(&fd, BACKLOG).map_err(Error::of("listen"))?;
        Ok(Local { fd })
    }

    /// The next visitor; none if nobody waits.
    pub fn accept(&self) -> Result<Option<Visitor>> {
        loop {
            match net::accept_with(&self.fd, FLAGS) {
                Ok(fd) => return Ok(Some(Visitor { fd: fd.into() })),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(Error::new("accept", errno)),
            }
        }
    }
}

impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One who came.
#[derive(Debug)]
pub struct Visitor {
    fd: Fd,
}

impl Visitor {
    /// The user that it was when it came.
    pub fn user(&self) -> Result<u32> {
        let cred = sockopt::socket_peercred(&self.fd);
        Ok(cred
            .map_err(Error::of("getsockopt SO_PEERCRED"))?
            .uid
            .as_raw())
    }

    /// Sends all of this, which is short, or nothing; false if there is no room.
    pub fn send(&self, bytes: &[u8]) -> Result<bool> {
        loop {
            match net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(n) if n == bytes.len() => return Ok(true),
                // The system takes what fits one of its buffers as a whole, so this is not seen; half a line is no line.
                Ok(_) => return Err(Error::new("send", Errno::MSGSIZE)),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new("send", errno)),
            }
        }
    }
}

impl AsFd for Visitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The user that this process acts for.
pub fn user() -> u32 {
    // SAFETY: asks for a number, takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The program has rights that its caller lacks, by a setuid or setgid bit or by file capabilities: what the caller chose,
/// the environment first of all, must not direct it (getauxval(3), AT_SECURE).
pub fn is_privileged() -> bool {
    // SAFETY: asks for a number of the auxiliary vector; takes no pointer.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};

    #[test]
    fn visitors_are_known_and_sent_to_without_waiting() {
        let name = format!("verbena-test/{}", std::process::id());
        let local = Local::bind(&name).unwrap();
        assert!(Local::bind(&name).unwrap_err().is_in_use());
        assert!(local.accept().unwrap().is_none());
        let to = SocketAddr::from_abstract_name(&name).unwrap();
        let mut reader = UnixStream::connect_addr(&to).unwrap();
        let visitor = local.accept().unwrap().unwrap();
        assert_eq!(visitor.user().unwrap(), user());
        let line = [7; 100];
        let mut sent = 0;
        while visitor.send(&line).unwrap() {
            sent += line.len();
        }
        let mut got = vec![0; sent];
        reader.read_exact(&mut got).unwrap();
        assert!(visitor.send(&line).unwrap(), "there is room again");
        // Said, not only dropped: a child that another test forks at this moment has it, too.
        reader.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(visitor.send(&line).is_err());
        drop(local);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while Local::bind(&name).is_err() {
            assert!(std::time::Instant::now() < end, "the name is free again");
        }
    }
}
