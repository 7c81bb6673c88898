//! Queue pairs on plain TCP connections between two of them and to ordinary sockets: accepted streams, shared receives, each meaning of an
//! acknowledgement, and the end of the device.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use verbena::events::{ChannelEvent, Event};
use verbena::low::{Data, Flags, QpState, RecvWr, WcOp};
use verbena::tcp::{
    Acknowledgement, ByteTransport, Fill, TcpChannel, TcpOptions, TcpQp, TcpSendWr,
};
use verbena::{Error, Fault, Status};

use super::{LONG, World, listen, pattern};

fn connect(world: &World, options: TcpOptions<'_>) -> (TcpQp, TcpStream) {
    let (listener, to) = listen();
    let qp = TcpQp::connect(&world.pd, (&world.cq, &world.cq), to, options).unwrap();
    (qp, listener.accept().unwrap().0)
}

fn send(qp: &TcpQp, id: u64, data: Data<'_>) {
    let flags = Flags::SIGNALED;
    qp.post_send(&[TcpSendWr { id, flags, data }]).unwrap();
}

fn receive(world: &World, qp: &TcpQp, id: u64, at: usize, len: usize) {
    let scatter = &[world.sge(at, len)];
    qp.post_recv(&[RecvWr { id, scatter }]).unwrap();
}

#[test]
fn bytes_travel_between_two_tcp_queue_pairs() {
    let mut world = World::new(2 * LONG);
    let whole = TcpOptions::default()
        .fill(Fill::Whole)
        .acknowledgement(Acknowledgement::Delivered);
    let (a, stream) = connect(&world, whole);
    let queues = (&*world.cq, &*world.cq);
    let b = TcpQp::from_stream(&world.pd, queues, stream, whole).unwrap();
    world.memory.write_at(0, &pattern(LONG)).unwrap();
    receive(&world, &b, 1, LONG, LONG);
    send(&a, 2, Data::Gather(&[world.sge(0, LONG)]));
    world.expect(WcOp::Receive, 1, Status::Success, LONG);
    world.expect(WcOp::Send, 2, Status::Success, 0);
    assert_eq!(world.bytes(LONG, LONG), pattern(LONG));
    // And back, in the other direction of the same connection.
    receive(&world, &a, 3, 0, 5);
    send(&b, 4, Data::Inline(b"reply"));
    world.expect(WcOp::Receive, 3, Status::Success, 5);
    world.expect(WcOp::Send, 4, Status::Success, 0);
}

/// M14: the refusal says why, and nothing was done: no connection arrives, and no queue pair is left.
#[test]
fn sctp_is_refused_with_the_reason() {
    let world = World::new(64);
    let (listener, to) = listen();
    let sctp = TcpOptions::default().transport(ByteTransport::Sctp);
    let queues = (&*world.cq, &*world.cq);
    let stream = TcpStream::connect(to).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let refused = [
        TcpQp::connect(&world.pd, queues, to, sctp).unwrap_err(),
        TcpQp::from_stream(&world.pd, queues, stream, sctp).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.fault(), Fault::Caller);
        let said = error.to_string();
        assert!(
            said.contains("CONFIG_IP_SCTP") && said.contains("TCP is"),
            "{said}"
        );
    }
    assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the stream was closed");
    listener.set_nonblocking(true).unwrap();
    let kind = listener.accept().unwrap_err().kind();
    assert_eq!(kind, std::io::ErrorKind::WouldBlock, "no connection");
}

#[test]
fn consumed_send_completes_with_the_reply() {
    let mut world = World::new(4096);
    let options = TcpOptions::default().acknowledgement(Acknowledgement::Consumed);
    let (qp, mut peer) = connect(&world, options);
    receive(&world, &qp, 1, 0, 64);
    send(&qp, 2, Data::Inline(b"request"));
    peer.read_exact(&mut [0; 7]).unwrap();
    assert_eq!(qp.outstanding(), (1, 1));
    peer.write_all(b"reply").unwrap();
    world.expect(WcOp::Receive, 1, Status::Success, 5);
    world.expect(WcOp::Send, 2, Status::Success, 0);
}

#[test]
fn shared_receives_wake_the_connection_that_waits() {
    let mut world = World::new(4096);
    let srq = world.pd.srq(16, 1).unwrap();
    let options = TcpOptions::default().srq(Some(&srq));
    let (a, mut to_a) = connect(&world, options);
    let (b, mut to_b) = connect(&world, options);
    // Bytes wait in both connections, whose queue is not polled: each posted receive lets one proceed.
    to_a.write_all(b"for a").unwrap();
    to_b.write_all(b"to b").unwrap();
    let mut lengths = Vec::new();
    for id in 0..2 {
        let scatter = &[world.sge(64 * id as usize, 64)];
        srq.post(&[RecvWr { id, scatter }]).unwrap();
        let wc = world.wait(WcOp::Receive, id);
        assert_eq!(wc.status, Status::Success);
        lengths.push((wc.qpn, wc.len));
    }
    lengths.sort_unstable();
    let mut expected = [(a.number(), 5), (b.number(), 4)];
    expected.sort_unstable();
    assert_eq!(lengths, expected);
}

#[test]
fn finish_lets_the_peer_read_the_end() {
    let mut world = World::new(4096);
    let (qp, mut peer) = connect(&world, TcpOptions::default());
    receive(&world, &qp, 1, 0, 64);
    send(&qp, 2, Data::Inline(b"all of it"));
    qp.finish().unwrap();
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"all of it");
    // The other direction is open.
    peer.write_all(b"thanks").unwrap();
    world.expect(WcOp::Receive, 1, Status::Success, 6);
    assert_eq!(qp.state(), QpState::Rts);
}

#[test]
fn reset_connection_flushes_and_names_the_cause() {
    let mut world = World::new(4096);
    let (qp, peer) = connect(&world, TcpOptions::default());
    receive(&world, &qp, 1, 0, 64);
    send(&qp, 2, Data::Inline(b"unread"));
    world.expect(WcOp::Send, 2, Status::Success, 0);
    // Closed with unread bytes: TCP resets the connection.
    peer.set_nonblocking(true).unwrap();
    verbena_testing::wait_until("the bytes arrive", || peer.peek(&mut [0]).is_ok());
    drop(peer);
    world.expect(WcOp::Receive, 1, Status::WrFlushErr, 0);
    assert_eq!(qp.state(), QpState::Err);
    assert_eq!(qp.cause().as_deref(), Some("the connection broke"));
}

#[test]
fn shutdown_of_the_device_ends_tcp_queue_pairs() {
    let mut world = World::new(4096);
    let (qp, mut peer) = connect(&world, TcpOptions::default());
    receive(&world, &qp, 1, 0, 64);
    world.device.shut_down(Duration::ZERO).unwrap();
    world.expect(WcOp::Receive, 1, Status::WrFlushErr, 0);
    let late = TcpSendWr {
        id: 2,
        flags: Flags::NONE,
        data: Data::Inline(b"late"),
    };
    assert!(qp.post_send(&[late]).is_err());
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn shared_receive_queue_of_other_device_is_refused() {
    let (world, other) = (World::new(64), World::new(64));
    let srq = other.pd.srq(4, 1).unwrap();
    let (_listener, to) = listen();
    let options = TcpOptions::default().srq(Some(&srq));
    let refused = TcpQp::connect(&world.pd, (&world.cq, &world.cq), to, options);
    assert!(matches!(refused, Err(Error::Foreign)));
}

/// E7: the receives of a connection are the buffers of its channel.
#[test]
fn receives_raise_events_of_their_channel() {
    let mut world = World::new(4096);
    let (tell, told) = std::sync::mpsc::channel();
    world.device.on_event(move |event| {
        if let Event::Channel { .. } = event {
            let _ = tell.send(event);
        }
    });
    let next = || told.recv_timeout(Duration::from_secs(10)).unwrap();
    let event = |what, count| Event::Channel {
        channel: 5,
        what,
        count,
    };
    let options = TcpOptions::default().channel(Some(TcpChannel { number: 5, low: 1 }));
    let (qp, mut peer) = connect(&world, options);
    receive(&world, &qp, 1, 0, 64);
    peer.write_all(b"bytes").unwrap();
    // Taken when the connection was read: none is left then.
    assert_eq!(next(), event(ChannelEvent::BuffersLow, 0));
    assert_eq!(next(), event(ChannelEvent::Returned, 1));
    world.expect(WcOp::Receive, 1, Status::Success, 5);
    let scatter = &[world.sge(0, 8); 100];
    assert!(qp.post_recv(&[RecvWr { id: 2, scatter }]).is_err());
    assert_eq!(next(), event(ChannelEvent::IllegalPost, 1));
    qp.fail("the end");
    assert!(told.try_recv().is_err(), "no receive was flushed");
    let unknown = TcpOptions::default().channel(Some(TcpChannel { number: 32, low: 0 }));
    let (_listener, to) = listen();
    let refused = TcpQp::connect(&world.pd, (&world.cq, &world.cq), to, unknown).unwrap_err();
    assert_eq!(refused.fault(), Fault::Caller);
    let why = "channel 32 does not exist; there are 32";
    assert_eq!(refused.to_string(), why);
}
