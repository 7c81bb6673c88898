//! A UDP socket of the adapter, one for each port and address, or for a multicast group: a private port takes datagrams only, port 4791
//! all packets of RoCEv2. A shard reads it, or the threads that poll the completion queues it is lent to. Packets are not queued here: what
//! is not for a queue pair, or is malformed, is dropped, counted and never answered. A queue pair that found the send buffer full is
//! resumed when there is room.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use arrayvec::ArrayVec;
use verbena_events::toeplitz::Tuple;
use verbena_nic::Outbox;
use verbena_nic::ud::{DropReason, MAX_DATAGRAM, ReceivedDatagram, SendOutcome, largest_packet};
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicUsize, Ordering};
use verbena_sync::locks::Mutex;
use verbena_wire::roce::{
    Bth, DEFAULT_PKEY, ICRC_LEN, IcrcChecker, MadHeader, Packet, Path, Reth, icrc_over_socket,
};

use crate::capture;
use crate::core::Core;
use crate::datagram::burst::{Burst, BurstSender};
use crate::datagram::packet_handover::Claim;
use crate::datagram::roce_demux::{BatchHandlers, PacketHandler};
use crate::datagram::ud_demux::UdMember;
use crate::error::Error;
use crate::oob::qpn::{is_callable, port_and_index};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Arrival, DatagramSocket, Interest, Ready, ReceiveBatch};

/// Datagrams read per turn on a shard; a joined message may exceed it.
const MAX_PER_TURN: usize = 64;
/// Packets of one queue pair that are handled together: as many of the largest as a first-level cache holds.
const MAX_RUN: usize = 8;
/// Room for a message of joined packets.
const JOINED: usize = 65_535;
/// The longest packet of a connection: the largest MTU, a Write with immediate data.
const LARGEST_CONNECTED: usize = Bth::LEN + Reth::LEN + 4 + MAX_DATAGRAM + ICRC_LEN;
/// The opcodes of datagrams have these bits.
const UD: u8 = 0x60;
const SERVICE: u8 = 0xe0;
/// The bit of a P_Key that says full member; the others name the partition.
const FULL_MEMBER: u16 = 0x8000;
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
    kind: PortKind,
    /// The receive buffers; their lock admits one reader at a time.
    reader: Mutex<Reader>,
    /// Packets of connections to be sent.
    bursts: BurstSender,
    /// The number of completion queues whose pollers read it.
    borrowers: AtomicUsize,
    state: Mutex<PortState>,
}

/// What a port receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortKind {
    /// Datagrams for the queue pairs whose numbers contain the port.
    Private,
    /// Datagrams for a multicast group.
    Group(IpAddr),
    /// Packets of RoCEv2 for all queue pairs.
    Roce,
}

/// The reading side of a port.
#[derive(Default)]
struct Reader {
    batch: ReceiveBatch,
    handlers: BatchHandlers,
    /// The source that the access lists admitted last.
    admitted: Option<IpAddr>,
    icrcs: IcrcChecker,
}

/// Packets behind each other from one host for one queue pair, checked and not yet handled.
#[derive(Default)]
struct Run<'a> {
    packets: ArrayVec<Packet<'a>, MAX_RUN>,
    /// Their source, and the place of their handler.
    of: Option<(SocketAddr, usize)>,
}

/// A queue pair that found no room.
enum Blocked {
    Datagrams(Weak<UdMember>),
    Packets(Weak<dyn PacketHandler>),
}

/// The readiness that the shard waits for.
#[derive(Default)]
struct PortState {
    /// The shard serves the socket.
    served: bool,
    closed: bool,
    /// Queue pairs that found no room, in order of arrival.
    blocked: Vec<Blocked>,
    /// The socket polls writable but sends find no room: a timer runs.
    paused: bool,
}

impl UdpPort {
    /// A socket that no shard serves yet.
    pub(crate) fn new(
        core: &Arc<Core>,
        socket: DatagramSocket,
        kind: PortKind,
    ) -> Result<Arc<UdpPort>, Error> {
        let at = socket.local_addr()?;
        Ok(Arc::new(UdpPort {
            core: core.clone(),
            shard: core.shards.pick()?,
            token: next_token(),
            socket,
            addr: at,
            kind,
            reader: Mutex::default(),
            bursts: BurstSender::with_tap(&core.tap),
            borrowers: AtomicUsize::new(0),
            state: Mutex::default(),
        }))
    }

    /// Its address.
    pub(crate) fn ip(&self) -> IpAddr {
        self.addr.ip()
    }

    /// Its address and port.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Has a shard serve it, if none does.
    pub(crate) fn serve(self: &Arc<Self>) -> Result<(), Error> {
        if self.state.lock().served {
            return Ok(());
        }
        // Without the lock, since listing interfaces takes time; doing it twice does no harm.
        self.socket.set_recv_buffer(RECV_BUFFER);
        if !matches!(self.kind, PortKind::Group(_)) {
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
        self.bursts.clear();
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
            write: (!watch.blocked.is_empty() || self.bursts.is_full()) && !watch.paused,
            oneshot: true,
        };
        if watch.served && (interest.read || interest.write) {
            let _ = self.shard.arm(&self.socket, self.token, interest);
        }
    }

    /// Takes datagrams in batches until `times` have come, or there are none, and processes them; true if one came. False, too, if another
    /// thread is reading.
    pub(crate) fn read(&self, times: usize, out: &mut Outbox) -> bool {
        let Some(mut reader) = self.reader.try_lock() else {
            return false;
        };
        if reader.batch.is_unallocated() {
            reader.batch = ReceiveBatch::new(match self.kind {
                PortKind::Roce => JOINED,
                PortKind::Private | PortKind::Group(_) => largest_packet(),
            });
        }
        let (mut any, mut left) = (false, times);
        // A socket error belongs to an earlier datagram; there is nothing to do about it here.
        while left > 0 && matches!(self.socket.receive_batch(&mut reader.batch), Ok(true)) {
            any = true;
            let arrived = self.process_batch(&mut reader, out);
            left = left.saturating_sub(arrived);
            if !reader.batch.is_full() {
                break;
            }
        }
        any
    }

    /// Processes the datagrams of a batch; returns their number.
    fn process_batch(&self, reader: &mut Reader, out: &mut Outbox) -> usize {
        let Reader {
            batch,
            handlers,
            admitted,
            icrcs,
        } = reader;
        let now = sys::now();
        let (mut count, mut run) = (0, Run::default());
        for arrival in batch.arrivals() {
            count += 1;
            let reader = (&mut *handlers, &mut *admitted, &mut *icrcs);
            let handled = self.process(&arrival, reader, &mut run, now, out);
            if let Err(dropped) = handled
                && !(dropped.is_none() && self.hand_over(&arrival))
            {
                self.core.routes.ud_demux.count(dropped);
            }
        }
        self.handle_run(&mut run, handlers, now, out);
        handlers.end(now, out);
        // The lists may change before the next batch.
        *admitted = None;
        count
    }

    /// Delivers a packet of a source that the access lists admit, or adds it to the run. The error says why it was dropped; `None`: it is for
    /// no queue pair here.
    fn process<'a>(
        &self,
        arrival: &Arrival<'a>,
        (handlers, admitted, icrcs): (&mut BatchHandlers, &mut Option<IpAddr>, &mut IcrcChecker),
        run: &mut Run<'a>,
        now: Time,
        out: &mut Outbox,
    ) -> Result<(), Option<DropReason>> {
        let source = arrival.from.ip();
        if *admitted != Some(source) {
            match self.core.security.access.refused_by(source) {
                None => *admitted = Some(source),
                // Messages of the connection manager may be for another process, too, which is found below.
                Some(_) if self.is_for_manager(arrival) => {}
                Some(by) => {
                    // Another process of this user may admit it.
                    if !self.hand_over(arrival) {
                        self.core.security.access.refuse(source, by);
                    }
                    return Ok(());
                }
            }
        }
        if arrival.truncated {
            return Err(Some(DropReason::Oversized));
        }
        if self.kind == PortKind::Roce {
            return self.dispatch_roce(arrival, (handlers, icrcs), run, now, out);
        }
        self.begin_packet(source, out);
        let handled = self.dispatch_datagram(arrival, out);
        out.end_packet();
        handled
    }

    /// What follows is for a packet of this source, until the caller calls [`end_packet`](Outbox::end_packet).
    fn begin_packet(&self, source: IpAddr, out: &mut Outbox) {
        if self.core.notification.steers_packets() {
            out.set_packet(Tuple::ip(source, self.addr.ip()));
        }
    }

    /// Handles the packets of a run.
    fn handle_run(&self, run: &mut Run<'_>, handlers: &BatchHandlers, now: Time, out: &mut Outbox) {
        if let Some((from, at)) = run.of.take()
            && let Some(handler) = handlers.get(at)
        {
            self.begin_packet(from.ip(), out);
            handler.handle_packets(from, self.addr.ip(), &run.packets, now, out);
            out.end_packet();
        }
        run.packets.clear();
    }

    /// A packet for queue pair 1, whose handler knows the process that it is for.
    fn is_for_manager(&self, arrival: &Arrival<'_>) -> bool {
        let is_qp1 = |bth: Bth| bth.dest_qpn.get() == MadHeader::QPN;
        self.kind == PortKind::Roce && Bth::parse(arrival.bytes).is_ok_and(is_qp1)
    }

    /// Hands a packet that is for no queue pair of this engine to the process that has its number; false if there is none.
    fn hand_over(&self, arrival: &Arrival<'_>) -> bool {
        let Ok(Bth { dest_qpn, .. }) = Bth::parse(arrival.bytes) else {
            return false;
        };
        if self.kind != PortKind::Roce
            || !is_callable(dest_qpn)
            || arrival.bytes.len() > LARGEST_CONNECTED
        {
            return false;
        }
        let claim = Claim::Port(port_and_index(dest_qpn).0);
        let handover = &self.core.roce_ports.handover;
        handover.hand_over(self.addr.ip(), claim, arrival.from, arrival.bytes)
    }

    /// Begins a batch of packets that other processes handed over.
    pub(crate) fn handed_over(&self) -> HandedOver<'_> {
        HandedOver {
            port: self,
            handlers: BatchHandlers::default(),
            icrcs: IcrcChecker::default(),
            now: sys::now(),
        }
    }

    #[cold]
    fn capture_arrival(&self, arrival: &Arrival<'_>) {
        let ends = (self.addr, arrival.from);
        let (number, bytes) = (arrival.number, arrival.bytes);
        self.core.tap.put_packet(false, ends, number, bytes);
    }

    /// Delivers a datagram to the queue pairs it is for.
    fn dispatch_datagram(
        &self,
        arrival: &Arrival<'_>,
        out: &mut Outbox,
    ) -> Result<(), Option<DropReason>> {
        let found = match self.kind {
            PortKind::Private => {
                let datagram = self.parse_datagram(arrival)?;
                let ours = port_and_index(datagram.dest_qpn()).0 == self.addr.port();
                ours && self.core.routes.ud_demux.deliver(&datagram, out)
            }
            PortKind::Group(group) => {
                let datagram = self.parse_datagram(arrival)?;
                let own = self.core.local_addresses.all().unwrap_or_default();
                let members = &self.core.routes.ud_demux;
                members.deliver_all(group, own, &datagram, out)
            }
            PortKind::Roce => {
                let datagram = self.parse_datagram(arrival)?;
                self.core.routes.ud_demux.deliver(&datagram, out)
            }
        };
        if found && capture::is_attached() {
            self.capture_arrival(arrival);
        }
        // A queue pair counts its own drops.
        if found { Ok(()) } else { Err(None) }
    }

    /// Delivers a packet that arrived at port 4791, or adds it to the run if it is for a connection.
    fn dispatch_roce<'a>(
        &self,
        arrival: &Arrival<'a>,
        (handlers, icrcs): (&mut BatchHandlers, &mut IcrcChecker),
        run: &mut Run<'a>,
        now: Time,
        out: &mut Outbox,
    ) -> Result<(), Option<DropReason>> {
        let bth = Bth::parse(arrival.bytes).map_err(|_| Some(DropReason::Malformed))?;
        let is_datagram = bth.opcode & SERVICE == UD && bth.dest_qpn.get() != MadHeader::QPN;
        if is_datagram {
            self.begin_packet(arrival.from.ip(), out);
            let handled = self.dispatch_datagram(arrival, out);
            out.end_packet();
            return handled;
        }
        let found = handlers.find(&self.core.routes.roce_demux, bth.dest_qpn);
        let at = found.ok_or(None)?;
        if capture::is_attached() {
            self.capture_arrival(arrival);
        }
        let packet = self.parse_packet(arrival, icrcs)?;
        let of = Some((arrival.from, at));
        if run.of != of || run.packets.is_full() {
            self.handle_run(run, handlers, now, out);
            run.of = of;
        }
        run.packets.push(packet);
        Ok(())
    }

    /// A datagram that arrived here, checked.
    fn parse_datagram<'a>(
        &self,
        arrival: &Arrival<'a>,
    ) -> Result<ReceivedDatagram<'a>, Option<DropReason>> {
        ReceivedDatagram::parse(arrival.bytes, self.path_from(arrival.from)).map_err(Some)
    }

    /// A packet of a connection or for queue pair 1 that arrived here, checked.
    fn parse_packet<'a>(
        &self,
        arrival: &Arrival<'a>,
        icrcs: &mut IcrcChecker,
    ) -> Result<Packet<'a>, Option<DropReason>> {
        let bytes = arrival.bytes;
        if bytes.len() > LARGEST_CONNECTED {
            return Err(Some(DropReason::Oversized));
        }
        let (packet, icrc) = Packet::parse(bytes).map_err(|_| Some(DropReason::Malformed))?;
        let summed = &bytes[..bytes.len().saturating_sub(ICRC_LEN)];
        if !icrcs.check(self.path_from(arrival.from), arrival.number, summed, icrc) {
            return Err(Some(DropReason::Checksum));
        }
        // A full member of the default partition accepts full and limited members.
        if packet.pkey | FULL_MEMBER != DEFAULT_PKEY {
            return Err(Some(DropReason::Partition));
        }
        Ok(packet)
    }

    /// The path of a packet that arrived here.
    fn path_from(&self, from: SocketAddr) -> Path {
        Path {
            src: from.ip(),
            dst: self.addr.ip(),
            src_port: from.port(),
            dst_port: self.addr.port(),
        }
    }

    /// Packets to one destination that leave together.
    pub(crate) fn burst(&self, to: SocketAddr) -> Burst<'_> {
        Burst::new(&self.bursts, &self.socket, self.addr, to)
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
            Ok(true) => {
                if capture::is_attached() {
                    self.core.tap.put_packet(true, (self.addr, to), 0, packet);
                }
                SendOutcome::Sent
            }
            Ok(false) => SendOutcome::Full,
            // No route, no such host, a firewall: the loss of an unreliable datagram is no error.
            Err(_) => SendOutcome::Lost,
        }
    }

    /// Resumes the queue pair when there is room.
    pub(crate) fn resume_when_writable(&self, member: &Arc<UdMember>) {
        let waits = |blocked: &Blocked| matches!(blocked, Blocked::Datagrams(w) if core::ptr::eq(w.as_ptr(), Arc::as_ptr(member)));
        self.wait_for_room(waits, || Blocked::Datagrams(Arc::downgrade(member)));
    }

    /// Resumes the handler when there is room, after a burst that found none.
    pub(crate) fn resume_packets_when_writable(&self, handler: &Arc<dyn PacketHandler>) {
        let same =
            |w: &Weak<dyn PacketHandler>| core::ptr::addr_eq(Weak::as_ptr(w), Arc::as_ptr(handler));
        let waits = |blocked: &Blocked| matches!(blocked, Blocked::Packets(w) if same(w));
        self.wait_for_room(waits, || Blocked::Packets(Arc::downgrade(handler)));
    }

    fn wait_for_room(&self, waits: impl Fn(&Blocked) -> bool, blocked: impl FnOnce() -> Blocked) {
        {
            let mut watch = self.state.lock();
            if watch.closed || watch.blocked.iter().any(waits) {
                return;
            }
            watch.blocked.push(blocked());
        }
        self.arm();
    }

    /// There may be room: sends what waits for it, and resumes the blocked queue pairs in order of arrival.
    fn resume_blocked(&self, out: &mut Outbox) {
        let sent = self.bursts.send_pending(&self.socket);
        let blocked = {
            let mut watch = self.state.lock();
            watch.paused = false;
            if sent {
                core::mem::take(&mut watch.blocked)
            } else {
                Vec::new()
            }
        };
        let mut moved = sent && blocked.is_empty();
        for one in &blocked {
            match one {
                // One that is still blocked is in the list again.
                Blocked::Datagrams(member) => {
                    moved |= member.upgrade().is_some_and(|member| member.send(out));
                }
                Blocked::Packets(handler) => {
                    if let Some(handler) = handler.upgrade() {
                        handler.resume(out);
                        moved |= !self.bursts.is_full();
                    }
                }
            }
        }
        if !moved {
            self.state.lock().paused = true;
            self.shard.set_timer(sys::now() + PAUSE, self.token);
        }
    }
}

/// A batch of packets that other processes handed over: they are processed as if they had arrived at the port.
pub(crate) struct HandedOver<'a> {
    port: &'a UdpPort,
    handlers: BatchHandlers,
    icrcs: IcrcChecker,
    now: Time,
}

impl HandedOver<'_> {
    pub(crate) fn process(&mut self, arrival: &Arrival<'_>, out: &mut Outbox) {
        let (port, mut admitted, mut run) = (self.port, None, Run::default());
        let reader = (&mut self.handlers, &mut admitted, &mut self.icrcs);
        if let Err(dropped) = port.process(arrival, reader, &mut run, self.now, out) {
            port.core.routes.ud_demux.count(dropped);
        }
        port.handle_run(&mut run, &self.handlers, self.now, out);
    }

    pub(crate) fn end(mut self, out: &mut Outbox) {
        self.handlers.end(self.now, out);
    }
}

impl AsFd for UdpPort {
    /// Readable while datagrams wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
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
