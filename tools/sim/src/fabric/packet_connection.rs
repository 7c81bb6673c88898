//! One RoCEv2 connection of a fabric: two queue pairs and a packet link in each direction.
//! Packets reach a queue pair as from a UDP port: parsed, and only with a valid ICRC. Neither side is told when a link is cut or the
//! other side is gone; the caller decides when each step takes place.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_nic::{PacketSender, Qp, QpState};
use verbena_roce::Settings;
use verbena_stream::Time;
use verbena_wire::ext::QpType;
use verbena_wire::roce::{Operation, Packet, Psn, Qpn, Service, Syndrome};

use super::host::HostId;
use super::packet_options::{PacketConnectOptions, PacketSideOptions};
use crate::packet_link::{PacketCounts, PacketLink};
use crate::rng::Rng;

/// A requester that was told so often in a row that there is no receive waits for one to be posted. More often than the retries that a
/// program can set, and than a link repeats one packet.
const WAITING: u32 = 8;

/// A queue pair at one end.
#[derive(Debug)]
struct PacketEnd {
    host: HostId,
    qp: Arc<Qp>,
    settings: Settings,
    /// When the queue pair gets the connection; `None` afterwards.
    attach_at: Option<Time>,
    attached: bool,
    /// Nothing happens here any more.
    finished: bool,
    /// NAKs of a receiver that was not ready since the last other answer, in this run.
    rnr_naks: u32,
    out: Outbox,
}

/// A RoCEv2 connection.
#[derive(Debug)]
pub(super) struct PacketConnection {
    ends: [PacketEnd; 2],
    links: [PacketLink; 2],
    held_until: Time,
}

/// Takes the packets of one turn.
struct Burst {
    packets: Vec<Vec<u8>>,
    left: usize,
}

impl PacketSender for Burst {
    fn put<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        self.left = self.left.checked_sub(1)?;
        let mut packet = Vec::new();
        Some(write(&mut packet).map(|()| {
            assert_eq!(packet.len(), len);
            self.packets.push(packet);
        }))
    }
}

fn qpn(qp: &Qp) -> Qpn {
    Qpn::wrapping(qp.number())
}

impl PacketEnd {
    fn new(
        (host, qp): (HostId, Arc<Qp>),
        peer: &Qp,
        sides: [&PacketSideOptions; 2],
        options: &PacketConnectOptions,
        now: Time,
    ) -> PacketEnd {
        let [own, theirs] = sides;
        let settings = Settings {
            service: match qp.init().qp_type {
                QpType::Uc => Service::Uc,
                _ => Service::Rc,
            },
            mtu: options.mtu,
            dest_qpn: qpn(peer),
            send_psn: own.psn,
            receive_psn: theirs.psn,
            initiator_depth: own.reads,
            responder_resources: theirs.reads,
            timeout: Some(own.timeout),
            retry_count: own.retry_count,
            is_lossy: own.is_lossy,
            rnr_retry: own.rnr_retry,
        };
        let mut out = Outbox::new();
        qp.set_rnr_timer(own.rnr_timer, &mut out);
        PacketEnd {
            host,
            qp,
            settings,
            attach_at: Some(now + own.attach_after),
            attached: false,
            finished: false,
            rnr_naks: 0,
            out,
        }
    }

    /// Gives the queue pair the connection when it is time.
    fn attach(&mut self, now: Time) -> bool {
        let is_due = self.attach_at.take_if(|at| *at <= now).is_some();
        if is_due {
            self.attached = self.qp.attach_roce(&self.settings, &mut self.out);
        }
        is_due
    }

    fn handle(&mut self, packet: &Packet<'_>, now: Time) {
        assert_eq!(packet.dest_qpn, qpn(&self.qp), "for another queue pair");
        if packet.operation.is_response() {
            let syndrome = packet.operation.aeth().map(|aeth| aeth.syndrome);
            self.rnr_naks = match syndrome {
                Some(Syndrome::RnrNak(_)) => self.rnr_naks + 1,
                _ => 0,
            };
        }
        if self.attached {
            self.qp.handle_packet(packet, now, &mut self.out);
        }
    }

    fn transmit(&mut self, burst: usize, now: Time) -> Vec<Vec<u8>> {
        let mut sender = Burst {
            packets: Vec::new(),
            left: burst,
        };
        if self.attached {
            self.qp.transmit_packets(&mut sender, now, &mut self.out);
        }
        sender.packets
    }

    fn deadline(&self) -> Option<Time> {
        match self.attached {
            true => self.qp.deadline(),
            false => self.attach_at,
        }
    }
}

impl PacketConnection {
    pub(super) fn new(
        parties: [(HostId, Arc<Qp>); 2],
        options: &PacketConnectOptions,
        rng: &mut Rng,
        now: Time,
    ) -> PacketConnection {
        let [a, b] = parties;
        let (first, second) = (a.1.clone(), b.1.clone());
        let [own, theirs] = [&options.sides[0], &options.sides[1]];
        PacketConnection {
            ends: [
                PacketEnd::new(a, &second, [own, theirs], options, now),
                PacketEnd::new(b, &first, [theirs, own], options, now),
            ],
            links: options.links.map(|link| PacketLink::new(link, rng.fork())),
            held_until: now,
        }
    }

    /// One turn of one end at the current time; false when nothing moved.
    pub(super) fn turn(&mut self, side: usize, now: Time) -> bool {
        if self.ends[side].finished {
            return false;
        }
        let attached = self.ends[side].attach(now);
        let arrived = self.arrive(side, now);
        let end = &mut self.ends[side];
        let expired = end.attached && end.deadline().is_some_and(|d| d <= now);
        if expired {
            end.qp.handle_timeout(now, &mut end.out);
        }
        let sent = self.transmit(side, now);
        attached | arrived | expired | sent
    }

    fn arrive(&mut self, side: usize, now: Time) -> bool {
        let (end, link) = (&mut self.ends[side], &mut self.links[1 - side]);
        if now < self.held_until {
            return false;
        }
        let mut arrived = false;
        for _ in 0..link.burst() {
            let Some(bytes) = link.arrive(now) else {
                break;
            };
            arrived = true;
            if link.has_valid_icrc(&bytes) {
                let parsed = Packet::parse(&bytes);
                let (packet, _) = parsed.expect("a queue pair sends packets that parse");
                end.handle(&packet, now);
            }
        }
        arrived
    }

    fn transmit(&mut self, side: usize, now: Time) -> bool {
        let packets = self.ends[side].transmit(self.links[side].burst(), now);
        let sent = !packets.is_empty();
        for packet in packets {
            if self.links[side].send(packet, now) {
                let notification = congestion_notification(&self.ends[side].qp);
                self.links[1 - side].send(notification, now);
            }
        }
        sent
    }

    /// A run begins: a requester that waits for a receive tries again.
    pub(super) fn begin_run(&mut self) {
        for end in &mut self.ends {
            end.rnr_naks = 0;
        }
    }

    /// When something happens next; without `with_waiting` not counting requesters that only wait for a receive to be posted.
    pub(super) fn next_moment(&self, with_waiting: bool) -> Option<Time> {
        let sides = [0, 1].into_iter();
        let live = sides.filter(|side| !self.ends[*side].finished);
        let moments = live.flat_map(|side| {
            let end = &self.ends[side];
            let waits = !with_waiting && self.waits_for_receive(side);
            let arrival = self.links[1 - side].next_arrival();
            let arrival = arrival.map(|at| at.max(self.held_until));
            [arrival, end.deadline().filter(|_| !waits)]
        });
        moments.flatten().min()
    }

    /// The requester of this side repeats a request for which the peer, which still answers, has no receive.
    fn waits_for_receive(&self, side: usize) -> bool {
        let peer = &self.ends[1 - side];
        let answers = peer.attached && !peer.finished && peer.qp.state() != QpState::Err;
        self.ends[side].rnr_naks >= WAITING && answers && !self.is_cut()
    }

    /// Cuts both directions; neither side is told.
    pub(super) fn cut(&mut self) {
        for link in &mut self.links {
            link.cut();
        }
    }

    /// Whether both directions are cut.
    pub(super) fn is_cut(&self) -> bool {
        self.links.iter().all(PacketLink::is_cut)
    }

    /// A queue pair that was reset has left the connection.
    pub(super) fn forget(&mut self, qp: &Arc<Qp>) {
        for end in self.ends.iter_mut().filter(|end| Arc::ptr_eq(&end.qp, qp)) {
            end.attached = false;
            end.attach_at = None;
        }
    }

    /// Ends one side without telling its queue pair.
    pub(super) fn abandon(&mut self, host: HostId) {
        for end in self.ends.iter_mut().filter(|end| end.host == host) {
            end.finished = true;
        }
    }

    /// Nothing arrives before `until`.
    pub(super) fn hold(&mut self, until: Time) {
        self.held_until = self.held_until.max(until);
    }

    /// The connection continues in another queue pair.
    pub(super) fn replace(&mut self, old: &Arc<Qp>, new: &Arc<Qp>) {
        for end in self.ends.iter_mut().filter(|end| Arc::ptr_eq(&end.qp, old)) {
            end.qp = new.clone();
        }
    }

    /// The host of an end, and the outbox of its calls.
    pub(super) fn take_outbox(&mut self, side: usize) -> (HostId, Outbox) {
        let end = &mut self.ends[side];
        (end.host, core::mem::take(&mut end.out))
    }

    /// Bytes sent in both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.links.iter().map(PacketLink::bytes).sum()
    }

    /// What both links did with packets.
    pub(super) fn counts(&self) -> PacketCounts {
        let mut counts = PacketCounts::default();
        for link in &self.links {
            counts.add(&link.counts());
        }
        counts
    }
}

/// The packet that tells a queue pair that its packets met congestion.
fn congestion_notification(to: &Qp) -> Vec<u8> {
    let cnp = Operation::CongestionNotification;
    let packet = Packet {
        becn: true,
        payload: &Packet::CNP_PAYLOAD,
        ..Packet::new(cnp, qpn(to), Psn::wrapping(0))
    };
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    bytes
}
