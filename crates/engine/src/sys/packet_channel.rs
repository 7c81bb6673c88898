//! Connections between processes of one user that carry packets: a listener with an abstract name or a path, and channels that keep the boundaries of what
//! is sent (SOCK_SEQPACKET). No call blocks. Both ends check by SO_PEERCRED that the other is a process of the same user.

use core::mem::MaybeUninit;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType,
};

use super::fd::{FLAGS, Fd};
use super::peer_credentials::PeerCredentials;
use super::{Error, Result};

/// Most descriptors with one packet.
pub const MAX_FDS: usize = 4;

/// The backlog of pending connections.
const BACKLOG: i32 = 64;

/// A listener for channels.
#[derive(Debug)]
pub struct PacketListener {
    fd: Fd,
}

impl PacketListener {
    /// Binds the name and listens; EADDRINUSE if another process has it.
    pub fn bind(name: &str) -> Result<PacketListener> {
        PacketListener::bind_to(&abstract_name(name)?)
    }

    /// Binds the address and listens.
    pub(super) fn bind_to(address: &SocketAddrUnix) -> Result<PacketListener> {
        let fd = Fd::from(socket()?);
        net::bind(&fd, address).map_err(Error::of("bind"))?;
        net::listen(&fd, BACKLOG).map_err(Error::of("listen"))?;
        Ok(PacketListener { fd })
    }

    /// The next client of this user; none if none is pending. Clients of other users are disconnected.
    pub fn accept(&self) -> Result<Option<PacketChannel>> {
        self.accept_if(|peer| peer.check_user().is_ok())
    }

    /// The same, but the superuser is a client, too.
    pub fn accept_user_or_root(&self) -> Result<Option<PacketChannel>> {
        self.accept_if(|peer| peer.user == 0 || peer.check_user().is_ok())
    }

    fn accept_if(&self, admits: impl Fn(PeerCredentials) -> bool) -> Result<Option<PacketChannel>> {
        loop {
            match net::accept_with(&self.fd, FLAGS) {
                Ok(fd) => {
                    let channel = PacketChannel { fd: fd.into() };
                    if PeerCredentials::of(&channel.fd).is_ok_and(&admits) {
                        return Ok(Some(channel));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(Error::new("accept", errno)),
            }
        }
    }
}

impl AsFd for PacketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct PacketChannel {
    fd: Fd,
}

impl PacketChannel {
    /// Connects to the listener with this name; ECONNREFUSED if there is none, EPERM if it is another user's.
    pub fn connect(name: &str) -> Result<PacketChannel> {
        PacketChannel::connect_to(&abstract_name(name)?)
    }

    /// The same, but the listener may be another user's: the caller checks the process.
    pub fn connect_to_any(name: &str) -> Result<PacketChannel> {
        PacketChannel::connect_unchecked(&abstract_name(name)?)
    }

    /// Connects to the listener at this address.
    pub(super) fn connect_to(address: &SocketAddrUnix) -> Result<PacketChannel> {
        let channel = PacketChannel::connect_unchecked(address)?;
        channel.check_peer()?;
        Ok(channel)
    }

    fn connect_unchecked(address: &SocketAddrUnix) -> Result<PacketChannel> {
        let channel = PacketChannel {
            fd: socket()?.into(),
        };
        retry_on_intr(|| net::connect(&channel.fd, address)).map_err(Error::of("connect"))?;
        Ok(channel)
    }

    /// The process at the other end when it connected, or listened; none if it has no number here.
    pub fn peer_process(&self) -> Option<u32> {
        PeerCredentials::of(&self.fd).ok()?.process
    }

    fn check_peer(&self) -> Result<()> {
        PeerCredentials::of(&self.fd)?.check_user()
    }

    /// Sends a packet in two parts; false if there is no room now.
    pub fn send(&self, head: &[u8], body: &[u8]) -> Result<bool> {
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let send = || net::sendmsg(&self.fd, &parts, &mut SendAncillaryBuffer::default(), flags);
        match retry_on_intr(send) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(false),
            Err(errno) => Err(Error::new("sendmsg", errno)),
        }
    }

    /// Sends a packet with descriptors; false if there is no room now. More than [`MAX_FDS`] are an error.
    pub fn send_with_fds(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        // Because of padding the buffer may have room for one more.
        if fds.len() > MAX_FDS || !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Error::new("sendmsg", Errno::MSGSIZE));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let parts = [IoSlice::new(packet)];
        match retry_on_intr(|| net::sendmsg(&self.fd, &parts, &mut control, flags)) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(false),
            Err(errno) => Err(Error::new("sendmsg", errno)),
        }
    }

    /// Receives a packet of exactly the buffer's length with its descriptors, which are close-on-exec; none if there is none. Another length is
    /// an error, and so are more descriptors than [`MAX_FDS`] and the end of the connection.
    pub fn receive_with_fds(&self, packet: &mut [u8]) -> Result<Option<Vec<OwnedFd>>> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let len = packet.len();
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = retry_on_intr(|| {
            let parts = &mut [IoSliceMut::new(packet)];
            net::recvmsg(&self.fd, parts, &mut control, flags)
        });
        let received = match received {
            Ok(received) => received,
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(Error::new("recvmsg", errno)),
        };
        // Taken in any case, so that they are closed with an error.
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                fds.extend(some);
            }
        }
        let cut = ReturnFlags::CTRUNC | ReturnFlags::TRUNC;
        if received.bytes == 0 {
            Err(Error::new("recvmsg", Errno::PIPE))
        } else if received.bytes != len || received.flags.intersects(cut) || fds.len() > MAX_FDS {
            Err(Error::new("recvmsg", Errno::MSGSIZE))
        } else {
            Ok(Some(fds))
        }
    }

    /// Receives a packet; none if there is none. One that is longer than the buffer is an error, and so is the end of the connection.
    pub fn receive<'a>(&self, room: &'a mut [u8]) -> Result<Option<&'a [u8]>> {
        // MSG_TRUNC: the second length is the true one.
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        match retry_on_intr(|| net::recv(&self.fd, &mut *room, flags)) {
            // Nothing empty is sent.
            Ok((_, 0)) => Err(Error::new("recv", Errno::PIPE)),
            Ok((copied, whole)) if copied < whole => Err(Error::new("recv", Errno::MSGSIZE)),
            Ok((copied, _)) => Ok(room.get(..copied)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(Error::new("recv", errno)),
        }
    }
}

impl AsFd for PacketChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn socket() -> Result<OwnedFd> {
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
        .map_err(Error::of("socket"))
}

fn abstract_name(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(Error::of("bind"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(test: &str) -> String {
        format!("verbena-test/{}/{test}", std::process::id())
    }

    #[test]
    fn packets_keep_their_boundaries() {
        let name = name("boundaries");
        assert!(PacketChannel::connect(&name).unwrap_err().is_refused());
        let listener = PacketListener::bind(&name).unwrap();
        assert!(PacketListener::bind(&name).unwrap_err().is_in_use());
        assert!(listener.accept().unwrap().is_none());
        let client = PacketChannel::connect(&name).unwrap();
        let server = listener.accept().unwrap().unwrap();
        let mut room = [0; 8];
        assert_eq!(server.receive(&mut room).unwrap(), None);
        assert!(client.send(b"ab", b"cd").unwrap());
        assert!(client.send(b"e", b"").unwrap());
        assert!(client.send(b"12345678", b"9").unwrap());
        assert_eq!(server.receive(&mut room).unwrap(), Some(&b"abcd"[..]));
        assert_eq!(server.receive(&mut room).unwrap(), Some(&b"e"[..]));
        assert!(server.receive(&mut room).is_err(), "too long");
        // Shut down, not only dropped: a child that another test forks at this moment has a copy.
        net::shutdown(&client.fd, net::Shutdown::Both).unwrap();
        assert!(server.receive(&mut room).is_err(), "the end");
    }

    #[test]
    fn full_channel_blocks_no_sender() {
        let name = name("full");
        let listener = PacketListener::bind(&name).unwrap();
        let client = PacketChannel::connect(&name).unwrap();
        let server = listener.accept().unwrap().unwrap();
        let mut sent = 0;
        while client.send(&[1; 100], &[2; 4000]).unwrap() {
            sent += 1;
        }
        let mut room = [0; 5000];
        for _ in 0..sent {
            assert_eq!(server.receive(&mut room).unwrap().unwrap().len(), 4100);
        }
        assert!(client.send(&[1; 100], &[2; 4000]).unwrap());
    }
    #[test]
    fn descriptors_travel_with_their_packet() {
        let name = name("descriptors");
        let listener = PacketListener::bind(&name).unwrap();
        let client = PacketChannel::connect(&name).unwrap();
        let server = listener.accept().unwrap().unwrap();
        let ours = Some(std::process::id());
        assert_eq!((client.peer_process(), server.peer_process()), (ours, ours));
        let mut packet = [0; 4];
        assert!(server.receive_with_fds(&mut packet).unwrap().is_none());
        assert!(
            client
                .send_with_fds(b"four", &[client.as_fd(), listener.as_fd()])
                .unwrap()
        );
        let fds = server.receive_with_fds(&mut packet).unwrap().unwrap();
        assert_eq!((&packet, fds.len()), (b"four", 2));
        // The third is one byte too long, the fourth one too short.
        assert!(client.send_with_fds(b"none", &[]).unwrap());
        assert_eq!(
            server.receive_with_fds(&mut packet).unwrap().unwrap().len(),
            0
        );
        for wrong in [&b"fives"[..], b"tri"] {
            assert!(client.send_with_fds(wrong, &[client.as_fd()]).unwrap());
            assert!(server.receive_with_fds(&mut packet).is_err());
        }
        let many = [client.as_fd(); MAX_FDS + 1];
        assert!(client.send_with_fds(b"many", &many).is_err());
        net::shutdown(&client.fd, net::Shutdown::Both).unwrap();
        assert!(server.receive_with_fds(&mut packet).is_err(), "the end");
    }
}
