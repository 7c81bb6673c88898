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
