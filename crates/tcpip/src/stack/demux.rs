//! An arrived frame: for which connection, port or part of the stack it is (requirement M13).
//! SYNs beyond the backlog of a listener are answered with cookies, so a flood of them takes no memory and does not keep others out.

use core::net::{IpAddr, SocketAddr};

use etherparse::UdpSlice;
use verbena_stream::Time;

use super::{Arrival, ConnectionId, Stack};
use crate::frame::{self, Carried, Ether, FrameError, IpPacket, Mac};
use crate::icmp::{self, Message, Quoted};
use crate::secret::{COOKIE_INTERVAL, Tuple};
use crate::tcp::seq::is_before;
use crate::tcp::{CloseReason, Connection, PathReport, Received, Segment, TcpFlags, TcpOptions};

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// Between the sequence numbers of a connection and those of one that replaces it.
const SEQUENCE_GAP: u32 = 250_000;

impl Stack {
    /// Takes in a frame. `is_verified` tells that the checksums of IP and its payload were verified, or need not be.
    pub fn handle_frame(&mut self, frame: &[u8], is_verified: bool, now: Time) -> Arrival {
        self.counters.frames_in += 1;
        let arrival = match frame::parse(frame, is_verified) {
            Ok((ether, carried)) => self.dispatch(frame, &ether, &carried, is_verified, now),
            Err(error) => Arrival::Dropped(error),
        };
        if let Arrival::Dropped(error) = arrival {
            self.counters.dropped += 1;
            self.counters.fragments += u64::from(error == FrameError::Fragment);
            self.counters.checksums += u64::from(error == FrameError::Checksum);
        }
        arrival
    }

    fn dispatch(
        &mut self,
        frame: &[u8],
        ether: &Ether,
        carried: &Carried,
        is_verified: bool,
        now: Time,
    ) -> Arrival {
        let is_ours = ether.destination == self.config.mac || ether.destination.is_group();
        // A tag with a priority only is of the untagged network (IEEE 802.1Q, 6.9).
        let vlan = ether.vlan.map_or(0, |vlan| vlan.id);
        let ours = self.config.vlan.map_or(0, |vlan| vlan.id);
        if !is_ours || vlan != ours {
            return Arrival::Foreign;
        }
        let packet = match carried {
            Carried::Arp(packet) => {
                let arrival = self.handle_arp(packet, now);
                return self.share(arrival);
            }
            Carried::Other(_) => return Arrival::Foreign,
            Carried::Ip(packet) => packet,
        };
        let is_checked = matches!(packet.protocol, TCP | icmp::ICMPV6);
        if is_checked && !is_verified && !frame::is_payload_valid(frame, packet) {
            return Arrival::Dropped(FrameError::Checksum);
        }
        if !self.has_address(packet.destination) {
            let is_icmp = packet.protocol == icmp::ICMPV6 && ether.destination.is_group();
            if is_icmp {
                let arrival = self.handle_icmp(frame, ether, packet, now);
                return self.share(arrival);
            }
            return Arrival::Foreign;
        }
        // A packet to an address of this host in a frame to a group is a forgery (RFC 1122, 3.3.6).
        if ether.destination.is_group() {
            return Arrival::Foreign;
        }
        match packet.protocol {
            TCP => self.handle_tcp(frame, ether.source, packet, now),
            UDP => self.handle_udp(frame, ether.source, packet, is_verified, now),
            icmp::ICMP | icmp::ICMPV6 => {
                let arrival = self.handle_icmp(frame, ether, packet, now);
                self.share(arrival)
            }
            _ => Arrival::Foreign,
        }
    }

    /// What the stack has used and a host with the same addresses needs as well.
    fn share(&self, arrival: Arrival) -> Arrival {
        match arrival {
            Arrival::Handled if self.config.is_shared => Arrival::Foreign,
            arrival => arrival,
        }
    }

    fn handle_tcp(&mut self, frame: &[u8], station: Mac, packet: &IpPacket, now: Time) -> Arrival {
        let bytes = frame.get(packet.payload.clone()).unwrap_or_default();
        let Ok((segment, data)) = Segment::parse(bytes) else {
            return Arrival::Dropped(FrameError::Malformed);
        };
        let tuple = (
            SocketAddr::new(packet.destination, segment.destination_port),
            SocketAddr::new(packet.source, segment.source_port),
        );
        let payload = packet.payload.end - data.len()..packet.payload.end;
        let known = self.tuples.get(&tuple).copied();
        let replaced = known.and_then(|id| self.make_room(id, &segment));
        let connection = match known {
            Some(id) if replaced.is_none() => Some(id),
            _ => self.find_listener(&tuple, &segment, replaced, station, now),
        };
        let Some(connection) = connection else {
            return if self.is_listened(&tuple) {
                Arrival::Handled
            } else {
                self.refuse_segment(&tuple, &segment, data.len(), station, now)
            };
        };
        let len = data.len();
        let received = self.with(connection, |c| c.handle_segment(&segment, len, now));
        Arrival::Segment {
            connection,
            received: received.unwrap_or_else(|_| Received::default()),
            payload,
        }
    }

    /// A connection in `TimeWait` makes room for a newer one, which must begin behind the number returned.
    fn make_room(&mut self, id: ConnectionId, segment: &Segment) -> Option<u32> {
        let entry = self.connections.get(&id)?;
        let is_listened = self.listeners.contains_key(&entry.tuple.0.port());
        if !is_listened || !entry.connection.may_be_reused(segment) {
            return None;
        }
        let last = entry.connection.last_sequence();
        self.forget(id, CloseReason::Finished);
        Some(last)
    }

    fn is_listened(&self, tuple: &Tuple) -> bool {
        self.listeners.contains_key(&tuple.0.port())
    }

    /// The connection for a segment of a cookie that has come back. A SYN makes a connection, or is answered with a cookie.
    fn find_listener(
        &mut self,
        tuple: &Tuple,
        segment: &Segment,
        replaced: Option<u32>,
        station: Mac,
        now: Time,
    ) -> Option<ConnectionId> {
        let port = tuple.0.port();
        let listener = self.listeners.get_mut(&port)?;
        if segment.flags.rst {
            return None;
        }
        let is_full = self.connections.len() >= self.config.max_connections;
        let mut config = listener.config.tcp.clone();
        let class = listener.config.class;
        config.is_v6 = tuple.0.is_ipv6();
        config.mtu = config.mtu.min(self.config.mtu);
        if let Some(ack) = segment.ack {
            let is_open = listener.cookies_until.is_some_and(|until| now < until);
            let cookie = ack.wrapping_sub(1);
            let peer = segment.seq.wrapping_sub(1);
            let mss = self.key.check(tuple, peer, cookie, now);
            let Some(mss) = mss.filter(|_| is_open && !is_full && !segment.flags.syn) else {
                self.refuse_segment(tuple, segment, 0, station, now);
                return None;
            };
            self.counters.cookies_in += 1;
            let connection = from_cookie(config, segment, mss, cookie, &self.key, tuple, now);
            if let Some(listener) = self.listeners.get_mut(&port) {
                listener.half_open += 1;
            }
            return Some(self.insert(connection, *tuple, class, Some(port)));
        }
        if !segment.flags.syn || segment.flags.fin {
            return None;
        }
        if is_full || listener.half_open >= listener.config.backlog {
            listener.cookies_until = Some(now + COOKIE_INTERVAL * 2);
            self.counters.cookies_out += 1;
            let mss = config.mtu - if config.is_v6 { 60 } else { 40 }.min(config.mtu);
            let mss = u16::try_from(mss).unwrap_or(u16::MAX);
            let wanted = segment.options.mss.unwrap_or(0).min(mss);
            let answer = Segment {
                source_port: segment.destination_port,
                destination_port: segment.source_port,
                seq: self.key.cookie(tuple, segment.seq, wanted, now),
                ack: Some(segment.seq.wrapping_add(1)),
                flags: TcpFlags {
                    syn: true,
                    ..TcpFlags::default()
                },
                window: u16::try_from(config.receive_window).unwrap_or(u16::MAX),
                options: TcpOptions {
                    mss: Some(mss),
                    ..TcpOptions::default()
                },
            };
            self.answer_segment(tuple, &answer, station);
            return None;
        }
        listener.half_open += 1;
        let mut secrets = self.key.secrets(tuple, now);
        if let Some(last) = replaced
            && !is_before(last, secrets.initial)
        {
            // RFC 9293, 3.10.7.4: beyond what the connection before has used.
            secrets.initial = last.wrapping_add(SEQUENCE_GAP);
        }
        let connection = Connection::accept(config, segment, secrets, now);
        self.insert(connection, *tuple, class, Some(port));
        None
    }

    /// A reset for a segment that belongs to nothing (RFC 9293, 3.10.7.1).
    fn refuse_segment(
        &mut self,
        tuple: &Tuple,
        segment: &Segment,
        len: usize,
        station: Mac,
        now: Time,
    ) -> Arrival {
        // The host answers for its own ports.
        let is_hosts = self.config.is_shared && !self.is_listened(tuple);
        if is_hosts || segment.flags.rst || !self.may_refuse(now) {
            return Arrival::Foreign;
        }
        let span = len as u32 + u32::from(segment.flags.syn) + u32::from(segment.flags.fin);
        let reset = Segment {
            source_port: segment.destination_port,
            destination_port: segment.source_port,
            seq: segment.ack.unwrap_or(0),
            ack: match segment.ack {
                Some(_) => None,
                None => Some(segment.seq.wrapping_add(span)),
            },
            flags: TcpFlags {
                rst: true,
                ..TcpFlags::default()
            },
            ..Segment::default()
        };
        self.answer_segment(tuple, &reset, station);
        Arrival::Foreign
    }

    fn handle_udp(
        &mut self,
        frame: &[u8],
        station: Mac,
        packet: &IpPacket,
        is_verified: bool,
        now: Time,
    ) -> Arrival {
        let bytes = frame.get(packet.payload.clone()).unwrap_or_default();
        let Ok(udp) = UdpSlice::from_slice(bytes) else {
            return Arrival::Dropped(FrameError::Malformed);
        };
        // Without a checksum over IPv4 only (RFC 8200, 8.1).
        let is_unsummed = udp.checksum() == 0 && packet.source.is_ipv4();
        if !is_unsummed && !is_verified && !frame::is_payload_valid(frame, packet) {
            return Arrival::Dropped(FrameError::Checksum);
        }
        let port = udp.destination_port();
        if self.datagram_ports.contains(&port) {
            let start = packet.payload.start + udp.header_len();
            return Arrival::Datagram {
                port,
                source: SocketAddr::new(packet.source, udp.source_port()),
                payload: start..start + udp.payload().len(),
            };
        }
        if !self.config.is_shared && self.may_refuse(now) {
            let is_v6 = packet.source.is_ipv6();
            let header = if is_v6 { 40 } else { 20 };
            let quoted = packet.payload.start - header..packet.payload.end;
            let quoted = frame.get(quoted).unwrap_or_default();
            let report = icmp::port_unreachable(quoted, is_v6);
            self.answer_icmp(packet.destination, packet.source, station, report, false);
        }
        Arrival::Foreign
    }

    fn handle_icmp(
        &mut self,
        frame: &[u8],
        ether: &Ether,
        packet: &IpPacket,
        now: Time,
    ) -> Arrival {
        let bytes = frame.get(packet.payload.clone()).unwrap_or_default();
        let message = match (packet.source, packet.protocol) {
            (IpAddr::V4(_), icmp::ICMP) => {
                let mut sum = crate::checksum::Checksum::default();
                sum.add(bytes);
                if !sum.is_valid() {
                    return Arrival::Dropped(FrameError::Checksum);
                }
                icmp::parse_v4(bytes)
            }
            (IpAddr::V6(_), icmp::ICMPV6) => icmp::parse_v6(bytes, packet.hop_limit),
            _ => return Arrival::Dropped(FrameError::Malformed),
        };
        match message {
            None => Arrival::Dropped(FrameError::Malformed),
            Some(Message::Other) => Arrival::Foreign,
            Some(Message::Echo(reply)) => {
                // The host answers.
                if !ether.destination.is_group() && !self.config.is_shared {
                    let (here, there) = (packet.destination, packet.source);
                    self.answer_icmp(here, there, ether.source, reply, false);
                }
                Arrival::Handled
            }
            Some(Message::Report(report, quoted)) => self.handle_report(report, &quoted, now),
            Some(Message::Solicitation { target, source }) => {
                self.handle_solicitation(target, source, ether.source, packet.source, now)
            }
            Some(Message::Advertisement { target, mac }) => {
                self.neighbor_answered(IpAddr::V6(target), mac, now);
                Arrival::Handled
            }
        }
    }

    fn handle_report(&mut self, report: PathReport, quoted: &Quoted, now: Time) -> Arrival {
        let tuple = (
            SocketAddr::new(quoted.source, quoted.source_port),
            SocketAddr::new(quoted.destination, quoted.destination_port),
        );
        match self.tuples.get(&tuple) {
            Some(&id) if quoted.protocol == TCP => {
                let _ = self.with(id, |c| c.handle_report(report, quoted.seq, now));
                Arrival::Handled
            }
            _ => Arrival::Foreign,
        }
    }
}

/// The connection that a cookie stands for: it has no options, since the cookie carries none.
fn from_cookie(
    config: crate::tcp::TcpConfig,
    segment: &Segment,
    mss: u16,
    cookie: u32,
    key: &crate::secret::Key,
    tuple: &Tuple,
    now: Time,
) -> Connection {
    let mut secrets = key.secrets(tuple, now);
    secrets.initial = cookie;
    let syn = Segment {
        seq: segment.seq.wrapping_sub(1),
        ack: None,
        flags: TcpFlags {
            syn: true,
            ..TcpFlags::default()
        },
        options: TcpOptions {
            mss: Some(mss),
            ..TcpOptions::default()
        },
        ..segment.clone()
    };
    Connection::accept_answered(config, &syn, secrets, now)
}
