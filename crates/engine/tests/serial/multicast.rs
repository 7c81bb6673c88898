//! Multicast datagrams: delivered to every attached queue pair on every adapter, but never to the sender.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use verbena_nic::ud::GRH_LEN;
use verbena_nic::{ReceiveWr, WcOp};

use crate::common::datagrams::{GROUP, LOCALHOST, Side, make, ready, to_group};
use crate::common::{complete, pattern, serialize_tests, wait};

#[test]
fn multicast_reaches_every_member_but_the_sender() {
    let _alone = serialize_tests();
    let group: IpAddr = GROUP.parse().unwrap();
    let (a, b, c) = (
        Side::new(LOCALHOST),
        Side::new(LOCALHOST),
        Side::new(LOCALHOST),
    );
    let second = make(&b.engine, &b.cq, b.pd);
    ready(&second);
    for ud in [&a.ud, &b.ud, &second] {
        ud.attach(group).unwrap();
        ud.attach(group).unwrap();
    }
    for round in 0..50 {
        a.receive(1, 4096, 100);
        b.receive(2, 4096, 100);
        let scatter = &[b.sge(8192, 100)];
        second.post_receive(&ReceiveWr { id: 3, scatter }).unwrap();
        // The first is attached itself and gets no copy; the last is not attached, and all get its datagrams.
        let words = pattern(30, round);
        assert!(a.memory.write(0, &words));
        a.send(4, to_group(&a, group), &[a.sge(0, 30)]);
        let mut came = complete(&b.cq, 2);
        came.sort_by_key(|wc| wc.id);
        assert_eq!([came[0].id, came[1].id], [2, 3]);
        assert_eq!(came[0].src_qp, a.ud.number().get());
        assert!(b.memory.read(4096 + GRH_LEN, 30) == words);
        assert!(b.memory.read(8192 + GRH_LEN, 30) == words);
        assert_eq!(b.memory.read(4096 + 36, 4), [239, 255, 77, 1]);
        assert_eq!(complete(&a.cq, 1)[0].op, WcOp::Send);
        b.receive(2, 4096, 100);
        let scatter = &[b.sge(8192, 100)];
        second.post_receive(&ReceiveWr { id: 3, scatter }).unwrap();
        c.send(5, to_group(&c, group), &[c.sge(0, 30)]);
        assert_eq!(complete(&a.cq, 1)[0].src_qp, c.ud.number().get());
        assert_eq!(complete(&b.cq, 2)[0].src_qp, c.ud.number().get());
        assert_eq!(complete(&c.cq, 1)[0].id, 5);
    }
    // Detached, it gets nothing; others do.
    assert!(b.ud.detach(group) && !b.ud.detach(group));
    let before = b.ud.view().counters;
    let scatter = &[b.sge(8192, 100)];
    second.post_receive(&ReceiveWr { id: 3, scatter }).unwrap();
    a.send(6, to_group(&a, group), &[a.sge(0, 30)]);
    assert_eq!(complete(&b.cq, 1)[0].id, 3);
    assert_eq!(b.ud.view().counters, before);
}

#[test]
fn ipv6_multicast_is_delivered() {
    let _alone = serialize_tests();
    let group: IpAddr = "ff12::7777".parse().unwrap();
    // Linux has no route for such groups on the loopback interface, so another one is needed.
    let own = verbena_engine::sys::interfaces().unwrap();
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    let Some(ip) = own.into_iter().map(|i| i.ip).find(usable) else {
        return;
    };
    let (a, b) = (Side::new(&ip.to_string()), Side::new(&ip.to_string()));
    b.ud.attach(group).unwrap();
    b.receive(1, 0, 100);
    a.send(2, to_group(&a, group), &[a.sge(0, 30)]);
    assert_eq!(complete(&b.cq, 1)[0].src_qp, a.ud.number().get());
    assert!(matches!(
        a.ud.attach("::1".parse().unwrap()),
        Err(verbena_engine::Error::NotMulticast { .. })
    ));
}

/// A polling thread reads several sockets: one that always has input does not starve the others.
#[test]
fn busy_socket_does_not_starve_another() {
    let _alone = serialize_tests();
    let group: IpAddr = GROUP.parse().unwrap();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    b.ud.attach(group).unwrap();
    let noisy = ((b.ud.number().get() >> 8) as u16, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = UdpSocket::bind((LOCALHOST, 0)).unwrap();
            while !noisy.1.load(Ordering::Relaxed) {
                other.send_to(&[0; 100], (LOCALHOST, noisy.0)).unwrap();
            }
        });
        wait("noise", || b.engine.datagram_drops().malformed > 0);
        for id in 0..300 {
            b.receive(id, 0, 100);
            a.send(id, to_group(&a, group), &[a.sge(0, 30)]);
            assert_eq!(complete(&b.cq, 1)[0].id, id);
            complete(&a.cq, 1);
        }
        noisy.1.store(true, Ordering::Relaxed);
    });
}
