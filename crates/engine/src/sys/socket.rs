//! A TCP connection, or one end of a local socket pair: created, queried, and closed.
//! No call blocks, small writes are sent at once (TCP_NODELAY), and descriptors are close-on-exec. Bytes are moved by [`super::carry`];
//! when a silent peer counts as dead is decided by the caller.

use core::mem::{MaybeUninit, size_of};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, Shutdown, SocketType, sockopt};

use super::fd::{FLAGS, Fd};
use super::path::path_digest;
use super::{Error, Line, Result, TcpNumbers};

/// TCP states, as in `tcpi_state`.
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;
const CLOSED: u8 = 7;

/// Unanswered keep-alive probes after which a connection is broken.
const KEEPALIVE_PROBES: u32 = 6;

/// Prefix of the Linux congestion controls that pace (BBR and its later versions).
const PACED: &str = "bbr";
/// A congestion control without pacing, which is part of every Linux kernel.
const UNPACED: &str = "reno";

/// A connection.
#[derive(Debug)]
pub struct Socket {
    fd: Fd,
    /// Each write begins a new TCP segment.
    ends_segments: AtomicBool,
    /// The connection of a port behind this end of a pair.
    line: Option<Arc<dyn Line>>,
}

impl Socket {
    fn from_fd(fd: OwnedFd) -> Socket {
        Socket {
            fd: fd.into(),
            ends_segments: AtomicBool::new(false),
            line: None,
        }
    }

    /// This end of a pair stands for a connection of a port from now on.
    #[must_use]
    pub fn with_line(self, line: Arc<dyn Line>) -> Socket {
        Socket {
            line: Some(line),
            ..self
        }
    }

    /// The connection of a port behind it.
    pub fn line(&self) -> Option<&Arc<dyn Line>> {
        self.line.as_ref()
    }

    /// From now on each write begins a new TCP segment: the kernel appends nothing to the last one (`MSG_EOR`).
    pub fn end_segments(&self) {
        self.ends_segments.store(true, Ordering::Relaxed);
    }

    /// The `sendmsg` flag that follows from [`end_segments`](Socket::end_segments).
    pub(super) fn record_end(&self) -> libc::c_int {
        if self.ends_segments.load(Ordering::Relaxed) {
            libc::MSG_EOR
        } else {
            0
        }
    }

    /// Starts to connect to `to`, from the address `from` if given (the system chooses the port), with this traffic class if given.
    /// Wait until the socket is writable, then call [`Socket::is_connected`].
    pub fn connect(to: SocketAddr, from: Option<IpAddr>, class: Option<u8>) -> Result<Socket> {
        let fd = net::socket_with(
            AddressFamily::from_ip(to.ip()),
            SocketType::STREAM,
            FLAGS,
            None,
        )
        .map_err(Error::of("socket"))?;
        let socket = Socket::adopt(fd)?;
        if let Some(from) = from {
            net::bind(&socket.fd, &SocketAddr::new(from, 0)).map_err(Error::of("bind"))?;
        }
        if let Some(class) = class {
            socket.set_traffic_class(class, to.ip())?;
        }
        match net::connect(&socket.fd, &to) {
            // An interrupted connect continues in the background.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
            Err(errno) => Err(Error::new("connect", errno)),
        }
    }

    /// Connects again with a socket whose connection was refused.
    pub fn reconnect(&self, to: SocketAddr) -> Result<()> {
        if let Some(line) = &self.line {
            return line.reconnect();
        }
        // If the refused attempt was not cleared yet, Linux clears it in the first call and returns ECONNABORTED.
        let connected = match net::connect(&self.fd, &to) {
            Err(Errno::CONNABORTED) => net::connect(&self.fd, &to),
            other => other,
        };
        match connected {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::new("connect", errno)),
        }
    }

    /// Two connected ends, for a queue pair that is connected to itself: it writes to one and reads from the other.
    pub fn pair() -> Result<(Socket, Socket)> {
        let (a, b) = net::socketpair(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)
            .map_err(Error::of("socketpair"))?;
        Ok((Socket::from_fd(a), Socket::from_fd(b)))
    }

    /// Takes over a stream socket that another process passed, and makes it non-blocking.
    pub fn from_passed_fd(fd: OwnedFd) -> Result<Socket> {
        let kind = sockopt::socket_type(&fd).map_err(Error::of("getsockopt SO_TYPE"))?;
        if kind != SocketType::STREAM {
            return Err(Error::new("recvmsg", Errno::PROTOTYPE));
        }
        rustix::io::ioctl_fionbio(&fd, true).map_err(Error::of("ioctl FIONBIO"))?;
        Ok(Socket::from_fd(fd))
    }

    /// A duplicate of the descriptor.
    pub fn duplicate(&self) -> Result<Socket> {
        if self.line.is_some() {
            // The connection ends with the process.
            return Err(Error::new("fcntl", Errno::OPNOTSUPP));
        }
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).map_err(Error::of("fcntl"))?;
        let other = Socket::from_fd(fd);
        let segments = self.ends_segments.load(Ordering::Relaxed);
        other.ends_segments.store(segments, Ordering::Relaxed);
        Ok(other)
    }

    /// Takes over a non-blocking TCP socket.
    pub(super) fn adopt(fd: OwnedFd) -> Result<Socket> {
        let socket = Socket::from_fd(fd);
        // Frames are assembled before they are sent; Nagle's algorithm would only add latency.
        sockopt::set_tcp_nodelay(&socket.fd, true).map_err(Error::of("setsockopt TCP_NODELAY"))?;
        Ok(socket)
    }

    /// Whether the connection is established; false while connecting, an error if it failed. Clears the pending error.
    pub fn is_connected(&self) -> Result<bool> {
        if let Some(line) = &self.line {
            return line.is_connected();
        }
        let pending = sockopt::socket_error(&self.fd).map_err(Error::of("getsockopt SO_ERROR"))?;
        pending.map_err(Error::of("connect"))?;
        match self.info().map(|info| info.tcpi_state) {
            Some(SYN_SENT | SYN_RECEIVED) => Ok(false),
            Some(CLOSED) => Err(Error::new("connect", Errno::NOTCONN)),
            // Connecting to a free local port may connect the socket to itself, when the system picks that port as the source.
            Some(_) if self.local_addr()? == self.peer_addr()? => {
                Err(Error::new("connect", Errno::CONNREFUSED))
            }
            // Ends of a socket pair have no TCP state and are always connected.
            Some(_) | None => Ok(true),
        }
    }

    /// Our address; an error for an end of a pair.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        if let Some(line) = &self.line {
            return Ok(line.local_addr());
        }
        let name = net::getsockname(&self.fd).map_err(Error::of("getsockname"))?;
        SocketAddr::try_from(name).map_err(Error::of("getsockname"))
    }

    /// The peer's address; an error for an end of a pair, and when there is no connection.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        if let Some(line) = &self.line {
            return Ok(line.peer_addr());
        }
        let name = net::getpeername(&self.fd).map_err(Error::of("getpeername"))?;
        let name = name.ok_or(Error::new("getpeername", Errno::NOTCONN))?;
        SocketAddr::try_from(name).map_err(Error::of("getpeername"))
    }

    /// Sends FIN; reading continues.
    pub fn shutdown_write(&self) -> Result<()> {
        if self.line.as_ref().is_some_and(|line| line.shutdown_write()) {
            return Ok(());
        }
        net::shutdown(&self.fd, Shutdown::Write).map_err(Error::of("shutdown"))
    }

    /// Resets the connection; unsent bytes are dropped.
    pub fn abort(self) {
        self.set_abortive();
    }

    /// The same when the socket is closed.
    pub fn set_abortive(&self) {
        if let Some(line) = &self.line {
            return line.set_abortive();
        }
        // If this fails the connection is broken already.
        let _ = sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }

    /// Sets the type of service (IPv4) or traffic class (IPv6) of sent packets.
    pub fn set_traffic_class(&self, class: u8, peer: IpAddr) -> Result<()> {
        if let Some(line) = &self.line {
            line.set_traffic_class(class);
            return Ok(());
        }
        match peer {
            IpAddr::V4(_) => sockopt::set_ip_tos(&self.fd, class),
            IpAddr::V6(_) => sockopt::set_ipv6_tclass(&self.fd, class.into()),
        }
        .map_err(Error::of("setsockopt IP_TOS"))
    }

    /// Probes the peer after `idle` of silence, and six times within the same span before the connection is broken; zero turns
    /// it off. The system counts in seconds.
    pub fn set_keepalive(&self, idle: Duration) -> Result<()> {
        if let Some(line) = &self.line {
            line.set_keepalive(idle);
            return Ok(());
        }
        let on = !idle.is_zero();
        sockopt::set_socket_keepalive(&self.fd, on)
            .map_err(Error::of("setsockopt SO_KEEPALIVE"))?;
        if on {
            // Rounded up, and within the system's limits.
            let whole = idle.as_secs() + u64::from(idle.subsec_nanos() > 0);
            let seconds = |n: u64| Duration::from_secs(n.clamp(1, 32_767));
            let between = seconds(whole / u64::from(KEEPALIVE_PROBES));
            sockopt::set_tcp_keepidle(&self.fd, seconds(whole))
                .map_err(Error::of("setsockopt TCP_KEEPIDLE"))?;
            sockopt::set_tcp_keepintvl(&self.fd, between)
                .map_err(Error::of("setsockopt TCP_KEEPINTVL"))?;
            sockopt::set_tcp_keepcnt(&self.fd, KEEPALIVE_PROBES)
                .map_err(Error::of("setsockopt TCP_KEEPCNT"))?;
        }
        Ok(())
    }

    /// Breaks the connection when bytes are not acknowledged, or the peer's window is zero, for this long (TCP_USER_TIMEOUT);
    /// keep-alive probes go on as long, whatever their number. Zero leaves it to the system.
    pub fn set_user_timeout(&self, limit: Duration) -> Result<()> {
        if self.line.is_some() {
            return Ok(());
        }
        let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&self.fd, millis)
            .map_err(Error::of("setsockopt TCP_USER_TIMEOUT"))
    }

    /// The current maximum segment size; none for an end of a pair.
    pub fn mss(&self) -> Option<u32> {
        if let Some(line) = &self.line {
            return line.mss();
        }
        self.info().map(|info| info.tcpi_snd_mss)
    }

    /// How long the peer's TCP has been silent although it owes an acknowledgement; none if it owes nothing.
    ///
    /// A peer that only does not read is not silent: its window is zero, and as long as its TCP answers the window probes it owes
    /// nothing. Silence before our first unacknowledged byte does not count, either: a connection may be idle for an hour
    /// and then send.
    pub fn silence(&self) -> Option<Duration> {
        if let Some(line) = &self.line {
            return line.silence();
        }
        let info = self.info()?;
        let millis = |n: u32| Duration::from_millis(n.into());
        let received = millis(info.tcpi_last_ack_recv);
        if info.tcpi_unacked > 0 {
            // Each retransmission doubles the timeout: the waits so far were rto/2 + rto/4 + … of the current one.
            let rto = Duration::from_micros(info.tcpi_rto.into());
            let first = rto / (1 << info.tcpi_backoff.min(31));
            let spoke = rto.saturating_sub(first) + millis(info.tcpi_last_data_sent);
            return Some(received.min(spoke));
        }
        // Window probes; one may be in flight. (Keep-alive probes are counted here too, but only while nothing waits to be
        // sent.)
        (info.tcpi_probes > 1 && self.unsent() > 0).then_some(received)
    }

    /// Fixes the socket buffer sizes; `None` leaves them to the system's auto-tuning.
    pub fn set_buffers(&self, bytes: Option<usize>) -> Result<()> {
        if self.line.is_some() {
            return Ok(());
        }
        if let Some(bytes) = bytes {
            sockopt::set_socket_send_buffer_size(&self.fd, bytes)
                .map_err(Error::of("setsockopt SO_SNDBUF"))?;
            sockopt::set_socket_recv_buffer_size(&self.fd, bytes)
                .map_err(Error::of("setsockopt SO_RCVBUF"))?;
        }
        Ok(())
    }

    /// Sets SO_RCVLOWAT: the socket is readable when this many bytes are there, or no more can come. The kernel wakes earlier if its
    /// buffer has no room for them.
    pub fn set_low_water(&self, bytes: usize) -> Result<()> {
        let mark = i32::try_from(bytes).unwrap_or(i32::MAX).max(1);
        // SAFETY: the kernel reads one int, `mark`, which outlives the call.
        let refused = unsafe {
            libc::syscall(
                libc::SYS_setsockopt,
                self.fd.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                &raw const mark,
                size_of::<i32>() as libc::socklen_t,
            )
        };
        match refused {
            0 => Ok(()),
            _ => Err(Error::last("setsockopt SO_RCVLOWAT")),
        }
    }

    /// Replaces a congestion control that paces by a timer with one that does not, which every system has and every user may
    /// choose. True if it was replaced.
    pub fn set_unpaced(&self) -> Result<bool> {
        if self.line.is_some() {
            return Ok(false);
        }
        let now =
            sockopt::tcp_congestion(&self.fd).map_err(Error::of("getsockopt TCP_CONGESTION"))?;
        if !now.starts_with(PACED) {
            return Ok(false);
        }
        sockopt::set_tcp_congestion(&self.fd, UNPACED)
            .map_err(Error::of("setsockopt TCP_CONGESTION"))?;
        Ok(true)
    }

    /// Whether the peer is on this host, as far as addresses show: it has our address, or a loopback address.
    pub fn is_same_host(&self) -> bool {
        // Frames of a port may leave the host wherever they go.
        if self.line.is_some() {
            return false;
        }
        match (self.local_addr(), self.peer_addr()) {
            (Ok(local), Ok(peer)) => local.ip() == peer.ip() || peer.ip().is_loopback(),
            // An end of a pair has no addresses and no TCP state; a TCP socket without addresses is not connected.
            _ => self.info().is_none(),
        }
    }

    /// A digest of both addresses, the same at both ends of a connection that nothing between them ends or translates
    /// (docs/extensions.md, CAPS).
    pub fn path_digest(&self) -> Option<u64> {
        Some(path_digest(self.local_addr().ok()?, self.peer_addr().ok()?))
    }

    /// Bytes written that the peer's TCP has not acknowledged.
    ///
    /// Once the peer's FIN has come without a reset, the rest was read by its process: Linux resets a connection that
    /// is closed with unread bytes, and acknowledges no byte that arrives after the close (`tcp_close`, RFC 2525 §2.17).
    pub fn unacknowledged(&self) -> u64 {
        self.unsent()
    }

    /// Bytes written and not acknowledged (TIOCOUTQ).
    pub fn unsent(&self) -> u64 {
        let in_socket = self.in_send_buffer();
        // Read afterwards: bytes move from the pair to the port's connection.
        in_socket + self.line.as_ref().map_or(0, |line| line.unsent())
    }

    fn in_send_buffer(&self) -> u64 {
        let mut bytes = 0_i32;
        let fd = self.fd.as_fd().as_raw_fd();
        // SAFETY: the kernel writes one int to `bytes`, which outlives the call.
        let refused = unsafe { libc::syscall(libc::SYS_ioctl, fd, libc::TIOCOUTQ, &raw mut bytes) };
        if refused == 0 {
            u64::try_from(bytes).unwrap_or(0)
        } else {
            0
        }
    }

    /// What its TCP has counted; none if it is not TCP.
    pub fn numbers(&self) -> Option<TcpNumbers> {
        if let Some(line) = &self.line {
            return line.numbers();
        }
        let info = self.info()?;
        let heard = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
        Some(TcpNumbers {
            retransmitted: info.tcpi_total_retrans,
            window: info.tcpi_snd_wnd,
            window_limited: Duration::from_micros(info.tcpi_rwnd_limited),
            heard: Duration::from_millis(heard.into()),
        })
    }

    /// TCP_INFO of the connection; none if it is not TCP.
    fn info(&self) -> Option<libc::tcp_info> {
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `info` and the count to `len`; both outlive the call.
        let refused = unsafe {
            libc::syscall(
                libc::SYS_getsockopt,
                self.fd.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr(),
                &raw mut len,
            )
        };
        // SAFETY: zeroed before the call, and `tcp_info` consists of integers, for which any bytes are valid.
        (refused == 0).then(|| unsafe { info.assume_init() })
    }
}

/// The family of an address.
pub(super) trait FromIp {
    fn from_ip(ip: IpAddr) -> Self;
}

impl FromIp for AddressFamily {
    fn from_ip(ip: IpAddr) -> AddressFamily {
        match ip {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
