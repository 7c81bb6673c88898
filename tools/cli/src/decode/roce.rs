//! The RoCEv2 packets of a capture: one record for each message, or for each packet with `--segments`. Requests are followed by their
//! packet sequence numbers: a packet that was seen before, that comes late, or that does not follow the last one, is marked, and every ICRC is
//! checked. How many numbers a Read takes depends on the path MTU, which the first packet of a long message shows, or the connection
//! manager; without either, what follows a long Read is not judged. Messages of the connection manager are shown in words.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use verbena_wire::roce::cm::{CmMessage, CmaHeader};
use verbena_wire::roce::{
    ICRC_LEN, MadHeader, Nak, Operation, Packet, Psn, Service, Syndrome, Tail, icrc,
};

use super::Options;
use super::record::{Body, Dir, Out, Record, RoceFields, hex};
use super::segment::RoceDatagram;

/// The most connections that are followed; packets of further ones are counted.
const MAX_CONNECTIONS: usize = 1 << 16;
/// The newest directions between two hosts among which the other direction of a connection is looked for.
const MAX_UNPAIRED: usize = 1024;
/// Runs of missing packets that are remembered for one direction; the oldest is forgotten for a new one.
const MAX_GAPS: usize = 64;
/// The shortest path MTU.
const MIN_MTU: u32 = 256;
/// Payload bytes that `--verbose` shows.
const SHOWN: usize = 16;

/// One direction: between these addresses, to this queue pair.
type Key = (IpAddr, IpAddr, u32);

/// Counters of the RoCEv2 packets of a capture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoceCounters {
    /// Packets.
    pub packets: u64,
    /// Connections, datagrams to one queue pair, and the connection managers of two hosts.
    pub flows: u64,
    /// Packets that had been seen before, or that the receiver asked for again.
    pub repeated: u64,
    /// Packets that came behind later ones.
    pub out_of_order: u64,
    /// Packets before which others are missing.
    pub gaps: u64,
    /// NAKs, those of receivers that were not ready included.
    pub naks: u64,
    /// Packets with a wrong ICRC.
    pub bad_icrc: u64,
    /// Packets that cannot be parsed, or of too many connections.
    pub unreadable: u64,
}

/// The message that is being assembled in one direction.
#[derive(Debug, Clone, Copy, Default)]
struct Assembly {
    packets: u32,
    len: u64,
}

/// Where a request belongs among those of its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Behind the newest one, as far as is known.
    Next,
    /// So many packets after that.
    Behind(u32),
    /// It fills a gap.
    Late,
    /// It was seen before.
    Seen,
}

/// The packet sequence numbers of the requests of one direction.
#[derive(Debug, Clone, Default)]
struct Requests {
    /// The newest one: its PSN, and the bytes it asks for if it is a Read.
    newest: Option<(Psn, Option<u32>)>,
    /// PSNs before it that were not seen, as first and end of each run.
    missing: VecDeque<(Psn, Psn)>,
}

impl Requests {
    /// The PSN behind the newest request; `None` if that depends on an unknown path MTU.
    fn end(&self, mtu: Option<u32>) -> Option<Psn> {
        let (psn, read) = self.newest?;
        let psns = match (read, mtu) {
            (Some(len), None) if len > MIN_MTU => return None,
            (Some(len), mtu) => len.div_ceil(mtu.unwrap_or(MIN_MTU)).max(1),
            (None, _) => 1,
        };
        Some(psn.plus(psns))
    }

    fn place(&mut self, packet: &Packet<'_>, mtu: Option<u32>) -> Place {
        let psn = packet.psn;
        let read = match packet.operation {
            Operation::ReadRequest(reth) => Some(reth.len),
            _ => None,
        };
        let end = self.end(mtu);
        let is_new = match (self.newest, end) {
            (None, _) => true,
            (Some(_), Some(end)) => !psn.is_before(end),
            (Some((newest, _)), None) => newest.is_before(psn),
        };
        if !is_new {
            return match self.fill(psn) {
                true => Place::Late,
                false => Place::Seen,
            };
        }
        self.newest = Some((psn, read));
        match end.filter(|end| *end != psn) {
            None => Place::Next,
            Some(end) => {
                self.missing.push_back((end, psn));
                if self.missing.len() > MAX_GAPS {
                    self.missing.pop_front();
                }
                Place::Behind(psn.minus(end))
            }
        }
    }

    /// Removes this PSN from those that are missing; false if it is none.
    fn fill(&mut self, psn: Psn) -> bool {
        let is_in = |(first, end): &(Psn, Psn)| !psn.is_before(*first) && psn.is_before(*end);
        let Some(at) = self.missing.iter().position(is_in) else {
            return false;
        };
        if let Some((first, end)) = self.missing.remove(at) {
            let rest = [(first, psn), (psn.plus(1), end)];
            for run in rest.into_iter().filter(|(first, end)| first != end) {
                self.missing.push_back(run);
            }
        }
        true
    }
}

/// One direction of a connection.
#[derive(Debug, Clone)]
struct Direction {
    stream: usize,
    dir: Dir,
    requests: Requests,
    message: Assembly,
    response: Assembly,
}

/// The RoCEv2 connections of a capture.
#[derive(Debug, Default)]
pub struct RoceTable {
    directions: HashMap<Key, Direction>,
    /// Queue pairs to which the first of these hosts sends, and whose other direction is not known; the newest last.
    unpaired: HashMap<(IpAddr, IpAddr), VecDeque<u32>>,
    /// The path MTU by stream, as far as it is known.
    mtus: HashMap<usize, u32>,
    /// Queue pair number and path MTU that a REQ names, by its sender and identifier.
    asked: HashMap<(IpAddr, u32), (u32, u32)>,
    /// The path MTU of directions that the connection manager has made, and that have had no packet.
    agreed: HashMap<Key, u32>,
    /// The packet that the receiver of a direction asked for again, by stream and direction.
    asked_again: HashMap<(usize, usize), Psn>,
    /// Its counters.
    pub counters: RoceCounters,
}

impl RoceTable {
    /// Passes a datagram to its connection. `number` is that of the next stream.
    pub fn handle(
        &mut self,
        datagram: &RoceDatagram<'_>,
        number: &mut usize,
        options: Options,
        out: &mut Out<'_>,
    ) {
        self.counters.packets += 1;
        let Ok((packet, sum)) = Packet::parse(datagram.payload) else {
            self.counters.unreadable += 1;
            return;
        };
        let Some((key, mut direction)) = self.direction(datagram, &packet, number) else {
            self.counters.unreadable += 1;
            return;
        };
        let covered = datagram.payload.len() - ICRC_LEN;
        let covered = datagram.payload.get(..covered).unwrap_or_default();
        let icrc_ok = icrc(datagram.headers, covered) == sum;
        self.counters.bad_icrc += u64::from(!icrc_ok);
        self.learn_mtu(datagram, direction.stream, &packet);
        let note = self.sequence(&mut direction, &packet);
        let nak = packet.operation.aeth().map(|aeth| aeth.syndrome);
        self.counters.naks += u64::from(!matches!(nak, None | Some(Syndrome::Ack { .. })));
        if let Some((segments, len)) = direction.assemble(&packet, options.segments) {
            let shown = packet.payload.get(..SHOWN).unwrap_or(packet.payload);
            out.records.push(Record {
                time: out.time,
                stream: direction.stream,
                dir: direction.dir,
                kind: kind(&packet, options.segments),
                segments,
                len,
                offset: u64::from(packet.psn.get()),
                body: Body::Roce(Box::new(RoceFields {
                    opcode: packet.operation.opcode(),
                    qpn: packet.dest_qpn.to_string(),
                    psn: packet.psn.get(),
                    words: words(&packet),
                    note,
                    ack_request: packet.ack_request,
                    icrc_ok,
                    payload: options.verbose.then(|| hex(shown)),
                })),
            });
        }
        self.directions.insert(key, direction);
    }

    /// The direction of a packet; a new one gets the number of its other direction, if that is known.
    fn direction(
        &mut self,
        datagram: &RoceDatagram<'_>,
        packet: &Packet<'_>,
        number: &mut usize,
    ) -> Option<(Key, Direction)> {
        let key = (datagram.from, datagram.to, packet.dest_qpn.get());
        if let Some(direction) = self.directions.get(&key) {
            return Some((key, direction.clone()));
        }
        if self.directions.len() >= MAX_CONNECTIONS {
            return None;
        }
        let (stream, dir) = match self.take_reverse(datagram, packet) {
            Some((stream, dir)) => (stream, dir.reverse()),
            None => {
                let stream = *number;
                *number += 1;
                self.counters.flows += 1;
                let hosts = (datagram.from, datagram.to);
                let unpaired = self.unpaired.entry(hosts).or_default();
                unpaired.push_back(packet.dest_qpn.get());
                if unpaired.len() > MAX_UNPAIRED {
                    unpaired.pop_front();
                }
                (stream, Dir::ToResponder)
            }
        };
        if let Some(mtu) = self.agreed.remove(&key) {
            self.mtus.insert(stream, mtu);
        }
        let direction = Direction {
            stream,
            dir,
            requests: Requests::default(),
            message: Assembly::default(),
            response: Assembly::default(),
        };
        Some((key, direction))
    }

    /// The direction whose requests a packet answers: that with the closest sequence number. The connection managers of two hosts are one connection.
    fn take_reverse(
        &mut self,
        datagram: &RoceDatagram<'_>,
        packet: &Packet<'_>,
    ) -> Option<(usize, Dir)> {
        let is_cm = packet.dest_qpn.get() == MadHeader::QPN;
        if !is_cm && !packet.operation.is_response() {
            return None;
        }
        let unpaired = self.unpaired.get_mut(&(datagram.to, datagram.from))?;
        let of = |qpn| self.directions.get(&(datagram.to, datagram.from, qpn));
        let distance = |qpn: u32| match is_cm {
            true => (qpn == MadHeader::QPN).then_some(0),
            false => {
                // With the longest response that may be.
                let next = of(qpn)?.requests.end(Some(MIN_MTU))?;
                packet.psn.is_before(next).then(|| next.minus(packet.psn))
            }
        };
        let known = unpaired.iter().enumerate();
        let close = known.filter_map(|(at, &qpn)| Some((distance(qpn)?, at)));
        let (_, at) = close.min()?;
        let direction = of(unpaired.remove(at)?)?;
        Some((direction.stream, direction.dir))
    }

    /// The path MTU of a connection: every packet of a message but the last has it, and a REQ names it.
    fn learn_mtu(&mut self, datagram: &RoceDatagram<'_>, stream: usize, packet: &Packet<'_>) {
        use Operation as Op;
        match packet.operation {
            Op::SendFirst(_)
            | Op::SendMiddle(_)
            | Op::WriteFirst(..)
            | Op::WriteMiddle(_)
            | Op::ReadResponseFirst(_)
            | Op::ReadResponseMiddle => {
                let len = packet.payload.len() as u32;
                let mtu = self.mtus.entry(stream).or_insert(len);
                *mtu = (*mtu).max(len);
            }
            Op::Datagram(..) if packet.dest_qpn.get() == MadHeader::QPN => {
                self.learn_agreed_mtu(datagram, packet);
            }
            _ => {}
        }
    }

    fn learn_agreed_mtu(&mut self, datagram: &RoceDatagram<'_>, packet: &Packet<'_>) {
        let (from, to) = (datagram.from, datagram.to);
        match CmMessage::parse(packet.payload) {
            Ok((_, CmMessage::Req(req))) if matches!(req.mtu, 1..=5) => {
                let asked = (req.qpn.get(), 128 << req.mtu);
                if self.asked.len() < MAX_CONNECTIONS {
                    self.asked.insert((from, req.local_id), asked);
                }
            }
            Ok((_, CmMessage::Rep(rep))) => {
                if let Some((qpn, mtu)) = self.asked.remove(&(to, rep.remote_id))
                    && self.agreed.len() < MAX_CONNECTIONS
                {
                    self.agreed.insert((to, from, rep.qpn.get()), mtu);
                    self.agreed.insert((from, to, qpn), mtu);
                }
            }
            _ => {}
        }
    }

    /// Follows the packet sequence numbers of requests; returns what is unusual.
    fn sequence(&mut self, direction: &mut Direction, packet: &Packet<'_>) -> Option<String> {
        let is_connected = packet.operation.opcode() < 0x60;
        if packet.operation.is_response() {
            let syndrome = packet.operation.aeth().map(|aeth| aeth.syndrome);
            if syndrome == Some(Syndrome::Nak(Nak::PsnSequence)) {
                let asked = (direction.stream, direction.dir.reverse().index());
                self.asked_again.insert(asked, packet.psn);
            }
            return None;
        }
        if !is_connected {
            return None;
        }
        let this = (direction.stream, direction.dir.index());
        let mtu = self.mtus.get(&direction.stream).copied();
        let place = direction.requests.place(packet, mtu);
        let asked = self.asked_again.get(&this);
        let was_asked = asked.is_some_and(|from| !packet.psn.is_before(*from));
        match place {
            Place::Next => None,
            Place::Behind(missing) => {
                self.counters.gaps += 1;
                self.asked_again.remove(&this);
                let packets = if missing == 1 { "packet" } else { "packets" };
                Some(format!("{missing} {packets} missing before it"))
            }
            Place::Late if !was_asked => {
                self.counters.out_of_order += 1;
                Some("out of order".to_owned())
            }
            Place::Late | Place::Seen => {
                self.counters.repeated += 1;
                Some("repeated".to_owned())
            }
        }
    }
}

impl Direction {
    /// Adds a packet to its message; its packets and bytes if it is to be shown.
    fn assemble(&mut self, packet: &Packet<'_>, every_packet: bool) -> Option<(u32, u64)> {
        let len = packet.payload.len() as u64;
        let assembly = match packet.operation.is_response() {
            true => &mut self.response,
            false => &mut self.message,
        };
        use Operation as Op;
        let (begins, ends) = match packet.operation {
            Op::SendFirst(_) | Op::WriteFirst(..) | Op::ReadResponseFirst(_) => (true, false),
            Op::SendMiddle(_) | Op::WriteMiddle(_) | Op::ReadResponseMiddle => (false, false),
            Op::SendLast(..) | Op::WriteLast(..) | Op::ReadResponseLast(_) => (false, true),
            _ => return Some((1, len)),
        };
        if begins {
            *assembly = Assembly::default();
        }
        assembly.packets += 1;
        assembly.len += len;
        let whole = (assembly.packets, assembly.len);
        match (every_packet, ends) {
            (true, _) => Some((1, len)),
            (false, true) => Some(whole),
            (false, false) => None,
        }
    }
}

/// The kind of a record: the message, or the packet.
fn kind(packet: &Packet<'_>, every_packet: bool) -> &'static str {
    use Operation as Op;
    if every_packet {
        return packet.operation.name();
    }
    match packet.operation {
        Op::SendFirst(_) | Op::SendMiddle(_) | Op::SendLast(..) | Op::SendOnly(..) => "Send",
        Op::WriteFirst(..) | Op::WriteMiddle(_) | Op::WriteLast(..) | Op::WriteOnly(..) => "Write",
        Op::ReadRequest(_) => "Read Request",
        Op::ReadResponseFirst(_)
        | Op::ReadResponseMiddle
        | Op::ReadResponseLast(_)
        | Op::ReadResponseOnly(_) => "Read Response",
        Op::Acknowledge(aeth) => match aeth.syndrome {
            Syndrome::Ack { .. } => "Ack",
            Syndrome::RnrNak(_) => "RNR NAK",
            Syndrome::Nak(_) => "NAK",
        },
        Op::AtomicAcknowledge(..) => "Atomic Ack",
        Op::CmpSwap(_) => "CmpSwap",
        Op::FetchAdd(_) => "FetchAdd",
        Op::Datagram(..) if packet.dest_qpn.get() == MadHeader::QPN => "CM",
        Op::Datagram(..) => "Datagram",
        Op::CongestionNotification => "CNP",
    }
}

/// The fields of a packet.
fn words(packet: &Packet<'_>) -> String {
    use Operation as Op;
    let immediate = |data: [u8; 4]| format!(" immediate {:#010x}", u32::from_be_bytes(data));
    let service = |service| match service {
        Service::Rc => "",
        Service::Uc => " unreliable",
    };
    let mut words = match packet.operation {
        Op::SendFirst(s) | Op::SendMiddle(s) | Op::WriteMiddle(s) => service(s).to_owned(),
        Op::SendLast(s, tail) | Op::SendOnly(s, tail) => match tail {
            Tail::Plain => service(s).to_owned(),
            Tail::Immediate(data) => service(s).to_owned() + &immediate(data),
            Tail::Invalidate(rkey) => format!("{} invalidates {rkey}", service(s)),
        },
        Op::WriteFirst(s, reth) => format!("{} rkey {} va {}", service(s), reth.rkey, reth.va),
        Op::WriteLast(s, data) => service(s).to_owned() + &data.map_or_else(String::new, immediate),
        Op::WriteOnly(s, reth, data) => format!(
            "{} rkey {} va {}{}",
            service(s),
            reth.rkey,
            reth.va,
            data.map_or_else(String::new, immediate)
        ),
        Op::ReadRequest(reth) => {
            format!(" rkey {} va {} of {} bytes", reth.rkey, reth.va, reth.len)
        }
        Op::CmpSwap(atomic) => format!(
            " rkey {} va {} compare {:#x} swap {:#x}",
            atomic.rkey, atomic.va, atomic.compare, atomic.swap_or_add
        ),
        Op::FetchAdd(atomic) => format!(
            " rkey {} va {} add {:#x}",
            atomic.rkey, atomic.va, atomic.swap_or_add
        ),
        Op::AtomicAcknowledge(aeth, original) => {
            format!(" {} msn {} original {original:#x}", aeth.syndrome, aeth.msn)
        }
        Op::Datagram(..) if packet.dest_qpn.get() == MadHeader::QPN => cm_words(packet.payload),
        Op::Datagram(deth, data) => format!(
            " from {} qkey {:#010x}{}",
            deth.src_qpn,
            deth.qkey,
            data.map_or_else(String::new, immediate)
        ),
        Op::ReadResponseMiddle | Op::CongestionNotification => String::new(),
        Op::ReadResponseFirst(aeth)
        | Op::ReadResponseLast(aeth)
        | Op::ReadResponseOnly(aeth)
        | Op::Acknowledge(aeth) => match aeth.syndrome {
            Syndrome::RnrNak(timer) => {
                format!(" receiver not ready, wait {timer} msn {}", aeth.msn)
            }
            syndrome => format!(" {syndrome} msn {}", aeth.msn),
        },
    };
    if packet.solicited {
        words.push_str(" solicited");
    }
    words
}

fn cm_words(mad: &[u8]) -> String {
    match CmMessage::parse(mad) {
        Err(error) => format!(" unreadable: {error}"),
        Ok((_, message)) => {
            let addresses = match message {
                CmMessage::Req(req) => CmaHeader::parse(req.private).ok(),
                CmMessage::SidrReq(req) => CmaHeader::parse(req.private).ok(),
                _ => None,
            };
            match addresses {
                Some(header) => format!(" {message} {} > {}", header.src, header.dst),
                None => format!(" {message}"),
            }
        }
    }
}
