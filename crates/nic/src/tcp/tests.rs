//! Tests of queue pairs on a byte stream: the bytes and completions at every split, the three acknowledgements, shared receives, and
//! every end.

use std::sync::Arc;
use std::time::Duration;

use verbena_events::event::ChannelEvent;
use verbena_mem::{Access, Buffer, Pd, Policy, Sources, Targets};
use verbena_wire::Stag;

use super::*;
use crate::adapter::Adapter;
use crate::cq::Cq;
use crate::function::{Function, Shares};
use crate::profile::Service;
use crate::qp::Limits;
use crate::srq::Srq;
use crate::testing::poll;
use crate::ulp::NewUlp;
use crate::wr::{Data, Flags};

/// A connection in the hands of the test.
#[derive(Debug, Default)]
struct Wire {
    /// Bytes of the peer that arrived, at most `step` per read.
    arrived: Vec<u8>,
    step: usize,
    /// Answer to a read when nothing has arrived.
    then: Option<IoOutcome>,
    sent: Vec<u8>,
    room: usize,
    broken: bool,
    unacknowledged: u64,
    finished: bool,
}

impl Wire {
    fn with_room(room: usize) -> Wire {
        let step = usize::MAX;
        Wire {
            room,
            step,
            ..Wire::default()
        }
    }

    fn with_input(bytes: &[u8], step: usize) -> Wire {
        let arrived = bytes.to_vec();
        Wire {
            arrived,
            step,
            ..Wire::with_room(1000)
        }
    }

    fn ending(then: IoOutcome) -> Wire {
        let then = Some(then);
        Wire {
            then,
            ..Wire::with_room(1000)
        }
    }
}

impl Carrier for Wire {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        let most = self.arrived.len().min(self.step);
        match targets.fill(&self.arrived[..most]).unwrap() {
            0 => self.then.unwrap_or(IoOutcome::WouldBlock),
            n => {
                self.arrived.drain(..n);
                IoOutcome::Bytes(n)
            }
        }
    }

    fn write(&mut self, sources: &Sources<'_>) -> IoOutcome {
        if self.broken {
            return IoOutcome::Broken;
        }
        match sources.copy_to(&mut self.sent, self.room).unwrap() {
            0 => IoOutcome::WouldBlock,
            n => {
                self.room -= n;
                self.unacknowledged += n as u64;
                IoOutcome::Bytes(n)
            }
        }
    }

    fn unacknowledged(&self) -> Option<u64> {
        Some(self.unacknowledged)
    }

    fn finish(&mut self) {
        self.finished = true;
    }
}

struct World {
    function: Arc<Function>,
    pd: Pd,
    memory: Buffer,
    cq: Arc<Cq>,
    out: Outbox,
}

const LIMITS: Limits = Limits {
    sends: 4,
    receives: 4,
    max_sge: 2,
    inline: 16,
};

impl World {
    fn new() -> World {
        let adapter = Adapter::new(Shares::default(), Policy::Verbs, 7).unwrap();
        let function = adapter.function(0).unwrap();
        let pd = function.allocate_pd().unwrap();
        let memory = function.register_buffer(pd, 4096, Access::ALL).unwrap();
        let cq = function.create_cq(100).unwrap();
        World {
            function,
            pd,
            memory,
            cq,
            out: Outbox::new(),
        }
    }

    fn qp_with(&self, attr: TcpAttr, srq: Option<&Srq>) -> Arc<TcpQp> {
        let new = NewUlp {
            service: Service::Rdma,
            pd: self.pd,
            send_cq: self.cq.number(),
            recv_cq: self.cq.number(),
            srq: srq.map(Srq::number),
            limits: LIMITS,
        };
        let make = |init| TcpQp::new(init, attr);
        let qp = self.function.create_ulp(new, make).unwrap();
        qp.handle_connected();
        qp
    }

    fn qp(&self, acknowledgement: Acknowledgement, fill: Fill) -> Arc<TcpQp> {
        let attr = TcpAttr {
            acknowledgement,
            fill,
            channel: None,
        };
        self.qp_with(attr, None)
    }

    fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.memory.at() + offset,
            len,
            stag: self.memory.stag(),
        }
    }

    fn send(&mut self, qp: &TcpQp, id: u64, data: Data<'_>) -> Result<(), PostError> {
        let flags = Flags::SIGNALED;
        qp.post_send(&TcpSendWr { id, flags, data }, &mut self.out)
    }

    fn receive(&mut self, qp: &TcpQp, id: u64, scatter: &[Sge]) -> Result<(), PostError> {
        qp.post_receive(&ReceiveWr { id, scatter }, &mut self.out)
    }

    fn transmit(&mut self, qp: &TcpQp, wire: &mut Wire) -> Option<Sending> {
        qp.try_transmit(wire, Time::ZERO, &mut self.out)
    }

    fn read(&mut self, qp: &TcpQp, wire: &mut Wire) -> Receiving {
        qp.receive(wire, Time::ZERO, &mut self.out)
    }

    /// Completions since the last call.
    fn done(&self) -> Vec<(WcOp, u64, Status, u32)> {
        let of = |wc: Wc| (wc.op, wc.id, wc.status, wc.len);
        poll(&self.cq).into_iter().map(of).collect()
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.memory.read(offset, len)
    }

    fn events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.out).events().to_vec()
    }
}

fn sent(id: u64) -> (WcOp, u64, Status, u32) {
    (WcOp::Send, id, Status::Success, 0)
}

fn received(id: u64, len: u32) -> (WcOp, u64, Status, u32) {
    (WcOp::Receive, id, Status::Success, len)
}

fn flushed(op: WcOp, id: u64) -> (WcOp, u64, Status, u32) {
    (op, id, Status::WrFlushErr, 0)
}

#[test]
fn sends_leave_in_order_at_every_split() {
    for first in 0..=13 {
        let mut world = World::new();
        let qp = world.qp(Acknowledgement::Accepted, Fill::Any);
        assert!(world.memory.write(0, b"abcdefgh"));
        let pieces = [world.sge(2, 3), world.sge(6, 2)];
        world.send(&qp, 1, Data::Gather(&pieces)).unwrap();
        world.send(&qp, 2, Data::Inline(b"")).unwrap();
        world.send(&qp, 3, Data::Inline(b"12345678")).unwrap();
        let mut wire = Wire::with_room(first);
        let expected = if first < 13 {
            Sending::Blocked
        } else {
            Sending::Idle
        };
        assert_eq!(world.transmit(&qp, &mut wire), Some(expected), "{first}");
        let early = world.done();
        let count = usize::from(first >= 5) * 2 + usize::from(first >= 13);
        assert_eq!(early[..], [sent(1), sent(2), sent(3)][..count], "{first}");
        wire.room = 100;
        assert_eq!(world.transmit(&qp, &mut wire), Some(Sending::Idle));
        assert_eq!(early.len() + world.done().len(), 3, "{first}");
        assert_eq!(wire.sent, b"cdegh12345678", "{first}");
    }
}

#[test]
fn receive_takes_any_bytes() {
    let mut world = World::new();
    let qp = world.qp(Acknowledgement::Accepted, Fill::Any);
    let pieces = [world.sge(0, 2), world.sge(100, 8)];
    world.receive(&qp, 1, &pieces).unwrap();
    world.receive(&qp, 2, &[]).unwrap();
    world.receive(&qp, 3, &[world.sge(200, 64)]).unwrap();
    let mut wire = Wire::with_input(b"hello, world", 5);
    assert_eq!(world.read(&qp, &mut wire), Receiving::Held);
    assert_eq!(
        world.done(),
        [received(1, 5), received(2, 0), received(3, 5)]
    );
    assert_eq!(world.bytes(0, 2), b"he");
    assert_eq!(world.bytes(100, 3), b"llo");
    assert_eq!(world.bytes(200, 5), b", wor");
    // The rest waits for a receive.
    world.receive(&qp, 4, &[world.sge(300, 64)]).unwrap();
    assert_eq!(world.read(&qp, &mut wire), Receiving::Held);
    assert_eq!(world.done(), [received(4, 2)]);
}

#[test]
fn whole_receives_fill_at_every_split() {
    let text = b"0123456789abcdef";
    for step in 1..=text.len() {
        let mut world = World::new();
        let qp = world.qp(Acknowledgement::Accepted, Fill::Whole);
        let pieces = [world.sge(0, 3), world.sge(8, 4)];
        world.receive(&qp, 1, &pieces).unwrap();
        world.receive(&qp, 2, &[world.sge(16, 5)]).unwrap();
        world.receive(&qp, 3, &[world.sge(32, 9)]).unwrap();
        let mut wire = Wire::with_input(text, step);
        while matches!(world.read(&qp, &mut wire), Receiving::Some(_)) {}
        assert_eq!(world.done(), [received(1, 7), received(2, 5)], "{step}");
        // At the end of the stream a receive completes with what it has.
        wire.then = Some(IoOutcome::Eof);
        assert_eq!(world.read(&qp, &mut wire), Receiving::Held);
        assert_eq!(world.done(), [received(3, 4)], "{step}");
        assert_eq!(world.bytes(0, 3), text[..3]);
        assert_eq!(world.bytes(8, 4), text[3..7]);
        assert_eq!(world.bytes(16, 5), text[7..12]);
        assert_eq!(world.bytes(32, 4), text[12..]);
        assert_eq!(qp.outstanding(), (0, 0));
    }
}

#[test]
fn delivered_send_waits_for_transport_acknowledgement() {
    let mut world = World::new();
    let qp = world.qp(Acknowledgement::Delivered, Fill::Any);
    world.send(&qp, 1, Data::Inline(b"one")).unwrap();
    world.send(&qp, 2, Data::Inline(b"three")).unwrap();
    let mut wire = Wire::with_room(100);
    assert_eq!(world.transmit(&qp, &mut wire), Some(Sending::Idle));
    assert_eq!(world.done(), []);
    assert!(qp.is_busy());
    // TCP reports nothing: the queue pair asks, at growing intervals.
    let first = qp.deadline().unwrap();
    wire.unacknowledged = 5;
    qp.handle_timeout(first, &mut world.out);
    qp.try_transmit(&mut wire, first, &mut world.out);
    assert_eq!(world.done(), [sent(1)]);
    let mut intervals = Vec::new();
    let mut now = first;
    for _ in 0..12 {
        let next = qp.deadline().unwrap();
        intervals.push(next.since(now));
        now = next;
        qp.handle_timeout(now, &mut world.out);
        qp.try_transmit(&mut wire, now, &mut world.out);
    }
    assert!(intervals.is_sorted());
    assert_eq!(intervals[11], Duration::from_millis(10));
    wire.unacknowledged = 0;
    qp.handle_timeout(now, &mut world.out);
    qp.try_transmit(&mut wire, now, &mut world.out);
    assert_eq!(world.done(), [sent(2)]);
    assert_eq!((qp.deadline(), qp.is_busy()), (None, false));
}

#[test]
fn consumed_send_waits_for_reply() {
    let mut world = World::new();
    let qp = world.qp(Acknowledgement::Consumed, Fill::Any);
    world.send(&qp, 1, Data::Inline(b"one")).unwrap();
    world.send(&qp, 2, Data::Inline(b"three")).unwrap();
    for id in 10..14 {
        world.receive(&qp, id, &[world.sge(0, 64)]).unwrap();
    }
    let mut wire = Wire::with_room(100);
    world.transmit(&qp, &mut wire);
    wire.unacknowledged = 0;
    world.transmit(&qp, &mut wire);
    assert_eq!(world.done(), [], "delivered is not consumed");
    assert_eq!(qp.deadline(), None, "no timer: the reply wakes");
    // A byte that arrives while the second send is on its way.
    wire.unacknowledged = 1;
    wire.arrived = b"r".to_vec();
    world.read(&qp, &mut wire);
    assert_eq!(world.done(), [sent(1), received(10, 1)]);
    wire.unacknowledged = 0;
    wire.arrived = b"r".to_vec();
    world.read(&qp, &mut wire);
    assert_eq!(world.done(), [sent(2), received(11, 1)]);
}

#[test]
fn orderly_end_consumes_acknowledged_sends() {
    let mut world = World::new();
    let qp = world.qp(Acknowledgement::Consumed, Fill::Any);
    world.send(&qp, 1, Data::Inline(b"one")).unwrap();
    world.send(&qp, 2, Data::Inline(b"three")).unwrap();
    let mut wire = Wire::ending(IoOutcome::Eof);
    world.receive(&qp, 9, &[world.sge(0, 64)]).unwrap();
    world.transmit(&qp, &mut wire);
    wire.unacknowledged = 5;
    assert_eq!(world.read(&qp, &mut wire), Receiving::Ended);
    let expected = [flushed(WcOp::Receive, 9), sent(1), flushed(WcOp::Send, 2)];
    assert_eq!(world.done(), expected);
    assert_eq!(qp.state(), QpState::Err);
}

#[test]
fn sends_continue_behind_end_of_peer() {
    let mut world = World::new();
    let qp = world.qp(Acknowledgement::Accepted, Fill::Any);
    world.receive(&qp, 1, &[world.sge(0, 64)]).unwrap();
    let mut wire = Wire::ending(IoOutcome::Eof);
    assert_eq!(world.read(&qp, &mut wire), Receiving::Held);
    let gone = Event::Disconnected { qp: qp.number() };
    assert_eq!(world.events(), [gone]);
    assert!(qp.is_at_end());
    world.receive(&qp, 2, &[world.sge(0, 64)]).unwrap();
    world.send(&qp, 3, Data::Inline(b"late")).unwrap();
    assert_eq!(world.transmit(&qp, &mut wire), Some(Sending::Idle));
    let expected = [
        flushed(WcOp::Receive, 1),
        flushed(WcOp::Receive, 2),
        sent(3),
    ];
    assert_eq!(world.done(), expected);
    assert_eq!((qp.state(), &wire.sent[..]), (QpState::Rts, &b"late"[..]));
}

#[test]
fn finish_ends_stream_behind_posted_sends() {
    let mut world = World::new();
    let qp = world.qp(Acknowledgement::Accepted, Fill::Any);
    world.send(&qp, 1, Data::Inline(b"last")).unwrap();
    qp.finish().unwrap();
    let refused = world.send(&qp, 2, Data::Inline(b"later"));
    assert_eq!(refused, Err(PostError::State(QpState::Sqd)));
    let mut wire = Wire::with_room(2);
    world.transmit(&qp, &mut wire);
    assert!(!wire.finished, "two bytes are left");
    wire.room = 10;
    world.transmit(&qp, &mut wire);
    assert!(wire.finished);
    assert_eq!(world.done(), [sent(1)]);
}

#[test]
fn idle_connections_hold_no_shared_receive() {
    let mut world = World::new();
    let srq = world.function.create_srq(world.pd, 4, 1).unwrap();
    let attr = TcpAttr::default();
    let (a, b) = (
        world.qp_with(attr, Some(&srq)),
        world.qp_with(attr, Some(&srq)),
    );
    let wr = [world.sge(0, 4)];
    srq.post(&ReceiveWr {
        id: 1,
        scatter: &wr,
    })
    .unwrap();
    assert_eq!(
        world.read(&a, &mut Wire::with_room(0)),
        Receiving::WouldBlock
    );
    // Six bytes for the other, whose first four fill the receive.
    let mut wire = Wire::with_input(b"abcdef", 100);
    assert_eq!(world.read(&b, &mut wire), Receiving::Held);
    assert_eq!(world.done(), [received(1, 4)]);
    // A posted receive is reserved for the one that waits; destroying that one passes it on.
    let mut waiting = Wire::with_input(b"xyz", 100);
    assert_eq!(world.read(&a, &mut waiting), Receiving::Held);
    let wr = [world.sge(8, 4)];
    let woken = srq
        .post(&ReceiveWr {
            id: 2,
            scatter: &wr,
        })
        .unwrap();
    assert_eq!(woken, Some(b.number()));
    world
        .function
        .destroy_ulp(b.number(), &mut world.out)
        .unwrap();
    let woken: Vec<_> = world.out.take_woken();
    assert_eq!(woken, [verbena_events::event::Wake::Receive(a.number())]);
    assert_eq!(world.read(&a, &mut waiting), Receiving::WouldBlock);
    assert_eq!(world.done(), [received(2, 3)]);
    assert_eq!(world.bytes(8, 3), b"xyz");
    let own = world.receive(&a, 3, &[]);
    assert_eq!(own, Err(PostError::Shared));
}

#[test]
fn last_request_event_follows_the_end_once() {
    for acknowledgement in [Acknowledgement::Accepted, Acknowledgement::Consumed] {
        let mut world = World::new();
        let srq = world.function.create_srq(world.pd, 4, 1).unwrap();
        let attr = TcpAttr {
            acknowledgement,
            ..TcpAttr::default()
        };
        let qp = world.qp_with(attr, Some(&srq));
        world.read(&qp, &mut Wire::ending(IoOutcome::Eof));
        qp.fail("it fails after the end of the stream", &mut world.out);
        let last = Event::LastWqe { qp: qp.number() };
        let raised = world.out.events().iter().filter(|&&event| event == last);
        assert_eq!(raised.count(), 1, "{acknowledgement:?}");
    }
}

#[test]
fn invalid_memory_fails_the_first_request() {
    let mut world = World::new();
    let bad = Sge {
        stag: Stag::new(0xdead_be01),
        ..world.sge(0, 8)
    };
    let qp = world.qp(Acknowledgement::Accepted, Fill::Any);
    world.receive(&qp, 1, &[bad]).unwrap();
    world.receive(&qp, 2, &[world.sge(0, 8)]).unwrap();
    let mut wire = Wire::with_input(b"bytes", 100);
    assert_eq!(world.read(&qp, &mut wire), Receiving::Ended);
    let refused = (WcOp::Receive, 1, Status::LocProtErr, 0);
    assert_eq!(world.done(), [refused, flushed(WcOp::Receive, 2)]);

    let qp = world.qp(Acknowledgement::Accepted, Fill::Any);
    world.send(&qp, 1, Data::Inline(b"good")).unwrap();
    world.send(&qp, 2, Data::Gather(&[bad])).unwrap();
    world.send(&qp, 3, Data::Inline(b"never")).unwrap();
    let mut wire = Wire::with_room(100);
    assert_eq!(world.transmit(&qp, &mut wire), Some(Sending::Ended));
    let refused = (WcOp::Send, 2, Status::LocProtErr, 0);
    assert_eq!(world.done(), [sent(1), refused, flushed(WcOp::Send, 3)]);
    assert_eq!(wire.sent, b"good");
    assert!(qp.cause().is_some());
}

#[test]
fn broken_connection_fails_the_oldest_send() {
    let mut world = World::new();
    let qp = world.qp(Acknowledgement::Delivered, Fill::Any);
    world.send(&qp, 1, Data::Inline(b"gone")).unwrap();
    let mut wire = Wire::with_room(2);
    world.transmit(&qp, &mut wire);
    world.send(&qp, 2, Data::Inline(b"too")).unwrap();
    wire.broken = true;
    assert_eq!(world.transmit(&qp, &mut wire), Some(Sending::Ended));
    let failed = (WcOp::Send, 1, Status::RetryExcErr, 0);
    assert_eq!(world.done(), [failed, flushed(WcOp::Send, 2)]);
    // Later posts are flushed at once.
    world.send(&qp, 3, Data::Inline(b"late")).unwrap();
    world.receive(&qp, 4, &[]).unwrap();
    let expected = [flushed(WcOp::Send, 3), flushed(WcOp::Receive, 4)];
    assert_eq!(world.done(), expected);
}

#[test]
fn posts_beyond_limits_change_nothing() {
    let mut world = World::new();
    let qp = world.qp(Acknowledgement::Accepted, Fill::Any);
    let three = [world.sge(0, 1); 3];
    let (got, limit) = (3, 2);
    let many = Err(PostError::TooManySges { got, limit });
    assert_eq!(world.send(&qp, 1, Data::Gather(&three)), many);
    assert_eq!(world.receive(&qp, 1, &three), many);
    let (got, limit) = (17, 16);
    let long = world.send(&qp, 1, Data::Inline(&[0; 17]));
    assert_eq!(long, Err(PostError::Inline { got, limit }));
    let huge = [world.sge(0, u32::MAX); 2];
    let huge = world.send(&qp, 1, Data::Gather(&huge));
    assert_eq!(huge, Err(PostError::Length));
    for id in 0..4 {
        world.send(&qp, id, Data::Inline(b"x")).unwrap();
        world.receive(&qp, id, &[]).unwrap();
    }
    let full = Err(PostError::Full(4));
    assert_eq!(world.send(&qp, 9, Data::Inline(b"x")), full);
    assert_eq!(world.receive(&qp, 9, &[]), full);
    assert_eq!((qp.outstanding(), world.done()), ((4, 4), vec![]));
}

/// E7: the events of a channel, and none without one.
#[test]
fn receives_raise_channel_events() {
    for channel in [None, Some(TcpChannel { number: 7, low: 2 })] {
        let mut world = World::new();
        let attr = TcpAttr {
            channel,
            ..TcpAttr::default()
        };
        let qp = world.qp_with(attr, None);
        let expect = |world: &mut World, expected: &[(ChannelEvent, u32)]| {
            let events = world.events();
            let expected = expected.iter().map(|&(what, count)| Event::Channel {
                channel: 7,
                what,
                count,
            });
            let expected: Vec<Event> = expected.filter(|_| channel.is_some()).collect();
            assert_eq!(events, expected);
        };
        for id in 0..4 {
            world.receive(&qp, id, &[world.sge(0, 4)]).unwrap();
        }
        let full = world.receive(&qp, 4, &[]);
        assert_eq!(full, Err(PostError::Full(4)));
        expect(&mut world, &[(ChannelEvent::IllegalPost, 1)]);
        // The third is taken before its bytes arrive, and one waits: reported once, and again after two waited.
        for _ in 0..3 {
            let mut wire = Wire::with_input(b"12345678", 4);
            assert_eq!(world.read(&qp, &mut wire), Receiving::Some(8));
            world.transmit(&qp, &mut wire);
            let low = (ChannelEvent::BuffersLow, 1);
            expect(&mut world, &[low, (ChannelEvent::Returned, 2)]);
            assert_eq!(world.done().len(), 2);
            for id in 0..2 {
                world.receive(&qp, id, &[world.sge(0, 4)]).unwrap();
            }
        }
        qp.fail("the end", &mut world.out);
        let fatal = Event::QpFatal { qp: qp.number() };
        assert_eq!(world.out.events().last(), Some(&fatal));
        let flushed = world.out.events().len();
        assert_eq!(flushed, 1 + usize::from(channel.is_some()));
    }
}

#[test]
fn unwritable_memory_is_an_illegal_post() {
    let mut world = World::new();
    let channel = Some(TcpChannel { number: 3, low: 0 });
    let attr = TcpAttr {
        channel,
        ..TcpAttr::default()
    };
    let qp = world.qp_with(attr, None);
    let invalid = Sge {
        stag: Stag::new(0xdead_be01),
        ..world.sge(0, 4)
    };
    world.receive(&qp, 1, &[invalid]).unwrap();
    let mut wire = Wire::with_input(b"1234", 4);
    assert_eq!(world.read(&qp, &mut wire), Receiving::Ended);
    let event = |what| Event::Channel {
        channel: 3,
        what,
        count: 1,
    };
    let expected = [
        event(ChannelEvent::IllegalPost),
        event(ChannelEvent::Returned),
        Event::QpFatal { qp: qp.number() },
    ];
    assert_eq!(world.events(), expected);
}
