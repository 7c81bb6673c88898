//! A queue pair's connection over RoCEv2: the UDP port its packets leave by and arrive at, its peer, and its timer.
//! Packets are handled by the thread that reads the port, a polling thread or a shard, and answered when all that arrived together have been
//! handled. Packets of other addresses than the peer's are counted and have no effect.
//!
//! When the queue pair is destroyed, an [`EndedConnection`] takes the place of its connection for a while.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::{Arc, Weak};

use verbena_nic::ud::SendOutcome;
use verbena_nic::{Acks, Outbox, PacketSender, Qp, Sending};
use verbena_roce::{Responder, Settings};
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_sync::locks::Mutex;
use verbena_wire::number::Qpn;
use verbena_wire::roce::{PORT, Packet};

use crate::capture;
use crate::connection::Options;
use crate::core::Core;
use crate::datagram::burst::Burst;
use crate::datagram::roce_demux::PacketHandler;
use crate::datagram::udp_port::UdpPort;
use crate::error::Error;
use crate::notify::failure_log;
use crate::poll::group::Group;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::roce::keep_alive::{KeepAlive, Verdict};
use crate::roce::loss::LossInjector;
use crate::sys::{self, Ready};

/// How long a connection that has ended answers: several repetitions of a peer with usual timeouts.
const LIFETIME: Duration = Duration::from_secs(4);
/// Ended connections of an engine that answer; those beyond are silent at once.
const MAX_ENDED: usize = 1024;

/// A connection over RoCEv2.
pub(crate) struct RoceConnection {
    core: Arc<Core>,
    qp: Arc<Qp>,
    /// The number that the peer's packets are for.
    qpn: Qpn,
    port: Arc<UdpPort>,
    peer: SocketAddr,
    /// What its requester and responder began with; none before.
    settings: Mutex<Option<Settings>>,
    group: Arc<Group>,
    shard: Arc<Shard>,
    token: u64,
    /// When the timer expires that was set last.
    timer: Mutex<Option<Time>>,
    closed: AtomicBool,
    keep_alive: Option<KeepAlive>,
    loss: LossInjector,
    /// For the port, which holds no connection alive.
    this: Weak<RoceConnection>,
}

/// The packets of one turn.
struct Sender<'a> {
    burst: Burst<'a>,
    is_full: bool,
}

impl PacketSender for Sender<'_> {
    fn put<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let taken = self.burst.put(len, write);
        self.is_full |= taken.is_none();
        taken
    }

    fn flush(&mut self) {
        self.is_full |= self.burst.flush() == SendOutcome::Full;
    }
}

impl RoceConnection {
    /// A connection that receives nothing yet.
    pub(crate) fn new(
        core: &Arc<Core>,
        options: &Options,
        (qpn, local): (Qpn, IpAddr),
        peer: IpAddr,
    ) -> Result<Arc<RoceConnection>, Error> {
        let port = core.roce_ports.at(core, local)?;
        let shard = core.shards.pick()?;
        let (interval, limit) = (core.config.keep_alive, core.config.dead_after);
        Ok(Arc::new_cyclic(|this| RoceConnection {
            core: core.clone(),
            qp: options.qp.clone(),
            qpn,
            port,
            peer: SocketAddr::new(peer.to_canonical(), PORT),
            settings: Mutex::default(),
            group: options.group.clone(),
            shard,
            token: next_token(),
            timer: Mutex::default(),
            closed: AtomicBool::new(false),
            keep_alive: KeepAlive::new(interval, limit),
            loss: LossInjector::new(u64::from(qpn.get())),
            this: this.clone(),
        }))
    }

    /// Connects a queue pair with this number and local address to the peer's: it sends and receives from now on.
    pub(crate) fn attach(
        core: &Arc<Core>,
        options: &Options,
        own: (Qpn, IpAddr),
        peer: IpAddr,
        settings: &Settings,
    ) -> Result<Arc<RoceConnection>, Error> {
        let connection = RoceConnection::new(core, options, own, peer)?;
        let mut out = Outbox::new();
        connection.begin(options, settings, &mut out)?;
        connection.send(&mut out);
        core.deliver(&mut out);
        Ok(connection)
    }

    /// Gives the queue pair its machines; packets are handled from now on, and sent by the next call.
    pub(crate) fn begin(
        self: &Arc<Self>,
        options: &Options,
        settings: &Settings,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        let qp = &options.qp;
        *self.settings.lock() = Some(*settings);
        if !qp.attach_roce(settings, out) {
            let (qp, state) = (qp.number(), qp.state());
            return Err(Error::NotConnectable { qp, state });
        }
        options.slot.set_roce(self);
        self.open()
    }

    /// Packets for its number are handled from now on.
    pub(crate) fn open(self: &Arc<Self>) -> Result<(), Error> {
        self.shard.serve(self.token, self.clone())?;
        let handler: Weak<dyn PacketHandler> = self.this.clone();
        self.core.routes.roce_demux.add(self.qpn, handler);
        self.core.routes.add_roce(self.qp.number(), self);
        let numbers = (self.qp.number(), self.qp.init().wc_qpn);
        failure_log::connected(&self.core, numbers, self.peer, "roce");
        if capture::is_attached() {
            self.join_trace();
        }
        self.group.add_udp_port(&self.port);
        let keep_alive = self.keep_alive.as_ref();
        self.set_timer(keep_alive.map(|keep_alive| keep_alive.first_check(sys::now())));
        Ok(())
    }

    /// Tells a trace that has begun which packets are for the queue pair.
    pub(crate) fn join_trace(&self) {
        let numbers = (self.qp.number(), self.qpn.get());
        let ends = (self.local_addr(), self.peer);
        self.core.tap.tracer().put_connection(0, numbers, ends);
    }

    /// The peer is there, as its connection manager has told: from now on it must not be silent for too long.
    pub(crate) fn expect_signs_of_life(&self) {
        if let Some(keep_alive) = &self.keep_alive {
            keep_alive.handle_arrival(sys::now());
        }
    }

    /// Nothing is executed or sent any more. If the connection works, its peer's repetitions are answered for a while.
    pub(crate) fn close(&self) {
        self.close_with(self.qp.closed_responder());
    }

    fn close_with(&self, late: Option<Responder>) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let own = (self.qpn, &self.port);
        let answers = late.is_some_and(|responder| {
            EndedConnection::begin(&self.core, &self.shard, own, self.peer, responder)
        });
        if !answers {
            self.core.routes.roce_demux.remove(self.qpn);
        }
        self.core.routes.remove_roce(self.qp.number(), self);
        failure_log::disconnected(&self.core, self.qp.number());
        self.group.udp_ports.leave(&self.port);
        self.shard.forget(self.token);
    }

    /// The peer's address.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address that its packets leave from and arrive at.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.port.ip(), PORT)
    }

    /// The number that the peer's packets are for.
    pub(crate) fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The peer's queue pair, path MTU, initial PSNs, timeout and repetitions; none before it has begun.
    pub(crate) fn settings(&self) -> Option<Settings> {
        *self.settings.lock()
    }

    /// The requester begins with these settings, if it has sent nothing yet; the responder keeps its own.
    pub(crate) fn restart_requester(&self, settings: &Settings) {
        if self.qp.restart_requester(settings, &mut Outbox::new()) {
            let mut current = self.settings.lock();
            *current = current.map(|current| Settings {
                receive_psn: current.receive_psn,
                responder_resources: current.responder_resources,
                ..*settings
            });
        }
    }

    /// Sends what may be sent, unless another thread is doing that.
    pub(crate) fn send(&self, out: &mut Outbox) {
        self.send_at(sys::now(), out);
    }

    fn send_at(&self, now: Time, out: &mut Outbox) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        let mut sender = Sender {
            burst: self.port.burst(self.peer),
            is_full: false,
        };
        let sent = self
            .qp
            .try_transmit_packets(&mut sender, (now, Acks::Now), out);
        if (sender.is_full || sent.is_some_and(|turn| turn.sending == Sending::Blocked))
            && let Some(this) = self.this.upgrade()
        {
            let handler: Arc<dyn PacketHandler> = this;
            self.port.resume_packets_when_writable(&handler);
        }
        if let Some(turn) = sent {
            self.set_timer(turn.deadline);
        }
    }

    /// Sends a packet that draws an answer if the peer of an idle connection has been silent for too long, and tells the program if none came.
    fn check_silence(&self, now: Time, out: &mut Outbox) {
        let unlimited = self.settings().is_none_or(|s| s.timeout.is_none());
        let Some(keep_alive) = self.keep_alive.as_ref().filter(|_| !unlimited) else {
            return;
        };
        let packet = self.qp.keep_alive_packet();
        match keep_alive.check(packet.is_some(), now) {
            Verdict::Wait(until) => self.set_timer(Some(until)),
            Verdict::Probe(until) => {
                let mut burst = self.port.burst(self.peer);
                if let Some(packet) = packet {
                    burst.put_packet(&packet);
                }
                burst.flush();
                self.set_timer(Some(until));
            }
            Verdict::Gone => self.qp.handle_eof(false, out),
        }
    }

    /// Sets the timer, unless one expires before. A timer that is too early only looks at the deadline again.
    fn set_timer(&self, deadline: Option<Time>) {
        let Some(deadline) = deadline else {
            return;
        };
        let mut timer = self.timer.lock();
        if timer.is_none_or(|set| deadline < set) {
            *timer = Some(deadline);
            self.shard.set_timer(deadline, self.token);
        }
    }
}

impl PacketHandler for RoceConnection {
    fn handle_packet(
        &self,
        from: SocketAddr,
        local: IpAddr,
        packet: &Packet<'_>,
        now: Time,
        out: &mut Outbox,
    ) {
        self.handle_packets(from, local, core::slice::from_ref(packet), now, out);
    }

    fn handle_packets(
        &self,
        from: SocketAddr,
        local: IpAddr,
        packets: &[Packet<'_>],
        now: Time,
        out: &mut Outbox,
    ) {
        if from.ip() != self.peer.ip() || local != self.port.ip() {
            let drops = &self.core.routes.ud_demux;
            return drops.count_wrong_source(packets.len());
        }
        if let Some(keep_alive) = &self.keep_alive {
            keep_alive.handle_arrival(now);
        }
        if self.core.config.roce_loss == 0 {
            return self.qp.handle_packets(packets, now, out);
        }
        for packet in packets {
            if !self.loss.drops_next(self.core.config.roce_loss) {
                self.qp.handle_packet(packet, now, out);
            }
        }
    }

    fn end_batch(&self, now: Time, out: &mut Outbox) {
        self.send_at(now, out);
    }

    fn resume(&self, out: &mut Outbox) {
        self.send(out);
    }
}

impl ShardTask for RoceConnection {
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, now: Time) {
        *self.timer.lock() = None;
        let mut out = Outbox::new();
        if self.qp.deadline().is_some_and(|deadline| deadline <= now) {
            self.qp.handle_timeout(now, &mut out);
        }
        self.send_at(now, &mut out);
        self.check_silence(now, &mut out);
        self.core.deliver(&mut out);
    }

    fn stop(self: Arc<Self>) {
        self.close_with(None);
    }
}

impl core::fmt::Debug for RoceConnection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RoceConnection")
            .field("qpn", &self.qpn)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// A connection whose queue pair was destroyed: what its peer repeats gets its acknowledgement again. Without it the loss of the last
/// acknowledgement would fail a request that has been executed. It executes nothing, and reads no memory of the program.
struct EndedConnection {
    core: Weak<Core>,
    qpn: Qpn,
    port: Arc<UdpPort>,
    peer: SocketAddr,
    responder: Mutex<Responder>,
    shard: Arc<Shard>,
    token: u64,
    loss: LossInjector,
    this: Weak<EndedConnection>,
}

impl EndedConnection {
    /// Packets for this number are answered by the responder from now on; false if there are too many already.
    fn begin(
        core: &Arc<Core>,
        shard: &Arc<Shard>,
        (qpn, port): (Qpn, &Arc<UdpPort>),
        peer: SocketAddr,
        responder: Responder,
    ) -> bool {
        let demux = &core.routes.roce_demux;
        if !demux.reserve_ended(MAX_ENDED) {
            return false;
        }
        let ended = Arc::new_cyclic(|this| EndedConnection {
            core: Arc::downgrade(core),
            qpn,
            port: port.clone(),
            peer,
            responder: Mutex::new(responder),
            shard: shard.clone(),
            token: next_token(),
            loss: LossInjector::new(u64::from(qpn.get())),
            this: this.clone(),
        });
        if shard.serve(ended.token, ended.clone()).is_err() {
            // The engine ends; dropping it returns its reservation.
            return false;
        }
        demux.add(qpn, ended.this.clone());
        shard.set_timer(sys::now() + LIFETIME, ended.token);
        ended.send();
        true
    }

    /// Sends the answers that are owed. Those that find no room are lost, as on the wire.
    fn send(&self) {
        let mut burst = self.port.burst(self.peer);
        let mut responder = self.responder.lock();
        while let Some(answer) = responder.poll() {
            burst.put_packet(&answer.packet);
        }
        burst.flush();
    }

    fn forget(&self) {
        if let Some(core) = self.core.upgrade() {
            let handler: Weak<dyn PacketHandler> = self.this.clone();
            core.routes.roce_demux.remove_handler(self.qpn, &handler);
        }
        self.shard.forget(self.token);
    }
}

impl Drop for EndedConnection {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.routes.roce_demux.release_ended();
        }
    }
}

impl PacketHandler for EndedConnection {
    fn handle_packet(
        &self,
        from: SocketAddr,
        local: IpAddr,
        packet: &Packet<'_>,
        _: Time,
        _: &mut Outbox,
    ) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        if from.ip() != self.peer.ip() || local != self.port.ip() {
            return core.routes.ud_demux.count_wrong_source(1);
        }
        if !self.loss.drops_next(core.config.roce_loss) {
            self.responder.lock().handle(packet);
        }
    }

    fn end_batch(&self, _: Time, _: &mut Outbox) {
        self.send();
    }

    fn resume(&self, _: &mut Outbox) {}
}

impl ShardTask for EndedConnection {
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, _: Time) {
        self.forget();
    }

    fn stop(self: Arc<Self>) {
        self.forget();
    }
}

impl core::fmt::Debug for EndedConnection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EndedConnection")
            .field("qpn", &self.qpn)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
