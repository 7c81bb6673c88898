//! A UDP socket of the adapter, one for each port and address, or for a multicast group.
//! A shard reads it, or the threads that poll the completion queues it is lent to. Datagrams are not queued here: one without a posted
//! receive is dropped and counted. A queue pair that found the send buffer full is resumed when there is room.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::{Arc, Weak};

use verbena_events::toeplitz::Tuple;
use verbena_nic::Outbox;
use verbena_nic::ud::{DropReason, ReceivedDatagram, SendOutcome, largest_packet};
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicUsize, Ordering};
use verbena_sync::locks::Mutex;
use verbena_wire::roce::{Path, icrc_over_socket};

use crate::core::Core;
use crate::datagram::ud_demux::UdMember;
use crate::error::Error;
use crate::oob::qpn::port_and_index;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, DatagramSocket, Interest, Ready};

/// Datagrams read per turn on a shard.
const MAX_PER_TURN: usize = 64;
/// Receive buffer size: as many datagrams as a usual receive queue has receives, and some more.
const RECV_BUFFER: usize = 4 << 20;
/// The retry interval when a send fails for lack of room although the socket polls writable.
const PAUSE: Duration = Duration::from_millis(1);

/// A datagram socket.
pub(crate) struct UdpPort {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    socket: DatagramSocket,
    addr: SocketAddr,
    /// The multicast group, if it is bound to one.
    group: Option<IpAddr>,
    /// The receive buffer; its lock admits one reader at a time.
    recv_buffer: Mutex<Box<[u8]>>,
    /// The number of completion queues whose pollers read it.
    borrowers: AtomicUsize,
    state: Mutex<PortState>,
}

/// The readiness that the shard waits for.
#[derive(Default)]
struct PortState {
    /// The shard serves the socket.
    served: bool,
    closed: bool,
    /// Queue pairs that found no room, in order of arrival.
    blocked: Vec<Weak<UdMember>>,
    /// The socket polls writable but sends find no room: a timer runs.
    paused: bool,
}

impl UdpPort {
    /// A socket that no shard serves yet.
    pub(crate) fn new(
        core: &Arc<Core>,
        socket: DatagramSocket,
        group: Option<IpAddr>,
    ) -> Result<Arc<UdpPort>, Error> {
        let at = socket.local_addr()?;
        Ok(Arc::new(UdpPort {
            core: core.clone(),
            shard: core.shards.pick()?,
            token: next_token(),
            socket,
            addr: at,
            group,
            recv_buffer: Mutex::new(Box::new([])),
            borrowers: AtomicUsize::new(0),
            state: Mutex::default(),
        }))
    }

    /// Its address.
    pub(crate) fn ip(&self) -> IpAddr {
        self.addr.ip()
    }

    /// Has a shard serve it, if none does.
    pub(crate) fn serve(self: &Arc<Self>) -> Result<(), Error> {
        if self.state.lock().served {
            return Ok(());
        }
        // Without the lock, since listing interfaces takes time; doing it twice does no harm.
        self.socket.set_recv_buffer(RECV_BUFFER);
        if self.group.is_none() {
            // If this fails, only multicast is lost.
            let _ = self.socket.set_multicast_interface(self.addr.ip());
        }
        let mut watch = self.state.lock();
        if watch.closed {
            return Err(Error::Closed);
        }
        if !watch.served {
            let once = Interest::READ_ONCE;
            self.shard
                .serve_watched(self.token, self.clone(), &self.socket, once)?;
            watch.served = true;
        }
        Ok(())
    }

    pub(crate) fn close(&self) {
        let mut watch = self.state.lock();
        watch.closed = true;
        watch.blocked.clear();
        if core::mem::take(&mut watch.served) {
            self.shard.unwatch(&self.socket);
            drop(watch);
            self.shard.forget(self.token);
        }
    }

    /// A polling thread reads it from now on.
    pub(crate) fn lend(&self) {
        self.borrowers.fetch_add(1, Ordering::SeqCst);
    }

    /// That thread reads it no longer; after the last one, the shard does.
    pub(crate) fn take_back(&self) {
        if self.borrowers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.arm();
        }
    }

    fn is_lent(&self) -> bool {
        self.borrowers.load(Ordering::SeqCst) > 0
    }

    /// Arms the shard's one-shot interest for what is needed now; readiness that exists already is reported too.
    fn arm(&self) {
        let watch = self.state.lock();
        let interest = Interest {
            read: !self.is_lent(),
            write: !watch.blocked.is_empty() && !watch.paused,
            oneshot: true,
        };
        if watch.served && (interest.read || interest.write) {
            let _ = self.shard.arm(&self.socket, self.token, interest);
        }
    }

    /// Takes up to `times` datagrams and processes them; true if one came. False, too, if another thread is reading.
    pub(crate) fn read(&self, times: usize, out: &mut Outbox) -> bool {
        let Some(mut room) = self.recv_buffer.try_lock() else {
            return false;
        };
        if room.is_empty() {
            *room = vec![0; largest_packet()].into();
        }
        let mut any = false;
        for _ in 0..times {
            // A socket error belongs to an earlier datagram; there is nothing to do about it here.
            let Ok(Some((len, from))) = self.socket.receive(&mut room) else {
                break;
            };
            any = true;
            if !self.core.security.access.admits(from.ip()) {
                continue;
            }
            if let Err(dropped) = self.dispatch(&room, len, from, out) {
                self.core.routes.ud_demux.count(dropped);
            }
        }
        any
    }

    /// Delivers a datagram to the queue pairs it is for.
    fn dispatch(
        &self,
        room: &[u8],
        len: usize,
        from: SocketAddr,
        out: &mut Outbox,
    ) -> Result<(), Option<DropReason>> {
        let bytes = room.get(..len).ok_or(Some(DropReason::Oversized))?;
        let path = Path {
            src: from.ip(),
            dst: self.addr.ip(),
            src_port: from.port(),
            dst_port: self.addr.port(),
        };
        let arrival = ReceivedDatagram::parse(bytes, path).map_err(Some)?;
        let members = &self.core.routes.ud_demux;
        if self.core.notification.steers_packets() {
            out.set_packet(Tuple::ip(from.ip(), self.addr.ip()));
        }
        let found = match self.group {
            Some(group) => {
                let own = self.core.local_addresses.all().unwrap_or_default();
                members.deliver_all(group, own, &arrival, out)
            }
            None if port_and_index(arrival.dest_qpn()).0 == self.addr.port() => {
                members.deliver(&arrival, out)
            }
            None => false,
        };
        out.end_packet();
        // A queue pair counts its own drops.
        if found { Ok(()) } else { Err(None) }
    }

    /// Sends a packet, with the ICRC over the addresses it will have.
    pub(crate) fn send(&self, to: SocketAddr, packet: &mut Vec<u8>) -> SendOutcome {
        let path = Path {
            src: self.addr.ip(),
            dst: to.ip(),
            src_port: self.addr.port(),
            dst_port: to.port(),
        };
        let icrc = icrc_over_socket(path, packet);
        packet.extend_from_slice(&icrc);
        match self.socket.send(packet, to) {
            Ok(true) => SendOutcome::Sent,
            Ok(false) => SendOutcome::Full,
            // No route, no such host, a firewall: the loss of an unreliable datagram is no error.
            Err(_) => SendOutcome::Lost,
        }
    }

    /// Resumes the queue pair when there is room.
    pub(crate) fn resume_when_writable(&self, member: &Arc<UdMember>) {
        {
            let mut watch = self.state.lock();
            let waits = |w: &Weak<UdMember>| core::ptr::eq(w.as_ptr(), Arc::as_ptr(member));
            if watch.closed || watch.blocked.iter().any(waits) {
                return;
            }
            watch.blocked.push(Arc::downgrade(member));
        }
        self.arm();
    }

    /// There may be room: resumes the blocked queue pairs in order of arrival.
    fn resume_blocked(&self, out: &mut Outbox) {
        let blocked = {
            let mut watch = self.state.lock();
            watch.paused = false;
            core::mem::take(&mut watch.blocked)
        };
        let mut moved = blocked.is_empty();
        for member in blocked.iter().filter_map(Weak::upgrade) {
            // One that is still blocked is in the list again.
            moved |= member.send(out);
        }
        if !moved {
            self.state.lock().paused = true;
            self.shard.set_timer(sys::now() + PAUSE, self.token);
        }
    }
}

impl ShardTask for UdpPort {
    fn ready(self: Arc<Self>, ready: Ready) {
        let mut out = Outbox::new();
        if ready.writable {
            self.resume_blocked(&mut out);
        }
        // A polling thread reads it if it is lent; the group takes it back when that thread stops polling.
        if !self.is_lent() {
            self.read(MAX_PER_TURN, &mut out);
        }
        self.core.deliver(&mut out);
        self.arm();
    }

    fn expire(self: Arc<Self>, _: Time) {
        let mut out = Outbox::new();
        self.resume_blocked(&mut out);
        self.core.deliver(&mut out);
        self.arm();
    }

    fn stop(self: Arc<Self>) {}
}

impl core::fmt::Debug for UdpPort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("UdpPort")
            .field("at", &self.addr)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
