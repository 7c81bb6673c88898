//! Where clients come in: a Unix socket, or a TCP port of this machine.
//! It promises to take no file's place but a dead socket's, and to remove its own at the end.
//! It refuses addresses that other machines can reach, because NBD asks nobody for a password.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena::access::AccessList;
use verbena::runtime;

use crate::error::Error;

/// Where an export can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A socket in the file system, for this user only.
    Unix(PathBuf),
    /// A port of an address that only this machine has.
    Tcp(SocketAddr),
}

/// An open door.
#[derive(Debug)]
pub(super) struct Door {
    listener: Listener,
    /// Which sources may come in by TCP, if not all.
    access: Option<AccessList>,
}

#[derive(Debug)]
enum Listener {
    Unix(UnixListener, Socket),
    Tcp(TcpListener),
}

/// A socket file of ours, gone when this is.
#[derive(Debug)]
struct Socket {
    path: PathBuf,
    /// Device and inode: what stands there later may be somebody else's.
    id: (u64, u64),
    /// The user who made it.
    owner: u32,
}

/// Who was at the door.
#[derive(Debug)]
pub(super) enum Visitor {
    /// A client; its socket does not block.
    Client(OwnedFd),
    /// Another user, who has got past the permissions of the socket; it was sent away.
    Stranger(u32),
}

impl Door {
    pub(super) fn open(place: &Place) -> Result<Door, Error> {
        let listener = match place {
            Place::Unix(path) => unix(path)?,
            Place::Tcp(address) if !address.ip().is_loopback() => {
                return Err(Error::NotLocal(*address));
            }
            Place::Tcp(address) => {
                let io = |error| Error::io(format!("cannot listen on {address}"))(error);
                let listener = TcpListener::bind(address).map_err(io)?;
                listener.set_nonblocking(true).map_err(io)?;
                Listener::Tcp(listener)
            }
        };
        Ok(Door {
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

    /// Where it is; a port that the system chose is known now.
    pub(super) fn place(&self) -> Result<Place, Error> {
        match &self.listener {
            Listener::Unix(_, socket) => Ok(Place::Unix(socket.path.clone())),
            Listener::Tcp(listener) => {
                let address = listener.local_addr();
                address.map(Place::Tcp).map_err(Error::io("the TCP port"))
            }
        }
    }

    /// Who waits, without waiting for anybody.
    pub(super) fn accept(&self) -> io::Result<Option<Visitor>> {
        let accepted = match &self.listener {
            Listener::Unix(listener, socket) => listener.accept().and_then(|(stream, _)| {
                if let Some(user) = runtime::stranger(&stream, socket.owner)? {
                    return Ok(Visitor::Stranger(user));
                }
                stream.set_nonblocking(true)?;
                Ok(Visitor::Client(stream.into()))
            }),
            Listener::Tcp(listener) => listener.accept().and_then(|(stream, source)| {
                if !self.admits(source) {
                    // As for one that left: the next one may be admitted.
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok(Visitor::Client(stream.into()))
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

impl Door {
    /// Somebody waits.
    pub(super) fn is_wanted(&self) -> bool {
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut on = [PollFd::new(self, PollFlags::IN)];
        poll(&mut on, Some(&none)).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Door {
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
    // Whoever can open the socket has the disk.
    let listener = runtime::listen(path).map_err(io)?;
    let about = fs::symlink_metadata(path).map_err(io)?;
    let socket = Socket {
        path: path.to_owned(),
        id: (about.dev(), about.ino()),
        owner: about.uid(),
    };
    Ok(Listener::Unix(listener, socket))
}

/// Removes the socket of a server that is no more, and nothing else.
fn clear(path: &Path) -> Result<(), Error> {
    let occupied = |why| {
        Err(Error::Occupied {
            path: path.to_owned(),
            why,
        })
    };
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(Error::io(format!("cannot look at {}", path.display()))(
                error,
            ));
        }
    };
    if !about.file_type().is_socket() {
        return occupied("exists and is no socket");
    }
    match UnixStream::connect(path) {
        Ok(_) => occupied("is a socket that somebody serves"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let io = Error::io(format!("cannot remove the dead socket {}", path.display()));
            fs::remove_file(path).map_err(io)
        }
        Err(_) => occupied("is a socket that cannot be tried"),
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = |about: fs::Metadata| (about.dev(), about.ino()) == self.id;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // If it cannot be removed, the next server will see that nobody serves it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
