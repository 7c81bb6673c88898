//! Hostile callers: wrong numbers, wrong keys, replayed calls, silence. The called queue pair stays ready, and existing connections
//! are not affected.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use verbena_engine::OobPeer;
use verbena_nic::{QpState, Status};
use verbena_testing::own_process;
use verbena_wire::ext::dial::NO_PROOF;
use verbena_wire::ext::{DialReject, DialReply, DialRequest, QpType};
use verbena_wire::number::Qpn;

use crate::common::mpa::mpa_request;
use crate::common::tcp::unread;
use crate::common::{
    SEND, Side, TEST_TIMEOUT, callable_side, descriptors, exchange, exchange_until_shared,
    read_to_end, serialize_tests, wait,
};

const LOCALHOST: &str = "127.0.0.1";
const KEY: &str = "a secret that both share";

fn side(settings: &[(&str, &str)]) -> Side {
    let usual: &[(&str, &str)] = &[
        ("device", LOCALHOST),
        ("startup_timeout", "400ms"),
        ("linger", "100ms"),
    ];
    callable_side(&[usual, settings].concat())
}

fn localhost() -> IpAddr {
    LOCALHOST.parse().unwrap()
}

fn number(side: &Side) -> Qpn {
    side.qp.oob_qpn().unwrap()
}

fn set_peer(side: &Side, number: Qpn) {
    side.qp.modify(QpState::Init).unwrap();
    let peer = OobPeer {
        local: localhost(),
        address: localhost(),
        number,
    };
    side.qp.set_peer(peer).unwrap();
    side.qp.modify(QpState::Rts).unwrap();
}

/// A call as docs/extensions.md describes it, signed without the adapter's code.
fn call(from: Qpn, to: Qpn, key: Option<&str>) -> DialRequest {
    let mut call = DialRequest {
        qp_type: QpType::Rc,
        from,
        to,
        gid: gid(),
        nonce: 0x1234_5678_9abc_def0,
        proof: NO_PROOF,
    };
    if let Some(key) = key {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
        mac.update(&call.emit()[..DialRequest::COVERED_LEN]);
        call.proof = mac.finalize().into_bytes().into();
    }
    call
}

fn gid() -> [u8; 16] {
    std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets()
}

/// Connects to the port of a number with an MPA Request that offers the extensions.
fn dial(to: Qpn, private: &[u8]) -> TcpStream {
    let port = (to.get() >> 8) as u16;
    mpa_request((localhost(), port).into(), private)
}

/// The reply of the called side: its answer, or the reason why there is none.
fn reply(raw: &mut TcpStream) -> Result<DialReply, Option<DialReject>> {
    let mut head = [0; 20];
    raw.read_exact(&mut head).unwrap();
    assert_eq!(&head[..16], b"MPA ID Rep Frame");
    let len = u16::from_be_bytes([head[18], head[19]]);
    let mut private = vec![0; usize::from(len)];
    raw.read_exact(&mut private).unwrap();
    let said = &private[4.min(private.len())..];
    if head[16] & 0x20 == 0 {
        Ok(DialReply::parse(said).unwrap())
    } else {
        Err(DialReject::parse(said).ok())
    }
}

/// Calls, and returns why it was not answered.
fn refusal(to: Qpn, call: &DialRequest) -> Option<DialReject> {
    reply(&mut dial(to, &call.emit())).unwrap_err()
}

/// A number below all others: its calls win.
fn lowest_qpn() -> Qpn {
    Qpn::new(0x100).unwrap()
}

/// Another index at the same port.
fn adjacent(number: Qpn) -> Qpn {
    Qpn::new(number.get() ^ 0x80).unwrap()
}

#[test]
fn forged_calls_are_refused_without_side_effects() {
    let _alone = serialize_tests();
    let (a, b) = (side(&[]), side(&[]));
    set_peer(&b, number(&a));
    let (from, to) = (number(&a), number(&b));
    let honest = call(from, to, None);
    let unknown = call(from, adjacent(to), None);
    assert_eq!(refusal(to, &unknown), Some(DialReject::Unknown));
    let elsewhere = call(adjacent(from), to, None);
    assert_eq!(refusal(to, &elsewhere), Some(DialReject::WrongPeer));
    let elsewhere = DialRequest {
        gid: [9; 16],
        ..honest
    };
    assert_eq!(refusal(to, &elsewhere), Some(DialReject::WrongPeer));
    let unreliable = DialRequest {
        qp_type: QpType::Uc,
        ..honest
    };
    assert_eq!(refusal(to, &unreliable), Some(DialReject::WrongService));
    let keyed = call(from, to, Some(KEY));
    assert_eq!(refusal(to, &keyed), Some(DialReject::KeyMismatch));
    // Private data that is no call is rejected without a reason.
    let plain = reply(&mut dial(to, b"hello"));
    assert_eq!(plain, Err(None));
    set_peer(&a, to);
    exchange(&a, &b);
    // While the two are connected, no further call is answered.
    for _ in 0..5 {
        assert_eq!(refusal(to, &honest), Some(DialReject::InUse));
        assert_eq!(refusal(to, &elsewhere), Some(DialReject::WrongPeer));
    }
    exchange(&a, &b);
}

#[test]
fn calls_without_the_key_are_refused() {
    let _alone = serialize_tests();
    let (a, b) = (side(&[("key", KEY)]), side(&[("key", KEY)]));
    set_peer(&b, number(&a));
    let (from, to) = (number(&a), number(&b));
    for key in [None, Some("a guess"), Some("")] {
        assert_eq!(
            refusal(to, &call(from, to, key)),
            Some(DialReject::KeyMismatch)
        );
    }
    let mut forged = call(from, to, Some(KEY));
    forged.nonce ^= 1;
    assert_eq!(refusal(to, &forged), Some(DialReject::KeyMismatch));
    set_peer(&a, to);
    exchange(&a, &b);
}

#[test]
fn different_keys_prevent_the_connection() {
    let _alone = serialize_tests();
    for (one, two) in [
        (Some(KEY), Some("a secret of another pair")),
        (Some(KEY), None),
        (None, Some(KEY)),
    ] {
        let with = |key: Option<&'static str>| match key {
            Some(key) => side(&[("key", key)]),
            None => side(&[]),
        };
        let (a, b) = (with(one), with(two));
        a.qp.set_attr(|m| m.peer_timeout = Some(Duration::from_millis(500)));
        set_peer(&a, number(&b));
        set_peer(&b, number(&a));
        a.post(1, SEND, &[a.sge(0, 8)]);
        assert_eq!(a.statuses(1), [(1, Status::RetryExcErr)]);
    }
}

#[test]
fn replayed_call_does_not_establish_a_connection() {
    let _alone = serialize_tests();
    let (a, b) = (side(&[("key", KEY)]), side(&[("key", KEY)]));
    set_peer(&b, number(&a));
    let (from, to) = (number(&a), number(&b));
    // Like a call recorded in an earlier life of the caller: correctly signed, and answered.
    let recorded = call(from, to, Some(KEY));
    for attempt in 0..3 {
        let mut raw = dial(to, &recorded.emit());
        // Between two attempts the queue pair may call its peer itself.
        let end = std::time::Instant::now() + TEST_TIMEOUT;
        while reply(&mut raw).is_err() {
            assert!(std::time::Instant::now() < end);
            raw = dial(to, &recorded.emit());
        }
        match attempt {
            // Silence.
            0 => {}
            // Anything but the frame that proves the key.
            1 => raw.write_all(&[0; 4096]).unwrap(),
            // The end of the stream.
            _ => raw.shutdown(std::net::Shutdown::Write).unwrap(),
        }
        read_to_end(&raw);
        assert_eq!(b.qp.state(), QpState::Rts, "as if it had never been");
    }
    set_peer(&a, to);
    exchange(&a, &b);
}

#[test]
fn responder_without_the_key_is_refused() {
    let _alone = serialize_tests();
    let a = side(&[("key", KEY)]);
    let listener = std::net::TcpListener::bind((localhost(), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let impostor = Qpn::new(u32::from(port) << 8 | 255).unwrap();
    set_peer(&a, impostor);
    a.qp.set_attr(|m| m.peer_timeout = Some(Duration::from_millis(700)));
    a.post(1, SEND, &[a.sge(0, 8)]);
    let (mut raw, _) = listener.accept().unwrap();
    raw.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut head = [0; 20];
    raw.read_exact(&mut head).unwrap();
    let mut private = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
    raw.read_exact(&mut private).unwrap();
    let called = DialRequest::parse(&private[4..]).unwrap();
    assert_eq!((called.from, called.to), (number(&a), impostor));
    let answer = DialReply {
        nonce: 7,
        proof: [3; 32],
    };
    let mut frame = b"MPA ID Rep Frame".to_vec();
    frame.extend([0x12, 2, 0, 52, 0x80, 16, 0x3f, 0xff]);
    frame.extend(answer.emit());
    raw.write_all(&frame).unwrap();
    read_to_end(&raw);
    assert_eq!(a.statuses(1), [(1, Status::RetryExcErr)]);
}

#[test]
fn early_calls_are_held_within_limits() {
    let _alone = serialize_tests();
    own_process!();
    let b = side(&[("held_timeout", "700ms"), ("startup_timeout", "3s")]);
    let (to, before) = (number(&b), descriptors());
    let from = adjacent(to);
    let mut calls: Vec<_> = (0..8)
        .map(|_| dial(to, &call(from, to, None).emit()))
        .collect();
    let mut answers = [0; 2];
    for raw in &mut calls {
        raw.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        match reply(raw) {
            Err(Some(DialReject::Busy)) => answers[0] += 1,
            // Held for long enough.
            Err(Some(DialReject::Unknown)) => answers[1] += 1,
            other => panic!("{other:?}"),
        }
        read_to_end(raw);
    }
    assert_eq!(answers, [4, 4]);
    drop(calls);
    wait("nothing is kept", || descriptors() <= before);
    let a = side(&[]);
    set_peer(&b, number(&a));
    set_peer(&a, to);
    exchange(&a, &b);
}

#[test]
fn held_call_is_answered_when_ready() {
    let _alone = serialize_tests();
    own_process!();
    let b = side(&[]);
    let (from, to) = (lowest_qpn(), number(&b));
    let before = descriptors();
    let mut raw = dial(to, &call(from, to, None).emit());
    let at = raw.peer_addr().unwrap();
    wait("the call is read", || {
        descriptors() >= before + 2 && unread(at) == 0
    });
    set_peer(&b, from);
    let answer = reply(&mut raw);
    assert!(answer.is_ok(), "{answer:?}");
}

#[test]
fn call_flood_is_bounded_and_connections_survive() {
    let _alone = serialize_tests();
    own_process!();
    let (a, b) = (side(&[]), side(&[("half_open", "32")]));
    set_peer(&b, number(&a));
    set_peer(&a, number(&b));
    exchange_until_shared([&a, &b], || exchange(&a, &b));
    let (to, before) = (number(&b), descriptors());
    let mut raws = Vec::new();
    for n in 0..400_u32 {
        let port = (to.get() >> 8) as u16;
        let Ok(mut raw) = TcpStream::connect((localhost(), port)) else {
            continue;
        };
        // Some send nothing, some half a call, some call a number that does not exist.
        let bytes = call(adjacent(to), Qpn::new(to.get() ^ (n & 0xff)).unwrap(), None).emit();
        let len = [0, 30, 72][n as usize % 3];
        let _ = raw.write_all(&bytes[..len]);
        raws.push(raw);
        assert!(descriptors() <= before + raws.len() + 32 + 8);
    }
    exchange(&a, &b);
    drop(raws);
    wait("all are gone", || descriptors() <= before);
    exchange(&a, &b);
}

#[test]
fn call_source_is_checked_unless_disabled() {
    let _alone = serialize_tests();
    for (check, answered) in [("on", false), ("off", true)] {
        let b = side(&[("check_source", check)]);
        let far: IpAddr = "127.0.0.9".parse().unwrap();
        let (from, to) = (lowest_qpn(), number(&b));
        b.qp.modify(QpState::Init).unwrap();
        let peer = OobPeer {
            local: localhost(),
            address: far,
            number: from,
        };
        b.qp.set_peer(peer).unwrap();
        let gid = std::net::Ipv4Addr::new(127, 0, 0, 9)
            .to_ipv6_mapped()
            .octets();
        let translated = DialRequest {
            gid,
            ..call(from, to, None)
        };
        let said = reply(&mut dial(to, &translated.emit()));
        assert_eq!(said.is_ok(), answered, "{said:?}");
    }
}

#[test]
fn requests_fail_when_an_unproven_caller_vanishes() {
    let _alone = serialize_tests();
    // Posted before the call, or after it while the caller's proof is pending.
    for early in [true, false] {
        let b = side(&[]);
        b.qp.set_attr(|m| m.peer_timeout = Some(Duration::from_millis(600)));
        let (from, to) = (lowest_qpn(), number(&b));
        set_peer(&b, from);
        if early {
            b.post(1, SEND, &[b.sge(0, 8)]);
        }
        let mut raw = dial(to, &call(from, to, None).emit());
        assert!(reply(&mut raw).is_ok());
        if !early {
            b.post(1, SEND, &[b.sge(0, 8)]);
        }
        drop(raw);
        assert_eq!(b.statuses(1), [(1, Status::RetryExcErr)]);
    }
}
