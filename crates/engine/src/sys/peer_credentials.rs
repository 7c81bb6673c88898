//! The process at the other end of a local socket, as the kernel reports it (SO_PEERCRED): when it connected, or listened.
//! Not by rustix: its type for the answer has no room for the process number 0, which is that of a process in another namespace, so that
//! such an answer arrives as an error.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::{Error, Result};

const CALL: &str = "getsockopt SO_PEERCRED";

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The process; none if it has no number in the namespace of this process.
    pub process: Option<u32>,
    /// Its effective user.
    pub user: u32,
}

impl PeerCredentials {
    /// Of the peer of a connected local socket.
    pub fn of(socket: impl AsFd) -> Result<PeerCredentials> {
        let mut peer = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `peer`, and the length; both are local variables.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut len,
            )
        };
        if result != 0 {
            let error = std::io::Error::last_os_error();
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(Error::new(CALL, errno));
        }
        Ok(PeerCredentials {
            process: u32::try_from(peer.pid).ok().filter(|pid| *pid != 0),
            user: peer.uid,
        })
    }

    /// An error unless the peer's process is of the user of this one.
    pub fn check_user(self) -> Result<()> {
        match self.user == super::effective_uid() {
            true => Ok(()),
            false => Err(Error::new(CALL, Errno::PERM)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn peer_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(&one).unwrap();
        assert_eq!(peer.process, Some(std::process::id()));
        assert_eq!(peer.user, super::super::effective_uid());
        peer.check_user().unwrap();
    }

    /// As a peer in another namespace of processes: the kernel's answer has process 0.
    #[test]
    fn peer_without_a_number_is_no_error() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(PeerCredentials::of(&socket).unwrap().process, None);
    }

    #[test]
    fn other_users_are_refused() {
        let peer = PeerCredentials {
            process: None,
            user: super::super::effective_uid() + 1,
        };
        assert!(peer.check_user().is_err());
    }
}
