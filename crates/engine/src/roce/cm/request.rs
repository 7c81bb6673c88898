//! The passive side: a request of a peer, and the program's answer. The queue pair is attached before its REP leaves, so that the peer's
//! first packet finds it ready; that packet counts as the peer's RTU, which may be lost (IBTA volume 1, section 12.9). A request is answered
//! once; what comes later has no effect.

use core::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use verbena_nic::Outbox;
use verbena_roce::Settings;
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_wire::roce::cm::{Rej, RejReason, Rep};
use verbena_wire::roce::{Packet, Psn, Qpn};

use super::entry::{Ends, IncomingRequest};
use super::failures::gone;
use super::{RoceCm, terms};
use crate::connection::Done;
use crate::core::Core;
use crate::datagram::roce_demux::PacketHandler;
use crate::error::Error;
use crate::sys;
use crate::verbs::queue_pair::QueuePair;

/// A request that waits for the program's decision.
pub(crate) struct RoceRequest {
    cm: Arc<RoceCm>,
    local_id: u32,
    ends: Ends,
    private_data: Vec<u8>,
    depths: (u16, u16),
}

/// A reference to a request, which may have been answered.
#[derive(Clone)]
pub(crate) struct RoceRequestRef {
    cm: Arc<RoceCm>,
    local_id: u32,
}

impl RoceRequestRef {
    /// The request waits for the program's decision.
    pub(crate) fn awaits_decision(&self) -> bool {
        self.cm.table.lock().asked(self.local_id).is_some()
    }

    /// Identifies the request among those of this engine.
    pub(crate) fn is_same(&self, other: &RoceRequestRef) -> bool {
        self.local_id == other.local_id && Arc::ptr_eq(&self.cm, &other.cm)
    }
}

impl RoceRequest {
    pub(super) fn new(cm: &Arc<RoceCm>, local_id: u32) -> Option<RoceRequest> {
        let table = cm.table.lock();
        let (ends, asked) = table.asked(local_id)?;
        Some(RoceRequest {
            cm: cm.clone(),
            local_id,
            ends,
            private_data: asked.private_data.clone(),
            // What the peer wants outstanding is served here, and the reverse.
            depths: (
                asked.initiator_depth.into(),
                asked.responder_resources.into(),
            ),
        })
    }

    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.ends.peer
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.ends.local
    }

    pub(crate) fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    pub(crate) fn depths(&self) -> (u16, u16) {
        self.depths
    }

    pub(crate) fn downgrade(&self) -> RoceRequestRef {
        RoceRequestRef {
            cm: self.cm.clone(),
            local_id: self.local_id,
        }
    }

    /// Accepts with this queue pair; `done` is called when the peer has confirmed or left, unless this fails at once.
    pub(crate) fn accept(
        &self,
        qp: &QueuePair,
        private_data: &[u8],
        done: Done,
    ) -> Result<(), Error> {
        let peer = self.ends.peer;
        let core = self.cm.core.upgrade().ok_or(Error::Closed)?;
        core.check()?;
        qp.check_function(&core)?;
        let (got, limit) = (private_data.len(), Rep::PRIVATE_LEN);
        if got > limit {
            return Err(Error::PrivateData { got, limit });
        }
        let asked = self
            .cm
            .table
            .lock()
            .asked(self.local_id)
            .map(|(_, a)| a.clone());
        let asked = asked.ok_or_else(|| gone(peer))?;
        self.check_path(qp, &asked)?;
        let qpn = qp.roce_qpn()?;
        let options = qp.options(&[]);
        let (ird, ord) = options.depths(self.depths);
        let (rnr_retry, srq) = {
            let init = options.qp.init();
            (options.attr.lock().rnr_retry, init.srq.is_some())
        };
        let receive_psn = Psn::wrapping(sys::random_u64()? as u32);
        let settings = Settings {
            service: asked.service,
            mtu: asked.mtu,
            dest_qpn: asked.qpn,
            send_psn: asked.starting_psn,
            receive_psn,
            initiator_depth: terms::depth(ord).min(asked.responder_resources),
            responder_resources: terms::depth(ird).min(asked.initiator_depth),
            timeout: Settings::timeout_of(asked.ack_timeout),
            retry_count: asked.retry_count,
            is_lossy: !core.config.roce_lossless,
            rnr_retry: asked.rnr_retry_count,
        };
        super::attach_qp(&core, &options, qpn, self.ends, &settings)?;
        let first = FirstPacketGuard::new(&self.cm, &core, self.local_id, (qpn, peer.ip()));
        let rep = Rep {
            // Filled in with those of the request.
            local_id: 0,
            remote_id: 0,
            qkey: 0,
            qpn,
            starting_psn: receive_psn,
            responder_resources: settings.responder_resources,
            initiator_depth: settings.initiator_depth,
            target_ack_delay: 0,
            // Alternate paths are not supported.
            failover: 1,
            flow_control: false,
            rnr_retry_count: terms::rnr_code(rnr_retry),
            srq,
            ca_guid: self.cm.ca_guid,
            private: private_data,
        };
        let now = sys::now();
        let accepted = self.cm.with_table(&core, |table| {
            table.accept(self.local_id, &rep, (&options.qp, first), done, now)
        });
        if accepted.is_err() {
            // The peer has given up while the queue pair was attached.
            let _ = qp.disconnect();
            return Err(gone(peer));
        }
        Ok(())
    }

    /// An error, and a rejection with its reason, if the queue pair or the path does not suit the request.
    fn check_path(&self, qp: &QueuePair, asked: &IncomingRequest) -> Result<(), Error> {
        let Ends { local, peer } = self.ends;
        let refuse = |reason| {
            self.answer(reason, &[]);
            Err(Error::CmRefused { peer, reason })
        };
        if terms::service_of(qp.qp_type())? != asked.service {
            return refuse(RejReason::INVALID_TRANSPORT);
        }
        if terms::path_mtu(local.ip(), peer)? < asked.mtu {
            return refuse(RejReason::INVALID_MTU);
        }
        Ok(())
    }

    /// Rejects, with private data for the peer's program; what does not fit is left out. No effect if it was answered.
    pub(crate) fn reject(&self, private_data: &[u8]) {
        let fits = private_data.len() <= Rej::PRIVATE_LEN;
        self.answer(RejReason::CONSUMER, if fits { private_data } else { &[] });
    }

    fn answer(&self, reason: RejReason, private_data: &[u8]) {
        let Some(core) = self.cm.core.upgrade().filter(|core| core.is_alive()) else {
            return;
        };
        let now = sys::now();
        self.cm.with_table(&core, |table| {
            table.reject(self.local_id, reason, private_data, now);
        });
    }
}

/// Forwards packets to a connection whose RTU has not arrived, and reports the first one. Afterwards packets reach the connection directly.
struct FirstPacket {
    cm: Weak<RoceCm>,
    local_id: u32,
    peer: IpAddr,
    connection: Weak<dyn PacketHandler>,
    is_reported: AtomicBool,
}

/// The first packet is awaited while this exists.
pub(super) struct FirstPacketGuard {
    core: Weak<Core>,
    qpn: Qpn,
    handler: Arc<dyn PacketHandler>,
    connection: Weak<dyn PacketHandler>,
}

impl FirstPacketGuard {
    /// Awaits the first packet for this number, whose connection has been opened; `None` if it was closed meanwhile.
    pub(super) fn new(
        cm: &Arc<RoceCm>,
        core: &Arc<Core>,
        local_id: u32,
        (qpn, peer): (Qpn, IpAddr),
    ) -> Option<FirstPacketGuard> {
        let demux = &core.routes.roce_demux;
        let connection = Arc::downgrade(&demux.find(qpn)?);
        let handler: Arc<dyn PacketHandler> = Arc::new(FirstPacket {
            cm: Arc::downgrade(cm),
            local_id,
            peer,
            connection: connection.clone(),
            is_reported: AtomicBool::new(false),
        });
        demux.replace(qpn, &connection, Arc::downgrade(&handler));
        Some(FirstPacketGuard {
            core: Arc::downgrade(core),
            qpn,
            handler,
            connection,
        })
    }
}

impl Drop for FirstPacketGuard {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            let handler = Arc::downgrade(&self.handler);
            let connection = self.connection.clone();
            core.routes
                .roce_demux
                .replace(self.qpn, &handler, connection);
        }
    }
}

impl PacketHandler for FirstPacket {
    fn handle_packet(
        &self,
        from: SocketAddr,
        local: IpAddr,
        packet: &Packet<'_>,
        now: Time,
        out: &mut Outbox,
    ) {
        let Some(connection) = self.connection.upgrade() else {
            return;
        };
        connection.handle_packet(from, local, packet, now, out);
        if from.ip() == self.peer
            && !self.is_reported.swap(true, Ordering::AcqRel)
            && let Some(cm) = self.cm.upgrade()
        {
            cm.handle_first_packet(self.local_id, now);
        }
    }

    fn end_batch(&self, now: Time, out: &mut Outbox) {
        if let Some(connection) = self.connection.upgrade() {
            connection.end_batch(now, out);
        }
    }

    fn resume(&self, out: &mut Outbox) {
        if let Some(connection) = self.connection.upgrade() {
            connection.resume(out);
        }
    }
}
