//! Tests of datagram queue pairs: packets carried by the test, every drop by its cause, order, states and the header before a message.

use core::net::IpAddr;

use verbena_events::event::{Event, Outbox, Wake};
use verbena_mem::{Access, Buffer, Policy, Reserved};
use verbena_wire::Stag;
use verbena_wire::roce::{Path, UdPacket, icrc_over_socket};

use super::*;
use crate::adapter::Adapter;
use crate::function::{Function, NewUd, Shares};
use crate::qp::PostError;
use crate::testing::poll;
use crate::wc::{Header, Status, Wc, WcOp};
use crate::wr::{Data, Flags, ReceiveWr};

const KEY: u32 = 0x1234_5678;
const LOCAL_ADDR: [u8; 4] = [10, 0, 0, 1];
const PEER_ADDR: [u8; 4] = [10, 0, 0, 2];

/// Takes so many packets, and adds a valid checksum to each.
#[derive(Default)]
struct TestSender {
    packets: Vec<Vec<u8>>,
    room: usize,
    answer: Option<SendOutcome>,
}

impl TestSender {
    fn of(room: usize) -> TestSender {
        TestSender {
            room,
            ..TestSender::default()
        }
    }
}

impl DatagramSender for TestSender {
    fn send_packet(&mut self, to: &Destination, packet: &mut Vec<u8>) -> SendOutcome {
        if let Some(answer) = self.answer {
            return answer;
        }
        if self.room == 0 {
            return SendOutcome::Full;
        }
        self.room -= 1;
        let icrc = icrc_over_socket(path(to.source, to.address), packet);
        packet.extend_from_slice(&icrc);
        self.packets.push(packet.clone());
        SendOutcome::Sent
    }
}

fn path(src: IpAddr, dst: IpAddr) -> Path {
    Path {
        src,
        dst,
        src_port: 20_000,
        dst_port: 20_000,
    }
}

struct World {
    function: Arc<Function>,
    memory: Buffer,
    pd: Pd,
    cq: Arc<Cq>,
    out: Outbox,
}

impl World {
    fn new() -> World {
        World::sized(100)
    }

    fn sized(entries: usize) -> World {
        let adapter = Adapter::new(Shares::default(), Policy::Verbs, 7).unwrap();
        let function = adapter.function(0).unwrap();
        let pd = function.allocate_pd().unwrap();
        let memory = function.register_buffer(pd, 1 << 16, Access::ALL).unwrap();
        let cq = function.create_cq(entries).unwrap();
        World {
            function,
            memory,
            pd,
            cq,
            out: Outbox::new(),
        }
    }

    fn qp(&mut self, qpn: u32, srq: Option<u32>) -> Arc<UdQp> {
        let new = NewUd {
            qpn: Qpn::wrapping(qpn),
            pd: self.pd,
            send_cq: self.cq.number(),
            recv_cq: self.cq.number(),
            srq,
            limits: Limits::default(),
        };
        let qp = self.function.create_ud(new).unwrap();
        qp.set_qkey(KEY);
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            qp.modify(state, &mut self.out).unwrap();
        }
        qp
    }

    fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.memory.at() + offset,
            len,
            stag: self.memory.stag(),
        }
    }

    fn receive(&mut self, qp: &UdQp, id: u64, scatter: &[Sge]) {
        qp.post_receive(&ReceiveWr { id, scatter }, &mut self.out)
            .unwrap();
    }

    fn send(&mut self, qp: &UdQp, id: u64, sges: &[Sge]) {
        qp.queue_send(&wr(id, Data::Gather(sges)), &mut self.out)
            .unwrap();
    }

    fn events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.out).events().to_vec()
    }

    fn statuses(&self) -> Vec<(u64, Status)> {
        poll(&self.cq).iter().map(|wc| (wc.id, wc.status)).collect()
    }

    /// A datagram arrives from `PEER_ADDR`.
    fn receive_packet(&mut self, qp: &UdQp, packet: &UdPacket<'_>) -> Result<(), DropReason> {
        let path = path(PEER_ADDR.into(), LOCAL_ADDR.into());
        let bytes = seal(packet, path);
        let arrival = ReceivedDatagram::parse(&bytes, path)?;
        qp.deliver(&arrival, &mut self.out)
    }
}

fn wr(id: u64, data: Data<'_>) -> UdSendWr<'_> {
    UdSendWr {
        id,
        immediate: None,
        flags: Flags::SIGNALED,
        data,
        to: Destination {
            address: PEER_ADDR.into(),
            source: LOCAL_ADDR.into(),
            number: Qpn::wrapping(77),
            qkey: KEY,
        },
    }
}

fn packet(payload: &[u8]) -> UdPacket<'_> {
    UdPacket {
        dest_qpn: Qpn::wrapping(5),
        src_qpn: Qpn::wrapping(99),
        qkey: KEY,
        pkey: PKEY,
        psn: Psn::wrapping(0),
        solicited: false,
        immediate: None,
        payload,
    }
}

fn seal(packet: &UdPacket<'_>, path: Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    let icrc = icrc_over_socket(path, &bytes);
    bytes.extend_from_slice(&icrc);
    bytes
}

#[test]
fn datagram_fills_grh_and_reports_its_source() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    // In elements that cut both the header and the message.
    let pieces = [world.sge(0, 25), world.sge(100, 20), world.sge(200, 500)];
    world.receive(&qp, 1, &pieces);
    let came = UdPacket {
        immediate: Some([0, 0, 1, 2]),
        solicited: true,
        ..packet(b"hello there")
    };
    world.receive_packet(&qp, &came).unwrap();
    let wc = poll(&world.cq)[0];
    let expected = Wc {
        id: 1,
        qpn: 5,
        status: Status::Success,
        op: WcOp::Receive,
        len: 51,
        immediate: Some(0x102),
        invalidated: None,
        src_qp: 99,
        solicited: true,
        grh: Some(Header::V4),
    };
    assert_eq!(wc, expected);
    let got = [
        world.memory.read(0, 25),
        world.memory.read(100, 20),
        world.memory.read(200, 6),
    ]
    .concat();
    assert_eq!(&got[40..], b"hello there");
    // RoCEv2: an IPv4 header in the last 20 bytes; 24 of headers, 4 of immediate data, 12 of message and pad, 4 of checksum.
    let total = 20 + 8 + 20 + 4 + 12 + 4;
    assert_eq!(
        got[20..32],
        [0x45, 0, 0, total, 0, 0, 0x40, 0, 64, 17, got[30], got[31]]
    );
    assert_eq!(got[32..40], [PEER_ADDR, LOCAL_ADDR].concat());
    let sum: u32 = got[20..40]
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "RFC 1071");
    assert_eq!(got[..20], [0; 20]);
}

#[test]
fn ipv6_header_fills_all_forty_bytes() {
    let (src, dst): (IpAddr, IpAddr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let way = path(src, dst);
    let bytes = seal(&packet(b"1234"), way);
    let grh = ReceivedDatagram::parse(&bytes, way).unwrap().grh();
    assert_eq!(grh[..8], [0x60, 0, 0, 0, 0, 8 + 20 + 4 + 4, 17, 64]);
    assert_eq!((grh[8], grh[23], grh[24], grh[39]), (0xfd, 1, 0xfd, 2));
}

#[test]
fn dropped_datagrams_are_counted_by_cause() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    let cases = |world: &mut World| {
        let wrong_key = UdPacket {
            qkey: KEY ^ 1,
            ..packet(b"x")
        };
        let wrong_partition = UdPacket {
            pkey: 0x7fff,
            ..packet(b"x")
        };
        [
            world.receive_packet(&qp, &wrong_key),
            world.receive_packet(&qp, &wrong_partition),
            world.receive_packet(&qp, &packet(&[7; 61])),
        ]
    };
    assert_eq!(
        world.receive_packet(&qp, &packet(b"x")),
        Err(DropReason::NoReceive)
    );
    let small = [world.sge(0, 100)];
    world.receive(&qp, 1, &small);
    let refused = [DropReason::Key, DropReason::Partition, DropReason::TooLong].map(Err);
    assert_eq!(cases(&mut world), refused);
    assert!(poll(&world.cq).is_empty());
    world.receive_packet(&qp, &packet(&[7; 60])).unwrap();
    assert_eq!(world.statuses(), [(1, Status::Success)]);
    let expected = UdCounters {
        received: 1,
        bytes_in: 60,
        no_receive: 1,
        wrong_key: 1,
        too_long: 1,
        ..UdCounters::default()
    };
    assert_eq!(qp.view().counters, expected);
    qp.modify(QpState::Reset, &mut world.out).unwrap();
    assert_eq!(
        world.receive_packet(&qp, &packet(b"x")),
        Err(DropReason::State)
    );
    qp.modify(QpState::Init, &mut world.out).unwrap();
    assert_eq!(
        world.receive_packet(&qp, &packet(b"x")),
        Err(DropReason::State)
    );
    assert_eq!(qp.view().counters.not_receiving, 2);
}

/// Each bit of a datagram counts, except those that routers may set on the way.
#[test]
fn a_flipped_bit_is_a_dropped_datagram() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    let way = path(PEER_ADDR.into(), LOCAL_ADDR.into());
    let good = seal(&packet(b"thirteen byte"), way);
    let mut taken = 0;
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        if let Ok(arrival) = ReceivedDatagram::parse(&bytes, way) {
            assert_eq!(bit / 8, 4, "bit {bit}");
            assert_eq!(
                qp.deliver(&arrival, &mut world.out),
                Err(DropReason::NoReceive)
            );
            taken += 1;
        }
    }
    assert_eq!(taken, 8);
    for len in 0..good.len() {
        assert!(
            ReceivedDatagram::parse(&good[..len], way).is_err(),
            "{len} bytes"
        );
    }
    let elsewhere = path(PEER_ADDR.into(), [10, 0, 0, 3].into());
    assert_eq!(
        ReceivedDatagram::parse(&good, elsewhere).err(),
        Some(DropReason::Checksum)
    );
}

#[test]
fn oversized_datagrams_are_refused_both_ways() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    let too_long = [world.sge(0, 4097)];
    let refused = qp.queue_send(&wr(1, Data::Gather(&too_long)), &mut world.out);
    assert_eq!(refused, Err(PostError::Length));
    let limit = Limits::default().inline;
    let inline = vec![0; limit + 1];
    let refused = qp.queue_send(&wr(1, Data::Inline(&inline)), &mut world.out);
    let got = limit + 1;
    assert_eq!(refused, Err(PostError::Inline { got, limit }));
    let way = path(PEER_ADDR.into(), LOCAL_ADDR.into());
    let room = [world.sge(0, 65_000)];
    world.receive(&qp, 1, &room);
    for (len, verdict) in [
        (4097, Some(DropReason::Oversized)),
        (9000, Some(DropReason::Oversized)),
        (4096, None),
    ] {
        let payload = vec![1; len];
        let bytes = seal(&packet(&payload), way);
        assert_eq!(ReceivedDatagram::parse(&bytes, way).err(), verdict);
        assert_eq!(bytes.len() > largest_packet(), len > 4100);
    }
}

#[test]
fn sends_complete_in_order_as_room_permits() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    for id in 0..10 {
        assert!(world.memory.write(id * 8, &(id as u64).to_le_bytes()));
        let data = [world.sge(id as u64 * 8, 8)];
        world.send(&qp, id as u64, &data);
    }
    let mut sender = TestSender::default();
    for round in 0..10 {
        sender.room = 1;
        let sending = qp.transmit(&mut sender, &mut world.out);
        let blocked = UdSending::Blocked(LOCAL_ADDR.into());
        let expected = if round < 9 { blocked } else { UdSending::Idle };
        assert_eq!(sending, expected);
        assert_eq!(world.statuses(), [(round, Status::Success)]);
    }
    for (at, bytes) in sender.packets.iter().enumerate() {
        let (packet, _) = UdPacket::parse(bytes).unwrap();
        assert_eq!(packet.payload, (at as u64).to_le_bytes());
        assert_eq!((packet.dest_qpn.get(), packet.src_qpn.get()), (77, 5));
        assert_eq!((packet.psn.get(), packet.qkey), (at as u32, KEY));
    }
    // A datagram that the system does not send is lost, and completes: delivery is not guaranteed.
    world.send(&qp, 11, &[]);
    sender.answer = Some(SendOutcome::Lost);
    qp.transmit(&mut sender, &mut world.out);
    assert_eq!(world.statuses(), [(11, Status::Success)]);
    let expected = UdCounters {
        sent: 10,
        bytes_out: 80,
        lost: 1,
        ..UdCounters::default()
    };
    assert_eq!(qp.view().counters, expected);
}

#[test]
fn own_key_and_multicast_number_are_filled_in() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    let mut multicast = wr(1, Data::Inline(b"all"));
    multicast.to.address = "::ffff:239.1.2.3".parse().unwrap();
    multicast.to.qkey = 0x8000_0001;
    qp.queue_send(&multicast, &mut world.out).unwrap();
    let mut sender = TestSender::of(1);
    qp.transmit(&mut sender, &mut world.out);
    let (packet, _) = UdPacket::parse(&sender.packets[0]).unwrap();
    assert_eq!((packet.dest_qpn.get(), packet.qkey), (MULTICAST, KEY));
}

/// InfiniBand: a send that fails stops only the send queue, and `Rts` restarts it.
#[test]
fn failed_send_enters_sqe_until_rts() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    let good = [world.sge(0, 8)];
    let bad = [Sge {
        stag: Stag::new(0xdead_be00),
        ..good[0]
    }];
    world.send(&qp, 1, &good);
    world.send(&qp, 2, &bad);
    world.send(&qp, 3, &good);
    let mut sender = TestSender::of(9);
    qp.transmit(&mut sender, &mut world.out);
    let flushed = Status::WrFlushErr;
    let expected = [(1, Status::Success), (2, Status::LocProtErr), (3, flushed)];
    assert_eq!(world.statuses(), expected);
    assert_eq!((qp.state(), sender.packets.len()), (QpState::Sqe, 1));
    assert_eq!(qp.state().verbs(), 5);
    assert!(qp.view().cause.is_some());
    // Receives continue; sends flush at once.
    let room = [world.sge(0, 100)];
    world.receive(&qp, 4, &room);
    world.receive_packet(&qp, &packet(b"x")).unwrap();
    world.send(&qp, 5, &good);
    assert_eq!(world.statuses(), [(4, Status::Success), (5, flushed)]);
    qp.modify(QpState::Rts, &mut world.out).unwrap();
    world.send(&qp, 6, &good);
    qp.transmit(&mut sender, &mut world.out);
    assert_eq!(world.statuses(), [(6, Status::Success)]);
    // A source address that is not local is as bad as invalid memory.
    sender.answer = Some(SendOutcome::UnknownSource);
    world.send(&qp, 7, &good);
    qp.transmit(&mut sender, &mut world.out);
    assert_eq!(world.statuses(), [(7, Status::LocQpOpErr)]);
    assert_eq!((qp.state(), world.events()), (QpState::Sqe, vec![]));
}

#[test]
fn invalid_receive_memory_fails_the_queue_pair() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    let bad = [Sge {
        stag: Stag::new(0xdead_be00),
        ..world.sge(0, 100)
    }];
    world.receive(&qp, 1, &bad);
    let good = [world.sge(0, 100)];
    world.receive(&qp, 2, &good);
    world.send(&qp, 3, &good);
    assert_eq!(
        world.receive_packet(&qp, &packet(b"x")),
        Err(DropReason::Memory)
    );
    let flushed = Status::WrFlushErr;
    let expected = [(1, Status::LocProtErr), (3, flushed), (2, flushed)];
    assert_eq!(world.statuses(), expected);
    let fatal = Event::QpFatal { qp: qp.number() };
    assert_eq!((qp.state(), world.events()), (QpState::Err, vec![fatal]));
    // Requests posted now flush, too.
    world.receive(&qp, 4, &good);
    world.send(&qp, 5, &good);
    assert_eq!(world.statuses(), [(4, flushed), (5, flushed)]);
}

#[test]
fn sqd_queue_pair_keeps_posted_sends() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    qp.modify(QpState::Sqd, &mut world.out).unwrap();
    assert_eq!(world.events(), [Event::SqDrained { qp: qp.number() }]);
    world.send(&qp, 1, &[]);
    let mut sender = TestSender::of(9);
    qp.transmit(&mut sender, &mut world.out);
    assert!(poll(&world.cq).is_empty());
    qp.modify(QpState::Rts, &mut world.out).unwrap();
    qp.transmit(&mut sender, &mut world.out);
    assert_eq!(world.statuses(), [(1, Status::Success)]);
}

#[test]
fn posts_are_limited_by_state() {
    let mut world = World::new();
    let new = world.qp(5, None);
    new.modify(QpState::Reset, &mut world.out).unwrap();
    let receive = ReceiveWr {
        id: 1,
        scatter: &[],
    };
    let send = wr(1, Data::Inline(b""));
    for (state, receives, sends) in [
        (QpState::Reset, false, false),
        (QpState::Init, true, false),
        (QpState::Rtr, true, false),
        (QpState::Rts, true, true),
    ] {
        new.modify(state, &mut world.out).unwrap();
        assert_eq!(new.post_receive(&receive, &mut world.out).is_ok(), receives);
        assert_eq!(new.queue_send(&send, &mut world.out).is_ok(), sends);
    }
    assert!(new.modify(QpState::Init, &mut world.out).is_err());
    for id in 1..128 {
        new.queue_send(&wr(id, Data::Inline(b"")), &mut world.out)
            .unwrap();
    }
    let full = new.queue_send(&send, &mut world.out);
    assert_eq!(full, Err(PostError::Full(128)));
}

#[test]
fn srq_serves_datagrams_and_raises_limit_event() {
    let mut world = World::new();
    let srq = world.function.create_srq(world.pd, 8, 2).unwrap();
    let (a, b) = (
        world.qp(5, Some(srq.number())),
        world.qp(6, Some(srq.number())),
    );
    let receive = ReceiveWr {
        id: 1,
        scatter: &[],
    };
    let own = a.post_receive(&receive, &mut world.out);
    assert_eq!(own, Err(PostError::Shared));
    assert_eq!(
        world.receive_packet(&a, &packet(b"x")),
        Err(DropReason::NoReceive)
    );
    for (id, len) in [(1, 100), (2, 50)] {
        let scatter = &[world.sge(0, len)];
        assert_eq!(
            srq.post(&ReceiveWr { id, scatter }),
            Ok(None),
            "no request waits"
        );
    }
    assert!(srq.set_limit(2));
    world.receive_packet(&b, &packet(&[0; 60])).unwrap();
    assert_eq!(
        world.receive_packet(&a, &packet(&[0; 60])),
        Err(DropReason::TooLong)
    );
    world.receive_packet(&a, &packet(b"x")).unwrap();
    assert_eq!(world.events(), [Event::SrqLimit { srq: srq.number() }]);
    let mine: Vec<_> = poll(&world.cq).iter().map(|wc| (wc.id, wc.qpn)).collect();
    assert_eq!(mine, [(1, 6), (2, 5)]);
    a.modify(QpState::Err, &mut world.out).unwrap();
    assert_eq!(world.events(), [Event::LastWqe { qp: a.number() }]);
}

/// V5: a send waits until its memory is registered; a datagram does not wait for the memory of a receive.
#[test]
fn pending_memory_delays_sends_and_drops_datagrams() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    let tpt = qp.init().tpt.clone();
    let (later, reserved): (Buffer, Reserved) =
        Buffer::pending(&tpt, 64, world.pd, Access::ALL).unwrap();
    let piece = Sge {
        addr: later.at(),
        len: 64,
        stag: later.stag(),
    };
    world.receive(&qp, 1, &[piece]);
    world.send(&qp, 2, &[piece]);
    let mut sender = TestSender::of(9);
    assert_eq!(qp.transmit(&mut sender, &mut world.out), UdSending::Idle);
    assert_eq!(
        world.receive_packet(&qp, &packet(b"x")),
        Err(DropReason::Pending)
    );
    assert!(poll(&world.cq).is_empty());
    let settled = reserved.complete();
    world.out.wake_for_memory(settled.waiters);
    assert_eq!(world.out.take_woken(), [Wake::Memory(qp.number())]);
    qp.transmit(&mut sender, &mut world.out);
    world.receive_packet(&qp, &packet(b"x")).unwrap();
    assert_eq!(
        world.statuses(),
        [(2, Status::Success), (1, Status::Success)]
    );
}

#[test]
fn overflow_fails_queue_pair_and_destroy_cleans_up() {
    let mut world = World::sized(2);
    let qp = world.qp(5, None);
    let room = [world.sge(0, 100)];
    for id in 0..4 {
        world.receive(&qp, id, &room);
    }
    for _ in 0..3 {
        world.receive_packet(&qp, &packet(b"x")).unwrap();
    }
    assert_eq!(qp.state(), QpState::Err);
    world.function.settle(&mut world.out);
    let events = world.events();
    assert!(events.contains(&Event::QpFatal { qp: qp.number() }));
    assert_eq!(
        world.receive_packet(&qp, &packet(b"x")),
        Err(DropReason::State)
    );
    let number = qp.number();
    assert!(world.function.destroy_cq(world.cq.number()).is_err());
    assert!(world.function.qp(number).is_err(), "it is no connected one");
    assert!(world.function.destroy_qp(number, &mut world.out).is_err());
    world.function.destroy_ud(number).unwrap();
    assert!(world.function.destroy_ud(number).is_err());
    assert!(poll(&world.cq).is_empty());
    assert!(qp.modify(QpState::Init, &mut world.out).is_err());
    world.function.destroy_cq(world.cq.number()).unwrap();
    assert_eq!(world.function.used().qps, 0);
}

#[test]
fn destroyed_queue_pair_sends_nothing() {
    let mut world = World::new();
    let qp = world.qp(5, None);
    world.send(&qp, 1, &[]);
    world.function.destroy_ud(qp.number()).unwrap();
    let mut sender = TestSender::of(9);
    qp.transmit(&mut sender, &mut world.out);
    assert!(sender.packets.is_empty() && poll(&world.cq).is_empty());
    let refused = qp.queue_send(&wr(2, Data::Inline(b"")), &mut world.out);
    assert_eq!(refused, Err(PostError::State(QpState::Reset)));
}
