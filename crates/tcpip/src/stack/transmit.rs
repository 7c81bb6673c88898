//! What the stack sends: its own frames, and segments of connections in turn.
//! A segment's payload is completed by the caller, or its checksum is left to the device; until the station of a destination is known,
//! its connections are not asked for segments, so nothing is lost meanwhile.

use core::net::SocketAddr;
use core::ops::Range;

use etherparse::UdpHeader;
use verbena_stream::Time;

use super::demux::{TCP, UDP};
use super::{ConnectionId, Stack, StackError};
use crate::checksum::Checksum;
use crate::frame::{self, Envelope, Headers, Mac};
use crate::neighbor::Lookup;
use crate::secret::Tuple;
use crate::tcp::{CloseReason, PathReport, Segment, State, Transmit};

/// Where the checksum is in a TCP header.
const CHECKSUM_AT: usize = 16;

/// A frame to send.
#[derive(Debug)]
pub enum Outgoing {
    /// A whole frame.
    Frame(Vec<u8>),
    /// A segment of a connection, whose payload the caller has.
    Segment(SegmentFrame),
}

/// A segment of a connection without its payload.
#[derive(Debug)]
pub struct SegmentFrame {
    /// The connection.
    pub connection: ConnectionId,
    /// The payload, as a range of the connection's stream.
    pub payload: Range<u64>,
    /// Where the TCP header begins, for devices that complete the checksum.
    pub transport: usize,
    headers: Headers,
    pseudo: Checksum,
}

impl SegmentFrame {
    /// The headers, from Ethernet to TCP. Before [`SegmentFrame::complete`], the checksum is that of the pseudo-header, which a device
    /// completes.
    pub fn headers(&self) -> &[u8] {
        &self.headers
    }

    /// Where the device puts the checksum, from the beginning of the TCP header.
    pub const fn checksum_offset(&self) -> usize {
        CHECKSUM_AT
    }

    /// Computes the checksum with the payload, in any number of parts.
    pub fn complete<'a>(&mut self, payload: impl IntoIterator<Item = &'a [u8]>) {
        self.set_checksum([0, 0]);
        let mut sum = self.pseudo;
        sum.add(self.headers.get(self.transport..).unwrap_or_default());
        for part in payload {
            sum.add(part);
        }
        self.set_checksum(sum.finish());
    }

    fn set_checksum(&mut self, checksum: [u8; 2]) {
        let at = self.transport + CHECKSUM_AT;
        if let Some(field) = self.headers.get_mut(at..at + 2) {
            field.copy_from_slice(&checksum);
        }
    }
}

impl Stack {
    /// The next frame to send, until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        let next = self.next_outgoing(now);
        self.counters.frames_out += u64::from(next.is_some());
        next
    }

    fn next_outgoing(&mut self, now: Time) -> Option<Outgoing> {
        if let Some(frame) = self.frames.pop_front() {
            return Some(Outgoing::Frame(frame));
        }
        while let Some(question) = self.neighbors.question(now) {
            if let Some(frame) = self.ask(question) {
                return Some(Outgoing::Frame(frame));
            }
        }
        if self.neighbors.has_failed() {
            self.wake_waiting();
        }
        while let Some(id) = self.ready.pop_front() {
            if let Some(outgoing) = self.transmit(id, now) {
                return Some(outgoing);
            }
        }
        // A lookup may have begun to ask.
        let question = self.neighbors.question(now)?;
        self.ask(question).map(Outgoing::Frame)
    }

    /// The next segment of a connection whose turn it is.
    fn transmit(&mut self, id: ConnectionId, now: Time) -> Option<Outgoing> {
        let entry = self.connections.get_mut(&id)?;
        entry.is_ready = false;
        let (tuple, class) = (entry.tuple, entry.class);
        let mac = match self.station(&tuple, now) {
            Some(Lookup::Known(mac)) => mac,
            Some(Lookup::Pending) => {
                self.wait_for_station(id);
                return None;
            }
            Some(Lookup::Unreachable) | None => {
                self.unreachable(id, now);
                return None;
            }
        };
        let entry = self.connections.get_mut(&id)?;
        let Some(transmit) = entry.connection.poll_transmit(now) else {
            self.settle(id);
            return None;
        };
        entry.is_ready = true;
        self.ready.push_back(id);
        let Transmit { segment, payload } = transmit;
        let len = usize::try_from(payload.end - payload.start).unwrap_or(0);
        let mut ether = self.ether(mac);
        if let (Some(vlan), Some(priority)) = (ether.vlan.as_mut(), class.priority) {
            vlan.priority = priority;
        }
        let envelope = Envelope {
            ether,
            source: tuple.0.ip(),
            destination: tuple.1.ip(),
            protocol: TCP,
            dscp: class.dscp,
            is_link_only: false,
        };
        let frame = segment_frame(id, &envelope, &segment, payload, len);
        Some(Outgoing::Segment(frame))
    }

    fn station(&mut self, tuple: &Tuple, now: Time) -> Option<Lookup> {
        let hop = self.next_hop(tuple.1.ip())?;
        Some(self.neighbors.lookup(hop, now))
    }

    fn wait_for_station(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&id) {
            entry.is_waiting = true;
            self.waiting.push(id);
        }
        self.set_deadline(id);
    }

    /// Nothing answers for the next station: a connection that is being opened is refused, others try again at their next timeout.
    fn unreachable(&mut self, id: ConnectionId, now: Time) {
        if let Some(entry) = self.connections.get_mut(&id) {
            let connection = &mut entry.connection;
            let initial = connection.initial_sequence();
            connection.handle_report(PathReport::Unreachable, initial, now);
            if connection.deadline().is_none() && connection.state() != State::Closed {
                connection.retry_later(now);
            }
        }
        self.settle(id);
    }

    /// A connection has nothing to send: its deadline is known, or it is forgotten.
    fn settle(&mut self, id: ConnectionId) {
        self.set_deadline(id);
        let Some(entry) = self.connections.get(&id) else {
            return;
        };
        if entry.connection.state() == State::Closed {
            let reason = entry.connection.close_reason();
            self.forget(id, reason.unwrap_or(CloseReason::Aborted));
        }
    }

    fn set_deadline(&mut self, id: ConnectionId) {
        let Some(entry) = self.connections.get_mut(&id) else {
            return;
        };
        let deadline = entry.connection.deadline();
        if entry.deadline == deadline {
            return;
        }
        if let Some(before) = core::mem::replace(&mut entry.deadline, deadline) {
            self.deadlines.remove(&(before, id));
        }
        if let Some(at) = deadline {
            self.deadlines.insert((at, id));
        }
    }

    /// A segment of no connection, to the station that has caused it.
    pub(super) fn answer_segment(&mut self, tuple: &Tuple, segment: &Segment, station: Mac) {
        let envelope = Envelope {
            ether: self.ether(station),
            source: tuple.0.ip(),
            destination: tuple.1.ip(),
            protocol: TCP,
            dscp: 0,
            is_link_only: false,
        };
        let mut frame = segment_frame(ConnectionId(0), &envelope, segment, 0..0, 0);
        frame.complete([]);
        self.answer(frame.headers.to_vec());
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// If there is no route, the datagram is too long for a packet, or the station is not known yet.
    pub fn send_datagram(
        &mut self,
        port: u16,
        destination: SocketAddr,
        payload: &[u8],
        now: Time,
    ) -> Result<(), StackError> {
        let ip = destination.ip();
        let source = self.source_for(ip).ok_or(StackError::NoRoute(ip))?;
        let headers = UdpHeader::LEN + if ip.is_ipv6() { 40 } else { 20 };
        let most = self.config.mtu.saturating_sub(headers);
        let len = payload.len();
        if len > most {
            return Err(StackError::TooLong { len, most });
        }
        let tuple = (SocketAddr::new(source, port), destination);
        let mac = match self.station(&tuple, now) {
            Some(Lookup::Known(mac)) => mac,
            Some(Lookup::Pending) => return Err(StackError::Resolving(ip)),
            Some(Lookup::Unreachable) | None => return Err(StackError::NoRoute(ip)),
        };
        let total = UdpHeader::LEN + len;
        let header = UdpHeader {
            source_port: port,
            destination_port: destination.port(),
            length: u16::try_from(total).unwrap_or(u16::MAX),
            checksum: 0,
        };
        let mut header = header.to_bytes();
        let mut sum = Checksum::pseudo(source, ip, UDP, total);
        sum.add(&header);
        sum.add(payload);
        // Zero would mean that there is none.
        let checksum = match sum.finish() {
            [0, 0] => [0xff, 0xff],
            checksum => checksum,
        };
        header[6..8].copy_from_slice(&checksum);
        let envelope = Envelope {
            ether: self.ether(mac),
            source,
            destination: ip,
            protocol: UDP,
            dscp: 0,
            is_link_only: false,
        };
        let mut frame = frame::emit_ip(&envelope, total).to_vec();
        frame.extend_from_slice(&header);
        frame.extend_from_slice(payload);
        self.answer(frame);
        Ok(())
    }
}

fn segment_frame(
    connection: ConnectionId,
    envelope: &Envelope,
    segment: &Segment,
    payload: Range<u64>,
    len: usize,
) -> SegmentFrame {
    let header = segment.emit();
    let total = header.len() + len;
    let mut headers = frame::emit_ip(envelope, total);
    let transport = headers.len();
    headers.extend(header);
    let pseudo = Checksum::pseudo(envelope.source, envelope.destination, TCP, total);
    let mut frame = SegmentFrame {
        connection,
        payload,
        transport,
        headers,
        pseudo,
    };
    frame.set_checksum(pseudo.partial());
    frame
}
