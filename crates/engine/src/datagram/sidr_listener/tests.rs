//! Tests of SIDR requests between two engines, and between an engine and a plain UDP socket.

use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, channel};

use verbena_testing::{wait_readable, wait_until};

use super::*;
use crate::{Config, SidrQuery};

const LONG: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
    config.set("device", "127.0.0.1").unwrap();
    Engine::new(config).unwrap()
}

fn loopback_addr() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn endpoint() -> UdEndpoint {
    UdEndpoint {
        number: Qpn::new(0x4e_2001).unwrap(),
        qkey: 0x0123_4567,
        address: "192.0.2.7".parse().unwrap(),
    }
}

/// An open listener and its requests.
fn open(engine: &Engine, backlog: usize) -> (SidrListener, Receiver<SidrRequest>) {
    let listener = engine.bind_sidr_listener(loopback_addr()).unwrap();
    let (to, inquiries) = channel();
    listener
        .listen(backlog, move |request| {
            let _ = to.send(request);
        })
        .unwrap();
    (listener, inquiries)
}

type Answer = Result<(UdEndpoint, Vec<u8>), Error>;

fn query(engine: &Engine, at: SocketAddr, said: &[u8]) -> (SidrQuery, Receiver<Answer>) {
    let (to, answers) = channel();
    let done = move |answer| {
        let _ = to.send(answer);
    };
    (engine.query_sidr(None, at, said, done).unwrap(), answers)
}

/// A plain UDP socket connected to `at`.
fn plain_socket(at: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(loopback_addr()).unwrap();
    socket.connect(at).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut room = [0; 400];
    let len = socket.recv(&mut room).unwrap();
    room[..len].to_vec()
}

fn emit_inquiry(transaction: u64, kind: SidrKind, private_data: &[u8]) -> [u8; SidrMessage::LEN] {
    let inquiry = SidrMessage {
        transaction,
        kind,
        private_data,
    };
    inquiry.emit()
}

fn request_bytes(transaction: u64) -> [u8; SidrMessage::LEN] {
    emit_inquiry(transaction, SidrKind::Request, b"who?")
}

#[test]
fn sidr_request_is_answered() {
    let (a, b) = (engine(), engine());
    let (listener, inquiries) = open(&a, 4);
    let (sidr, answers) = query(&b, listener.local_addr(), b"who?");
    let request = inquiries.recv_timeout(LONG).unwrap();
    assert_eq!(request.private_data(), b"who?");
    assert_eq!(request.peer_addr().port(), sidr.local_addr().port());
    assert_eq!(request.local_addr(), listener.local_addr());
    request.accept(endpoint(), b"me").unwrap();
    let answer = answers.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(answer, (endpoint(), b"me".to_vec()));
    assert!(sidr.is_finished());
}

#[test]
fn refused_or_dropped_sidr_request_is_rejected() {
    let engine = engine();
    let (listener, inquiries) = open(&engine, 4);
    for said in [&b"no"[..], b""] {
        let (_query, answers) = query(&engine, listener.local_addr(), b"");
        let request = inquiries.recv_timeout(LONG).unwrap();
        if said.is_empty() {
            drop(request);
        } else {
            request.reject(said);
        }
        let error = answers.recv_timeout(LONG).unwrap().unwrap_err();
        let Error::Rejected { private_data, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(private_data, said);
    }
}

#[test]
fn sidr_request_before_listen_is_answered_later() {
    let engine = engine();
    let listener = engine.bind_sidr_listener(loopback_addr()).unwrap();
    let (_query, answers) = query(&engine, listener.local_addr(), b"early");
    wait_readable("the request arrives", &listener.0.socket);
    let accept = |request: SidrRequest| request.accept(endpoint(), b"").unwrap();
    listener.listen(1, accept).unwrap();
    answers.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(listener.counters().requests, 1);
}

#[test]
fn repeated_sidr_request_gets_the_same_reply() {
    let engine = engine();
    let (listener, inquiries) = open(&engine, 4);
    let peer = plain_socket(listener.local_addr());
    peer.send(&request_bytes(7)).unwrap();
    let open = inquiries.recv_timeout(LONG).unwrap();
    peer.send(&request_bytes(7)).unwrap();
    assert_eq!(receive(&peer), emit_inquiry(7, SidrKind::Pending, &[]));
    open.accept(endpoint(), b"me").unwrap();
    let first = receive(&peer);
    for _ in 0..3 {
        peer.send(&request_bytes(7)).unwrap();
        assert_eq!(receive(&peer), first);
    }
    let counts = listener.counters();
    assert_eq!((counts.requests, counts.repeated), (1, 4));
    assert!(inquiries.try_recv().is_err());
}

#[test]
fn sidr_request_waits_for_a_late_reply() {
    let engine = engine();
    let (listener, inquiries) = open(&engine, 1);
    let (sidr, answers) = query(&engine, listener.local_addr(), b"");
    let request = inquiries.recv_timeout(LONG).unwrap();
    // More attempts than a request without any reply gets.
    wait_until("it is repeated", || listener.counters().repeated >= 6);
    assert!(!sidr.is_finished());
    request.accept(endpoint(), b"at last").unwrap();
    assert_eq!(
        answers.recv_timeout(LONG).unwrap().unwrap().1,
        b"at last".to_vec()
    );
}

#[test]
fn unanswered_sidr_request_is_repeated_then_times_out() {
    let engine = engine();
    let silent = UdpSocket::bind(loopback_addr()).unwrap();
    silent.set_read_timeout(Some(LONG)).unwrap();
    let (_query, answers) = query(&engine, silent.local_addr().unwrap(), b"");
    let first = receive(&silent);
    for _ in 1..6 {
        assert_eq!(receive(&silent), first, "the same question again");
    }
    let error = answers.recv_timeout(LONG).unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    silent.set_nonblocking(true).unwrap();
    assert!(silent.recv(&mut [0; 400]).is_err());
}

#[test]
fn dropped_sidr_query_gets_no_callback() {
    let engine = engine();
    let (listener, inquiries) = open(&engine, 1);
    let (sidr, answers) = query(&engine, listener.local_addr(), b"");
    let request = inquiries.recv_timeout(LONG).unwrap();
    drop(sidr);
    request.accept(endpoint(), b"").unwrap();
    // The callback was dropped with its sender.
    assert!(answers.recv_timeout(LONG).is_err());
}

#[test]
fn sidr_backlog_is_bounded_and_malformed_requests_counted() {
    let engine = engine();
    let (listener, inquiries) = open(&engine, 8);
    let peer = plain_socket(listener.local_addr());
    for transaction in 0..100 {
        peer.send(&request_bytes(transaction)).unwrap();
    }
    wait_until("all are counted", || {
        listener.counters().requests + listener.counters().backlog_full == 100
    });
    assert_eq!(listener.counters().requests, 8);
    let mut long = request_bytes(1).to_vec();
    long.push(0);
    let mut other = request_bytes(1);
    other[4] = 9;
    let accepted = emit_inquiry(1, SidrKind::Refused, b"");
    let wrong: [&[u8]; 6] = [b"", b"x", &long, &other, &accepted, &[0xff; 2000]];
    for bytes in wrong {
        peer.send(bytes).unwrap();
    }
    wait_until("six are malformed", || listener.counters().malformed == 6);
    // An answered request makes room in the backlog.
    drop(inquiries.recv_timeout(LONG).unwrap());
    peer.send(&request_bytes(1000)).unwrap();
    wait_until("nine requests", || listener.counters().requests == 9);
}

#[test]
fn forged_sidr_replies_are_ignored() {
    let engine = engine();
    let listener = UdpSocket::bind(loopback_addr()).unwrap();
    listener.set_read_timeout(Some(LONG)).unwrap();
    let (sidr, answers) = query(&engine, listener.local_addr().unwrap(), b"");
    let bytes = receive(&listener);
    let transaction = SidrMessage::parse(&bytes).unwrap().transaction;
    let to = sidr.local_addr();
    let to = SocketAddr::new("127.0.0.1".parse().unwrap(), to.port());
    let yes = |address: [u8; 16]| SidrKind::Accepted {
        number: endpoint().number,
        qkey: 1,
        gid: address,
    };
    let here = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
    let group = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 0, 0, 1];
    let elsewhere = UdpSocket::bind(loopback_addr()).unwrap();
    elsewhere
        .send_to(&emit_inquiry(transaction, yes(here), b""), to)
        .unwrap();
    for wrong in [
        &emit_inquiry(transaction ^ 1, yes(here), b"")[..],
        &emit_inquiry(transaction, yes([0; 16]), b""),
        &emit_inquiry(transaction, yes(group), b""),
        &bytes,
        b"nonsense",
    ] {
        listener.send_to(wrong, to).unwrap();
    }
    wait_until("six are unrelated", || sidr.unrelated() == 6);
    assert!(!sidr.is_finished());
    listener
        .send_to(&emit_inquiry(transaction, yes(here), b"yes"), to)
        .unwrap();
    let (at, said) = answers.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(
        (at.address.to_string(), said),
        ("127.0.0.1".into(), b"yes".to_vec())
    );
}

#[test]
fn kept_sidr_replies_are_bounded() {
    let engine = engine();
    let (listener, inquiries) = open(&engine, 16);
    let peer = plain_socket(listener.local_addr());
    for transaction in 0..MAX_ANSWERS as u64 + 100 {
        peer.send(&request_bytes(transaction)).unwrap();
        drop(inquiries.recv_timeout(LONG).unwrap());
    }
    let book = listener.0.requests.lock();
    assert_eq!(
        (book.answers.len(), book.order.len()),
        (MAX_ANSWERS, MAX_ANSWERS)
    );
    assert!(book.open.is_empty());
}

#[test]
fn kept_sidr_replies_expire() {
    let mut book = RequestTable::default();
    let key = RequestKey {
        peer: loopback_addr(),
        transaction: 1,
        roce: None,
    };
    let now = sys::now();
    book.answers.insert(key, Arc::from(&request_bytes(1)[..]));
    book.order.push_back((now, key));
    book.expire_answers(now + (ANSWER_LIFETIME - Duration::from_millis(1)));
    assert_eq!(book.answers.len(), 1);
    book.expire_answers(now + ANSWER_LIFETIME);
    assert!(book.answers.is_empty() && book.order.is_empty());
}

#[test]
fn sidr_request_outlives_its_listener() {
    let engine = engine();
    let (listener, inquiries) = open(&engine, 1);
    let (_query, answers) = query(&engine, listener.local_addr(), b"");
    let request = inquiries.recv_timeout(LONG).unwrap();
    drop(listener);
    request.accept(endpoint(), b"").unwrap();
    answers.recv_timeout(LONG).unwrap().unwrap();
}

#[test]
fn shutdown_closes_pending_sidr_queries() {
    let asker = engine();
    let silent = UdpSocket::bind(loopback_addr()).unwrap();
    let (_query, answers) = query(&asker, silent.local_addr().unwrap(), b"");
    asker.shut_down(Duration::ZERO).unwrap();
    let error = answers.recv_timeout(LONG).unwrap().unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    assert!(matches!(
        asker.bind_sidr_listener(loopback_addr()),
        Err(Error::Closed)
    ));
}

#[test]
fn too_long_sidr_private_data_is_refused() {
    let engine = engine();
    let (listener, inquiries) = open(&engine, 1);
    let long = [0; 256];
    let error = engine
        .query_sidr(None, listener.local_addr(), &long, |_| ())
        .unwrap_err();
    assert!(matches!(
        error,
        Error::PrivateData {
            got: 256,
            limit: 255
        }
    ));
    let (_query, answers) = query(&engine, listener.local_addr(), &long[1..]);
    let request = inquiries.recv_timeout(LONG).unwrap();
    assert_eq!(request.private_data().len(), 255);
    assert!(request.accept(endpoint(), &long).is_err());
    let error = answers.recv_timeout(LONG).unwrap().unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error}");
}

#[test]
fn sidr_port_has_one_listener() {
    let engine = engine();
    let listener = engine.bind_sidr_listener(loopback_addr()).unwrap();
    assert!(engine.bind_sidr_listener(listener.local_addr()).is_err());
    let at = listener.local_addr();
    drop(listener);
    engine.bind_sidr_listener(at).unwrap();
}
