//! Two sockets of one process: every call, both ends of every stream, and peers that violate the protocol.

use std::sync::OnceLock;
use std::thread;

use verbena::low::{Data, Flags as WrFlags, Qp, QpOptions, SendOp, SendWr};
use verbena::{Access, Device};
use verbena_testing::{Tid, spawn_blocked, wait_blocked, wait_until};

use super::*;
use crate::hello::Hello;

fn net() -> &'static Arc<Net> {
    static NET: OnceLock<Arc<Net>> = OnceLock::new();
    NET.get_or_init(|| Net::open(Device::open().unwrap()))
}

fn listener() -> Stream {
    let listener = Stream::new(net());
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    listener.listen(64).unwrap();
    listener
}

fn pair_with(options: Options) -> (Stream, Stream) {
    let listener = listener();
    listener.set_options(|mine| *mine = options);
    let client = Stream::with(net(), options);
    let server = thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap());
        client.connect(listener.local_addr().unwrap()).unwrap();
        accepting.join().unwrap()
    });
    (client, server)
}

fn pair() -> (Stream, Stream) {
    pair_with(Options::default())
}

/// Pseudo-random bytes.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(seed);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn echo_returns_bytes_of_all_sizes() {
    let small = Options {
        recv_buffer: 3000,
        send_buffer: 5000,
        sends: 5,
        messages: 4,
        ..Options::default()
    };
    for options in [Options::default(), small] {
        let (client, server) = pair_with(options);
        let echo = thread::spawn(move || {
            let mut buf = vec![0; 70_000];
            loop {
                let n = server.recv(&mut buf, Flags::default()).unwrap();
                if n == 0 {
                    return server.shutdown(Half::Write).unwrap();
                }
                assert_eq!(server.send(&buf[..n], Flags::default()).unwrap(), n);
            }
        });
        for (at, len) in [
            1,
            2,
            255,
            256,
            257,
            4096,
            65_536,
            65_537,
            2_999,
            1 << 20,
            3_000_001,
        ]
        .into_iter()
        .enumerate()
        {
            let sent = pattern(len, at as u64 + 5);
            let mut got = vec![0; len];
            thread::scope(|scope| {
                scope.spawn(|| assert_eq!(client.send(&sent, Flags::default()).unwrap(), len));
                assert_eq!(client.recv(&mut got, Flags::WAIT_ALL).unwrap(), len);
            });
            assert!(sent == got, "{len} bytes differ");
        }
        client.shutdown(Half::Write).unwrap();
        assert_eq!(client.recv(&mut [0; 9], Flags::default()).unwrap(), 0);
        echo.join().unwrap();
    }
}

#[test]
fn full_socket_accepts_part_then_would_block() {
    let (client, server) = pair();
    client.set_nonblocking(true);
    let sent = pattern(4 << 20, 3);
    let mut done = 0;
    wait_until("it fills", || {
        match client.send(&sent[done..], Flags::default()) {
            Ok(n) => {
                done += n;
                assert!(done < sent.len(), "the peer does not read");
                false
            }
            Err(error) => {
                assert!(error.is_would_block(), "{error}");
                done >= Options::default().recv_buffer
            }
        }
    });
    assert_eq!(done, Options::default().recv_buffer);
    assert!(!client.readiness().writable);
    let mut got = vec![0; done];
    assert_eq!(server.recv(&mut got, Flags::WAIT_ALL).unwrap(), done);
    assert!(got == sent[..done]);
    wait_until("there is room again", || client.readiness().writable);
    assert!(client.send(b"x", Flags::default()).is_ok());
}

#[test]
fn peek_leaves_bytes_in_place() {
    let (client, server) = pair();
    client.send(b"hello", Flags::default()).unwrap();
    let mut got = [0; 5];
    let peek = Flags::PEEK | Flags::WAIT_ALL;
    assert_eq!(server.recv(&mut got, peek).unwrap(), 5);
    assert_eq!(server.recv(&mut got[..3], Flags::PEEK).unwrap(), 3);
    assert_eq!(server.recv(&mut got, Flags::default()).unwrap(), 5);
    assert_eq!(&got, b"hello");
    let nothing = server.recv(&mut got, Flags::DONT_WAIT | Flags::PEEK);
    assert!(nothing.unwrap_err().is_would_block());
    client.close();
    assert_eq!(
        server.recv(&mut got, peek).unwrap(),
        0,
        "the end is no wait"
    );
}

#[test]
fn each_half_shuts_down_independently() {
    let (client, server) = pair();
    client.send(b"last words", Flags::default()).unwrap();
    client.shutdown(Half::Write).unwrap();
    assert!(matches!(
        client.send(b"x", Flags::default()),
        Err(Error::Pipe)
    ));
    let mut got = [0; 10];
    assert_eq!(server.recv(&mut got, Flags::WAIT_ALL).unwrap(), 10);
    assert_eq!(server.recv(&mut got, Flags::default()).unwrap(), 0);
    assert!(server.readiness().readable && !server.readiness().hangup);
    server.send(b"the other way", Flags::default()).unwrap();
    let mut got = [0; 13];
    assert_eq!(client.recv(&mut got, Flags::WAIT_ALL).unwrap(), 13);
    server.shutdown(Half::Both).unwrap();
    assert_eq!(client.recv(&mut got, Flags::default()).unwrap(), 0);
    assert!(client.readiness().hangup && !client.readiness().error);
}

#[test]
fn read_shutdown_wakes_blocked_recv() {
    let (client, _server) = pair();
    thread::scope(|scope| {
        let waiting = spawn_blocked(scope, || {
            client.recv(&mut [0; 9], Flags::default()).unwrap()
        });
        client.shutdown(Half::Read).unwrap();
        assert_eq!(waiting.join().unwrap(), 0);
    });
}

#[test]
fn close_wakes_recv_and_delivers_sent_bytes() {
    let (client, server) = pair();
    let sent = pattern(300_000, 8);
    client.send(&sent, Flags::default()).unwrap();
    thread::scope(|scope| {
        let waiting = spawn_blocked(scope, || client.recv(&mut [0; 9], Flags::default()));
        client.close();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
    });
    wait_until("data arrives", || server.readiness().readable);
    let ready = server.readiness();
    assert!(
        ready.readable && !ready.hangup && !ready.error,
        "data waits: {ready:?}"
    );
    let mut got = vec![0; sent.len()];
    assert_eq!(server.recv(&mut got, Flags::WAIT_ALL).unwrap(), sent.len());
    assert!(got == sent);
    assert_eq!(server.recv(&mut got, Flags::default()).unwrap(), 0);
    wait_until("the connection is refused", || {
        matches!(server.send(b"x", Flags::default()), Err(Error::Pipe))
    });
}

#[test]
fn nonblocking_connect_reports_in_progress() {
    let listener = listener();
    listener.set_nonblocking(true);
    assert!(listener.accept().unwrap_err().is_would_block());
    assert!(!listener.readiness().readable);
    let client = Stream::new(net());
    client.set_nonblocking(true);
    let begun = client.connect(listener.local_addr().unwrap());
    assert!(matches!(begun, Err(Error::InProgress)));
    let again = client.connect(listener.local_addr().unwrap());
    assert!(
        matches!(again, Err(Error::Already | Error::Connected)),
        "{again:?}"
    );
    wait_until("a connection request arrives", || {
        listener.readiness().readable
    });
    let server = listener.accept().unwrap();
    wait_until("it is connected", || client.readiness().writable);
    assert!(client.take_error().is_none() && client.is_connected());
    assert!(matches!(
        client.connect(listener.local_addr().unwrap()),
        Err(Error::Connected)
    ));
    assert_eq!(client.peer_addr().unwrap(), listener.local_addr().unwrap());
    assert_eq!(client.local_addr().unwrap(), server.peer_addr().unwrap());
    assert!(
        client
            .recv(&mut [0], Flags::default())
            .unwrap_err()
            .is_would_block()
    );
}

#[test]
fn ipv6_wildcard_accepts_ipv4_unless_v6_only() {
    for only in [false, true] {
        let listener = Stream::new(net());
        listener.set_options(|mine| mine.v6_only = only);
        listener.bind("[::]:0".parse().unwrap()).unwrap();
        listener.listen(4).unwrap();
        listener.set_nonblocking(true);
        let port = listener.local_addr().unwrap().port();
        let client = Stream::new(net());
        client.set_nonblocking(true);
        let begun = client.connect(([127, 0, 0, 1], port).into());
        assert!(matches!(begun, Err(Error::InProgress)));
        if only {
            wait_until("it is refused", || client.readiness().error);
        } else {
            wait_until("a connection request arrives", || {
                listener.readiness().readable
            });
            listener.accept().unwrap();
        }
    }
}

#[test]
fn automatic_port_is_free_in_both_families() {
    // Linux chooses among some ten thousand ports: with so many tries, one that is in use for IPv4 is sure to come up.
    let others: Vec<_> = (0..400)
        .map(|_| std::net::TcpListener::bind("0.0.0.0:0").unwrap())
        .collect();
    for _ in 0..300 {
        Stream::new(net()).bind("[::]:0".parse().unwrap()).unwrap();
    }
    let named = others[0].local_addr().unwrap().port();
    let taken = Stream::new(net()).bind((std::net::Ipv6Addr::UNSPECIFIED, named).into());
    assert!(taken.is_err(), "another socket has the port for IPv4");
}

#[test]
fn refused_connect_reports_error_once() {
    let free = {
        let listener = listener();
        listener.local_addr().unwrap()
    };
    let client = Stream::new(net());
    let refused = client.connect(free).unwrap_err();
    assert!(
        matches!(refused, Error::Adapter(_) | Error::Refused(_)),
        "{refused}"
    );
    client.set_nonblocking(true);
    let begun = client.connect(free);
    assert!(matches!(begun, Err(Error::InProgress)), "it may try again");
    wait_until("it has failed", || client.readiness().error);
    assert!(client.readiness().writable);
    assert!(client.take_error().is_some());
    assert!(client.take_error().is_none());
}

#[test]
fn one_alarm_wakes_for_many_sockets() {
    const MANY: usize = 40;
    let pairs: Vec<_> = (0..MANY).map(|_| pair()).collect();
    let alarm = Notifier::current().unwrap();
    let watches: Vec<_> = pairs
        .iter()
        .map(|(client, _)| client.watch(&alarm))
        .collect();
    let waiter = Tid::current();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (_, server) in &pairs {
                wait_blocked(waiter);
                server.send(b"x", Flags::default()).unwrap();
            }
        });
        let mut left = MANY;
        let end = Instant::now() + Duration::from_secs(20);
        while left > 0 {
            alarm.clear();
            pairs.iter().for_each(|(client, _)| client.arm());
            let ready = pairs
                .iter()
                .filter(|(client, _)| client.readiness().readable);
            let read = ready.map(|(client, _)| client.recv(&mut [0; 2], Flags::DONT_WAIT).unwrap());
            let read: usize = read.sum();
            left -= read;
            if read == 0 {
                alarm.wait(Some(end)).unwrap();
            }
        }
    });
    drop(watches);
}

#[test]
fn receive_timeout_ends_waiting() {
    let (client, _server) = pair();
    client.set_options(|mine| mine.recv_timeout = Some(Duration::from_millis(30)));
    let start = Instant::now();
    assert!(
        client
            .recv(&mut [0], Flags::default())
            .unwrap_err()
            .is_would_block()
    );
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[test]
fn timeout_beyond_clock_range_is_none() {
    let (client, server) = pair();
    client.set_options(|mine| mine.recv_timeout = Some(Duration::MAX));
    server.send(b"x", Flags::default()).unwrap();
    assert_eq!(client.recv(&mut [0], Flags::default()).unwrap(), 1);
}

#[test]
fn the_peer_writes_mapped_memory() {
    let mapping = Options {
        maps: 2,
        ..Options::default()
    };
    let (client, server) = pair_with(mapping);
    let register = |stream: &Stream, len| stream.pd().unwrap().memory(len, Access::ALL).unwrap();
    let memory = register(&server, 200_000);
    let key = 7;
    server.map(key, memory.clone(), 1000).unwrap();
    let twice = server.map(8, register(&server, 8), 1000);
    assert!(matches!(twice, Err(Error::Invalid(_))));
    server.send(b"!", Flags::default()).unwrap();
    client.recv(&mut [0], Flags::default()).unwrap();
    let sent = pattern(150_000, 4);
    assert_eq!(
        client.write_mapped(&sent, 2000, Flags::default()).unwrap(),
        sent.len()
    );
    let beyond = client.write_mapped(b"x", 201_000, Flags::default());
    assert!(matches!(beyond, Err(Error::Unmapped { offset: 201_000 })));
    client.send(b"!", Flags::default()).unwrap();
    server.recv(&mut [0], Flags::default()).unwrap();
    let mut there = vec![0; sent.len()];
    memory.read_at(1000, &mut there).unwrap();
    assert!(there == sent);
    server.unmap(key, 200_000).unwrap();
    assert!(server.unmap(key, 200_000).is_err());
    server.send(b"!", Flags::default()).unwrap();
    client.recv(&mut [0], Flags::default()).unwrap();
    let gone = client.write_mapped(b"x", 2000, Flags::default());
    assert!(matches!(gone, Err(Error::Unmapped { .. })));
    let (unmapping, _peer) = pair();
    let refused = unmapping.map(key, register(&unmapping, 64), 0);
    assert!(matches!(refused, Err(Error::Full { limit: 0, .. })));
}

/// A peer on plain verbs that sends anything.
struct Rogue {
    qp: Qp,
    _cq: verbena::low::Cq,
    _memory: verbena::Memory,
}

impl Rogue {
    /// A rogue peer that has connected with a valid hello, and the accepted socket.
    fn connected() -> (Rogue, Stream, Hello) {
        let listener = listener();
        let device = &net().device;
        let (pd, cq) = (device.pd().unwrap(), device.cq(256).unwrap());
        let memory = pd.memory(4096, Access::ALL).unwrap();
        let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
        let hello = Hello {
            ring: memory.remote(),
            messages: 4,
        };
        let joining = qp.connect(listener.local_addr().unwrap(), &hello.to_bytes());
        let server = listener.accept().unwrap();
        let said = joining.unwrap().wait().unwrap();
        let theirs = Hello::from_bytes(&said).unwrap();
        let rogue = Rogue {
            qp,
            _cq: cq,
            _memory: memory,
        };
        (rogue, server, theirs)
    }

    fn post(&self, op: SendOp, bytes: &[u8]) {
        let send = SendWr {
            id: 1,
            op,
            flags: WrFlags::NONE,
            data: Data::Inline(bytes),
        };
        self.qp.post_send(&[send]).unwrap();
    }
}

#[test]
fn malformed_hello_does_not_block_other_clients() {
    let listener = listener();
    let device = &net().device;
    let cq = device.cq(64).unwrap();
    for said in [&b""[..], b"VRS1", &[0; 32], &[0xff; 200]] {
        let qp = Qp::new(&device.pd().unwrap(), &cq, &cq, QpOptions::default()).unwrap();
        let joining = qp.connect(listener.local_addr().unwrap(), said).unwrap();
        let client = Stream::new(net());
        thread::scope(|scope| {
            let connecting = scope.spawn(|| client.connect(listener.local_addr().unwrap()));
            listener.accept().unwrap();
            connecting.join().unwrap().unwrap();
        });
        assert!(joining.wait().is_err(), "{said:?}");
    }
}

#[test]
fn malformed_answer_fails_connect() {
    let device = &net().device;
    let listener = device.listen("127.0.0.1:0").unwrap();
    let client = Stream::new(net());
    let cq = device.cq(64).unwrap();
    let qp = Qp::new(&device.pd().unwrap(), &cq, &cq, QpOptions::default()).unwrap();
    thread::scope(|scope| {
        let connecting = scope.spawn(|| client.connect(listener.local_addr().unwrap()));
        let request = listener.next().wait().unwrap();
        request
            .accept_on(&qp, b"something else")
            .unwrap()
            .wait()
            .unwrap();
        let refused = connecting.join().unwrap().unwrap_err();
        assert!(matches!(refused, Error::WrongProtocol(_)), "{refused}");
    });
}

#[test]
fn protocol_violations_reset_the_connection() {
    let send = SendOp::Send {
        invalidate: None,
        immediate: None,
    };
    let words: [&[u8]; 6] = [
        b"",
        b"gibberish",
        &[0xff; 40],
        // A credit for bytes that were never sent.
        &[
            1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 9,
        ],
        // Longer than any word.
        &[1; 41],
        &[2, 0, 0, 0, 0, 0, 0, 1],
    ];
    for word in words {
        let (rogue, server, _) = Rogue::connected();
        rogue.post(send, word);
        let end = server.recv(&mut [0; 9], Flags::default());
        assert!(matches!(end, Err(Error::Reset)), "{word:?}: {end:?}");
        assert!(server.readiness().error && server.readiness().hangup);
    }
}

#[test]
fn announcing_unwritten_bytes_resets_the_connection() {
    for (len, announced) in [(4_usize, 5_u32), (0, 0), (4, u32::MAX)] {
        let (rogue, server, hello) = Rogue::connected();
        let op = SendOp::Write {
            remote: hello.ring.remote_addr(),
            immediate: Some(announced),
        };
        rogue.post(op, &vec![7; len]);
        let end = server.recv(&mut [0; 9], Flags::default());
        assert!(
            matches!(end, Err(Error::Reset)),
            "{len}, {announced}: {end:?}"
        );
    }
}

#[test]
fn write_outside_ring_resets_the_connection() {
    let (rogue, server, hello) = Rogue::connected();
    let mut place = hello.ring.remote_addr();
    place.to = verbena::low::To::new(place.to.get() + hello.ring.len());
    let op = SendOp::Write {
        remote: place,
        immediate: Some(4),
    };
    rogue.post(op, &[7; 4]);
    let end = server.recv(&mut [0; 9], Flags::default());
    assert!(matches!(end, Err(Error::Reset)), "{end:?}");
}

#[test]
fn peer_gone_without_end_is_reset() {
    let (rogue, server, hello) = Rogue::connected();
    let op = SendOp::Write {
        remote: hello.ring.remote_addr(),
        immediate: Some(4),
    };
    rogue.post(op, b"once");
    wait_until("it came", || server.unread().unwrap() == 4);
    drop(rogue);
    let mut got = [0; 9];
    assert_eq!(server.recv(&mut got, Flags::default()).unwrap(), 4);
    let end = server.recv(&mut got, Flags::default());
    assert!(matches!(end, Err(Error::Reset)), "{end:?}");
    assert!(matches!(
        server.send(b"x", Flags::default()),
        Err(Error::Reset)
    ));
}
