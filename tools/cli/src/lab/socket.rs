//! Local sockets of labs and switches: packets of JSON with descriptors beside them, and where a lab's control socket is. A packet has a
//! longest length, and a peer of another user is refused.

use core::mem::MaybeUninit;
use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    bind, connect, listen, recvmsg, sendmsg, socket_with, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{LabError, failed};

/// Names the control socket to commands that run in a host. It does not begin as the adapter's settings do.
pub const SOCKET_VARIABLE: &str = "VERBENALAB_SOCKET";
/// Limit on a packet; a socket's buffer is larger.
pub const MOST_BYTES: usize = 128 << 10;
/// Limit on the descriptors of a packet.
const MOST_FDS: usize = 16;
const BACKLOG: i32 = 16;

/// A pair of connected sockets.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

fn new_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sends a value; does not wait for a peer that does not read.
pub(crate) fn send<T: Serialize>(
    fd: impl AsFd,
    value: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    if bytes.len() > MOST_BYTES {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(fd, &[IoSlice::new(&bytes)], &mut control, flags)?;
    Ok(())
}

/// Receives a value and the descriptors with it; `None` if the peer has closed.
pub(crate) fn receive<T: DeserializeOwned>(fd: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut room = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&fd, &mut room, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            got => break got?,
        }
    };
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let value = serde_json::from_slice(&bytes[..got.bytes])?;
    Ok(Some((value, fds)))
}

/// The folder of this user's control sockets, made if it is missing. Other users have no access: they could take the place of a lab.
pub fn folder() -> Result<PathBuf, LabError> {
    let user = rustix::process::geteuid().as_raw();
    let own = |path: &Path| path.metadata().is_ok_and(|m| m.uid() == user);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = match runtime.filter(|path| path.is_absolute() && own(path)) {
        Some(runtime) => runtime.join("verbena-lab"),
        None => std::env::temp_dir().join(format!("verbena-lab-{user}")),
    };
    let shown = folder.display().to_string();
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(LabError(format!("cannot create {shown}: {error}")));
        }
        _ => {}
    }
    let found = folder.symlink_metadata().map_err(failed(&shown))?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(LabError(format!(
            "{shown} is not a folder of this user alone (mode 0700), so that the sockets of labs could be another user's"
        )));
    }
    Ok(folder)
}

/// The control sockets of this user's labs, running or not.
pub fn all() -> Result<Vec<PathBuf>, LabError> {
    let folder = folder()?;
    let entries = std::fs::read_dir(&folder).map_err(failed(folder.display().to_string()))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension() == Some(OsStr::new("sock")))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Connects to a socket.
pub(crate) fn dial(path: &Path) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}

/// Listens at a path. A socket there that belongs to no process any more is replaced.
pub(crate) fn serve(path: &Path) -> Result<OwnedFd, LabError> {
    let shown = path.display().to_string();
    match dial(path) {
        Ok(_) => return Err(LabError(format!("another process serves {shown}"))),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed(format!("cannot remove {shown}")))?;
        }
        Err(_) => {}
    }
    let what = format!("cannot listen at {shown}");
    let fd = new_socket().map_err(failed(&what))?;
    let address = SocketAddrUnix::new(path).map_err(failed(&what))?;
    bind(&fd, &address).map_err(failed(&what))?;
    listen(&fd, BACKLOG).map_err(failed(&what))?;
    Ok(fd)
}

/// Raises this process's limit on descriptors as far as it may: a host takes six.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it, a lab of many hosts fails with the reason.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Whether the peer of a connection is this user.
pub(crate) fn is_same_user(fd: impl AsFd) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(fd);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}
