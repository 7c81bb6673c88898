//! Two queue pairs over RoCEv2, connected by a packet link that the test controls.
//! Every packet is written and parsed again on its way. What a lossy path does in the long run is the subject of `verbena-sim`.

use core::time::Duration;

use verbena_roce::{Mtu, Settings};
use verbena_stream::Time;
use verbena_wire::number::{Psn, Qpn};
use verbena_wire::roce::{Operation, Packet, Service};

use crate::qp::{Acks, PacketSender, QpAccessFlags, Sending};
use crate::state::{QpState, QpType};
use crate::testing::{Pair, SEND, Setup, Side, read, write};
use crate::wc::{Status, WcOp};
use crate::wr::SendOp;

/// Packets without their ICRC, up to a limit.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) packets: Vec<Vec<u8>>,
    pub(super) limit: Option<usize>,
}

impl PacketSender for Wire {
    fn put<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        if self.limit.is_some_and(|limit| self.packets.len() >= limit) {
            return None;
        }
        let mut packet = Vec::new();
        Some(write(&mut packet).map(|()| {
            assert_eq!(packet.len(), len);
            self.packets.push(packet);
        }))
    }
}

pub(super) fn settings(service: Service) -> Settings {
    Settings {
        service,
        mtu: Mtu::B1024,
        dest_qpn: Qpn::wrapping(7),
        send_psn: Psn::wrapping(0xff_fffe),
        receive_psn: Psn::wrapping(0xff_fffe),
        initiator_depth: 4,
        responder_resources: 4,
        timeout: Some(Duration::from_millis(10)),
        retry_count: 3,
        is_lossy: true,
        rnr_retry: 1,
    }
}

/// A pair whose queue pairs are attached to RoCEv2.
pub(super) fn pair(qp_type: QpType) -> Pair {
    let setup = Setup {
        qp_type,
        ..Setup::default()
    };
    let mut pair = Pair::unconnected(setup);
    let service = match qp_type {
        QpType::Uc => Service::Uc,
        _ => Service::Rc,
    };
    for side in [&mut pair.a, &mut pair.b] {
        side.qp.modify(QpState::Init, &mut side.out).unwrap();
        assert!(side.qp.attach_roce(&settings(service), &mut side.out));
        assert_eq!(side.qp.state(), QpState::Rts);
    }
    pair
}

pub(super) fn transmit(side: &mut Side, now: Time) -> Vec<Vec<u8>> {
    let mut wire = Wire::default();
    side.qp.transmit_packets(&mut wire, now, &mut side.out);
    wire.packets
}

pub(super) fn feed(side: &mut Side, bytes: &[u8], now: Time) {
    let mut whole = bytes.to_vec();
    whole.extend([0; 4]);
    let (packet, _) = Packet::parse(&whole).unwrap();
    side.qp.handle_packet(&packet, now, &mut side.out);
}

/// Moves packets until there are none; `keep` decides which arrive.
pub(super) fn run(pair: &mut Pair, now: Time, mut keep: impl FnMut(&[u8]) -> bool) {
    for _ in 0..10_000 {
        let from_a = transmit(&mut pair.a, now);
        let from_b = transmit(&mut pair.b, now);
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        from_a
            .iter()
            .filter(|p| keep(p))
            .for_each(|p| feed(&mut pair.b, p, now));
        from_b
            .iter()
            .filter(|p| keep(p))
            .for_each(|p| feed(&mut pair.a, p, now));
    }
    panic!("the queue pairs never come to rest");
}

pub(super) fn operation(bytes: &[u8]) -> Operation {
    let mut whole = bytes.to_vec();
    whole.extend([0; 4]);
    Packet::parse(&whole).unwrap().0.operation
}

const START: Time = Time::from_nanos(1_000_000);

#[test]
fn roce_moves_every_kind_of_message() {
    let mut pair = pair(QpType::Rc);
    let bytes: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
    pair.a.memory.write(0, &bytes);
    pair.b.receive(1, &[pair.b.sge(0, 4000)]);
    pair.b.receive(2, &[]);
    let to = pair.b.remote(4096);
    pair.a.post(10, SEND, &[pair.a.sge(0, 3000)]);
    let immediate = SendOp::Write {
        remote: to,
        immediate: Some(77),
    };
    pair.a.post(11, immediate, &[pair.a.sge(0, 2500)]);
    pair.a.post(12, read(to), &[pair.a.sge(4096, 2500)]);
    pair.b.memory.write(8000, &5u64.to_ne_bytes());
    let add = SendOp::FetchAdd {
        remote: pair.b.remote(8000),
        add: 3,
        mask: 0,
    };
    pair.a.post(13, add, &[pair.a.sge(8008, 8)]);
    run(&mut pair, START, |_| true);
    let done: Vec<_> = (10..14).map(|id| (id, Status::Success)).collect();
    assert_eq!(pair.a.statuses(), done);
    let received = pair.b.received();
    let seen = |n: usize| (received[n].id, received[n].op, received[n].len);
    assert_eq!(seen(0), (1, WcOp::Receive, 3000));
    assert_eq!(seen(1), (2, WcOp::ReceiveWriteImm, 2500));
    assert_eq!(received[1].immediate, Some(77));
    assert_eq!(pair.b.memory.read(0, 3000), bytes);
    assert_eq!(pair.a.memory.read(4096, 2500), bytes[..2500]);
    assert_eq!(pair.b.memory.read(8000, 8), 8u64.to_ne_bytes());
    assert_eq!(pair.a.memory.read(8008, 8), 5u64.to_ne_bytes());
}

#[test]
fn roce_repeats_lost_packets() {
    let mut pair = pair(QpType::Rc);
    let bytes: Vec<u8> = (0..4000u32).map(|n| (n * 7) as u8).collect();
    pair.a.memory.write(0, &bytes);
    let to = pair.b.remote(0);
    pair.a.post(1, write(to), &[pair.a.sge(0, 4000)]);
    let mut random = 7u64;
    let mut now = START;
    // A fifth of the packets is lost, in both directions and without a period.
    for _ in 0..50 {
        run(&mut pair, now, |_| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            !(random >> 33).is_multiple_of(5)
        });
        if let Some(deadline) = pair.a.qp.deadline() {
            now = deadline;
            pair.a.qp.handle_timeout(now, &mut pair.a.out);
        }
    }
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.b.memory.read(0, 4000), bytes);
}

#[test]
fn roce_request_waits_for_a_receive() {
    let mut pair = pair(QpType::Rc);
    pair.a.post(1, SEND, &[pair.a.sge(0, 100)]);
    run(&mut pair, START, |_| true);
    assert!(pair.a.statuses().is_empty());
    assert_eq!(pair.b.qp.counters().rnr_sent, 1);
    pair.b.receive(2, &[pair.b.sge(0, 100)]);
    let now = pair.a.qp.deadline().expect("the wait ends");
    pair.a.qp.handle_timeout(now, &mut pair.a.out);
    run(&mut pair, now, |_| true);
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.b.received().len(), 1);
}

#[test]
fn roce_receiver_that_stays_unready_fails_the_request() {
    let mut pair = pair(QpType::Rc);
    pair.a.post(1, SEND, &[pair.a.sge(0, 100)]);
    pair.a.post(2, SEND, &[pair.a.sge(0, 100)]);
    let mut now = START;
    for _ in 0..4 {
        run(&mut pair, now, |_| true);
        if let Some(deadline) = pair.a.qp.deadline() {
            now = deadline;
            pair.a.qp.handle_timeout(now, &mut pair.a.out);
        }
    }
    let flushed = (2, Status::WrFlushErr);
    assert_eq!(pair.a.statuses(), [(1, Status::RnrRetryExcErr), flushed]);
    assert_eq!(pair.a.qp.state(), QpState::Err);
    assert!(pair.b.qp.state() == QpState::Rts);
}

#[test]
fn roce_silent_peer_fails_the_request() {
    let mut pair = pair(QpType::Rc);
    pair.a
        .post(1, write(pair.b.remote(0)), &[pair.a.sge(0, 100)]);
    let mut now = START;
    for _ in 0..1000 {
        transmit(&mut pair.a, now);
        let Some(deadline) = pair.a.qp.deadline() else {
            break;
        };
        now = deadline;
        pair.a.qp.handle_timeout(now, &mut pair.a.out);
    }
    assert_eq!(pair.a.statuses(), [(1, Status::RetryExcErr)]);
    assert_eq!(pair.a.qp.cause().unwrap(), "the peer does not answer");
    assert!(
        now.since(START) >= Duration::from_millis(40),
        "all retries were made"
    );
}

#[test]
fn roce_refused_access_fails_both_sides() {
    let mut pair = pair(QpType::Rc);
    let beyond = pair.b.remote(crate::testing::SIZE as u64 - 10);
    pair.a.post(1, write(beyond), &[pair.a.sge(0, 100)]);
    pair.a
        .post(2, write(pair.b.remote(0)), &[pair.a.sge(0, 10)]);
    run(&mut pair, START, |_| true);
    assert_eq!(
        pair.a.statuses(),
        [(1, Status::RemAccessErr), (2, Status::WrFlushErr)]
    );
    assert_eq!(pair.b.qp.state(), QpState::Err);
    assert!(pair.b.qp.cause().unwrap().contains("refused"));
}

#[test]
fn roce_disabled_operation_is_an_invalid_request() {
    let mut pair = pair(QpType::Rc);
    let flags = QpAccessFlags {
        read: false,
        ..QpAccessFlags::default()
    };
    pair.b.qp.set_access_flags(flags, &mut pair.b.out);
    pair.a
        .post(1, read(pair.b.remote(0)), &[pair.a.sge(0, 100)]);
    run(&mut pair, START, |_| true);
    assert_eq!(pair.a.statuses(), [(1, Status::RemInvReqErr)]);
}

#[test]
fn roce_read_of_revoked_memory_gets_a_nak() {
    let mut pair = pair(QpType::Rc);
    pair.a
        .post(1, read(pair.b.remote(0)), &[pair.a.sge(0, 4000)]);
    let request = transmit(&mut pair.a, START);
    request.iter().for_each(|p| feed(&mut pair.b, p, START));
    let mut wire = Wire {
        limit: Some(1),
        ..Wire::default()
    };
    let sending = pair
        .b
        .qp
        .transmit_packets(&mut wire, START, &mut pair.b.out);
    assert_eq!(sending, Sending::Blocked);
    assert!(matches!(
        operation(&wire.packets[0]),
        Operation::ReadResponseFirst(_)
    ));
    pair.b.tpt.deregister(pair.b.memory.stag()).unwrap();
    feed(&mut pair.a, &wire.packets[0], START);
    run(&mut pair, START, |_| true);
    assert_eq!(pair.a.statuses(), [(1, Status::RemAccessErr)]);
}

#[test]
fn roce_message_longer_than_receive_fails_both() {
    let mut pair = pair(QpType::Rc);
    pair.b.receive(5, &[pair.b.sge(0, 1500)]);
    pair.a.post(1, SEND, &[pair.a.sge(0, 2000)]);
    run(&mut pair, START, |_| true);
    assert_eq!(pair.a.statuses(), [(1, Status::RemInvReqErr)]);
    let received = pair.b.received();
    assert_eq!((received[0].id, received[0].status), (5, Status::LocLenErr));
}

#[test]
fn unreliable_roce_drops_messages_with_lost_packets() {
    let mut pair = pair(QpType::Uc);
    pair.b.receive(5, &[pair.b.sge(0, 3000)]);
    let mut count = 0;
    pair.a.post(1, SEND, &[pair.a.sge(0, 3000)]);
    pair.a.post(2, SEND, &[pair.a.sge(0, 2000)]);
    run(&mut pair, START, |_| {
        count += 1;
        count != 2
    });
    let done = [(1, Status::Success), (2, Status::Success)];
    assert_eq!(pair.a.statuses(), done);
    let received = pair.b.received();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].id, received[0].len), (5, 2000));
}

#[test]
fn deferred_acknowledgement_leaves_behind_a_request() {
    let mut pair = pair(QpType::Rc);
    pair.b.receive(5, &[pair.b.sge(0, 100)]);
    pair.a.receive(6, &[pair.a.sge(0, 100)]);
    pair.a.post(1, SEND, &[pair.a.sge(0, 8)]);
    let request = transmit(&mut pair.a, START);
    request.iter().for_each(|p| feed(&mut pair.b, p, START));
    let mut wire = Wire::default();
    let defer = (START, Acks::Piggyback);
    let b = &mut pair.b;
    let turn = b.qp.try_transmit_packets(&mut wire, defer, &mut b.out);
    assert!(turn.unwrap().owes_ack && wire.packets.is_empty());
    b.post(2, SEND, &[b.sge(0, 8)]);
    let turn = b.qp.try_transmit_packets(&mut wire, defer, &mut b.out);
    assert!(!turn.unwrap().owes_ack);
    let sent: Vec<Operation> = wire.packets.iter().map(|p| operation(p)).collect();
    assert!(matches!(
        sent[..],
        [Operation::SendOnly(..), Operation::Acknowledge(_)]
    ));
    wire.packets
        .iter()
        .for_each(|p| feed(&mut pair.a, p, START));
    run(&mut pair, START, |_| true);
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.b.statuses(), [(2, Status::Success)]);
}

#[test]
fn only_positive_acknowledgements_are_deferred() {
    let mut pair = pair(QpType::Rc);
    pair.a.post(1, SEND, &[pair.a.sge(0, 8)]);
    let request = transmit(&mut pair.a, START);
    // There is no receive: the NAK leaves at once.
    request.iter().for_each(|p| feed(&mut pair.b, p, START));
    let (mut wire, b) = (Wire::default(), &mut pair.b);
    let defer = (START, Acks::Piggyback);
    let turn = b.qp.try_transmit_packets(&mut wire, defer, &mut b.out);
    assert!(!turn.unwrap().owes_ack);
    assert_eq!(wire.packets.len(), 1);
}

#[test]
fn roce_sender_without_room_loses_nothing() {
    let mut pair = pair(QpType::Rc);
    pair.a
        .post(1, write(pair.b.remote(0)), &[pair.a.sge(0, 4000)]);
    let mut packets = Vec::new();
    for _ in 0..10 {
        let mut wire = Wire {
            limit: Some(1),
            ..Wire::default()
        };
        pair.a
            .qp
            .transmit_packets(&mut wire, START, &mut pair.a.out);
        packets.extend(wire.packets);
    }
    assert_eq!(packets.len(), 4);
    packets.iter().for_each(|p| feed(&mut pair.b, p, START));
    run(&mut pair, START, |_| true);
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}
