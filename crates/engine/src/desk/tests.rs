//! Tests of SIDR requests between two engines, and between an engine and a plain UDP socket.

use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use super::*;
use crate::{Asking, Config};

const LONG: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
    config.set("device", "127.0.0.1").unwrap();
    Engine::new(config).unwrap()
}

fn home() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn there() -> Whereabouts {
    Whereabouts {
        number: Qpn::new(0x4e_2001).unwrap(),
        qkey: 0x0123_4567,
        address: "192.0.2.7".parse().unwrap(),
    }
}

/// An open listener and its requests.
fn open(engine: &Engine, backlog: usize) -> (Desk, Receiver<Question>) {
    let desk = engine.desk(home()).unwrap();
    let (to, questions) = channel();
    desk.open(backlog, move |question| {
        let _ = to.send(question);
    })
    .unwrap();
    (desk, questions)
}

type Answer = Result<(Whereabouts, Vec<u8>), Error>;

fn ask(engine: &Engine, at: SocketAddr, said: &[u8]) -> (Asking, Receiver<Answer>) {
    let (to, answers) = channel();
    let done = move |answer| {
        let _ = to.send(answer);
    };
    (engine.ask(None, at, said, done).unwrap(), answers)
}

/// A plain UDP socket connected to `at`.
fn stranger(at: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(home()).unwrap();
    socket.connect(at).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

fn heard(socket: &UdpSocket) -> Vec<u8> {
    let mut room = [0; 400];
    let len = socket.recv(&mut room).unwrap();
    room[..len].to_vec()
}

fn question(transaction: u64) -> [u8; Inquiry::LEN] {
    say(transaction, Matter::Question, b"who?")
}

fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !what() {
        assert!(Instant::now() < end, "it never came to that");
        std::thread::yield_now();
    }
}

#[test]
fn sidr_request_is_answered() {
    let (a, b) = (engine(), engine());
    let (desk, questions) = open(&a, 4);
    let (asking, answers) = ask(&b, desk.local(), b"who?");
    let question = questions.recv_timeout(LONG).unwrap();
    assert_eq!(question.private_data(), b"who?");
    assert_eq!(question.peer().port(), asking.local().port());
    assert_eq!(question.local(), desk.local());
    question.accept(there(), b"me").unwrap();
    let answer = answers.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(answer, (there(), b"me".to_vec()));
    assert!(asking.is_over());
}

#[test]
fn refused_or_dropped_sidr_request_is_rejected() {
    let engine = engine();
    let (desk, questions) = open(&engine, 4);
    for said in [&b"no"[..], b""] {
        let (_asking, answers) = ask(&engine, desk.local(), b"");
        let question = questions.recv_timeout(LONG).unwrap();
        if said.is_empty() {
            drop(question);
        } else {
            question.refuse(said);
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
    let desk = engine.desk(home()).unwrap();
    let (_asking, answers) = ask(&engine, desk.local(), b"early");
    std::thread::sleep(Duration::from_millis(120));
    let told = |question: Question| question.accept(there(), b"").unwrap();
    desk.open(1, told).unwrap();
    answers.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(desk.counts().asked, 1);
}

#[test]
fn repeated_sidr_request_gets_the_same_reply() {
    let engine = engine();
    let (desk, questions) = open(&engine, 4);
    let peer = stranger(desk.local());
    peer.send(&question(7)).unwrap();
    let open = questions.recv_timeout(LONG).unwrap();
    peer.send(&question(7)).unwrap();
    assert_eq!(heard(&peer), say(7, Matter::Heard, &[]));
    open.accept(there(), b"me").unwrap();
    let first = heard(&peer);
    for _ in 0..3 {
        peer.send(&question(7)).unwrap();
        assert_eq!(heard(&peer), first);
    }
    let counts = desk.counts();
    assert_eq!((counts.asked, counts.repeated), (1, 4));
    assert!(questions.try_recv().is_err());
}

#[test]
fn sidr_request_waits_for_a_late_reply() {
    let engine = engine();
    let (desk, questions) = open(&engine, 1);
    let (asking, answers) = ask(&engine, desk.local(), b"");
    let question = questions.recv_timeout(LONG).unwrap();
    // Longer than a request without any reply would be repeated.
    std::thread::sleep(Duration::from_secs(4));
    assert!(!asking.is_over());
    question.accept(there(), b"at last").unwrap();
    assert_eq!(
        answers.recv_timeout(LONG).unwrap().unwrap().1,
        b"at last".to_vec()
    );
}

#[test]
fn unanswered_sidr_request_is_repeated_then_times_out() {
    let engine = engine();
    let silent = UdpSocket::bind(home()).unwrap();
    silent.set_read_timeout(Some(LONG)).unwrap();
    let (_asking, answers) = ask(&engine, silent.local_addr().unwrap(), b"");
    let first = heard(&silent);
    for _ in 1..6 {
        assert_eq!(heard(&silent), first, "the same question again");
    }
    let error = answers.recv_timeout(LONG).unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    silent.set_nonblocking(true).unwrap();
    assert!(silent.recv(&mut [0; 400]).is_err());
}

#[test]
fn dropped_sidr_query_gets_no_callback() {
    let engine = engine();
    let (desk, questions) = open(&engine, 1);
    let (asking, answers) = ask(&engine, desk.local(), b"");
    let question = questions.recv_timeout(LONG).unwrap();
    drop(asking);
    question.accept(there(), b"").unwrap();
    // The callback was dropped with its sender.
    assert!(answers.recv_timeout(LONG).is_err());
}

#[test]
fn sidr_backlog_is_bounded_and_malformed_requests_counted() {
    let engine = engine();
    let (desk, questions) = open(&engine, 8);
    let peer = stranger(desk.local());
    for transaction in 0..100 {
        peer.send(&question(transaction)).unwrap();
    }
    until(|| desk.counts().asked + desk.counts().crowded == 100);
    assert_eq!(desk.counts().asked, 8);
    let mut long = question(1).to_vec();
    long.push(0);
    let mut other = question(1);
    other[4] = 9;
    let accepted = say(1, Matter::Refused, b"");
    let wrong: [&[u8]; 6] = [b"", b"x", &long, &other, &accepted, &[0xff; 2000]];
    for bytes in wrong {
        peer.send(bytes).unwrap();
    }
    until(|| desk.counts().malformed == 6);
    // An answered request makes room in the backlog.
    drop(questions.recv_timeout(LONG).unwrap());
    peer.send(&question(1000)).unwrap();
    until(|| desk.counts().asked == 9);
}

#[test]
fn forged_sidr_replies_are_ignored() {
    let engine = engine();
    let desk = UdpSocket::bind(home()).unwrap();
    desk.set_read_timeout(Some(LONG)).unwrap();
    let (asking, answers) = ask(&engine, desk.local_addr().unwrap(), b"");
    let bytes = heard(&desk);
    let transaction = Inquiry::parse(&bytes).unwrap().transaction;
    let to = asking.local();
    let to = SocketAddr::new("127.0.0.1".parse().unwrap(), to.port());
    let yes = |address: [u8; 16]| Matter::Accepted {
        number: there().number,
        qkey: 1,
        gid: address,
    };
    let here = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
    let group = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 0, 0, 1];
    let elsewhere = UdpSocket::bind(home()).unwrap();
    elsewhere
        .send_to(&say(transaction, yes(here), b""), to)
        .unwrap();
    for wrong in [
        &say(transaction ^ 1, yes(here), b"")[..],
        &say(transaction, yes([0; 16]), b""),
        &say(transaction, yes(group), b""),
        &bytes,
        b"nonsense",
    ] {
        desk.send_to(wrong, to).unwrap();
    }
    until(|| asking.strangers() == 6);
    assert!(!asking.is_over());
    desk.send_to(&say(transaction, yes(here), b"yes"), to)
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
    let (desk, questions) = open(&engine, 16);
    let peer = stranger(desk.local());
    for transaction in 0..KEPT as u64 + 100 {
        peer.send(&question(transaction)).unwrap();
        drop(questions.recv_timeout(LONG).unwrap());
    }
    let book = desk.0.book.lock();
    assert_eq!((book.answers.len(), book.order.len()), (KEPT, KEPT));
    assert!(book.open.is_empty());
}

#[test]
fn kept_sidr_replies_expire() {
    let mut book = Book::default();
    let key = (home(), 1);
    let now = sys::now();
    book.answers.insert(key, Box::new(question(1)));
    book.order.push_back((now, key));
    book.tidy(now + (KEPT_FOR - Duration::from_millis(1)));
    assert_eq!(book.answers.len(), 1);
    book.tidy(now + KEPT_FOR);
    assert!(book.answers.is_empty() && book.order.is_empty());
}

#[test]
fn sidr_request_outlives_its_listener() {
    let engine = engine();
    let (desk, questions) = open(&engine, 1);
    let (_asking, answers) = ask(&engine, desk.local(), b"");
    let question = questions.recv_timeout(LONG).unwrap();
    drop(desk);
    question.accept(there(), b"").unwrap();
    answers.recv_timeout(LONG).unwrap().unwrap();
}

#[test]
fn shutdown_closes_pending_sidr_queries() {
    let asker = engine();
    let silent = UdpSocket::bind(home()).unwrap();
    let (_asking, answers) = ask(&asker, silent.local_addr().unwrap(), b"");
    asker.shut_down(Duration::ZERO).unwrap();
    let error = answers.recv_timeout(LONG).unwrap().unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    assert!(matches!(asker.desk(home()), Err(Error::Closed)));
}

#[test]
fn too_long_sidr_private_data_is_refused() {
    let engine = engine();
    let (desk, questions) = open(&engine, 1);
    let long = [0; 256];
    let error = engine.ask(None, desk.local(), &long, |_| ()).unwrap_err();
    assert!(matches!(
        error,
        Error::PrivateData {
            got: 256,
            limit: 255
        }
    ));
    let (_asking, answers) = ask(&engine, desk.local(), &long[1..]);
    let question = questions.recv_timeout(LONG).unwrap();
    assert_eq!(question.private_data().len(), 255);
    assert!(question.accept(there(), &long).is_err());
    let error = answers.recv_timeout(LONG).unwrap().unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error}");
}

#[test]
fn sidr_port_has_one_listener() {
    let engine = engine();
    let desk = engine.desk(home()).unwrap();
    assert!(engine.desk(desk.local()).is_err());
    let at = desk.local();
    drop(desk);
    engine.desk(at).unwrap();
}
