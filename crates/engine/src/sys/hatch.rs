//! A place in the file system where processes of our user knock (V1): a socket that only its owner may open.
//! It promises to take the path of one that died without a word, and never that of one who still listens; and to take nothing but
//! its own path away when it goes. It refuses to replace what is no socket, and to keep visitors of other users.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};

use super::courier::Undelivered;
use super::fd::Fd;
use super::socket::FLAGS;
use super::{Courier, Error, Result, forks, forks_since, now, user};

/// Visitors that may wait to be let in.
const BACKLOG: i32 = 8;
/// How long another process may take to do the same in this directory.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

/// A socket with a path.
#[derive(Debug)]
pub struct Hatch {
    fd: Fd,
    path: PathBuf,
    /// The device and number of its file, since another may have the path by now.
    file: (u64, u64),
    /// The process it was made in, by the forks that lie before it: a child leaves the path alone.
    forks: u64,
}

impl Hatch {
    /// Listens at `path`, in a directory of the caller's that others cannot write. In use if somebody listens there.
    ///
    /// Who listens there already may see a visitor that leaves at once: this is how we find out.
    pub fn bind(path: &Path) -> Result<Hatch> {
        let name = SocketAddrUnix::new(path).map_err(Error::of("bind"))?;
        // From here on nobody takes a path for dead that is about to live, neither ours nor we theirs.
        let _alone = alone(path)?;
        let fd = Fd::from(socket()?);
        // Before it has a name: it never has another mode.
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
        Ok(Hatch {
            fd,
            path: path.to_owned(),
            file: (file.st_dev, file.st_ino),
            forks: forks(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits so long for the next visitor; none if nobody came. A visitor of another user is sent away and is an error.
    pub fn accept(&self, patience: Duration) -> core::result::Result<Option<Courier>, Undelivered> {
        let deadline = now() + patience;
        loop {
            match net::accept_with(&self.fd, FLAGS) {
                Ok(fd) => return Courier::new(fd).map(Some),
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

impl AsFd for Hatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Hatch {
    fn drop(&mut self) {
        if forks_since() != self.forks {
            return;
        }
        // Whoever wants the path next takes it if it stays: nobody listens there.
        let Ok(_alone) = alone(&self.path) else {
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

/// The path is a socket of our user at which nobody listens.
fn is_stale(path: &Path, name: &SocketAddrUnix) -> Result<bool> {
    let file = match fs::lstat(path) {
        Ok(file) => file,
        // Taken away meanwhile by one who does not know our rules: there is nothing to remove.
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(Error::new("lstat", errno)),
    };
    if FileType::from_raw_mode(file.st_mode) != FileType::Socket || file.st_uid != user() {
        return Ok(false);
    }
    let visitor = Fd::from(socket()?);
    let refused = rustix::io::retry_on_intr(|| net::connect(&visitor, name));
    Ok(refused == Err(Errno::CONNREFUSED))
}

/// The lock on a path: others who follow these rules make or remove no socket there as long as it is held.
struct Alone {
    path: PathBuf,
    /// Unlocks when it is closed, after the file is gone.
    _fd: Fd,
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = fs::unlink(&self.path);
    }
}

/// Takes the lock: a file beside `path` that only its owner can open, since whoever can open a lock can hold it for ever. It is
/// removed while it is held; whoever waited for that file finds that it has no name any more, and makes another.
fn alone(path: &Path) -> Result<Alone> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let (path, deadline) = (PathBuf::from(name), now() + PATIENCE);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let fd = fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(Error::of("open"))?;
        let ours = fs::fstat(&fd).map_err(Error::of("fstat"))?;
        if ours.st_uid != user() || ours.st_mode & 0o077 != 0 {
            return Err(Error::new("open", Errno::PERM));
        }
        match fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let named = fs::lstat(&path).map(|file| (file.st_dev, file.st_ino));
                if named == Ok((ours.st_dev, ours.st_ino)) {
                    let _fd = Fd::from(fd);
                    return Ok(Alone { path, _fd });
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if now() < deadline => std::thread::sleep(PAUSE),
            Err(errno) => return Err(Error::new("flock", errno)),
        }
    }
}

#[cfg(test)]
mod tests;
