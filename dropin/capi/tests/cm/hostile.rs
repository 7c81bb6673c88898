//! Hostile peers, at a listener and at a client of the connection manager: what they do costs a bounded amount of resources,
//! programs get the documented events and nothing else, and well-behaved peers can still connect.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use verbena_capi::abi::*;
use verbena_capi::cm::calls::rdma_migrate_id;
use verbena_testing::own_process;

use crate::common::streams::{
    Channel, Client, Id, Server, connected, descriptors, exclusive, settings, wait,
};
use crate::common::{LONG, call, errno, readable};
use crate::tcp::tcp_rows_at;

const SETTINGS: &[(&str, &str)] = &[
    ("VERBENA_STARTUP_TIMEOUT", "2s"),
    ("VERBENA_HALF_OPEN", "64"),
    ("VERBENA_LINGER", "200ms"),
    ("VERBENA_LOG", "off"),
];
const SOON: Duration = Duration::from_millis(100);

/// A server that has served one client, so that what is allocated once is allocated.
fn warmed_up_server(backlog: i32) -> Server {
    let server = Server::new(backlog);
    check_client_connects(&server);
    server
}

/// A well-behaved client can connect, and its end is reported.
#[track_caller]
fn check_client_connects(server: &Server) {
    let (client, child) = connected(server);
    assert_eq!(client.id.disconnect(), 0);
    client.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
    server.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
    drop(child);
}

/// An MPA Request (RFC 5044 §7.1.1): key, flags, revision, length, private data.
fn request(flags: u8, revision: u8, length: u16, data: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Req Frame", flags, revision, length, data)
}

fn frame(key: &[u8; 16], flags: u8, revision: u8, length: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = key.to_vec();
    bytes.extend([flags, revision]);
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    bytes
}

fn valid_request() -> Vec<u8> {
    request(0, 1, 2, b"hi")
}

/// A Send of length zero without a checksum.
const EMPTY_SEND: &[u8] = b"\0\x12\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0";

fn dial(server: &Server) -> TcpStream {
    TcpStream::connect(server.at).unwrap()
}

/// Reads to the end of the stream and returns the bytes. Fails if the end does not come.
#[track_caller]
fn read_to_end(mut raw: &TcpStream) -> Vec<u8> {
    raw.set_read_timeout(Some(LONG)).unwrap();
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    loop {
        match raw.read(&mut some) {
            Ok(0) => return all,
            Ok(n) => all.extend(&some[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => panic!("it is kept open"),
            Err(_) => return all,
        }
    }
}

/// Closes the connection with a reset.
fn reset(raw: TcpStream) {
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the socket is open, and the option is a local `linger` of this size.
    let code = unsafe {
        libc::setsockopt(
            raw.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const at_once).cast(),
            size_of::<libc::linger>() as u32,
        )
    };
    assert_eq!(code, 0);
    drop(raw);
}

/// Bytes that the core refuses in place of a Request (stream/startup/tests/hostile.rs), each with its name.
fn violations() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for at in 0..16 {
        let mut bad = valid_request();
        bad[at] ^= 0x20;
        all.push((format!("key wrong at {at}"), bad[..=at].to_vec()));
    }
    for revision in [0, 3, 0x81, 0xff] {
        all.push((
            format!("revision {revision}"),
            request(0x40, revision, 0, b""),
        ));
    }
    for length in [513, 0x8000, u16::MAX] {
        all.push((
            format!("{length} bytes promised"),
            request(0x40, 1, length, b""),
        ));
    }
    for length in 0..4 {
        let cut = request(0x50, 2, length, &[0; 3][..length.into()]);
        all.push((format!("enhanced block of {length}"), cut));
    }
    let key = b"MPA ID Rep Frame";
    all.push(("a Reply".into(), frame(key, 0x40, 1, 0, b"")));
    all.push(("a web browser".into(), b"GET / HTTP/1.1\r\n\r\n".to_vec()));
    all.push(("too little promised".into(), request(0x40, 1, 3, b"four")));
    let mut early = valid_request();
    early.extend(EMPTY_SEND);
    all.push(("a frame behind the Request".into(), early));
    all.push(("600 bytes behind it".into(), request(0, 1, 0, &[7; 600])));
    all.push((
        "noise".into(),
        (0..3000_u32).map(|n| (n * 167) as u8).collect(),
    ));
    all
}

#[test]
fn mpa_violations_close_connection_without_event() {
    let _alone = exclusive();
    own_process!();
    // It does not wait for the timeout of slow peers, which is longer than this test waits.
    settings(&[SETTINGS, &[("VERBENA_STARTUP_TIMEOUT", "600s")]].concat());
    let server = warmed_up_server(8);
    let before = descriptors();
    for (what, bytes) in violations() {
        let mut raw = dial(&server);
        raw.write_all(&bytes).unwrap();
        assert_eq!(read_to_end(&raw), b"", "{what}: answered");
        assert!(server.channel.try_next().is_none(), "{what}: told");
    }
    server.channel.expect_no_event(SOON);
    wait("descriptors", || descriptors() <= before);
    check_client_connects(&server);
}

#[test]
fn incomplete_mpa_requests_time_out() {
    let _alone = exclusive();
    own_process!();
    settings(SETTINGS);
    let server = warmed_up_server(8);
    let before = descriptors();
    let whole = request(0x40, 1, 100, &[1; 99]);
    let mut raws = Vec::new();
    for len in [0, 1, 15, 16, 18, 20, 21, whole.len()] {
        let mut raw = dial(&server);
        raw.write_all(&whole[..len]).unwrap();
        raws.push(raw);
    }
    for raw in &raws {
        assert_eq!(read_to_end(raw), b"");
    }
    drop(raws);
    server.channel.expect_no_event(SOON);
    wait("descriptors", || descriptors() <= before);
    check_client_connects(&server);
}

/// A byte now and then: progress does not extend the timeout.
#[test]
fn slow_bytes_do_not_extend_startup_timeout() {
    let _alone = exclusive();
    own_process!();
    settings(SETTINGS);
    let server = warmed_up_server(8);
    let mut raw = dial(&server);
    raw.set_nodelay(true).unwrap();
    let mut sent = 0;
    for byte in request(0x40, 1, 512, &[9; 512]) {
        if raw.write_all(&[byte]).is_err() {
            break;
        }
        sent += 1;
        // real time: all bytes together take longer than the timeout.
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(sent < 532, "{sent} bytes");
    server.channel.expect_no_event(SOON);
    check_client_connects(&server);
}

#[test]
fn private_data_up_to_512_bytes_is_accepted() {
    let _alone = exclusive();
    own_process!();
    settings(SETTINGS);
    let server = warmed_up_server(8);
    // The protocol's limit is 512 bytes; the length in an event is at most 255, and so many bytes are there.
    for len in [0_u16, 1, 255, 256, 512] {
        let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let mut raw = dial(&server);
        raw.write_all(&request(0, 1, len, &data)).unwrap();
        let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        let known = usize::from(len.min(255));
        assert_eq!(asked.private_data(), data[..known]);
        let child = asked.id();
        drop(asked);
        assert_eq!(child.reject(&[3; 255]), 0);
        let said = read_to_end(&raw);
        assert_eq!(said.len(), 20 + 255);
        assert_eq!(said[16] & 0x20, 0x20, "a refusal");
    }
    check_client_connects(&server);
}

#[test]
fn silent_connections_are_limited_and_time_out() {
    let _alone = exclusive();
    own_process!();
    settings(SETTINGS);
    let server = warmed_up_server(8);
    let before = descriptors();
    let silent: Vec<_> = (0..700)
        .filter_map(|_| TcpStream::connect(server.at).ok())
        .collect();
    assert!(silent.len() >= 64, "only {} were let in", silent.len());
    // A batch of 64 may be accepted before those that it displaces are closed.
    let held = || descriptors().saturating_sub(before + silent.len());
    assert!(held() <= 64 + 64, "{} at once", held());
    wait("the displaced ones are closed", || held() <= 64);
    for raw in &silent {
        read_to_end(raw);
    }
    server.channel.expect_no_event(SOON);
    drop(silent);
    wait("descriptors", || descriptors() <= before);
    check_client_connects(&server);
}

/// Complete requests that the program does not take: never more than the backlog wait.
#[test]
fn unanswered_requests_stay_within_backlog() {
    let _alone = exclusive();
    own_process!();
    settings(SETTINGS);
    let server = warmed_up_server(8);
    let before = descriptors();
    for _ in 0..4 {
        let raws: Vec<_> = (0..40)
            .filter_map(|_| {
                let mut raw = TcpStream::connect(server.at).ok()?;
                raw.write_all(&valid_request()).ok()?;
                Some(raw)
            })
            .collect();
        for raw in &raws {
            read_to_end(raw);
        }
    }
    let mut waited = 0;
    while let Some(asked) = server.channel.try_next() {
        assert_eq!(asked.get().event, RDMA_CM_EVENT_CONNECT_REQUEST);
        waited += 1;
        let child = asked.id();
        child.make_qp();
        // Its peer has closed the connection, which the call reports.
        assert_eq!(child.accept(b""), -1);
        drop(asked);
    }
    assert!(waited <= 8, "{waited} waited");
    wait("descriptors", || descriptors() <= before);
    server.channel.expect_no_event(SOON);
    check_client_connects(&server);
}

/// Accepts all waiting requests, and checks the events that follow.
fn answer_all(server: &Server) {
    while readable(server.channel.fd(), SOON) {
        let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        let (own, child) = (Channel::new(), asked.id());
        child.make_qp();
        assert_eq!(call!(rdma_migrate_id(child.0, own.0)), 0);
        let code = child.accept(b"yes");
        drop(asked);
        if code == 0 {
            outcome(&own, &child);
        }
        drop(child);
    }
}

#[test]
fn thousand_aborted_connections_leave_no_descriptors() {
    let _alone = exclusive();
    own_process!();
    settings(SETTINGS);
    let server = warmed_up_server(64);
    let before = descriptors();
    for n in 0..1000 {
        let Ok(mut raw) = TcpStream::connect(server.at) else {
            continue;
        };
        match n % 3 {
            0 => {}
            1 => drop(raw.write_all(&valid_request()[..n % 20])),
            _ => drop(raw.write_all(&valid_request())),
        }
        reset(raw);
        if n % 100 == 99 {
            answer_all(&server);
        }
    }
    answer_all(&server);
    wait("descriptors", || descriptors() <= before);
    wait("room for the honest", || {
        // Room is given back when the shard has noticed.
        let client = Client::resolved_to(server.at);
        let _ = client.id.connect(b"");
        let came = readable(server.channel.fd(), SOON);
        drop(client);
        while server.channel.try_next().is_some_and(|asked| {
            let child = asked.id();
            drop(asked);
            drop(child);
            true
        }) {}
        came
    });
    check_client_connects(&server);
}

/// Closes a connection, with or without a reset.
fn close(raw: TcpStream, rudely: bool) {
    if rudely {
        reset(raw);
    }
}

#[test]
fn client_death_in_any_phase_leaks_nothing() {
    let _alone = exclusive();
    own_process!();
    settings(SETTINGS);
    let server = warmed_up_server(8);
    let before = descriptors();
    for round in 0..20 {
        for rudely in [false, true] {
            // During the request.
            let mut raw = dial(&server);
            raw.write_all(&valid_request()[..round]).unwrap();
            close(raw, rudely);
            assert!(server.channel.try_next().is_none());
            if round >= 4 {
                // Every length of the request is tried in all rounds; of the rest, some are enough.
                continue;
            }
            // While the program decides.
            let mut raw = dial(&server);
            raw.write_all(&valid_request()).unwrap();
            let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
            let child = asked.id();
            child.make_qp();
            close(raw, rudely);
            if round % 2 == 0 {
                wait("its end arrives", || {
                    tcp_rows_at(server.at).iter().all(|row| !row.established)
                });
            }
            let code = child.accept(b"");
            drop(asked);
            if code == 0 {
                outcome(&server.channel, &child);
            }
            drop(child);
            // Right after the reply, in the middle of a frame, and after one.
            for sent in [0, 1, 10, EMPTY_SEND.len()] {
                let mut raw = dial(&server);
                raw.write_all(&valid_request()).unwrap();
                let child = server.accept_next(b"come in");
                let mut reply = [0; 27];
                raw.read_exact(&mut reply).unwrap();
                raw.write_all(&EMPTY_SEND[..sent]).unwrap();
                close(raw, rudely);
                // No receive was posted: a message that waits for one ends the connection as well.
                let is_readable = readable(server.channel.fd(), LONG);
                assert!(is_readable, "{sent} bytes of a frame, rudely: {rudely}");
                assert!(child.is(&server.channel.expect(RDMA_CM_EVENT_DISCONNECTED)));
                drop(child);
            }
        }
    }
    server.channel.expect_no_event(SOON);
    wait("descriptors", || descriptors() <= before);
    check_client_connects(&server);
}

/// The program is told that there was no connection, or of its beginning and its end; nothing else.
#[track_caller]
fn outcome(channel: &Channel, id: &Id) -> u32 {
    let first = channel.next();
    assert!(id.is(&first));
    let kind = first.get().event;
    match kind {
        RDMA_CM_EVENT_ESTABLISHED => {
            assert_eq!(first.get().status, 0);
            drop(first);
            assert!(id.is(&channel.expect(RDMA_CM_EVENT_DISCONNECTED)));
        }
        RDMA_CM_EVENT_CONNECT_ERROR | RDMA_CM_EVENT_UNREACHABLE | RDMA_CM_EVENT_REJECTED => {
            assert_ne!(first.get().status, 0, "{:?}", first.name());
        }
        _ => panic!("{:?}", first.name()),
    }
    kind
}

/// A listener that answers whatever it receives with these bytes and then closes. It ends when it is dropped.
struct ReplyServer {
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ReplyServer {
    fn new(bytes: Vec<u8>, rudely: bool) -> ReplyServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        // A client may try again with the older revision.
        let thread = std::thread::spawn(move || {
            for raw in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                let mut raw = raw.unwrap();
                let mut asked = [0; 20];
                let _ = raw.read_exact(&mut asked);
                // All of it: closing with unread bytes causes a reset, which may overtake the answer.
                let private_data = u16::from_be_bytes([asked[18], asked[19]]);
                let _ = raw.read_exact(&mut vec![0; private_data.into()]);
                let _ = raw.write_all(&bytes);
                close(raw, rudely);
            }
        });
        let thread = Some(thread);
        ReplyServer { at, stop, thread }
    }
}

impl Drop for ReplyServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Ends its wait for a connection.
        drop(TcpStream::connect(self.at));
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

#[test]
fn each_server_reply_yields_its_expected_event() {
    let _alone = exclusive();
    own_process!();
    settings(SETTINGS);
    drop(warmed_up_server(8));
    let before = descriptors();
    let reply = |flags, revision, length, data: &[u8]| {
        frame(b"MPA ID Rep Frame", flags, revision, length, data)
    };
    let yes = reply(0, 1, 0, b"");
    let (no, all) = (RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_ESTABLISHED);
    let mut answers = vec![
        ("nothing", Vec::new(), no),
        ("half a key", yes[..8].to_vec(), no),
        ("no length", yes[..18].to_vec(), no),
        ("a Request", valid_request(), no),
        ("a web server", b"HTTP/1.1 400 Bad\r\n\r\n".to_vec(), no),
        ("revision 9", reply(0, 9, 0, b""), no),
        ("too much private data", reply(0, 1, 513, b""), no),
        ("less than promised", reply(0, 1, 50, &[1; 49]), no),
        (
            "a refusal",
            reply(0x20, 1, 3, b"no!"),
            RDMA_CM_EVENT_REJECTED,
        ),
        ("yes", yes.clone(), all),
    ];
    for garbage in [&b"\xff\xff\xff\xff garbage behind it"[..], &EMPTY_SEND[..9]] {
        let mut bytes = yes.clone();
        bytes.extend(garbage);
        answers.push(("a Reply and half a frame", bytes, all));
    }
    for (what, bytes, expected) in answers {
        for rudely in [false, true] {
            let peer = ReplyServer::new(bytes.clone(), rudely);
            let client = Client::resolved_to(peer.at);
            assert_eq!(client.id.connect(b""), 0);
            let got = outcome(&client.channel, &client.id);
            // A reset may overtake bytes that were sent before it.
            let fair = got == expected || (rudely && got == no);
            assert!(fair, "{what}: {got} instead of {expected}");
            client.channel.expect_no_event(Duration::from_millis(20));
            drop(client);
        }
    }
    wait("descriptors", || descriptors() <= before);
}

#[test]
fn destroyed_listener_rejects_unanswered_requests() {
    let _alone = exclusive();
    own_process!();
    settings(SETTINGS);
    drop(warmed_up_server(8));
    let before = descriptors();
    let server = Server::new(16);
    let mut raws = Vec::new();
    for n in 0..12 {
        let mut raw = dial(&server);
        // Some requests are incomplete.
        let ask = valid_request();
        let len = if n % 4 == 3 { 7 } else { ask.len() };
        raw.write_all(&ask[..len]).unwrap();
        raws.push((n, raw));
    }
    wait("a request", || {
        readable(server.channel.fd(), Duration::ZERO)
    });
    wait("all are read", || {
        let rows = tcp_rows_at(server.at);
        rows.len() == raws.len() && rows.iter().all(|row| row.unread == 0)
    });
    drop(server);
    for (n, raw) in &raws {
        let said = read_to_end(raw);
        if n % 4 != 3 {
            assert_eq!(said.len(), 20, "{n}: a Reply");
            assert_eq!(said[16] & 0x20, 0x20, "{n}: a refusal");
        }
    }
    drop(raws);
    wait("descriptors", || descriptors() <= before);
}

/// Requests, answers, ends and disconnects of many threads at once, in any order.
#[test]
fn concurrent_connects_and_disconnects_leak_nothing() {
    let _alone = exclusive();
    own_process!();
    settings(SETTINGS);
    let server = warmed_up_server(128);
    let before = descriptors();
    let at = server.at;
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let diallers: Vec<_> = (0..3_u64)
            .map(|who| {
                s.spawn(move || {
                    for n in 0..60_u64 {
                        let client = Client::resolved_to(at);
                        assert_eq!(client.id.connect(b""), 0, "{}", errno());
                        (0..(n * 37 + who * 11) % 100).for_each(|_| std::thread::yield_now());
                        match (n + who) % 3 {
                            // Destroys the identifier without disconnecting.
                            0 => {}
                            // Disconnects in whatever state it is.
                            1 => {
                                assert_eq!(client.id.disconnect(), 0);
                                let kind = outcome(&client.channel, &client.id);
                                assert_ne!(kind, RDMA_CM_EVENT_REJECTED);
                            }
                            // Waits for the end.
                            _ => drop(outcome(&client.channel, &client.id)),
                        }
                    }
                })
            })
            .collect();
        let over = &done;
        s.spawn(move || {
            for dialler in diallers {
                dialler.join().unwrap();
            }
            over.store(true, std::sync::atomic::Ordering::Release);
        });
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            if !readable(server.channel.fd(), Duration::from_millis(10)) {
                continue;
            }
            let event = server.channel.next();
            if event.get().event != RDMA_CM_EVENT_CONNECT_REQUEST {
                continue;
            }
            // Accepted and disconnected at once; there must be no events of a destroyed child.
            let child = event.id();
            drop(event);
            child.make_qp();
            if child.accept(b"") == 0 {
                assert_eq!(child.disconnect(), 0);
            }
        }
    });
    while server.channel.try_next().is_some_and(|asked| {
        assert_eq!(asked.get().event, RDMA_CM_EVENT_CONNECT_REQUEST);
        let child = asked.id();
        drop(asked);
        drop(child);
        true
    }) {}
    wait("descriptors", || descriptors() <= before);
    check_client_connects(&server);
}
