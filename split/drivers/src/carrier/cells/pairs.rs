//! The pairs of a carrier of cells, and the [`Carrier`] implementation. Numbers of pairs are not reused soon, and no event or completion of
//! a destroyed pair is returned. The channel adapter checks requests.

use std::time::Instant;

use verbena::Device;
use verbena_cells::{
    AddressSegment, ChannelKind, ControlSegment, Descriptor, Operation, Peer, WqpInit,
};
use verbena_mem::{Buffer, Pd};
use verbena_nic::qp::Limits;
use verbena_nic::wr::{Data, Flags, ReceiveWr, RemoteAddr, Sge};
use verbena_nic::{Cq, Wc};
use verbena_split_wire::cell::{MAX_PRIVATE, PacketSeq, PortAddress};
use verbena_wire::number::Qpn;

use super::memory::{CellMemory, access};
use super::{ACKNOWLEDGED, CellCarrier, FIRST_PAIR, UNACKNOWLEDGED, memory_error, random};
use crate::carrier::{
    Carrier, CarrierError, CarrierEvent, CarrierFd, Memory, MemoryAccess, Pair, PairOptions,
    Result, Ticket,
};

/// A pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct PairEntry {
    options: PairOptions,
    /// The port that it accepted, while it is connected.
    peer_port: Option<PortAddress>,
}

/// Polls all completions.
pub(super) fn collect(cq: &Cq, scratch: &mut [Wc], done: &mut Vec<Wc>) {
    loop {
        let count = cq.poll(scratch);
        done.extend(scratch.iter().take(count));
        if count < scratch.len() {
            return;
        }
    }
}

impl CellCarrier {
    pub(super) fn collect(&mut self) {
        collect(&self.cq, &mut self.scratch, &mut self.done);
    }

    /// The number of the next pair: not in use, and not used recently.
    fn number(&mut self) -> Qpn {
        loop {
            self.next_pair = self.next_pair.wrapping_add(1);
            let number = Qpn::wrapping(self.next_pair);
            if number.get() >= FIRST_PAIR && !self.pairs.contains_key(&number.get()) {
                return number;
            }
        }
    }

    fn create(&mut self, options: PairOptions, connected: bool) -> Result<Pair> {
        self.resize_cq(Some(&options))?;
        let number = self.number();
        self.port.create(WqpInit {
            number,
            kind: ChannelKind {
                acknowledged: options.acknowledged,
                connected,
            },
            pd: self.domain,
            send_cq: self.cq.clone(),
            recv_cq: self.cq.clone(),
            tpt: self.tpt.clone(),
            limits: Limits {
                sends: options.sends,
                receives: options.receives,
                max_sge: 1,
                inline: 0,
            },
            first: PacketSeq::default(),
        })?;
        let entry = PairEntry {
            options,
            peer_port: None,
        };
        self.pairs.insert(number.get(), entry);
        Ok(Pair(number.get()))
    }

    /// Resizes the completion queue to hold all that the pairs, and one more with these options, can complete at once.
    fn resize_cq(&self, more: Option<&PairOptions>) -> Result<()> {
        // A packet that is being reassembled holds one more receive.
        let each = |options: &PairOptions| options.sends + options.receives + 1;
        let known = self.pairs.values().map(|known| &known.options);
        let entries: usize = known.chain(more).map(each).sum();
        let resized = self.cq.resize(entries.max(1));
        resized.map_err(|error| memory_error(entries, &error))
    }

    pub(super) fn remember_request(&mut self, ticket: Ticket, from: PortAddress, now: Instant) {
        let config = self.port.config();
        // As long as the adapter keeps the request.
        let span = config.connect_timeout * config.retries.saturating_add(2);
        self.socket.add_request(from, now + span);
        self.requests.insert(ticket, from);
        // The adapter has given up the oldest ones.
        while self.requests.len() > self.port.config().requests {
            self.requests.pop_first();
        }
    }

    /// Removes an answered request; returns its port.
    fn take_request(&mut self, ticket: Ticket) -> Option<PortAddress> {
        let port = self.requests.remove(&ticket)?;
        if !self.requests.values().any(|other| *other == port) {
            self.socket.remove_request(port);
        }
        Some(port)
    }

    /// Releases the address of a pair's peer.
    pub(super) fn release_peer(&mut self, number: u32) {
        let known = self.pairs.get_mut(&number);
        if let Some(port) = known.and_then(|known| known.peer_port.take()) {
            self.socket.remove_pair(port);
        }
    }

    /// Whether an event is to be reported: not one of a destroyed pair.
    pub(super) fn is_current(&self, news: &CarrierEvent) -> bool {
        event_pair(news).is_none_or(|pair| self.pairs.contains_key(&pair.0))
    }

    fn post(&mut self, pair: Pair, id: u64, operation: Operation, what: PostArgs) -> Result<()> {
        let destination = self.destinations.get(&pair.0).copied();
        let addressed = what.remote.is_some() || destination.is_some();
        let descriptor = Descriptor {
            control: ControlSegment {
                id,
                operation,
                immediate: what.immediate,
                flags: Flags::SIGNALED,
            },
            address: addressed.then_some(AddressSegment {
                remote: what.remote,
                destination,
            }),
            data: Data::Gather(core::slice::from_ref(&what.piece)),
        };
        let number = Qpn::wrapping(pair.0);
        let posted = self.port.post_send(number, &descriptor);
        let posted = posted.and_then(|()| self.port.ring_send(number, &mut self.outbox));
        self.posted(pair, posted)
    }

    fn posted(
        &mut self,
        pair: Pair,
        posted: core::result::Result<(), verbena_cells::Error>,
    ) -> Result<()> {
        self.busy = true;
        self.collect();
        posted.map_err(|error| CarrierError::Post {
            pair,
            why: error.to_string(),
        })
    }
}

/// What is posted.
#[derive(Clone, Copy)]
struct PostArgs {
    piece: Sge,
    remote: Option<RemoteAddr>,
    immediate: Option<u32>,
}

/// The pair of an event.
fn event_pair(news: &CarrierEvent) -> Option<Pair> {
    match news {
        CarrierEvent::Request { .. } | CarrierEvent::Rejected { .. } => None,
        CarrierEvent::Connected { pair, .. }
        | CarrierEvent::Refused { pair, .. }
        | CarrierEvent::Ended { pair, .. } => Some(*pair),
    }
}

impl Carrier for CellCarrier {
    fn local_addr(&self) -> String {
        self.socket.local_addr()
    }

    fn name(&self) -> &'static str {
        self.socket.name()
    }

    fn is_lossy(&self) -> bool {
        true
    }

    fn report_channels_to(&mut self, device: &Device) {
        self.event_device = Some(device.clone());
    }

    fn event_device(&self) -> Option<&Device> {
        self.event_device.as_ref()
    }

    fn new_protection_domain(&mut self) -> Result<()> {
        // Reused after 2^32 others.
        self.domain = Pd(self.domain.0.wrapping_add(1));
        Ok(())
    }

    fn register_memory(&mut self, len: usize, reach: MemoryAccess) -> Result<Box<dyn Memory>> {
        // How much of it is used depends on the peer, so pages are allocated on first use.
        let buffer = Buffer::sparse(&self.tpt, len, self.domain, access(reach));
        let buffer = buffer.map_err(|misuse| memory_error(len, &misuse))?;
        Ok(Box::new(CellMemory(buffer)))
    }

    fn create_pair(&mut self, options: PairOptions) -> Result<Pair> {
        self.create(options, true)
    }

    fn datagram_size(&self) -> Option<u32> {
        Some(u32::from(self.cell()))
    }

    fn create_datagram_pair(&mut self, options: PairOptions) -> Result<Pair> {
        let pair = self.create(options, false)?;
        // No cell comes from this port itself, so none is accepted before the pair is bound.
        let number = Qpn::wrapping(pair.0);
        let nowhere = Peer {
            port: self.port.address(),
            wqp: number,
        };
        self.port.set_source(number, nowhere)?;
        Ok(pair)
    }

    fn bind_datagrams(&mut self, pair: Pair, with: Pair, number: u32) -> Result<()> {
        let refused = |why: &str| CarrierError::Post {
            pair,
            why: why.to_owned(),
        };
        let wqp = Qpn::new(number).ok_or_else(|| refused("the peer's number is invalid"))?;
        let view = self.port.view(Qpn::wrapping(with.0));
        let peer = view.and_then(|view| view.peer);
        let peer = peer.ok_or_else(|| refused("the control channel is not connected"))?;
        let to = Peer {
            port: peer.port,
            wqp,
        };
        self.port.set_source(Qpn::wrapping(pair.0), to)?;
        self.destinations.insert(pair.0, to);
        Ok(())
    }

    fn connect(&mut self, pair: Pair, private: &[u8]) -> Result<()> {
        let number = Qpn::wrapping(pair.0);
        let unit = self.socket.unit().ok_or_else(|| CarrierError::Address {
            address: self.socket.local_addr(),
            why: "a listening carrier has no unit to connect to".to_owned(),
        })?;
        let known = self.pairs.get(&pair.0);
        let acknowledged = known.is_some_and(|known| known.options.acknowledged);
        let to = Peer {
            port: unit,
            wqp: if acknowledged {
                ACKNOWLEDGED
            } else {
                UNACKNOWLEDGED
            },
        };
        let first = PacketSeq::new(random()? as u32);
        self.busy = true;
        Ok(self.port.connect(number, to, first, private)?)
    }

    fn accept(&mut self, ticket: Ticket, pair: Pair, private: &[u8]) -> Result<()> {
        let number = Qpn::wrapping(pair.0);
        let first = PacketSeq::new(random()? as u32);
        let asked = verbena_cells::Ticket(ticket.0);
        self.port.accept(asked, number, first, private)?;
        if let Some(port) = self.take_request(ticket) {
            self.socket.add_pair(port);
            if let Some(known) = self.pairs.get_mut(&pair.0) {
                known.peer_port = Some(port);
            }
        }
        self.busy = true;
        let private = Vec::new();
        self.events.push_back(CarrierEvent::Connected {
            pair,
            private_data: private,
        });
        Ok(())
    }

    fn reject(&mut self, ticket: Ticket, private: &[u8]) {
        self.take_request(ticket);
        self.busy = true;
        let private = private.get(..MAX_PRIVATE).unwrap_or(private);
        // A request that no longer exists was given up by both sides.
        let _ = self.port.reject(verbena_cells::Ticket(ticket.0), private);
    }

    fn destroy(&mut self, pair: Pair) {
        self.release_peer(pair.0);
        self.destinations.remove(&pair.0);
        if self.pairs.remove(&pair.0).is_none() {
            return;
        }
        // The pair exists, so this cannot fail.
        let _ = self.port.destroy(Qpn::wrapping(pair.0), &mut self.outbox);
        self.collect();
        self.done.retain(|wc| wc.qpn != pair.0);
        self.events.retain(|news| event_pair(news) != Some(pair));
        // Shrinking cannot fail: the queue is empty.
        let _ = self.resize_cq(None);
        self.busy = true;
    }

    fn post_receive(&mut self, pair: Pair, id: u64, piece: Option<Sge>) -> Result<()> {
        let number = Qpn::wrapping(pair.0);
        let scatter = piece.as_slice();
        let posted = self.port.post_receive(number, &ReceiveWr { id, scatter });
        let posted = posted.and_then(|()| self.port.ring_receive(number, &mut self.outbox));
        self.posted(pair, posted)
    }

    fn post_send(&mut self, pair: Pair, id: u64, piece: Sge) -> Result<()> {
        let what = PostArgs {
            piece,
            remote: None,
            immediate: None,
        };
        self.post(pair, id, Operation::Send, what)
    }

    fn post_write(
        &mut self,
        pair: Pair,
        id: u64,
        piece: Sge,
        to: RemoteAddr,
        immediate: Option<u32>,
    ) -> Result<()> {
        let what = PostArgs {
            piece,
            remote: Some(to),
            immediate,
        };
        self.post(pair, id, Operation::Write, what)
    }

    fn turn(&mut self, now: Instant, done: &mut Vec<Wc>) -> Result<()> {
        self.take_turn(now, done)
    }

    fn next_event(&mut self) -> Option<CarrierEvent> {
        self.events.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let due = self.due?;
        Some(self.epoch + due.since(verbena_stream::Time::ZERO))
    }

    fn wait_fds<'a>(&'a self, on: &mut Vec<CarrierFd<'a>>) {
        on.push(self.wait_fd());
    }

    fn prepare_sleep(&mut self) -> bool {
        self.is_idle()
    }
}
