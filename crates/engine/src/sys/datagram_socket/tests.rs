//! Tests of datagrams: whole, too long, and unaffected by errors of others.

use super::super::Interest;
use super::super::testing::{await_ready, loopbacks};
use super::*;

fn both(ip: core::net::IpAddr) -> (DatagramSocket, DatagramSocket) {
    let bind = || DatagramSocket::bind(SocketAddr::new(ip, 0)).unwrap();
    (bind(), bind())
}

#[test]
fn datagrams_arrive_whole_with_their_source() {
    for ip in loopbacks() {
        let (a, b) = both(ip);
        let mut room = [0; 8];
        assert_eq!(b.receive(&mut room).unwrap(), None);
        assert!(a.send(b"abc", b.local_addr().unwrap()).unwrap());
        assert!(a.send(b"", b.local_addr().unwrap()).unwrap());
        assert!(a.send(&[7; 20], b.local_addr().unwrap()).unwrap());
        await_ready(&b, Interest::READ);
        let from = a.local_addr().unwrap();
        assert_eq!(b.receive(&mut room).unwrap(), Some((3, from)));
        assert_eq!(&room[..3], b"abc");
        await_ready(&b, Interest::READ);
        assert_eq!(b.receive(&mut room).unwrap(), Some((0, from)));
        await_ready(&b, Interest::READ);
        assert_eq!(b.receive(&mut room).unwrap(), Some((20, from)), "too long");
    }
}

#[test]
fn datagram_to_a_closed_port_is_no_error() {
    for ip in loopbacks() {
        let (a, b) = both(ip);
        let gone = b.local_addr().unwrap();
        drop(b);
        for _ in 0..3 {
            assert!(a.send(b"abc", gone).unwrap());
        }
        assert_eq!(a.receive(&mut [0; 8]).unwrap(), None);
    }
}

#[test]
fn datagram_port_is_not_shared() {
    for ip in loopbacks() {
        let (a, _) = both(ip);
        assert!(
            DatagramSocket::bind(a.local_addr().unwrap())
                .unwrap_err()
                .is_in_use()
        );
    }
}

#[test]
fn datagrams_are_not_fragmented_without_need() {
    for ip in loopbacks().into_iter().filter(core::net::IpAddr::is_ipv4) {
        let (a, b) = both(ip);
        let fragments = || sockopt::ip_mtu_discover(&a.fd).unwrap();
        assert!(a.send(b"abc", b.local_addr().unwrap()).unwrap());
        assert_eq!(fragments(), sockopt::Ipv4PathMtuDiscovery::DO);
        // Longer than any datagram: it is tried once more, with fragments.
        assert!(a.send(&[0; 65_536], b.local_addr().unwrap()).is_err());
        assert_eq!(fragments(), sockopt::Ipv4PathMtuDiscovery::WANT);
    }
}

fn roce(ip: core::net::IpAddr) -> DatagramSocket {
    DatagramSocket::bind_roce(SocketAddr::new(ip, 0)).unwrap()
}

#[test]
fn segments_arrive_as_datagrams() {
    for ip in loopbacks() {
        let (a, b) = (roce(ip), roce(ip));
        let mut batch = ReceiveBatch::new(65_535);
        assert!(!b.receive_batch(&mut batch).unwrap());
        let bytes: Vec<u8> = (0..250).collect();
        let to = b.local_addr().unwrap();
        let sent = a.send_segments(&bytes, 100, to).unwrap();
        assert_eq!(sent, SegmentsOutcome::Sent);
        assert!(a.send(b"single", to).unwrap());
        let mut arrived: Vec<Vec<u8>> = Vec::new();
        while arrived.len() < 4 {
            await_ready(&b, Interest::READ);
            assert!(b.receive_batch(&mut batch).unwrap());
            for arrival in batch.arrivals() {
                assert_eq!(arrival.from, a.local_addr().unwrap());
                assert!(!arrival.truncated);
                arrived.push(arrival.bytes.to_vec());
            }
        }
        let expected: [&[u8]; 4] = [&bytes[..100], &bytes[100..200], &bytes[200..], b"single"];
        assert_eq!(arrived, expected);
    }
}

#[test]
fn batch_takes_several_datagrams_with_true_lengths() {
    let (a, b) = both(loopbacks()[0]);
    let mut batch = ReceiveBatch::new(16);
    for len in 0..20 {
        assert!(
            a.send(&vec![len; len.into()], b.local_addr().unwrap())
                .unwrap()
        );
    }
    let mut arrived = Vec::new();
    let mut calls = 0;
    while arrived.len() < 20 {
        await_ready(&b, Interest::READ);
        assert!(b.receive_batch(&mut batch).unwrap());
        calls += 1;
        let lengths = batch.arrivals().map(|a| (a.bytes.len(), a.truncated));
        arrived.extend(lengths);
    }
    let expected = (0..20).map(|len| (16.min(len), len > 16));
    assert!(arrived.into_iter().eq(expected));
    assert!(calls <= 20);
}

#[test]
fn segments_too_long_are_unsupported() {
    let (a, b) = (roce(loopbacks()[0]), roce(loopbacks()[0]));
    let to = b.local_addr().unwrap();
    let sent = a.send_segments(&[0; 100], 70_000, to).unwrap();
    assert_eq!(sent, SegmentsOutcome::Unsupported);
    assert!(a.send(&[0; 65_508], to).is_err(), "too long for one");
}

#[test]
fn packets_are_steered_by_queue_pair_number() {
    for ip in loopbacks() {
        let first = roce(ip);
        let at = first.local_addr().unwrap();
        let mut members = vec![first];
        for _ in 0..3 {
            members.push(DatagramSocket::bind_roce(at).unwrap());
        }
        members[0].steer_by_qpn().unwrap();
        let sender = roce(ip);
        let mut batch = ReceiveBatch::new(100);
        for port in 20_000_u32..20_128 {
            let mut bth = [0; 12];
            bth[4..8].copy_from_slice(&(0xc000_0000 | port << 8 | 5).to_be_bytes());
            assert!(sender.send(&bth, at).unwrap());
            let Some(member) = members.get(port as usize % 64) else {
                continue;
            };
            await_ready(member, Interest::READ);
            let expected = |batch: &ReceiveBatch| batch.arrivals().any(|a| a.bytes == bth);
            // Those for other numbers are spread over all.
            while member.receive_batch(&mut batch).unwrap() && !expected(&batch) {}
            assert!(expected(&batch), "port {port}");
        }
    }
}

#[test]
fn port_of_roce_is_shared_with_its_kind_only() {
    for ip in loopbacks() {
        let first = roce(ip);
        let at = first.local_addr().unwrap();
        let _second = DatagramSocket::bind_roce(at).unwrap();
        assert!(DatagramSocket::bind(at).unwrap_err().is_in_use());
        let plain = both(ip).0;
        let taken = DatagramSocket::bind_roce(plain.local_addr().unwrap());
        assert!(taken.unwrap_err().is_in_use());
    }
}
