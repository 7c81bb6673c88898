//! A connection between two processes of one user that carries messages with descriptors (V1).
//! A message is delivered whole or not at all, with its descriptors in order, and each call is bounded by a timeout however the peer
//! behaves. Processes of other users are rejected. After a message that was transferred in part the connection is broken: where the
//! next message begins is not known then.
//!
//! A message is one frame, or several if it has more descriptors than the system takes at once. A frame is eight bytes — the
//! length (four bytes, little-endian), the number of descriptors (two) and whether more of the message follows (two) — and then
//! the bytes. The descriptors are attached to the frame's first byte.

mod receive;
mod send;

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};
use verbena_stream::Time;

use super::fd::{FLAGS, Fd};
use super::peer_credentials::PeerCredentials;
use super::{Error, effective_uid, now};

/// The longest message.
pub const MAX_LEN: usize = 64 << 20;
/// The descriptors of one message.
pub const MAX_DESCRIPTORS: usize = 1 << 16;
/// The descriptors of one frame; Linux takes 253.
pub const PER_FRAME: usize = 250;
/// The default time limit for a message.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

const HEADER: usize = 8;
/// The retry interval where no descriptor can be waited for.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Why a message was not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the fields are the numbers that each sentence prints"
)]
pub enum FdChannelError {
    /// A system call failed.
    #[error("system call failed: {0}")]
    System(#[from] Error),
    /// The peer is another user's process.
    #[error("the peer is a process of user {theirs}, not of {ours}")]
    OtherUser { theirs: u32, ours: u32 },
    /// More bytes than a message may have; nothing was sent, or nothing of them read.
    #[error("a message of {len} bytes, at most {limit}")]
    TooLong { len: usize, limit: usize },
    /// More descriptors than a message may have.
    #[error("a message with {count} descriptors, at most {limit}")]
    TooMany { count: usize, limit: usize },
    /// No valid frame begins so.
    #[error("the peer sent {word:#018x}, which is not the beginning of a frame")]
    Malformed { word: u64 },
    /// The number of descriptors differs from the announced one.
    #[error("the peer sent {got} descriptors with a frame and announced {announced}")]
    DescriptorCount { announced: usize, got: usize },
    /// Descriptors were received that the kernel could not install.
    #[error(
        "descriptors were lost: more came at once than a frame has, or this process may open no more"
    )]
    DescriptorsLost,
    /// The peer closed the connection after a whole message.
    #[error("the peer closed the connection")]
    Disconnected,
    /// The peer closed the connection within a frame.
    #[error("the peer closed the connection after {done} of {of} bytes of a frame")]
    Truncated { done: usize, of: usize },
    /// The time limit was reached.
    #[error(
        "{done} of {of} bytes of a frame were transferred within the time limit of {patience:?}"
    )]
    TimedOut {
        done: usize,
        of: usize,
        patience: Duration,
    },
    /// An earlier message was transferred in part.
    #[error("the connection failed during an earlier message")]
    Broken,
}

/// One end of a connection.
#[derive(Debug)]
pub struct FdChannel {
    fd: Fd,
    send_timeout: Duration,
    recv_timeout: Duration,
    /// A message was transferred in part.
    broken: bool,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    len: usize,
    descriptors: usize,
    more: bool,
}

impl Header {
    fn emit(self) -> [u8; HEADER] {
        let word = self.len as u64 | (self.descriptors as u64) << 32 | u64::from(self.more) << 48;
        word.to_le_bytes()
    }

    /// Parses a header; only a frame full of descriptors may be followed by another one, so that every message ends.
    fn parse(bytes: [u8; HEADER]) -> Result<Header, FdChannelError> {
        let word = u64::from_le_bytes(bytes);
        let header = Header {
            len: (word & 0xffff_ffff) as usize,
            descriptors: (word >> 32 & 0xffff) as usize,
            more: word >> 48 == 1,
        };
        let sound = word >> 48 <= 1
            && header.descriptors <= PER_FRAME
            && (!header.more || header.descriptors == PER_FRAME);
        if !sound {
            return Err(FdChannelError::Malformed { word });
        }
        check_len(header.len)?;
        Ok(header)
    }
}

fn check_len(len: usize) -> Result<(), FdChannelError> {
    let limit = MAX_LEN;
    let fits = len <= limit;
    fits.then_some(())
        .ok_or(FdChannelError::TooLong { len, limit })
}

fn check_count(count: usize) -> Result<(), FdChannelError> {
    let limit = MAX_DESCRIPTORS;
    let fits = count <= limit;
    let many = FdChannelError::TooMany { count, limit };
    fits.then_some(()).ok_or(many)
}

impl FdChannel {
    /// Two connected ends in one process, one of which can be passed to a child.
    pub fn pair() -> Result<(FdChannel, FdChannel), FdChannelError> {
        let both = net::socketpair(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
        let (a, b) = both.map_err(Error::of("socketpair"))?;
        Ok((FdChannel::new(a)?, FdChannel::new(b)?))
    }

    /// Connects to the [`HandoverListener`](super::HandoverListener) at `path`; waits while its backlog is full.
    pub fn connect(path: &Path) -> Result<FdChannel, FdChannelError> {
        let name = SocketAddrUnix::new(path).map_err(Error::of("connect"))?;
        let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
        let fd = fd.map_err(Error::of("socket"))?;
        let deadline = now() + DEFAULT_TIMEOUT;
        loop {
            match net::connect(&fd, &name) {
                Ok(()) => return FdChannel::new(fd),
                // The backlog is full, and no descriptor signals room in it.
                Err(Errno::AGAIN) if now() < deadline => std::thread::sleep(RETRY_INTERVAL),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new("connect", errno).into()),
            }
        }
    }

    /// A connected Unix socket, if its other end belongs to a process of the same user.
    pub fn new(fd: OwnedFd) -> Result<FdChannel, FdChannelError> {
        let fd = Fd::from(fd);
        let (theirs, ours) = (PeerCredentials::of(&fd)?.user, effective_uid());
        if theirs != ours {
            return Err(FdChannelError::OtherUser { theirs, ours });
        }
        rustix::io::ioctl_fionbio(&fd, true).map_err(Error::of("ioctl FIONBIO"))?;
        Ok(FdChannel {
            fd,
            send_timeout: DEFAULT_TIMEOUT,
            recv_timeout: DEFAULT_TIMEOUT,
            broken: false,
        })
    }

    /// Sets the time limits for sending and receiving a message, from the call to its end.
    pub fn set_timeouts(&mut self, sending: Duration, receiving: Duration) {
        (self.send_timeout, self.recv_timeout) = (sending, receiving);
    }

    fn check(&self) -> Result<(), FdChannelError> {
        if self.broken {
            return Err(FdChannelError::Broken);
        }
        Ok(())
    }

    /// Waits for readiness; false if the deadline has passed.
    fn wait(&self, what: PollFlags, deadline: Time) -> Result<bool, FdChannelError> {
        let left = deadline.since(now());
        if left.is_zero() {
            return Ok(false);
        }
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&self.fd, what)], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(Error::new("poll", errno).into()),
        }
    }
}

impl AsFd for FdChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
