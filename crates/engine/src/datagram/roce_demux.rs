//! Demultiplexes packets of RoCEv2 that are for connected queue pairs, or for queue pair 1, by the number they are for.
//! Entries do not keep a connection alive, and a number is looked up in constant time.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use verbena_nic::Outbox;
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicUsize, Ordering};
use verbena_sync::locks::RwLock;
use verbena_wire::number::Qpn;
use verbena_wire::roce::Packet;

/// A connected queue pair, or queue pair 1, that receives packets of a port. Several threads may call it at the same time; it may send through
/// the port.
pub(crate) trait PacketHandler: Send + Sync {
    /// A packet of `from` that arrived at `local`, with a valid ICRC; no datagram, except for queue pair 1. It may come from any host that
    /// the access lists admit, and for queue pair 1 from any host.
    fn handle_packet(
        &self,
        from: SocketAddr,
        local: IpAddr,
        packet: &Packet<'_>,
        now: Time,
        out: &mut Outbox,
    );

    /// The same for packets of one host that arrived behind each other.
    fn handle_packets(
        &self,
        from: SocketAddr,
        local: IpAddr,
        packets: &[Packet<'_>],
        now: Time,
        out: &mut Outbox,
    ) {
        for packet in packets {
            self.handle_packet(from, local, packet, now, out);
        }
    }

    /// All packets that were read together have been handled: answers can be sent now.
    fn end_batch(&self, now: Time, out: &mut Outbox);

    /// The socket has room again, after a burst that found none.
    fn resume(&self, out: &mut Outbox);
}

/// All receivers of packets of an engine.
#[derive(Default)]
pub(crate) struct RoceDemux {
    by_number: RwLock<HashMap<Qpn, Weak<dyn PacketHandler>>>,
    /// Handlers of connections that have ended.
    ended: AtomicUsize,
}

impl RoceDemux {
    /// Packets for this number go to the handler from now on.
    pub(crate) fn add(&self, qpn: Qpn, handler: Weak<dyn PacketHandler>) {
        self.by_number.write().insert(qpn, handler);
    }

    /// Packets for this number go to `to` from now on, if they went to `from`.
    pub(crate) fn replace(
        &self,
        qpn: Qpn,
        from: &Weak<dyn PacketHandler>,
        to: Weak<dyn PacketHandler>,
    ) {
        let mut by_number = self.by_number.write();
        if let Some(handler) = by_number.get_mut(&qpn)
            && Weak::ptr_eq(handler, from)
        {
            *handler = to;
        }
    }

    pub(crate) fn remove(&self, qpn: Qpn) {
        let gone = self.by_number.write().remove(&qpn);
        drop(gone);
    }

    /// Packets for this number have no handler any more, if they went to this one.
    pub(crate) fn remove_handler(&self, qpn: Qpn, handler: &Weak<dyn PacketHandler>) {
        let mut by_number = self.by_number.write();
        let is_same = |other: &Weak<dyn PacketHandler>| Weak::ptr_eq(other, handler);
        if by_number.get(&qpn).is_some_and(is_same) {
            by_number.remove(&qpn);
        }
    }

    /// Counts one more handler of a connection that has ended; false if there are as many as may be.
    pub(crate) fn reserve_ended(&self, limit: usize) -> bool {
        let one_more = |ended: usize| (ended < limit).then_some(ended + 1);
        let (relaxed, ended) = (Ordering::Relaxed, &self.ended);
        ended.fetch_update(relaxed, relaxed, one_more).is_ok()
    }

    /// There is one less.
    pub(crate) fn release_ended(&self) {
        self.ended.fetch_sub(1, Ordering::Relaxed);
    }

    /// The handler of this number.
    pub(crate) fn find(&self, qpn: Qpn) -> Option<Arc<dyn PacketHandler>> {
        self.by_number.read().get(&qpn)?.upgrade()
    }
}

/// The handlers that packets of one batch were for, in order of their first packet.
#[derive(Default)]
pub(crate) struct BatchHandlers(Vec<(Qpn, Arc<dyn PacketHandler>)>);

impl BatchHandlers {
    /// The place of the handler of this number: the one that had a packet in this batch, or that of the table.
    pub(crate) fn find(&mut self, demux: &RoceDemux, qpn: Qpn) -> Option<usize> {
        // Packets of one queue pair come behind each other, so the last entry is the likely one.
        let known = self.0.iter().rposition(|(number, _)| *number == qpn);
        if known.is_none() {
            self.0.push((qpn, demux.find(qpn)?));
        }
        known.or(self.0.len().checked_sub(1))
    }

    /// The handler at this place.
    pub(crate) fn get(&self, at: usize) -> Option<&dyn PacketHandler> {
        self.0.get(at).map(|(_, handler)| &**handler)
    }

    /// The batch ends.
    pub(crate) fn end(&mut self, now: Time, out: &mut Outbox) {
        for (_, handler) in self.0.drain(..) {
            handler.end_batch(now, out);
        }
    }
}
