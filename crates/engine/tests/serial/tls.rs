//! TLS between two engines: transfers, rejected peers, and an attacker on the path.
//! Tests that measure memory run in processes of their own.

mod attacks;
mod identity;
mod relay;

use std::net::IpAddr;

use relay::{Attack, connect_through};
use verbena_engine::{Engine, Error, OobPeer, UdOptions};
use verbena_nic::{QpState, Status, Wc};

use crate::common::{
    SEND, Side, callable_side, config, connect_sides, exchange, pattern, read_from,
    serialize_tests, try_connect_sides, wait, write_to,
};

const ONE: &str = "one of the keys of this test";
const TWO: &str = "two of the keys of this test";

/// Settings of a side with TLS and this key.
fn psk(key: &str) -> [(&str, &str); 3] {
    [("startup_timeout", "2s"), ("key", key), ("tls", "psk")]
}

fn with(key: &str) -> Side {
    Side::new(&psk(key))
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// Messages smaller than a record, as long as one, and of many, by every operation and both ways; each byte is checked.
fn transfer(a: &Side, b: &Side) {
    for (i, len) in [1, 100, 4096, 16_384, 16_385, 65_536, 300_001, 1 << 20]
        .into_iter()
        .enumerate()
    {
        for (from, to) in [(a, b), (b, a)] {
            let words = pattern(len, i as u8);
            assert!(from.memory.write(0, &words));
            to.receive(1, &[to.sge(2 << 20, 1 << 20)]);
            from.post(2, SEND, &[from.sge(0, len)]);
            assert_eq!(to.statuses(1), [(1, Status::Success)]);
            assert_eq!(from.statuses(1), [(2, Status::Success)]);
            assert!(to.memory.read(2 << 20, len) == words, "a Send of {len}");
            from.post(3, write_to(to.remote(1 << 20)), &[from.sge(0, len)]);
            assert_eq!(from.statuses(1), [(3, Status::Success)]);
            assert!(to.memory.read(1 << 20, len) == words, "a Write of {len}");
            from.post(4, read_from(to.remote(1 << 20)), &[from.sge(3 << 20, len)]);
            assert_eq!(from.statuses(1), [(4, Status::Success)]);
            assert!(from.memory.read(3 << 20, len) == words, "a Read of {len}");
        }
    }
}

#[test]
fn same_key_transfers_over_tls() {
    let _alone = serialize_tests();
    let (a, b) = (with(ONE), with(ONE));
    try_connect_sides(&a, &b, &[7; 200], b"welcome").unwrap();
    transfer(&a, &b);
    assert_eq!(b.engine.access_list().refused(), 0);
}

/// Socket buffers that take less than a record at a time, full in both directions at once.
#[test]
fn full_sockets_lose_no_tls_bytes() {
    let _alone = serialize_tests();
    let settings = [&psk(ONE)[..], &[("buffers", "32768")]].concat();
    let (a, b) = (Side::new(&settings), Side::new(&settings));
    connect_sides(&a, &b);
    let len = 256 << 10;
    for round in 0..4_u8 {
        let words = [pattern(len, round), pattern(len, round ^ 0x55)];
        for (side, words) in [&a, &b].into_iter().zip(&words) {
            assert!(side.memory.write(0, words));
        }
        for (from, to) in [(&a, &b), (&b, &a)] {
            from.post(1, write_to(to.remote(1 << 20)), &[from.sge(0, len)]);
            from.post(2, read_from(to.remote(0)), &[from.sge(2 << 20, len)]);
        }
        for side in [&a, &b] {
            let wanted = [(1, Status::Success), (2, Status::Success)];
            assert_eq!(side.statuses(2), wanted);
        }
        for (side, words) in [&b, &a].into_iter().zip(&words) {
            assert!(side.memory.read(1 << 20, len) == *words);
            assert!(side.memory.read(2 << 20, len) == *words);
        }
    }
}

/// The last bytes of a message wait for room while the sender polls and has nothing else to send.
#[test]
fn unsent_bytes_leave_when_there_is_room() {
    let _alone = serialize_tests();
    let settings = [&psk(ONE)[..], &[("buffers", "32768")]].concat();
    let (a, b) = (Side::new(&settings), Side::new(&settings));
    let relay = connect_through(&a, &b);
    exchange(&a, &b);
    for len in (1..40).map(|n| n * 25_000) {
        relay.attack(0, Attack::Hold, 0);
        a.post(1, write_to(b.remote(0)), &[a.sge(0, len)]);
        // Bytes in transit still arrive, and may be all.
        let mut done = [Wc::default(); 1];
        let over = (0..5000).any(|_| a.cq.poll(&mut done) == 1);
        relay.attack(0, Attack::None, 0);
        let status = if over {
            done[0].status
        } else {
            a.statuses(1)[0].1
        };
        assert_eq!(status, Status::Success, "{len}");
    }
}

#[test]
fn tls_hides_the_payload_on_the_wire() {
    let _alone = serialize_tests();
    let secret = b"this must not be seen by a host between the two";
    for (settings, visible) in [(&psk(ONE)[..], false), (&psk(ONE)[..2], true)] {
        let (a, b) = (Side::new(settings), Side::new(settings));
        let relay = connect_through(&a, &b);
        for (from, to) in [(&a, &b), (&b, &a)] {
            assert!(from.memory.write(0, secret));
            to.receive(1, &[to.sge(4096, 4096)]);
            from.post(2, SEND, &[from.sge(0, secret.len())]);
            assert_eq!(to.statuses(1), [(1, Status::Success)]);
            assert_eq!(from.statuses(1), [(2, Status::Success)]);
            assert!(to.memory.read(4096, secret.len()) == secret);
        }
        for way in [0, 1] {
            let seen = relay.seen(way);
            assert_eq!(contains(&seen, secret), visible);
            assert_eq!(contains(&seen, b"MPA ID"), visible);
        }
    }
}

#[test]
fn encrypted_connections_cannot_be_handed_over() {
    let _alone = serialize_tests();
    let (a, b) = (with(ONE), with(ONE));
    connect_sides(&a, &b);
    let Side { qp, engine, .. } = a;
    let unmoved = qp.export().unwrap_err();
    let why = unmoved.source.to_string();
    assert!(why.contains("encrypted (setting `tls`)"), "{why}");
    assert_eq!(unmoved.qp.state(), QpState::Rts);
    drop((unmoved, engine));
}

#[test]
fn datagrams_are_refused_with_tls() {
    let side = with(ONE);
    let refused = side
        .engine
        .create_ud(&side.cq, &side.cq, UdOptions::new(side.pd));
    assert!(matches!(refused, Err(Error::NoDatagrams)));
}

#[test]
fn tls_without_credentials_is_refused() {
    for (settings, wanted) in [
        (&[("tls", "psk")][..], "key or key_file"),
        (&[("tls", "cert")], "tls_cert, tls_key and tls_ca"),
    ] {
        let mut config = config(&[]);
        let set = settings
            .iter()
            .try_for_each(|(key, value)| config.set(key, value));
        let problem = match set {
            Err(problem) => problem.to_string(),
            Ok(()) => Engine::new(config).unwrap_err().to_string(),
        };
        assert!(problem.contains(wanted), "{problem}");
    }
}

/// Queue pairs that are connected by number and address.
#[test]
fn out_of_band_connections_are_encrypted() {
    let _alone = serialize_tests();
    let here: IpAddr = "127.0.0.1".parse().unwrap();
    let side = |key| callable_side(&[&psk(key)[..], &[("device", "127.0.0.1")]].concat());
    let introduce = |a: &Side, b: &Side| {
        for (one, other) in [(a, b), (b, a)] {
            one.qp.modify(QpState::Init).unwrap();
            let peer = OobPeer {
                local: here,
                address: here,
                number: other.qp.oob_qpn().unwrap(),
            };
            one.qp.set_peer(peer).unwrap();
            one.qp.modify(QpState::Rts).unwrap();
        }
    };
    let (a, b) = (side(ONE), side(ONE));
    introduce(&a, &b);
    transfer(&a, &b);
    let (a, b) = (side(ONE), side(TWO));
    introduce(&a, &b);
    wait("it is refused", || {
        a.engine.access_list().refused() + b.engine.access_list().refused() > 0
    });
    assert_eq!(a.qp.view().counters.bytes_in, 0);
}
