//! A Unix listener at a path, for other processes of the same user (V1).
//! It replaces the socket of a process that died, but never one that is in use, nor a file that is no socket; on drop it removes only its own
//! file. Clients of other users are rejected.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};

use super::fd::{FLAGS, Fd};
use super::fd_channel::FdChannelError;
use super::{Error, FdChannel, Result, effective_uid, fork_count, now, watch_forks};

/// The backlog of pending connections.
const BACKLOG: i32 = 8;
/// How long another process may hold the lock of this path.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// A listening Unix socket with a path.
#[derive(Debug)]
pub struct HandoverListener {
    fd: Fd,
    path: PathBuf,
    /// Device and inode of its file, since the path may belong to another socket by now.
    file: (u64, u64),
    /// The fork count of the process it was made in: a child leaves the path alone.
    forks: u64,
}

impl HandoverListener {
    /// Listens at `path`, in a directory that other users cannot write. Fails with EADDRINUSE if a process listens there.
    ///
    /// A process that listens there may see a connection that closes at once: this is how it is detected.
    pub fn bind(path: &Path) -> Result<HandoverListener> {
        let name = SocketAddrUnix::new(path).map_err(Error::of("bind"))?;
        // From here on, processes that use this lock cannot mistake a socket that is not listening yet for a stale one.
        let _alone = lock_path(path)?;
        let fd = Fd::from(socket()?);
        // Before it is bound: the file never has another mode.
        fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(Error::of("fchmod"))?;
        let bind = || net::bind(&fd, &name);
        let bound = match bind() {
            Err(Errno::ADDRINUSE) if is_stale(path, &name)? => {
                fs::unlink(path).map_err(Error::of("unlink"))?;
                bind()
            }
            answer => answer,
        };
        bound.map_err(Error::of("bind"))?;
        net::listen(&fd, BACKLOG).map_err(Error::of("listen"))?;
        let file = fs::lstat(path).map_err(Error::of("lstat"))?;
        Ok(HandoverListener {
            fd,
            path: path.to_owned(),
            file: (file.st_dev, file.st_ino),
            forks: watch_forks(),
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits up to `patience` for a client; none at the time limit. A client of another user is disconnected and is an error.
    pub fn accept(
        &self,
        patience: Duration,
    ) -> core::result::Result<Option<FdChannel>, FdChannelError> {
        let deadline = now() + patience;
        loop {
            match net::accept_with(&self.fd, FLAGS) {
                Ok(fd) => return FdChannel::new(fd).map(Some),
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => return Err(Error::new("accept", errno).into()),
            }
            let left = deadline.since(now());
            if left.is_zero() {
                return Ok(None);
            }
            let left = Timespec::try_from(left).ok();
            let mut come = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut come, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new("poll", errno).into()),
            }
        }
    }
}

impl AsFd for HandoverListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for HandoverListener {
    fn drop(&mut self) {
        if fork_count() != self.forks {
            return;
        }
        // Without the lock the file stays; the next process finds it stale and replaces it.
        let Ok(_alone) = lock_path(&self.path) else {
            return;
        };
        if fs::lstat(&self.path).is_ok_and(|file| (file.st_dev, file.st_ino) == self.file) {
            let _ = fs::unlink(&self.path);
        }
    }
}

fn socket() -> Result<OwnedFd> {
    net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)
        .map_err(Error::of("socket"))
}

/// Whether the path is a socket of this user at which no process listens.
fn is_stale(path: &Path, name: &SocketAddrUnix) -> Result<bool> {
    let file = match fs::lstat(path) {
        Ok(file) => file,
        // Removed meanwhile by a process that does not take the lock: there is nothing to remove.
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(Error::new("lstat", errno)),
    };
    if FileType::from_raw_mode(file.st_mode) != FileType::Socket || file.st_uid != effective_uid() {
        return Ok(false);
    }
    let visitor = Fd::from(socket()?);
    let refused = rustix::io::retry_on_intr(|| net::connect(&visitor, name));
    Ok(refused == Err(Errno::CONNREFUSED))
}

/// The lock on a path: while it is held, other processes that take it make or remove no socket there.
struct PathLock {
    path: PathBuf,
    /// Unlocks when it is closed, after the file is removed.
    _fd: Fd,
}

impl Drop for PathLock {
    fn drop(&mut self) {
        let _ = fs::unlink(&self.path);
    }
}

/// Takes the lock: a file beside `path` that only its owner can open, since any process that can open a lock file can hold it for
/// ever. The file is removed while locked; a process that waited for it finds that it has no name any more, and makes another.
fn lock_path(path: &Path) -> Result<PathLock> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let (path, deadline) = (PathBuf::from(name), now() + LOCK_TIMEOUT);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let fd = fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(Error::of("open"))?;
        let ours = fs::fstat(&fd).map_err(Error::of("fstat"))?;
        if ours.st_uid != effective_uid() || ours.st_mode & 0o077 != 0 {
            return Err(Error::new("open", Errno::PERM));
        }
        match fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let named = fs::lstat(&path).map(|file| (file.st_dev, file.st_ino));
                if named == Ok((ours.st_dev, ours.st_ino)) {
                    let _fd = Fd::from(fd);
                    return Ok(PathLock { path, _fd });
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if now() < deadline => std::thread::sleep(RETRY_INTERVAL),
            Err(errno) => return Err(Error::new("flock", errno)),
        }
    }
}

#[cfg(test)]
mod tests;
