//! The listener of an export: a Unix socket, or a TCP port on a loopback address. Binding removes a socket file only if no server listens on
//! it, and the listener's own file is removed at the end. Other addresses are rejected, because NBD has no authentication here.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena::unstable::access::AccessList;
use verbena::unstable::runtime;

use crate::error::Error;

/// Address of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportAddr {
    /// A Unix socket, accessible to this user only.
    Unix(PathBuf),
    /// A TCP port on a loopback address.
    Tcp(SocketAddr),
}

/// A listener.
#[derive(Debug)]
pub(super) struct Acceptor {
    listener: Listener,
    /// Access list for TCP clients.
    access: Option<AccessList>,
}

#[derive(Debug)]
enum Listener {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

/// Our socket file, removed on drop.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode, to recognise a file that replaced ours.
    id: (u64, u64),
    /// The user id of its owner.
    owner: u32,
}

/// An accepted connection.
#[derive(Debug)]
pub(super) enum Accepted {
    /// A client; its socket is non-blocking.
    Client(OwnedFd),
    /// Another user, which the permissions of the socket did not keep out; its connection was closed.
    OtherUser(u32),
}

impl Acceptor {
    pub(super) fn open(place: &ExportAddr) -> Result<Acceptor, Error> {
        let listener = match place {
            ExportAddr::Unix(path) => unix(path)?,
            ExportAddr::Tcp(address) if !address.ip().is_loopback() => {
                return Err(Error::NotLocal(*address));
            }
            ExportAddr::Tcp(address) => {
                let io = |error| Error::io(format!("cannot listen on {address}"))(error);
                let listener = TcpListener::bind(address).map_err(io)?;
                listener.set_nonblocking(true).map_err(io)?;
                Listener::Tcp(listener)
            }
        };
        Ok(Acceptor {
            listener,
            access: None,
        })
    }

    pub(super) fn set_access(&mut self, access: AccessList) {
        self.access = Some(access);
    }

    fn admits(&self, source: SocketAddr) -> bool {
        let access = self.access.as_ref();
        access.is_none_or(|access| access.admits(source.ip()))
    }

    /// Its address, with the port that the system has chosen.
    pub(super) fn local_addr(&self) -> Result<ExportAddr, Error> {
        match &self.listener {
            Listener::Unix(_, socket) => Ok(ExportAddr::Unix(socket.path.clone())),
            Listener::Tcp(listener) => {
                let address = listener.local_addr();
                address
                    .map(ExportAddr::Tcp)
                    .map_err(Error::io("the TCP port"))
            }
        }
    }

    /// Accepts a connection, without waiting.
    pub(super) fn accept(&self) -> io::Result<Option<Accepted>> {
        let accepted = match &self.listener {
            Listener::Unix(listener, socket) => listener.accept().and_then(|(stream, _)| {
                if let Some(user) = runtime::other_user(&stream, socket.owner)? {
                    return Ok(Accepted::OtherUser(user));
                }
                stream.set_nonblocking(true)?;
                Ok(Accepted::Client(stream.into()))
            }),
            Listener::Tcp(listener) => listener.accept().and_then(|(stream, source)| {
                if !self.admits(source) {
                    // Treated as a connection that was aborted: the caller tries the next one.
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok(Accepted::Client(stream.into()))
            }),
        };
        match accepted {
            Ok(visitor) => Ok(Some(visitor)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                _ => Err(error),
            },
        }
    }
}

impl Acceptor {
    /// Whether a connection waits to be accepted.
    pub(super) fn has_pending(&self) -> bool {
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut on = [PollFd::new(self, PollFlags::IN)];
        poll(&mut on, Some(&none)).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.listener {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

fn unix(path: &Path) -> Result<Listener, Error> {
    clear(path)?;
    let io = |error| Error::io(format!("cannot listen on {}", path.display()))(error);
    // Access to the socket is access to the disk.
    let listener = runtime::listen(path).map_err(io)?;
    let about = fs::symlink_metadata(path).map_err(io)?;
    let socket = SocketFile {
        path: path.to_owned(),
        id: (about.dev(), about.ino()),
        owner: about.uid(),
    };
    Ok(Listener::Unix(listener, socket))
}

/// Removes the socket of a server that has ended, and nothing else.
fn clear(path: &Path) -> Result<(), Error> {
    let occupied = |why| {
        Err(Error::PathInUse {
            path: path.to_owned(),
            why,
        })
    };
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(Error::io(format!("cannot inspect {}", path.display()))(
                error,
            ));
        }
    };
    if !about.file_type().is_socket() {
        return occupied("exists and is no socket");
    }
    match UnixStream::connect(path) {
        Ok(_) => occupied("is a socket on which another process listens"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let io = Error::io(format!("cannot remove the stale socket {}", path.display()));
            fs::remove_file(path).map_err(io)
        }
        Err(_) => occupied("is a socket to which connecting failed"),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = |about: fs::Metadata| (about.dev(), about.ino()) == self.id;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // If it cannot be removed, the next server finds that nothing listens on it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
