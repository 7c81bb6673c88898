//! The datagram port spaces of the connection manager: requests and replies, ports, and destruction at any time.

use core::ffi::c_void;
use core::ptr;
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_capi::verbs::*;
use verbena_testing::wait_until;

use crate::common::ud_peers::*;
use crate::common::{call, errno};
use crate::tcp::udp_unread;

#[test]
fn accepted_sidr_request_allows_datagrams() {
    crate::begin();
    for ps in [RDMA_PS_UDP, RDMA_PS_IPOIB] {
        let server = UdPeer::new(ps);
        let mut here = address("0.0.0.0:0");
        assert_eq!(call!(rdma_bind_addr(server.id, at(&here))), 0);
        assert_eq!(call!(rdma_listen(server.id, 0)), 0);
        here = address("127.0.0.1:0");
        here.sin_port = call!(rdma_get_src_port(server.id));
        let client = UdPeer::resolved_to(&here);
        make_qp(client.id);
        client.connect(b"where are you?");
        let asked = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(asked.private_data(), b"where are you?");
        let (child, listener) = (asked.get().id, asked.get().listen_id);
        assert_eq!(listener, server.id);
        make_qp(child);
        let letters = RecvBuffer::of(child);
        // SAFETY: `child` is destroyed at the end of the round; `param` and its private data are locals.
        unsafe {
            assert_eq!((*child).context, 7 as *mut c_void);
            assert_eq!((*child).qp_type, IBV_QPT_UD);
            assert_eq!(rdma_get_src_port(child), here.sin_port);
            assert_ne!(rdma_get_dst_port(child), 0);
            let mut param = conn_param(b"here");
            assert_eq!(rdma_accept(child, &raw mut param), 0, "{}", errno());
            // Once.
            assert_eq!(rdma_accept(child, &raw mut param), -1);
            assert_eq!(errno(), libc::EINVAL);
        }
        let answer = client.expect(RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!(
            (answer.get().status, answer.private_data()),
            (0, b"here".to_vec())
        );
        let mut ud = answer.ud();
        assert_eq!(ud.qp_num, qp_number(child));
        assert_eq!(ud.qkey, RDMA_UDP_QKEY);
        send(client.id, &mut ud, b"a letter");
        let (text, from) = letters.take(child);
        assert_eq!((text, from), (b"a letter".to_vec(), qp_number(client.id)));
        // No other event on either side.
        drop((asked, answer));
        server.expect_no_event(Duration::from_millis(50));
        client.expect_no_event(Duration::ZERO);
        assert_eq!(call!(rdma_disconnect(client.id)), -1);
        assert_eq!(errno(), libc::EINVAL);
        call!(rdma_destroy_qp(child));
        drop(letters);
        assert_eq!(call!(rdma_destroy_id(child)), 0);
    }
}

#[test]
fn rejected_sidr_request_reports_unreachable() {
    crate::begin();
    let (server, here) = UdPeer::listening(0);
    for said in [&b"not here"[..], b""] {
        let client = UdPeer::resolved_to(&here);
        client.connect(b"");
        let asked = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        let child = asked.get().id;
        drop(asked);
        if !said.is_empty() {
            let len = said.len() as u8;
            assert_eq!(call!(rdma_reject(child, said.as_ptr().cast(), len)), 0);
            assert_eq!(call!(rdma_reject(child, said.as_ptr().cast(), len)), -1);
        }
        assert_eq!(call!(rdma_destroy_id(child)), 0);
        let answer = client.expect(RDMA_CM_EVENT_UNREACHABLE);
        assert_eq!(
            (answer.get().status, answer.private_data()),
            (2, said.to_vec())
        );
    }
}

#[test]
fn unanswered_sidr_request_times_out() {
    crate::begin();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let there = address(&silent.local_addr().unwrap().to_string());
    let client = UdPeer::resolved_to(&there);
    client.connect(b"hello");
    let mut again = conn_param(b"");
    assert_eq!(call!(rdma_connect(client.id, &raw mut again)), -1);
    let answer = client.expect(RDMA_CM_EVENT_UNREACHABLE);
    assert_eq!(answer.get().status, -libc::ETIMEDOUT);
}

#[test]
fn bound_udp_port_is_refused_with_eaddrinuse() {
    crate::begin();
    // A port that no stream of another test has by chance.
    let is_free = |here: &libc::sockaddr_in| {
        TcpListener::bind(("127.0.0.1", u16::from_be(here.sin_port))).is_ok()
    };
    let mut parties = (0..100).map(|_| UdPeer::listening(0));
    let (_server, here) = parties.find(|(_, here)| is_free(here)).unwrap();
    let other = UdPeer::new(RDMA_PS_UDP);
    // A socket of an ordinary program.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let plain = address(&socket.local_addr().unwrap().to_string());
    // SAFETY: `other` and `streams` own their identifiers until they are dropped; `here` and `plain` are locals.
    unsafe {
        for taken in [&here, &plain] {
            assert_eq!(rdma_bind_addr(other.id, at(taken)), -1);
            assert_eq!(errno(), libc::EADDRINUSE);
        }
        // Streams have ports of their own.
        let streams = UdPeer::new(RDMA_PS_TCP);
        assert_eq!(rdma_bind_addr(streams.id, at(&here)), 0);
        // The loopback names no device for them.
        assert!((*streams.id).verbs.is_null());
        // One that is not bound gets a port when it listens; it can listen once.
        assert_eq!(rdma_listen(other.id, 5), 0);
        assert_ne!(rdma_get_src_port(other.id), 0);
        assert_eq!(rdma_listen(other.id, 5), -1);
    }
}

#[test]
fn identifiers_can_be_destroyed_during_sidr_requests() {
    crate::begin();
    let (server, here) = UdPeer::listening(0);
    for _ in 0..20 {
        // The client is destroyed before its request is answered.
        let client = UdPeer::resolved_to(&here);
        client.connect(b"never mind");
        drop(client);
        // The identifier of a request whose sender is gone can be answered.
        let asked = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        let child = asked.get().id;
        make_qp(child);
        drop(asked);
        assert_eq!(call!(rdma_accept(child, ptr::null_mut())), 0);
        call!(rdma_destroy_qp(child));
        assert_eq!(call!(rdma_destroy_id(child)), 0);
    }
    // The listener is destroyed while a request waits whose event was not taken.
    let client = UdPeer::resolved_to(&here);
    client.connect(b"hello?");
    assert!(crate::common::readable(
        server.channel.fd(),
        crate::common::LONG
    ));
    drop(server);
    let answer = client.expect(RDMA_CM_EVENT_UNREACHABLE);
    assert_eq!(answer.get().status, 2);
}

#[test]
fn malformed_datagrams_raise_no_connect_request() {
    crate::begin();
    let (server, here) = UdPeer::listening(0);
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = ("127.0.0.1", u16::from_be(here.sin_port));
    for len in [0, 1, 40, 295, 296, 297, 1400] {
        noise.send_to(&vec![0x5a; len], to).unwrap();
    }
    server.expect_no_event(Duration::from_millis(100));
    let client = UdPeer::resolved_to(&here);
    client.connect(b"");
    drop(server.expect(RDMA_CM_EVENT_CONNECT_REQUEST));
}

/// Of any number of requests, as many events are kept as the backlog of `rdma_listen`: 128 if it is 0.
#[test]
fn unread_sidr_requests_stay_within_backlog() {
    crate::begin();
    let (server, here) = UdPeer::listening(0);
    let flood = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = ("127.0.0.1", u16::from_be(here.sin_port));
    for transaction in 0..1000_u64 {
        let mut request = [0; 296];
        request[..5].copy_from_slice(b"VbIQ\x01");
        request[8..16].copy_from_slice(&transaction.to_be_bytes());
        flood.send_to(&request, to).unwrap();
        // The socket's buffer must be large enough: the listener is to drop requests, not the socket.
        if transaction % 50 == 49 {
            let port = u16::from_be(here.sin_port);
            wait_until("they are read", || udp_unread(port) == 0);
        }
    }
    let children: Vec<_> = (0..128)
        .map(|_| server.expect(RDMA_CM_EVENT_CONNECT_REQUEST).get().id)
        .collect();
    assert!(server.channel.try_next().is_none());
    for child in children {
        assert_eq!(call!(rdma_destroy_id(child)), 0);
    }
    let client = UdPeer::resolved_to(&here);
    client.connect(b"");
    drop(server.expect(RDMA_CM_EVENT_CONNECT_REQUEST));
}

/// An identifier in synchronous mode.
fn alone() -> *mut rdma_cm_id {
    let mut id = ptr::null_mut();
    let none = ptr::null_mut();
    assert_eq!(
        call!(rdma_create_id(
            none,
            &raw mut id,
            ptr::null_mut(),
            RDMA_PS_UDP
        )),
        0
    );
    id
}

#[test]
fn calls_without_channel_are_synchronous() {
    crate::begin();
    let listener = alone();
    let mut here = address("127.0.0.1:0");
    assert_eq!(call!(rdma_bind_addr(listener, at(&here))), 0);
    assert_eq!(call!(rdma_listen(listener, 4)), 0);
    here.sin_port = call!(rdma_get_src_port(listener));
    let asks = std::thread::spawn(move || {
        let mut results = Vec::new();
        for _ in 0..2 {
            let id = alone();
            assert_eq!(
                call!(rdma_resolve_addr(id, ptr::null_mut(), at(&here), 1000)),
                0
            );
            assert_eq!(call!(rdma_resolve_route(id, 1000)), 0);
            let code = call!(rdma_connect(id, ptr::null_mut()));
            results.push(if code == 0 { 0 } else { errno() });
            assert_eq!(call!(rdma_get_src_port(id)) != 0, code == 0);
            assert_eq!(call!(rdma_destroy_id(id)), 0);
        }
        results
    });
    // SAFETY: each `child` is the identifier of a request, destroyed at the end of the round; `listener` is destroyed after the last request.
    unsafe {
        for accept in [true, false] {
            let mut child = ptr::null_mut();
            assert_eq!(rdma_get_request(listener, &raw mut child), 0);
            if accept {
                make_qp(child);
                assert_eq!(rdma_accept(child, ptr::null_mut()), 0);
                assert!((*child).event.is_null());
                rdma_destroy_qp(child);
            } else {
                assert_eq!(rdma_reject(child, ptr::null(), 0), 0);
            }
            assert_eq!(rdma_destroy_id(child), 0);
        }
        assert_eq!(rdma_destroy_id(listener), 0);
    }
    assert_eq!(asks.join().unwrap(), [0, libc::ECONNREFUSED]);
}

#[test]
fn init_qp_attr_suffices_for_own_ud_qp() {
    crate::begin();
    let (server, here) = UdPeer::listening(0);
    let client = UdPeer::resolved_to(&here);
    client.connect(b"");
    let asked = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    let child = asked.get().id;
    drop(asked);
    // SAFETY: `child` has a device and a domain; queue pair, queue and identifier are destroyed at the end, in that order. Attributes and parameters are locals.
    unsafe {
        let cq = ibv_create_cq((*child).verbs, 8, ptr::null_mut(), ptr::null_mut(), 0);
        let mut init = ibv_qp_init_attr {
            send_cq: cq,
            recv_cq: cq,
            qp_type: IBV_QPT_UD,
            ..ibv_qp_init_attr::zeroed()
        };
        let qp = ibv_create_qp((*child).pd, &raw mut init);
        assert!(!qp.is_null(), "{}", errno());
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            let mut attr = ibv_qp_attr {
                qp_state: state,
                ..ibv_qp_attr::zeroed()
            };
            let mut mask = 0;
            assert_eq!(rdma_init_qp_attr(child, &raw mut attr, &raw mut mask), 0);
            assert_eq!(ibv_modify_qp(qp, &raw mut attr, mask), 0);
        }
        let mut param = conn_param(b"");
        param.qp_num = (*qp).qp_num;
        assert_eq!(rdma_accept(child, &raw mut param), 0);
        let answer = client.expect(RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!(answer.ud().qp_num, (*qp).qp_num);
        assert_eq!(ibv_destroy_qp(qp), 0);
        assert_eq!(ibv_destroy_cq(cq), 0);
        assert_eq!(rdma_destroy_id(child), 0);
    }
}
