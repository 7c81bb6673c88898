//! The connection manager of RoCEv2: QP 1 of the adapter's ports at UDP port 4791, which makes and ends connections by messages of 256 bytes
//! (IBTA volume 1, chapter 12). One for each engine, made when the first listener or connection needs it.
//!
//! A message counts only with the identifiers of its connection and from the peer's address; one that is repeated gets the same answer and
//! has no second effect. A request is answered by at most one message of its own length, so that nothing is amplified. Calls of the program
//! are made on one shard, without any lock.
//!
//! [`table`] holds the identifiers, each an [`entry`], [`connect`] is the active side, [`request`] the passive one, [`services`] finds
//! listeners, [`service_claims`] has their requests delivered to this process, [`terms`] has the numbers of REQ and REP, [`sidr`] resolves the
//! service of datagram queue pairs.

mod connect;
mod entry;
mod failures;
pub(crate) mod request;
mod service_claims;
mod services;
pub(crate) mod sidr;
mod table;
mod terms;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use verbena_nic::{Outbox, QpState};
use verbena_roce::cm::{CmTimers, CommunicationId, Mad};
use verbena_roce::{Mtu, Settings};
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicU32, Ordering};
use verbena_sync::locks::Mutex;
use verbena_wire::ext::DialReject;
use verbena_wire::roce::cm::{Apr, CmMessage, CmTransport, CmaHeader, Drep, Rej, RejReason, Req};
use verbena_wire::roce::{
    Deth, MadHeader, Operation, PORT, Packet, Path, Psn, Qpn, Service, icrc_over_socket,
};

use crate::accept::acceptor::Acceptor;
use crate::accept::request::Request;
use crate::config::Wire;
use crate::connection::Options;
use crate::core::Core;
use crate::datagram::packet_handover::Claim;
use crate::datagram::roce_demux::PacketHandler;
use crate::error::Error;
use crate::guard::catch_panic;
use crate::oob::qpn::port_and_index;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::roce::connection::RoceConnection;
use crate::roce::loss::LossInjector;
use crate::sys::{self, Ready};
use entry::{Ends, IncomingRequest};
use request::RoceRequest;
use service_claims::EndedService;
pub(crate) use service_claims::ServiceGuard;
use services::Services;
use sidr::{Queries, SidrService};
use table::{Action, Table};

const QP1: Qpn = Qpn::wrapping(MadHeader::QPN);
/// A REJ for a REQ.
const OF_REQ: u8 = 0;

/// The connection manager of an engine.
pub(crate) struct RoceCm {
    core: Weak<Core>,
    shard: Arc<Shard>,
    token: u64,
    /// Names this adapter; new in each process, so that peers do not take a connection for one of an earlier process.
    ca_guid: u64,
    /// A number of its own, so that there is a port for its identifiers: those with the port in their upper half belong to this process.
    qpn: Qpn,
    next_psn: AtomicU32,
    table: Mutex<Table>,
    listeners: Services<Weak<Acceptor>>,
    sidr_listeners: Services<Weak<dyn SidrService>>,
    /// Services whose listener was closed a moment ago, or is being opened, the oldest first.
    ended: Mutex<VecDeque<EndedService>>,
    queries: Queries,
    loss: LossInjector,
}

/// Connects a queue pair with what both sides have said: it sends and receives from then on.
fn attach_qp(
    core: &Arc<Core>,
    options: &Options,
    qpn: Qpn,
    ends: Ends,
    settings: &Settings,
) -> Result<(), Error> {
    let mut out = Outbox::new();
    if options.qp.state() == QpState::Reset {
        // Refused if its state has changed meanwhile: attaching decides.
        let _ = options.qp.modify(QpState::Init, &mut out);
    }
    // Under the lock, so that a later change by the program is not overwritten.
    let attr = options.attr.lock();
    attr.apply(&options.qp, &options.slot, &mut out);
    drop(attr);
    let (local, peer) = (ends.local.ip(), ends.peer.ip());
    let attached = RoceConnection::attach(core, options, (qpn, local), peer, settings);
    core.deliver(&mut out);
    attached?.expect_signs_of_life();
    Ok(())
}

impl RoceCm {
    /// The connection manager of this engine, made at the first call.
    pub(crate) fn of(core: &Arc<Core>) -> Result<Arc<RoceCm>, Error> {
        if let Some(cm) = core.roce_cm.get() {
            return Ok(cm.clone());
        }
        let random = sys::random_u64()?;
        let qpn = core.oob.qpn_allocator.allocate(core)?;
        let new = Arc::new(RoceCm {
            core: Arc::downgrade(core),
            shard: core.shards.pick()?,
            token: next_token(),
            // Not zero, which stands for an adapter without one.
            ca_guid: random | 1,
            qpn,
            next_psn: AtomicU32::new(0),
            table: Mutex::new(Table::new(core.config.half_open as usize)),
            listeners: Services::default(),
            sidr_listeners: Services::default(),
            ended: Mutex::default(),
            queries: Queries::default(),
            loss: LossInjector::new(random),
        });
        let cm = core.roce_cm.get_or_init(|| new.clone()).clone();
        if Arc::ptr_eq(&cm, &new) {
            cm.shard.serve(cm.token, cm.clone())?;
            let handler: Weak<RoceCm> = Arc::downgrade(&cm);
            core.routes.roce_demux.add(QP1, handler);
        } else {
            core.oob.qpn_allocator.release(qpn, Duration::ZERO);
        }
        Ok(cm)
    }

    /// Prepares that a listener receives requests over RoCEv2 as well, as the setting `wire` says. `None` if it does not: with `auto`, also
    /// if the port of RoCEv2 cannot be opened, which is reported. Requests that arrive before [`ServiceGuard::listen`] are repeated by their senders.
    pub(crate) fn prepare_listener(
        core: &Arc<Core>,
        at: SocketAddr,
    ) -> Result<Option<ServiceGuard>, Error> {
        let service = CmaHeader::service_id(CmaHeader::PS_TCP, at.port());
        RoceCm::open_service(core, at, service)
    }

    /// The connection of this queue pair, by its number in the function, has ended: the peer is told. With `forget`, nothing more is reported
    /// to the queue pair. False if there is none.
    pub(crate) fn disconnect(core: &Arc<Core>, qp: u32, forget: bool) -> bool {
        let Some(cm) = core.roce_cm.get() else {
            return false;
        };
        let now = sys::now();
        cm.with_table(core, |table| table.disconnect(qp, forget, now))
    }

    /// The queue pair with this number in the function has a connection of the connection manager, or is being connected by it.
    pub(crate) fn has_qp(core: &Core, qp: u32) -> bool {
        let cm = core.roce_cm.get();
        cm.is_some_and(|cm| cm.table.lock().has_qp(qp))
    }

    /// Waits until the peers have confirmed the end of all connections that were ended here; false if some have not within the limit.
    pub(crate) fn wait_disconnected(core: &Arc<Core>, limit: Duration) -> bool {
        let Some(cm) = core.roce_cm.get().filter(|_| core.is_alive()) else {
            return true;
        };
        let is_done = || !cm.table.lock().has_closing();
        sys::wait(sys::now() + limit, is_done);
        is_done()
    }

    /// The first packet of a connection has arrived.
    fn handle_first_packet(&self, local_id: u32, now: Time) {
        if let Some(core) = self.core.upgrade() {
            self.with_table(&core, |table| table.handle_first_packet(local_id, now));
        }
    }

    /// Tells all peers that their connections have ended.
    pub(crate) fn disconnect_all(core: &Arc<Core>) {
        if let Some(cm) = core.roce_cm.get() {
            cm.with_table(core, |table| table.disconnect_all(sys::now()));
        }
    }

    /// An identifier that is not in use, which peers cannot guess. Its upper half names a port of this process.
    fn new_id(&self, core: &Core, is_used: impl Fn(u32) -> bool) -> Result<u32, Error> {
        let ports = core.oob.qpn_allocator.ports();
        loop {
            let random = sys::random_u64()?;
            let port = ports.get((random >> 16) as usize % ports.len().max(1));
            let port = port.copied().unwrap_or(port_and_index(self.qpn).0);
            let id = u32::from(port) << 16 | (random & 0xffff) as u32;
            if !is_used(id) {
                return Ok(id);
            }
        }
    }

    /// Changes the table, then sends what is to be sent and sets the timer.
    fn with_table<R>(&self, core: &Arc<Core>, change: impl FnOnce(&mut Table) -> R) -> R {
        let mut table = self.table.lock();
        let result = change(&mut table);
        let (outgoing, wakeup) = (table.take_outgoing(), table.wakeup(sys::now()));
        drop(table);
        for one in outgoing {
            self.send(core, one.local, one.peer, &one.mad);
        }
        if let Some(when) = wakeup {
            self.shard.set_timer(when, self.token);
        }
        result
    }

    /// Sends a message. One that cannot be sent is lost, as on the wire, and is repeated.
    fn send(&self, core: &Arc<Core>, local: IpAddr, peer: IpAddr, mad: &Mad) {
        let Ok(port) = core.roce_ports.at(core, local) else {
            return;
        };
        let deth = Deth {
            qkey: MadHeader::QKEY,
            src_qpn: QP1,
        };
        let psn = Psn::wrapping(self.next_psn.fetch_add(1, Ordering::Relaxed));
        let packet = Packet {
            payload: mad,
            ..Packet::new(Operation::Datagram(deth, None), QP1, psn)
        };
        // At an own address the message would reach any of the processes that share the port, also this one, which may end before it hands
        // it over. Other messages must not overtake the packets before them.
        if core.roce_ports.has(peer)
            && let Ok((_, message @ CmMessage::Drep(_))) = CmMessage::parse(mad)
            && let Some(claim) = self.owner_elsewhere(core, peer, &message)
            && RoceCm::hand_over(core, (SocketAddr::new(local, PORT), peer), &packet, claim)
        {
            return;
        }
        let mut bytes = Vec::with_capacity(MadHeader::MAD_LEN + 32);
        packet.emit(&mut bytes);
        let mut burst = port.burst(SocketAddr::new(peer, PORT));
        if burst.put_bytes(&bytes) {
            burst.flush();
        }
    }

    /// Which process a message is for, if it is not this one: that of its listener, or that of the identifier it names.
    fn owner_elsewhere(
        &self,
        core: &Core,
        local: IpAddr,
        message: &CmMessage<'_>,
    ) -> Option<Claim> {
        let service = match message {
            CmMessage::Req(req) => req.service,
            CmMessage::SidrReq(req) => req.service,
            other => {
                let port = (named_id(other)? >> 16) as u16;
                let is_ours = core.oob.qpn_allocator.ports().contains(&port);
                return (!is_ours).then_some(Claim::Port(port));
            }
        };
        (!self.serves(local, service)).then_some(Claim::Service(service))
    }

    /// Hands a message to the process that owns it; false if there is none, or it can take no more.
    fn hand_over(
        core: &Core,
        (from, local): (SocketAddr, IpAddr),
        packet: &Packet<'_>,
        claim: Claim,
    ) -> bool {
        let path = Path {
            src: from.ip(),
            dst: local,
            src_port: from.port(),
            dst_port: PORT,
        };
        let mut bytes = Vec::with_capacity(MadHeader::MAD_LEN + 32);
        packet.emit(&mut bytes);
        let icrc = icrc_over_socket(path, &bytes);
        bytes.extend_from_slice(&icrc);
        let handover = &core.roce_ports.handover;
        handover.hand_over(local, claim, from, &bytes)
    }

    fn handle_message(
        &self,
        core: &Arc<Core>,
        (from, local): (IpAddr, IpAddr),
        transaction: u64,
        message: &CmMessage<'_>,
        now: Time,
    ) {
        match message {
            CmMessage::SidrReq(req) => {
                return self.handle_sidr_req(core, (from, local), transaction, req);
            }
            CmMessage::SidrRep(rep) => return self.handle_sidr_rep(core, from, transaction, rep),
            _ => {}
        }
        let is_known = self.with_table(core, |table| table.handle(from, transaction, message, now));
        if is_known {
            return;
        }
        let answer = match message {
            CmMessage::Req(req) => {
                match self.add_request(core, (from, local), transaction, req, now) {
                    Ok(()) => return,
                    Err((reason, private)) => CmMessage::Rej(Rej {
                        local_id: 0,
                        remote_id: req.local_id,
                        message: OF_REQ,
                        reason,
                        info: &[],
                        private: &private,
                    })
                    .emit(transaction),
                }
            }
            // Of a connection that was forgotten: the peer need not repeat it.
            CmMessage::Dreq(dreq) => CmMessage::Drep(Drep {
                local_id: dreq.remote_id,
                remote_id: dreq.local_id,
                private: &[],
            })
            .emit(transaction),
            CmMessage::Lap(lap) => CmMessage::Apr(Apr {
                local_id: lap.remote_id,
                remote_id: lap.local_id,
                status: Apr::UNSUPPORTED,
                private: &[],
            })
            .emit(transaction),
            _ => return,
        };
        self.send(core, local, from, &answer);
    }

    /// A request that has not come before: it waits for the program, or is dropped if too many wait. An error is the reason to reject it, and
    /// private data.
    fn add_request(
        &self,
        core: &Arc<Core>,
        (from, local): (IpAddr, IpAddr),
        transaction: u64,
        req: &Req<'_>,
        now: Time,
    ) -> Result<(), (RejReason, Vec<u8>)> {
        let no = |reason| (reason, Vec::new());
        let unknown = || no(RejReason::INVALID_SERVICE_ID);
        let port = CmaHeader::port_of(CmaHeader::PS_TCP, req.service).ok_or_else(unknown)?;
        if core.config.wire_to(from) == Wire::Tcp {
            return Err(unknown());
        }
        let Some(found) = self.listeners.find(local, port) else {
            return match self.has_just_ended(local, req.service) {
                // It is repeated, and finds the next listener if there is one then.
                true => Ok(()),
                false => Err(unknown()),
            };
        };
        let is_paused = found.upgrade().ok_or_else(unknown)?.is_paused();
        let header = CmaHeader::parse(req.private).map_err(|_| no(RejReason::UNSUPPORTED))?;
        let service = match req.transport {
            CmTransport::Rc => Service::Rc,
            CmTransport::Uc => Service::Uc,
            CmTransport::Rd | CmTransport::Extended => {
                return Err(no(RejReason::INVALID_TRANSPORT));
            }
        };
        let mtu = Mtu::from_code(req.mtu).ok_or_else(|| no(RejReason::INVALID_MTU))?;
        let ends = Ends {
            local: SocketAddr::new(local, port),
            peer: SocketAddr::new(from, header.port),
        };
        // V2: a listener on all addresses includes those that a rule gives to another device.
        if core.check_owner(ends.local, Some(ends.peer)).is_err() {
            return Err(unknown());
        }
        if !core.security.admits_roce(from) {
            return Err((RejReason::CONSUMER, DialReject::KeyMismatch.emit().to_vec()));
        }
        if core.is_closing() || is_paused {
            // It is repeated, as one that the system holds in its backlog is accepted later.
            return Ok(());
        }
        let asked = IncomingRequest {
            qpn: req.qpn,
            service,
            mtu,
            starting_psn: req.starting_psn,
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            ack_timeout: req.primary.ack_timeout,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            private_data: req
                .private
                .get(CmaHeader::LEN..)
                .unwrap_or_default()
                .to_vec(),
        };
        self.with_table(core, |table| {
            if table.find_request(from, req.local_id).is_some() {
                return;
            }
            // Without randomness the request is dropped, and repeated.
            let Ok(local_id) = self.new_id(core, |id| table.contains(id)) else {
                return;
            };
            let id = CommunicationId::listen(req, transaction, local_id, CmTimers::default());
            let until = now + core.config.startup_timeout;
            table.add_request(id, ends, transaction, asked, found, (now, until));
        });
        Ok(())
    }

    fn run(self: &Arc<Self>, core: &Arc<Core>, action: Action) {
        match action {
            Action::Present { local_id, acceptor } => {
                // It may have ended meanwhile.
                let Some(request) = RoceRequest::new(self, local_id) else {
                    return;
                };
                match acceptor.upgrade() {
                    Some(acceptor) => {
                        let peer = request.peer_addr().ip();
                        acceptor.add_complete(peer, Request::Roce(request));
                    }
                    None => request.reject(&[]),
                }
            }
            Action::Attach { local_id, rep } => self.attach(core, local_id, rep),
            Action::Report { done, result } => catch_panic(|| done(result)),
            Action::Run(run) => run(),
            Action::Call(call) => catch_panic(call),
            Action::Ended { qp, by_peer } => {
                let Some(qp) = qp.upgrade() else {
                    return;
                };
                let mut out = Outbox::new();
                if by_peer {
                    qp.handle_eof(false, &mut out);
                } else {
                    qp.handle_closed(&mut out);
                }
                core.deliver(&mut out);
            }
        }
    }
}

/// The identifier of the receiver that a message names; `None` if it names none.
fn named_id(message: &CmMessage<'_>) -> Option<u32> {
    let id = match message {
        CmMessage::SidrRep(rep) => rep.request_id,
        CmMessage::Lap(lap) => lap.remote_id,
        CmMessage::Apr(apr) => apr.remote_id,
        other => table::ids_of(other)?.1,
    };
    (id != 0).then_some(id)
}

impl PacketHandler for RoceCm {
    fn handle_packet(
        &self,
        from: SocketAddr,
        local: IpAddr,
        packet: &Packet<'_>,
        now: Time,
        _: &mut Outbox,
    ) {
        let Operation::Datagram(deth, _) = packet.operation else {
            return;
        };
        let Some(core) = self.core.upgrade().filter(|_| deth.qkey == MadHeader::QKEY) else {
            return;
        };
        if self.loss.drops_next(core.config.roce_loss) {
            return;
        }
        // Of other classes of management, or malformed.
        let Ok((transaction, message)) = CmMessage::parse(packet.payload) else {
            return;
        };
        if let Some(claim) = self.owner_elsewhere(&core, local, &message) {
            let is_taken = RoceCm::hand_over(&core, (from, local), packet, claim);
            // A service that no process has is refused here; an identifier of another process is not answered in its place.
            if is_taken || matches!(claim, Claim::Port(_)) {
                return;
            }
        }
        if !core.security.access.admits(from.ip()) {
            return;
        }
        self.handle_message(&core, (from.ip(), local), transaction, &message, now);
    }

    fn end_batch(&self, _: Time, _: &mut Outbox) {}

    fn resume(&self, _: &mut Outbox) {}
}

impl ShardTask for RoceCm {
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, now: Time) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        self.release_ended(&core, now);
        self.expire_queries(&core, now);
        self.with_table(&core, |table| table.expire(now));
        loop {
            let Some(action) = self.with_table(&core, Table::next_action) else {
                return;
            };
            self.run(&core, action);
        }
    }

    fn stop(self: Arc<Self>) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        let owed = self.with_table(&core, |table| table.stop(sys::now()));
        self.stop_queries(&core);
        for done in owed {
            catch_panic(|| done(Err(core.lifecycle.closed_error())));
        }
    }
}

impl core::fmt::Debug for RoceCm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RoceCm").finish_non_exhaustive()
    }
}
