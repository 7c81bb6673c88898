//! Connections that never send their MPA Request, and valid ones beside them: from the same source address and from another.
//! 127.0.0.2 is a second source address on loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbena_engine::Listening;
use verbena_testing::{own_process, serve_until};

use crate::common::tcp::{tcp_rows_at, unread};
use crate::common::{
    Side, TEST_TIMEOUT, connect_pair, loopback, make_qp, resident_bytes, serialize_tests, wait,
};

const NEAR: Ipv4Addr = Ipv4Addr::LOCALHOST;
const FAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A valid MPA Request of revision 1 without private data (RFC 5044 §7.1.1).
const REQUEST: &[u8] = b"MPA ID Req Frame\0\x01\0\0";

/// Raises the descriptor limit to the maximum: both ends of every connection are in this process.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, most).unwrap();
}

/// Connects from this address.
fn connect_from(source: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let fd = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::bind(&fd, &SocketAddrV4::new(source, 0))?;
    rustix::net::connect(&fd, &to)?;
    Ok(TcpStream::from(fd))
}

/// One valid attempt: connects, sends its Request at once and gets an answer.
fn is_answered(source: Ipv4Addr, to: SocketAddr) -> bool {
    let attempt = || -> std::io::Result<[u8; 20]> {
        let mut raw = connect_from(source, to)?;
        raw.set_read_timeout(Some(TEST_TIMEOUT))?;
        raw.write_all(REQUEST)?;
        let mut reply = [0; 20];
        raw.read_exact(&mut reply)?;
        Ok(reply)
    };
    attempt().is_ok_and(|reply| reply.starts_with(b"MPA ID Rep Frame"))
}

/// Rejects every request, until it is told to stop.
fn answer_all(listener: &Listening, stop: &AtomicBool) {
    serve_until(
        || stop.load(Ordering::Acquire),
        || {
            let request = listener.try_next().unwrap();
            request.map(|request| request.reject(b"")).is_some()
        },
    );
}

/// Keeps many silent connections open from one address: `rate` new ones a second in addition to the existing ones, the oldest
/// closed when there are more than `most`.
fn flood(source: Ipv4Addr, to: SocketAddr, most: usize, rate: u32, stop: &AtomicBool) {
    let mut kept = std::collections::VecDeque::new();
    let (began, mut opened) = (Instant::now(), 0_u32);
    serve_until(
        || stop.load(Ordering::Acquire),
        || {
            let due = Duration::from_secs(1) * opened / rate;
            if began.elapsed() < due {
                return false;
            }
            opened += 1;
            kept.extend(connect_from(source, to));
            if kept.len() > most {
                kept.pop_front();
            }
            true
        },
    );
}

/// Valid attempts from `source` while another thread floods from 127.0.0.1: returns how many failed.
fn failures_beside_a_flood(source: Ipv4Addr, attempts: usize) -> usize {
    raise_descriptor_limit();
    // With all defaults: 512 half-open connections, each for five seconds.
    let side = Side::new(&[]);
    let listener = side.engine.listen(loopback(), 64).unwrap();
    let to = listener.local_addr().unwrap();
    let silent: Vec<_> = (0..600)
        .filter_map(|_| connect_from(NEAR, to).ok())
        .collect();
    assert!(silent.len() >= 512, "only {} are open", silent.len());
    let (flooded, answered) = (AtomicBool::new(false), AtomicBool::new(false));
    let failed = AtomicUsize::new(0);
    std::thread::scope(|s| {
        s.spawn(|| answer_all(&listener, &answered));
        s.spawn(|| flood(NEAR, to, 2000, 500, &flooded));
        for _ in 0..attempts {
            if !is_answered(source, to) {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        flooded.store(true, Ordering::Release);
        answered.store(true, Ordering::Release);
    });
    drop(silent);
    failed.into_inner()
}

#[test]
fn other_source_connects_beside_silent_connections() {
    let _alone = serialize_tests();
    assert_eq!(failures_beside_a_flood(FAR, 100), 0);
}

#[test]
fn same_source_connects_beside_silent_connections() {
    let _alone = serialize_tests();
    let failed = failures_beside_a_flood(NEAR, 100);
    assert!(failed <= 5, "{failed} of 100 attempts failed");
}

/// A source that opens many connections does not displace the few of another, even if those are silent.
#[test]
fn flood_displaces_only_its_own_connections() {
    let _alone = serialize_tests();
    raise_descriptor_limit();
    let side = Side::new(&[("half_open", "64"), ("startup_timeout", "600s")]);
    let listener = side.engine.listen(loopback(), 64).unwrap();
    let to = listener.local_addr().unwrap();
    let mut slow: Vec<_> = (0..8).map(|_| connect_from(FAR, to).unwrap()).collect();
    let silent: Vec<_> = (0..300)
        .filter_map(|_| connect_from(NEAR, to).ok())
        .collect();
    // A displaced connection is closed at once, and not after the startup timeout.
    let is_open = |raw: &TcpStream| {
        raw.set_nonblocking(true).unwrap();
        let end = raw.peek(&mut [0; 1]);
        end.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
    };
    let open = || silent.iter().filter(|raw| is_open(raw)).count();
    wait("all but the rest are displaced", || open() <= 56);
    assert_eq!(open(), 56);
    let youngest = silent.iter().rev().take(56);
    assert!(youngest.clone().all(is_open), "the oldest go first");
    for raw in &mut slow {
        raw.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        raw.write_all(REQUEST).unwrap();
        listener.next().unwrap().unwrap().reject(b"");
        let mut reply = [0; 20];
        raw.read_exact(&mut reply).unwrap();
    }
}

/// Requests that the program has not answered yet are not displaced by silent connections of the same source.
#[test]
fn request_awaiting_its_answer_is_not_displaced() {
    let _alone = serialize_tests();
    raise_descriptor_limit();
    let side = Side::new(&[("half_open", "16"), ("startup_timeout", "60s")]);
    let listener = side.engine.listen(loopback(), 64).unwrap();
    let to = listener.local_addr().unwrap();
    let mut client = connect_from(NEAR, to).unwrap();
    client.write_all(REQUEST).unwrap();
    let request = listener.next().unwrap().unwrap();
    let silent: Vec<_> = (0..200)
        .filter_map(|_| connect_from(NEAR, to).ok())
        .collect();
    request.reject(b"");
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut reply = [0; 20];
    client.read_exact(&mut reply).unwrap();
    drop(silent);
    let one = make_qp(&side.engine, &side.cq, side.pd);
    connect_pair(&one, &listener, &side.qp);
}

/// The bound that docs/connections.md states: each connection here has sent the longest request except its last byte.
#[test]
fn unauthenticated_connection_takes_less_than_4_kib() {
    const MANY: usize = 4000;
    const STATED: usize = 4096;
    let _alone = serialize_tests();
    own_process!();
    raise_descriptor_limit();
    let limit = MANY.to_string();
    let side = Side::new(&[("half_open", &limit), ("startup_timeout", "600s")]);
    let listener = side.engine.listen(loopback(), 16).unwrap();
    let to = listener.local_addr().unwrap();
    let mut unfinished = b"MPA ID Req Frame\0\x01\x02\0".to_vec();
    unfinished.resize(20 + 511, 7);
    // Allocations that do not depend on the number happen before.
    drop(is_answered_once(&listener, to));
    let before = resident_bytes();
    let raws: Vec<_> = (0..MANY)
        .map(|_| {
            let mut raw = connect_from(NEAR, to).unwrap();
            raw.write_all(&unfinished).unwrap();
            raw
        })
        .collect();
    // All was read: the kernel's buffers are empty.
    wait("everything is read", || unread(to) == 0);
    let each = resident_bytes().saturating_sub(before) / MANY;
    println!("{each} bytes of memory for each unauthenticated connection");
    assert!(each <= STATED, "{each} bytes each, stated are {STATED}");
    assert_eq!(raws.len(), MANY);
}

fn is_answered_once(listener: &Listening, to: SocketAddr) -> TcpStream {
    let mut raw = connect_from(NEAR, to).unwrap();
    raw.write_all(REQUEST).unwrap();
    listener.next().unwrap().unwrap().reject(b"");
    raw
}

/// The adapter is not closed: the error names the peer, whether it left before `accept` or after.
#[test]
fn accept_after_the_peer_left_names_it() {
    let side = Side::new(&[]);
    let listener = side.engine.listen(loopback(), 16).unwrap();
    for seen in [false, true] {
        let mut raw = connect_from(NEAR, listener.local_addr().unwrap()).unwrap();
        raw.write_all(REQUEST).unwrap();
        let request = listener.next().unwrap().unwrap();
        drop(raw);
        if seen {
            let at = listener.local_addr().unwrap();
            wait("its end arrives", || {
                tcp_rows_at(at).iter().all(|row| !row.established)
            });
        }
        let qp = make_qp(&side.engine, &side.cq, side.pd);
        let (done, notified) = std::sync::mpsc::channel();
        let accepted = request.accept(&qp, b"", move |r| done.send(r).unwrap());
        let accepted = accepted.and_then(|()| notified.recv_timeout(TEST_TIMEOUT).unwrap());
        if let Err(error) = accepted {
            assert!(
                matches!(error, verbena_engine::Error::Startup { .. }),
                "seen: {seen}: {error}"
            );
        }
    }
}
