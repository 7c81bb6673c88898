//! Tests of connections over loopback: established, refused, queried, silent.

use verbena_nic::{Carrier, IoOutcome};

use verbena_mem::Sources;

use super::super::listener::bind_socket;
use super::super::testing::{
    TEST_TIMEOUT, WRITE, await_ready, connection, loopbacks, receive, send,
};
use super::super::{Interest, Listener, now};
use super::*;

#[test]
fn both_ends_report_their_addresses() {
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        assert_eq!(a.local_addr().unwrap(), b.peer_addr().unwrap());
        assert_eq!(a.peer_addr().unwrap(), b.local_addr().unwrap());
        assert!(a.is_same_host() && b.is_same_host());
        assert!(a.path_digest().is_some() && a.path_digest() == b.path_digest());
        assert_ne!(a.path_digest(), connection(ip).0.path_digest());
        assert!(a.mss().unwrap() > 500);
        assert!(b.is_connected().unwrap());
    }
}

#[test]
fn requested_source_address_is_used() {
    let from: IpAddr = "127.0.0.7".parse().unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let socket = Socket::connect(listener.local_addr().unwrap(), Some(from), None).unwrap();
    assert_eq!(socket.local_addr().unwrap().ip(), from);
    await_ready(&listener, Interest::READ);
    assert_eq!(listener.accept().unwrap().unwrap().1.ip(), from);
}

#[test]
fn foreign_source_address_fails_in_bind() {
    // TEST-NET-3 (RFC 5737), which no machine has.
    let from = "203.0.113.9".parse().unwrap();
    let error = Socket::connect("127.0.0.1:9".parse().unwrap(), Some(from), None).unwrap_err();
    assert_eq!((error.call(), error.code()), ("bind", libc::EADDRNOTAVAIL));
    assert!(error.to_string().starts_with("bind: "), "{error}");
}

#[test]
fn connect_to_a_closed_port_is_refused() {
    for ip in loopbacks() {
        // Bound and not listening: the port stays reserved, and connections to it are refused.
        let holder = bind_socket(SocketAddr::new(ip, 0), SocketType::STREAM, false).unwrap();
        let name = net::getsockname(&holder).unwrap();
        let unused = SocketAddr::try_from(name).unwrap();
        let refused = Socket::connect(unused, None, None).and_then(|socket| {
            await_ready(&socket, WRITE);
            socket.is_connected()
        });
        assert!(refused.unwrap_err().is_refused());
    }
}

#[test]
fn refused_socket_can_connect_again() {
    for ip in loopbacks() {
        for from in [None, Some(ip)] {
            let holder = bind_socket(SocketAddr::new(ip, 0), SocketType::STREAM, false).unwrap();
            let to = SocketAddr::try_from(net::getsockname(&holder).unwrap()).unwrap();
            let socket = Socket::connect(to, from, None).unwrap();
            for _ in 0..3 {
                await_ready(&socket, WRITE);
                assert!(socket.is_connected().unwrap_err().is_refused());
                socket.reconnect(to).unwrap();
            }
            await_ready(&socket, WRITE);
            assert!(socket.is_connected().unwrap_err().is_refused());
            net::listen(&holder, 1).unwrap();
            socket.reconnect(to).unwrap();
            await_ready(&socket, WRITE);
            assert!(socket.is_connected().unwrap());
            assert_eq!(socket.peer_addr().unwrap(), to);
        }
    }
}

#[test]
fn socketpair_ends_are_connected_on_this_host() {
    let (a, b) = Socket::pair().unwrap();
    assert!(a.is_connected().unwrap() && b.is_connected().unwrap());
    assert!(a.is_same_host());
    assert_eq!((a.mss(), a.silence()), (None, None));
    assert!(a.local_addr().is_err() && a.peer_addr().is_err());
}

#[test]
fn socket_options_are_set() {
    let (a, _b) = connection(loopbacks()[0]);
    a.set_keepalive(Duration::from_secs(60)).unwrap();
    assert!(sockopt::socket_keepalive(&a.fd).unwrap());
    let idle = sockopt::tcp_keepidle(&a.fd).unwrap();
    assert_eq!(idle, Duration::from_secs(60));
    let between = sockopt::tcp_keepintvl(&a.fd).unwrap();
    assert_eq!(between, Duration::from_secs(10));
    a.set_keepalive(Duration::ZERO).unwrap();
    assert!(!sockopt::socket_keepalive(&a.fd).unwrap());
    let before = sockopt::socket_send_buffer_size(&a.fd).unwrap();
    a.set_buffers(None).unwrap();
    assert_eq!(sockopt::socket_send_buffer_size(&a.fd).unwrap(), before);
    a.set_buffers(Some(32 << 10)).unwrap();
    // Linux doubles the size for its own bookkeeping (socket(7)).
    assert_eq!(sockopt::socket_send_buffer_size(&a.fd).unwrap(), 64 << 10);
    assert!(sockopt::tcp_nodelay(&a.fd).unwrap());
}

#[test]
fn only_pacing_congestion_control_is_replaced() {
    let (a, _b) = connection(loopbacks()[0]);
    sockopt::set_tcp_congestion(&a.fd, UNPACED).unwrap();
    assert!(!a.set_unpaced().unwrap());
    if sockopt::set_tcp_congestion(&a.fd, PACED).is_err() {
        println!("NOT TESTED: this system has no {PACED}, or we may not choose it");
        return;
    }
    assert!(a.set_unpaced().unwrap());
    assert_eq!(sockopt::tcp_congestion(&a.fd).unwrap(), UNPACED);
    let (pair, _other) = Socket::pair().unwrap();
    assert!(pair.set_unpaced().is_err(), "not TCP");
}

/// Writes until the send buffer is full.
fn fill(mut socket: &Socket) {
    let bytes = vec![0; 1 << 16];
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(&bytes));
    while let IoOutcome::Bytes(_) = socket.write(&sources) {}
}

/// docs/connections.md: a peer that only does not read is alive.
#[test]
fn peer_that_never_reads_is_not_silent() {
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        assert_eq!(a.silence(), None, "nothing was sent");
        send(&a, b"hello");
        await_ready(&b, Interest::READ);
        fill(&a);
        // The window closes and is probed. The peer's TCP answers, and its silence is at most as long as the last answer is old.
        let last_answer = || a.info().unwrap().tcpi_last_ack_recv;
        let (start, mut answers) = (now(), 0);
        let (mut unanswered_at, mut before) = (start, last_answer());
        while answers < 2 {
            let asked = now();
            assert!(asked.since(start) < TEST_TIMEOUT, "probes are answered");
            let age = last_answer();
            if age < before {
                answers += 1;
                let (silence, since) = (a.silence(), now().since(unanswered_at));
                // The kernel's times have the resolution of its ticks.
                let limit = since + Duration::from_millis(20);
                assert!(
                    silence.unwrap_or_default() <= limit,
                    "{silence:?} of {since:?}"
                );
            }
            (unanswered_at, before) = (asked, age);
            std::thread::yield_now();
        }
        let start = now();
        while a.silence().is_some() || a.unsent() > 0 {
            assert!(
                now().since(start) < TEST_TIMEOUT,
                "it drains and nothing is owed"
            );
            receive(&b, 1 << 20);
        }
    }
}

/// A socket filter that drops every segment makes the other end look dead: its TCP receives nothing.
fn drop_incoming(socket: &Socket) {
    let mut drop_all = libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut drop_all,
    };
    // SAFETY: the kernel copies the program, one instruction long, before it returns.
    let refused = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    assert_eq!(refused, 0);
}

/// docs/connections.md: unacknowledged data and nothing received from the peer's TCP.
#[test]
fn dead_peer_silence_excludes_idle_time() {
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        send(&a, b"hello");
        await_ready(&b, Interest::READ);
        // An idle time, which must not count.
        let start = now();
        while now().since(start) < Duration::from_millis(300) || a.silence().is_some() {
            assert!(now().since(start) < TEST_TIMEOUT);
            std::thread::yield_now();
        }
        drop_incoming(&b);
        let asked = now();
        send(&a, b"anyone there?");
        let mut longest = Duration::ZERO;
        while longest < Duration::from_millis(700) {
            let silence = a.silence().expect("an answer is owed");
            let since = now().since(asked);
            // The kernel's times have the resolution of its ticks.
            assert!(
                silence <= since + Duration::from_millis(20),
                "{silence:?} of {since:?}"
            );
            longest = longest.max(silence);
            assert!(since < TEST_TIMEOUT, "only {longest:?}");
            std::thread::yield_now();
        }
    }
}

/// The same with a closed window, where only probes are in flight.
#[test]
fn dead_peer_with_closed_window_is_silent() {
    let (a, b) = connection(loopbacks()[0]);
    fill(&a);
    let start = now();
    while a.info().unwrap().tcpi_unacked > 0 {
        assert!(now().since(start) < TEST_TIMEOUT, "the window never shut");
        std::thread::yield_now();
    }
    assert_eq!(a.silence(), None, "full, and alive");
    drop_incoming(&b);
    while a.silence().unwrap_or_default() < Duration::from_millis(300) {
        assert!(now().since(start) < TEST_TIMEOUT);
        std::thread::yield_now();
    }
}

/// The mark only delays the wake-up: a full buffer, and the end of the stream, wake as well.
#[test]
fn low_water_mark_delays_but_never_loses_wakeups() {
    let is_reported = |poller: &super::super::Poller, wait: Duration| {
        let mut ready = Vec::new();
        poller.wait(&mut ready, Some(wait)).unwrap();
        !ready.is_empty()
    };
    let moment = Duration::from_millis(50);
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        let poller = super::super::Poller::new().unwrap();
        poller.add(&b, 1, Interest::READ).unwrap();
        b.set_low_water(100_000).unwrap();
        send(&a, &[1; 60_000]);
        assert!(!is_reported(&poller, moment));
        send(&a, &[2; 40_000]);
        assert!(is_reported(&poller, TEST_TIMEOUT));
        assert_eq!(receive(&b, 100_000).1.len(), 100_000);
        // Bytes that are there already count as soon as the mark is lowered.
        send(&a, &[3; 10]);
        assert!(!is_reported(&poller, moment));
        b.set_low_water(1).unwrap();
        assert!(is_reported(&poller, TEST_TIMEOUT));
        assert_eq!(receive(&b, 10).1.len(), 10);
        // The end of the stream.
        b.set_low_water(100_000).unwrap();
        a.shutdown_write().unwrap();
        assert!(is_reported(&poller, TEST_TIMEOUT));
    }
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        b.set_buffers(Some(4096)).unwrap();
        b.set_low_water(10 << 20).unwrap();
        let poller = super::super::Poller::new().unwrap();
        poller.add(&b, 1, Interest::READ).unwrap();
        // More than the buffer takes: it is full, and the rest cannot arrive.
        let mut carrier = &a;
        let bytes = vec![4; 1 << 20];
        let mut sources = Sources::new();
        assert!(sources.borrow_bytes(&bytes));
        assert!(matches!(carrier.write(&sources), IoOutcome::Bytes(_)));
        assert!(is_reported(&poller, TEST_TIMEOUT));
    }
}
