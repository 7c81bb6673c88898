//! Tests of bursts: which packets leave in one call, what happens when the socket is full or cannot cut buffers, and the ICRC of each packet.

use core::cell::{Cell, RefCell};

use super::*;

const FROM: SocketAddr = SocketAddr::new(
    core::net::IpAddr::V4(core::net::Ipv4Addr::new(127, 0, 0, 1)),
    4791,
);
const TO: SocketAddr = SocketAddr::new(
    core::net::IpAddr::V4(core::net::Ipv4Addr::new(127, 0, 0, 2)),
    4791,
);

/// Records the calls: the packets of each.
#[derive(Default)]
struct FakeSocket {
    calls: RefCell<Vec<Vec<Vec<u8>>>>,
    /// Calls for which there is room.
    room: Cell<usize>,
    cannot_cut: bool,
}

impl FakeSocket {
    fn with_room(room: usize) -> FakeSocket {
        FakeSocket {
            room: Cell::new(room),
            ..FakeSocket::default()
        }
    }

    fn take_room(&self) -> bool {
        let room = self.room.get();
        self.room.set(room.saturating_sub(1));
        room > 0
    }

    /// The lengths of the packets of each call, without ICRC. Every ICRC must be that of the packet's number in its call.
    fn lengths(&self) -> Vec<Vec<usize>> {
        let calls = self.calls.borrow();
        let of_call = |call: &Vec<Vec<u8>>| {
            let of_packet = |(number, packet): (u16, &Vec<u8>)| {
                let (bytes, icrc) = packet.split_last_chunk::<ICRC_LEN>().unwrap();
                assert_eq!(*icrc, icrc_of_segment(path(), number, bytes));
                bytes.len()
            };
            (0..).zip(call).map(of_packet).collect()
        };
        calls.iter().map(of_call).collect()
    }

    /// The first byte of each packet.
    fn marks(&self) -> Vec<u8> {
        let calls = self.calls.borrow();
        calls.iter().flatten().map(|packet| packet[0]).collect()
    }
}

impl PacketSocket for FakeSocket {
    fn send(&self, bytes: &[u8], to: SocketAddr) -> sys::Result<bool> {
        assert_eq!(to, TO);
        if !self.take_room() {
            return Ok(false);
        }
        self.calls.borrow_mut().push(vec![bytes.to_vec()]);
        Ok(true)
    }

    fn send_segments(
        &self,
        bytes: &[u8],
        segment: usize,
        to: SocketAddr,
    ) -> sys::Result<SegmentsOutcome> {
        assert_eq!(to, TO);
        if self.cannot_cut {
            return Ok(SegmentsOutcome::Unsupported);
        }
        if !self.take_room() {
            return Ok(SegmentsOutcome::Full);
        }
        let packets = bytes.chunks(segment).map(<[u8]>::to_vec).collect();
        self.calls.borrow_mut().push(packets);
        Ok(SegmentsOutcome::Sent)
    }
}

fn path() -> Path {
    Path {
        src: FROM.ip(),
        dst: TO.ip(),
        src_port: FROM.port(),
        dst_port: TO.port(),
    }
}

fn burst<'a>(sender: &'a BurstSender, socket: &'a FakeSocket) -> Burst<'a, FakeSocket> {
    Burst::new(sender, socket, FROM, TO)
}

/// Writes a packet of `len` bytes that begins with `mark`; false if there is no room.
fn write(burst: &mut Burst<'_, FakeSocket>, mark: u8, len: usize) -> bool {
    burst.put_bytes(&vec![mark; len])
}

#[test]
fn equal_packets_leave_with_one_call() {
    let (sender, socket) = (BurstSender::default(), FakeSocket::with_room(9));
    let mut burst = burst(&sender, &socket);
    for (mark, len) in (0..).zip([1040, 1040, 1040, 20, 20, 1040, 1044, 12]) {
        assert!(write(&mut burst, mark, len));
    }
    assert_eq!(burst.flush(), SendOutcome::Sent);
    assert_eq!(burst.flush(), SendOutcome::Sent, "nothing is left");
    let expected: [&[usize]; 4] = [&[1040, 1040, 1040, 20], &[20], &[1040], &[1044, 12]];
    assert_eq!(socket.lengths(), expected);
    assert_eq!(socket.marks(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn calls_are_limited_in_packets_and_bytes() {
    let (sender, socket) = (BurstSender::default(), FakeSocket::with_room(9));
    let mut burst = burst(&sender, &socket);
    for len in [20; 70].into_iter().chain([4096 + 28; 20]) {
        assert!(write(&mut burst, 1, len));
    }
    assert!(
        !burst.put_bytes(&[0; MAX_SEGMENTS_LEN]),
        "longer than a call"
    );
    assert_eq!(burst.flush(), SendOutcome::Sent);
    let counts: Vec<usize> = socket.lengths().iter().map(Vec::len).collect();
    assert_eq!(counts, [64, 6, 15, 5]);
}

#[test]
fn packets_without_room_are_sent_first_later() {
    let (sender, socket) = (BurstSender::default(), FakeSocket::with_room(0));
    let mut first = burst(&sender, &socket);
    assert!(write(&mut first, 1, 100) && write(&mut first, 2, 100));
    assert_eq!(first.flush(), SendOutcome::Full);
    assert!(sender.is_full());
    let mut second = burst(&sender, &socket);
    assert!(
        !write(&mut second, 3, 100),
        "the socket is known to be full"
    );
    assert!(!sender.send_pending(&socket));
    socket.room.set(2);
    assert!(write(&mut second, 3, 100));
    assert!(!sender.is_full());
    assert_eq!(second.flush(), SendOutcome::Sent);
    assert_eq!(socket.marks(), [1, 2, 3]);
    socket.lengths();
}

#[test]
fn full_socket_in_mid_burst_stops_the_caller() {
    let (sender, socket) = (BurstSender::default(), FakeSocket::with_room(0));
    let mut burst = burst(&sender, &socket);
    assert!(write(&mut burst, 1, 100));
    assert!(!write(&mut burst, 2, 200), "the first call found no room");
    assert_eq!(burst.flush(), SendOutcome::Sent, "it holds nothing");
    socket.room.set(1);
    assert!(sender.send_pending(&socket));
    assert_eq!(socket.marks(), [1]);
}

#[test]
fn pending_bursts_are_limited() {
    let (sender, socket) = (BurstSender::default(), FakeSocket::with_room(0));
    // All have room before the first one is flushed.
    let mut bursts: Vec<_> = (0..20).map(|_| burst(&sender, &socket)).collect();
    for (mark, burst) in (0..).zip(&mut bursts) {
        assert!(write(burst, mark, 100));
    }
    for burst in &mut bursts {
        assert_eq!(burst.flush(), SendOutcome::Full);
    }
    socket.room.set(100);
    assert!(sender.send_pending(&socket));
    assert_eq!(socket.marks().len(), MAX_PENDING, "the others are lost");
    sender.clear();
}

#[test]
fn socket_that_cannot_cut_sends_singly() {
    let sender = BurstSender::default();
    let socket = FakeSocket {
        cannot_cut: true,
        ..FakeSocket::with_room(3)
    };
    let mut burst = burst(&sender, &socket);
    for mark in 0..5 {
        assert!(write(&mut burst, mark, 100));
    }
    // There is room for three: the rest follows, and each is sent once.
    assert_eq!(burst.flush(), SendOutcome::Full);
    socket.room.set(10);
    assert!(sender.send_pending(&socket));
    assert!(socket.lengths().iter().all(|call| call == &[100]));
    assert_eq!(socket.marks(), [0, 1, 2, 3, 4]);
    assert!(write(&mut burst, 5, 100) && write(&mut burst, 6, 100));
    assert_eq!(burst.flush(), SendOutcome::Sent);
    assert!(!sender.segments.load(Ordering::Relaxed), "not tried again");
}

#[test]
fn packet_that_cannot_be_written_is_not_sent() {
    let (sender, socket) = (BurstSender::default(), FakeSocket::with_room(9));
    let mut burst = burst(&sender, &socket);
    assert!(write(&mut burst, 1, 100));
    let failed = burst.put(100, |packet| {
        packet.extend([2; 50]);
        Err(())
    });
    assert_eq!(failed, Some(Err(())));
    assert!(write(&mut burst, 3, 100));
    assert_eq!(burst.flush(), SendOutcome::Sent);
    assert_eq!(socket.lengths(), [[100, 100]]);
    assert_eq!(socket.marks(), [1, 3]);
}

#[test]
fn dropped_burst_sends_nothing() {
    let (sender, socket) = (BurstSender::default(), FakeSocket::with_room(9));
    let mut one = burst(&sender, &socket);
    assert!(write(&mut one, 1, 100));
    drop(one);
    assert!(socket.calls.borrow().is_empty());
    assert_eq!(sender.buffers.lock().len(), 1, "its buffer is used again");
}
