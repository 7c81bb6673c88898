//! Requests of a peer execute in order of arrival over RoCEv2: a response that is not sent yet has the bytes from before any later request.
//! Each test holds the responses back while later requests arrive.

use core::time::Duration;

use verbena_mem::{Access, Bind, WindowType};
use verbena_roce::Mtu;
use verbena_stream::Time;
use verbena_wire::roce::{Operation, Packet, Service};
use verbena_wire::{Stag, To};

use super::roce::{Wire, feed, operation, run, settings, transmit};
use crate::qp::Transfer;
use crate::state::{QpState, QpType};
use crate::testing::{PD, Pair, SEND, Setup, read, write};
use crate::wc::Status;
use crate::wr::{RemoteAddr, SendOp};

const START: Time = Time::from_nanos(1_000_000);
/// Bytes that are read: three packets.
const LEN: u32 = 2500;

/// Two connected queue pairs, of which the second has ones in its memory, and the first has twos to write from offset 4000 on.
fn pair(snapshot_max: usize) -> Pair {
    let transfer = Transfer {
        snapshot_max,
        ..Transfer::default()
    };
    let mut pair = Pair::unconnected(Setup {
        transfer,
        qp_type: QpType::Rc,
        ..Setup::default()
    });
    for side in [&mut pair.a, &mut pair.b] {
        side.qp.modify(QpState::Init, &mut side.out).unwrap();
        let settings = settings(Service::Rc);
        assert_eq!(settings.mtu, Mtu::B1024);
        assert!(side.qp.attach_roce(&settings, &mut side.out));
    }
    pair.b.memory.write(0, &[1; 8000]);
    pair.a.memory.write(4000, &[2; 3000]);
    pair
}

/// What `a` sends now reaches `b`, which sends nothing.
fn deliver(pair: &mut Pair) -> Vec<Vec<u8>> {
    let packets = transmit(&mut pair.a, START);
    packets.iter().for_each(|p| feed(&mut pair.b, p, START));
    packets
}

/// `b` sends at most so many packets.
fn respond(pair: &mut Pair, limit: usize) -> Vec<Vec<u8>> {
    let mut wire = Wire {
        limit: Some(limit),
        ..Wire::default()
    };
    let b = &mut pair.b;
    b.qp.transmit_packets(&mut wire, START, &mut b.out);
    wire.packets
}

fn post_read(pair: &mut Pair, id: u64, remote: RemoteAddr, sink: u64) {
    let sink = [pair.a.sge(sink, LEN)];
    pair.a.post(id, read(remote), &sink);
}

fn is_all(bytes: &[u8], value: u8) -> bool {
    bytes.iter().all(|byte| *byte == value)
}

fn succeeded(pair: &Pair, ids: core::ops::RangeInclusive<u64>) {
    let expected: Vec<_> = ids.map(|id| (id, Status::Success)).collect();
    assert_eq!(pair.a.statuses(), expected);
}

#[test]
fn later_write_changes_no_unsent_response() {
    for sent in 0..4 {
        for (at, len) in [(0_u64, LEN), (300, 50), (1000, 100), (1700, 2000)] {
            let mut pair = pair(1 << 20);
            let from = pair.b.remote(0);
            post_read(&mut pair, 1, from, 0);
            deliver(&mut pair);
            let begun = respond(&mut pair, sent);
            assert_eq!(begun.len(), sent.min(3));
            let (to, source) = (pair.b.remote(at), [pair.a.sge(4000, len)]);
            pair.a.post(2, write(to), &source);
            deliver(&mut pair);
            // It does not wait for the response.
            let placed = pair.b.memory.read(at as usize, len as usize);
            assert!(is_all(&placed, 2), "{sent} {at}");
            begun.iter().for_each(|p| feed(&mut pair.a, p, START));
            run(&mut pair, START, |_| true);
            succeeded(&pair, 1..=2);
            let got = pair.a.memory.read(0, LEN as usize);
            assert!(is_all(&got, 1), "{sent} {at}");
        }
    }
}

#[test]
fn each_read_sees_the_writes_before_it() {
    let mut pair = pair(1 << 20);
    let to = pair.b.remote(0);
    for round in 0..4_u8 {
        let at = usize::from(round) * 100;
        pair.a.memory.write(at, &[round + 2; 100]);
        let source = [pair.a.sge(at as u64, 100)];
        let sink = [pair.a.sge(4000 + u64::from(round) * 200, 200)];
        pair.a.post(u64::from(round) * 2, write(to), &source);
        pair.a.post(u64::from(round) * 2 + 1, read(to), &sink);
    }
    deliver(&mut pair);
    run(&mut pair, START, |_| true);
    succeeded(&pair, 0..=7);
    for round in 0..4_u8 {
        let got = pair.a.memory.read(4000 + usize::from(round) * 200, 200);
        assert_eq!(got[..100], [round + 2; 100], "{round}");
        assert_eq!(got[100..], [1; 100], "{round}");
    }
}

#[test]
fn later_receive_changes_no_unsent_response() {
    let mut pair = pair(1 << 20);
    pair.b
        .receive(7, &[pair.b.sge(3000, 50), pair.b.sge(400, 1700)]);
    let from = pair.b.remote(0);
    post_read(&mut pair, 1, from, 0);
    pair.a.post(2, SEND, &[pair.a.sge(4000, 1500)]);
    deliver(&mut pair);
    let received = pair.b.received();
    assert_eq!((received[0].id, received[0].status), (7, Status::Success));
    assert!(is_all(&pair.b.memory.read(400, 1450), 2));
    run(&mut pair, START, |_| true);
    succeeded(&pair, 1..=2);
    assert!(is_all(&pair.a.memory.read(0, LEN as usize), 1));
}

#[test]
fn later_atomic_changes_no_unsent_response() {
    let mut pair = pair(1 << 20);
    pair.b.memory.write(0, &100_u64.to_ne_bytes());
    let remote = pair.b.remote(0);
    let add = SendOp::FetchAdd {
        remote,
        add: 5,
        mask: 0,
    };
    post_read(&mut pair, 1, remote, 0);
    pair.a.post(2, add, &[pair.a.sge(3000, 8)]);
    pair.a.post(3, read(remote), &[pair.a.sge(3008, 8)]);
    deliver(&mut pair);
    assert_eq!(pair.b.memory.read(0, 8), 105_u64.to_ne_bytes());
    run(&mut pair, START, |_| true);
    succeeded(&pair, 1..=3);
    let word_at = |at| pair.a.memory.read(at, 8);
    assert_eq!(word_at(0), 100_u64.to_ne_bytes());
    assert_eq!(word_at(3000), 100_u64.to_ne_bytes());
    assert_eq!(word_at(3008), 105_u64.to_ne_bytes());
}

/// A window of `b` on its memory that `a` may invalidate.
fn window(pair: &mut Pair) -> RemoteAddr {
    let b = &mut pair.b;
    let window = b.tpt.allocate_window(WindowType::TwoB, PD).unwrap();
    let bind = Bind {
        window,
        region: b.memory.stag(),
        addr: b.memory.at(),
        len: 4000,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        pd: PD,
        qp: b.qp.number(),
        key: 0x5a,
        zero_based: true,
        one_touch: false,
    };
    b.post(90, SendOp::Bind(bind), &[]);
    run(pair, START, |_| true);
    assert_eq!(pair.b.statuses(), [(90, Status::Success)]);
    RemoteAddr {
        stag: Stag::from_parts(window.index(), 0x5a).unwrap(),
        to: To::new(0),
    }
}

#[test]
fn invalidation_changes_no_unsent_response() {
    for sent in 0..4 {
        let mut pair = pair(1 << 20);
        let remote = window(&mut pair);
        pair.b.receive(7, &[pair.b.sge(6000, 10)]);
        post_read(&mut pair, 1, remote, 0);
        deliver(&mut pair);
        let begun = respond(&mut pair, sent);
        let invalidate = SendOp::Send {
            invalidate: Some(remote.stag),
            immediate: None,
        };
        pair.a.post(2, invalidate, &[]);
        deliver(&mut pair);
        assert_eq!(pair.b.received()[0].invalidated, Some(remote.stag));
        assert!(pair.b.tpt.find_entry(remote.stag).is_none());
        // Its owner uses the memory for something else.
        pair.b.memory.write(0, &[9; 3000]);
        begun.iter().for_each(|p| feed(&mut pair.a, p, START));
        run(&mut pair, START, |_| true);
        succeeded(&pair, 1..=2);
        assert!(is_all(&pair.a.memory.read(0, LEN as usize), 1), "{sent}");
    }
}

#[test]
fn without_room_only_what_overlaps_is_repeated() {
    let mut pair = pair(0);
    pair.b.receive(7, &[pair.b.sge(2000, 100)]);
    let from = pair.b.remote(0);
    post_read(&mut pair, 1, from, 0);
    let source = [pair.a.sge(4000, 500)];
    pair.a.post(2, write(pair.b.remote(LEN.into())), &source);
    pair.a.post(3, write(pair.b.remote(2000)), &source);
    pair.a.post(4, write(pair.b.remote(5000)), &source);
    pair.a.post(5, SEND, &[pair.a.sge(4000, 100)]);
    deliver(&mut pair);
    // Bytes beside the read are placed, bytes in it are not, and nothing behind them is.
    assert!(is_all(&pair.b.memory.read(LEN as usize, 500), 2));
    assert!(is_all(&pair.b.memory.read(2000, 500), 1));
    assert!(is_all(&pair.b.memory.read(5000, 500), 1));
    assert!(pair.b.received().is_empty());
    let answers = transmit(&mut pair.b, START);
    assert_eq!(
        answers.len(),
        4,
        "three packets of the response, then a NAK"
    );
    assert!(matches!(operation(&answers[3]), Operation::Acknowledge(_)));
    answers.iter().for_each(|p| feed(&mut pair.a, p, START));
    run(&mut pair, START, |_| true);
    succeeded(&pair, 1..=5);
    assert!(is_all(&pair.a.memory.read(0, LEN as usize), 1));
    assert!(is_all(&pair.b.memory.read(2000, 500), 2));
    assert_eq!(pair.b.received().len(), 1);
}

#[test]
fn without_room_invalidation_follows_the_response() {
    let mut pair = pair(0);
    let remote = window(&mut pair);
    pair.b.receive(7, &[pair.b.sge(6000, 10)]);
    post_read(&mut pair, 1, remote, 0);
    let invalidate = SendOp::Send {
        invalidate: Some(remote.stag),
        immediate: None,
    };
    pair.a.post(2, invalidate, &[]);
    deliver(&mut pair);
    assert!(pair.b.tpt.find_entry(remote.stag).is_some());
    run(&mut pair, START, |_| true);
    succeeded(&pair, 1..=2);
    assert!(pair.b.tpt.find_entry(remote.stag).is_none());
    assert_eq!(pair.b.received().len(), 1, "one receive, taken once");
}

/// The peer's program may post a Write larger than all room behind its Read.
#[test]
fn copies_are_limited() {
    let mut pair = pair(1500);
    let from = pair.b.remote(0);
    post_read(&mut pair, 1, from, 0);
    let source = [pair.a.sge(4000, LEN)];
    pair.a.post(2, write(from), &source);
    deliver(&mut pair);
    // Its first packet has room, its second has not.
    assert!(is_all(&pair.b.memory.read(0, 1024), 2));
    assert!(is_all(&pair.b.memory.read(1024, 1476), 1));
    run(&mut pair, START, |_| true);
    succeeded(&pair, 1..=2);
    assert!(is_all(&pair.a.memory.read(0, LEN as usize), 1));
    assert!(is_all(&pair.b.memory.read(0, LEN as usize), 2));
}

/// A network that repeats the request of a Read changes nothing of what was not sent.
#[test]
fn repeated_request_keeps_unsent_bytes() {
    for sent in 0..3 {
        let mut pair = pair(1 << 20);
        let from = pair.b.remote(0);
        post_read(&mut pair, 1, from, 0);
        let request = deliver(&mut pair);
        let begun = respond(&mut pair, sent);
        pair.a.post(2, write(from), &[pair.a.sge(4000, LEN)]);
        deliver(&mut pair);
        feed(&mut pair.b, &request[0], START);
        begun.iter().for_each(|p| feed(&mut pair.a, p, START));
        run(&mut pair, START, |_| true);
        succeeded(&pair, 1..=2);
        assert!(is_all(&pair.a.memory.read(0, LEN as usize), 1), "{sent}");
    }
}

/// As on every adapter (docs/roce.md): what was sent and lost is read again.
#[test]
fn read_repeated_after_loss_reads_memory_again() {
    let mut pair = pair(1 << 20);
    let from = pair.b.remote(0);
    post_read(&mut pair, 1, from, 0);
    deliver(&mut pair);
    let lost = transmit(&mut pair.b, START);
    assert_eq!(lost.len(), 3);
    pair.a.post(2, write(from), &[pair.a.sge(4000, LEN)]);
    run(&mut pair, START, |_| true);
    let mut now = START;
    while let Some(deadline) = pair.a.qp.deadline() {
        now = deadline.max(now + Duration::from_nanos(1));
        pair.a.qp.handle_timeout(now, &mut pair.a.out);
        run(&mut pair, now, |_| true);
    }
    succeeded(&pair, 1..=2);
    assert!(is_all(&pair.a.memory.read(0, LEN as usize), 2));
}

/// Packets that arrive together, as from one call of the socket.
#[test]
fn packets_of_one_burst_are_ordered() {
    let mut pair = pair(1 << 20);
    let from = pair.b.remote(0);
    post_read(&mut pair, 1, from, 0);
    pair.a.post(2, write(from), &[pair.a.sge(4000, LEN)]);
    let mut packets = transmit(&mut pair.a, START);
    packets.iter_mut().for_each(|packet| packet.extend([0; 4]));
    let parsed: Vec<Packet<'_>> = packets
        .iter()
        .map(|packet| Packet::parse(packet).unwrap().0)
        .collect();
    pair.b.qp.handle_packets(&parsed, START, &mut pair.b.out);
    run(&mut pair, START, |_| true);
    succeeded(&pair, 1..=2);
    assert!(is_all(&pair.a.memory.read(0, LEN as usize), 1));
}
