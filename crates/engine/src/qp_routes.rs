//! From the number of a queue pair to what serves it: its connection, its UDP sockets, its stream of an upper-layer protocol, or the driver of
//! its shared send queue. A number is in one of these tables at most; entries do not keep a connection alive.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use verbena_nic::Outbox;
use verbena_sync::locks::{Mutex, RwLock};

use crate::connection::Connection;
use crate::datagram::roce_demux::RoceDemux;
use crate::datagram::ud_demux::UdDemux;
use crate::roce::connection::RoceConnection;
use crate::ulp::stream::UlpStreams;
use crate::verbs::queue_pair::QpAttr;
use crate::verbs::ssq_driver::SsqDrivers;
use crate::verbs::xrc::XrcWaiters;

/// The tables of an engine.
#[derive(Default)]
pub(crate) struct QpRoutes {
    /// Connections by the queue pair that they serve.
    connections: RwLock<HashMap<u32, Weak<Connection>>>,
    /// Those over RoCEv2.
    roce: RwLock<HashMap<u32, Weak<RoceConnection>>>,
    /// Attributes of the queue pairs of connections, for queries by number.
    attrs: RwLock<HashMap<u32, Weak<Mutex<QpAttr>>>>,
    /// Queue pairs that receive datagrams.
    pub(crate) ud_demux: UdDemux,
    /// Queue pairs connected over RoCEv2, and queue pair 1.
    pub(crate) roce_demux: RoceDemux,
    /// Connections of upper-layer protocols (M12).
    pub(crate) ulps: UlpStreams,
    /// Shared send queues, by number (V6).
    pub(crate) ssq_drivers: SsqDrivers,
    /// What waits for receives on behalf of XRC targets of other processes.
    pub(crate) xrc_waiters: XrcWaiters,
}

impl QpRoutes {
    /// Records the attributes of a queue pair.
    pub(crate) fn add_attr(&self, qp: u32, attr: &Arc<Mutex<QpAttr>>) {
        self.attrs.write().insert(qp, Arc::downgrade(attr));
    }

    /// Before the number of the queue pair is free.
    pub(crate) fn remove_attr(&self, qp: u32) {
        self.attrs.write().remove(&qp);
    }

    /// The attributes of a queue pair that exists.
    pub(crate) fn attr_of(&self, qp: u32) -> Option<QpAttr> {
        let attr = self.attrs.read().get(&qp)?.upgrade()?;
        let attr = *attr.lock();
        Some(attr)
    }

    /// Records the connection of a queue pair.
    pub(crate) fn add_connection(&self, qp: u32, connection: &Arc<Connection>) {
        let connection = Arc::downgrade(connection);
        self.connections.write().insert(qp, connection);
    }

    pub(crate) fn remove_connection(&self, qp: u32, connection: &Connection) {
        let mut connections = self.connections.write();
        let ours = connections
            .get(&qp)
            .is_some_and(|c| core::ptr::eq(c.as_ptr(), connection));
        if ours {
            connections.remove(&qp);
        }
    }

    /// Records the connection of a queue pair over RoCEv2.
    pub(crate) fn add_roce(&self, qp: u32, connection: &Arc<RoceConnection>) {
        let connection = Arc::downgrade(connection);
        self.roce.write().insert(qp, connection);
    }

    pub(crate) fn remove_roce(&self, qp: u32, connection: &RoceConnection) {
        let mut connections = self.roce.write();
        let ours = connections
            .get(&qp)
            .is_some_and(|c| core::ptr::eq(c.as_ptr(), connection));
        if ours {
            connections.remove(&qp);
        }
    }

    /// No queue pair has a connection.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.read().is_empty() && self.roce.read().is_empty()
    }

    pub(crate) fn roce_of(&self, qp: u32) -> Option<Arc<RoceConnection>> {
        self.roce.read().get(&qp)?.upgrade()
    }

    /// Sends on the connection of a queue pair, and continues to read it.
    pub(crate) fn resume_qp(&self, qp: u32, out: &mut Outbox) {
        if let Some(connection) = self.connection_of(qp) {
            connection.send(out);
            connection.resume(out);
        } else if let Some(connection) = self.roce_of(qp) {
            connection.send(out);
        }
    }

    /// Sends on the connection of a queue pair.
    pub(crate) fn send_on_qp(&self, qp: u32, out: &mut Outbox) {
        if let Some(connection) = self.connection_of(qp) {
            connection.send(out);
        } else if let Some(connection) = self.roce_of(qp) {
            connection.send(out);
        }
    }

    /// All connections of byte streams.
    pub(crate) fn roce_connections(&self) -> Vec<Arc<RoceConnection>> {
        let connections = self.roce.read();
        connections.values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        let connections = self.connections.read();
        connections.values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn connection_of(&self, qp: u32) -> Option<Arc<Connection>> {
        self.connections.read().get(&qp)?.upgrade()
    }
}
