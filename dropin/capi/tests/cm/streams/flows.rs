//! Connections from the request to the end, event by event. Each is tried from both sides.

use core::time::Duration;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_capi::verbs::ibv_query_qp;

use super::begin;
use crate::common::streams::{Channel, Client, Id, Server, check_transfer, connected};
use crate::common::{call, errno};

const SOON: Duration = Duration::from_millis(100);

/// The attributes of a queue pair that its connection manager moved.
fn attributes(id: &Id) -> ibv_qp_attr {
    let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
    let mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    // SAFETY: `id` owns an identifier that has a queue pair; `attr` and `init` are locals.
    let code = unsafe { ibv_query_qp((*id.0).qp, &raw mut attr, mask as i32, &raw mut init) };
    assert_eq!(code, 0);
    attr
}

#[test]
fn ack_timeout_option_sets_qp_timeout() {
    begin();
    let server = Server::new(0);
    let client = Client::resolved_to(server.at);
    let set = |id: &Id, value: u8| {
        let mut value = value;
        let (level, name) = (RDMA_OPTION_ID as i32, RDMA_OPTION_ID_ACK_TIMEOUT as i32);
        call!(rdma_set_option(
            id.0,
            level,
            name,
            (&raw mut value).cast(),
            1
        ))
    };
    assert_eq!(set(&client.id, 17), 0);
    assert_eq!(set(&client.id, 32), -1);
    // The attributes for a program that moves its queue pair itself.
    let (mut attr, mut mask) = (ibv_qp_attr::zeroed(), 0);
    attr.qp_state = IBV_QPS_RTS;
    let code = call!(rdma_init_qp_attr(client.id.0, &raw mut attr, &raw mut mask));
    assert_eq!((code, attr.timeout), (0, 17));
    assert_ne!(mask as u32 & IBV_QP_TIMEOUT, 0);
    assert_eq!(client.id.connect(b""), 0);
    let child = server.accept_next(b"");
    client.channel.expect(RDMA_CM_EVENT_ESTABLISHED);
    let (ours, theirs) = (attributes(&client.id), attributes(&child));
    assert_eq!((ours.timeout, theirs.timeout), (17, 14));
    assert_eq!((ours.retry_cnt, ours.rnr_retry), (7, 7));
    assert_eq!((ours.max_rd_atomic, ours.max_dest_rd_atomic), (4, 4));
    assert_eq!(ours.path_mtu, IBV_MTU_4096);
}

#[test]
fn private_data_and_ports_reach_both_sides() {
    begin();
    let server = Server::new(0);
    let client = Client::resolved_to(server.at);
    assert_eq!(client.id.connect(b"who is there?"), 0);
    let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_eq!(asked.private_data(), b"who is there?");
    assert_eq!(asked.get().listen_id, server.id.0);
    let conn = asked.conn();
    assert_eq!((conn.responder_resources, conn.initiator_depth), (4, 4));
    let child = asked.id();
    // SAFETY: `child` and `client` own their identifiers, which are destroyed when they are dropped.
    unsafe {
        assert_eq!((*child.0).context as usize, 7, "the listener's");
        assert_eq!((*child.0).qp_type, IBV_QPT_RC);
        assert!(!(*child.0).verbs.is_null());
        assert_eq!(u16::from_be(rdma_get_src_port(child.0)), server.at.port());
        assert_eq!(
            u16::from_be(rdma_get_dst_port(client.id.0)),
            server.at.port()
        );
        assert_ne!(rdma_get_dst_port(child.0), 0);
    }
    child.make_qp();
    assert_eq!(child.accept(b"me"), 0);
    drop(asked);
    let event = server.channel.expect(RDMA_CM_EVENT_ESTABLISHED);
    assert!(child.is(&event));
    let answered = client.channel.expect(RDMA_CM_EVENT_ESTABLISHED);
    assert!(client.id.is(&answered));
    assert_eq!(answered.private_data(), b"me");
    drop((event, answered));
    // SAFETY: `client` and `child` own identifiers that have queue pairs, destroyed when they are dropped.
    unsafe {
        check_transfer((*client.id.0).qp, (*child.0).qp);
        check_transfer((*child.0).qp, (*client.id.0).qp);
    }
    // A request is answered only once.
    assert_eq!(child.accept(b""), -1);
    assert_eq!(child.reject(b""), -1);
    assert_eq!(errno(), libc::EINVAL);
}

#[test]
fn disconnect_raises_one_event_per_side() {
    begin();
    let server = Server::new(0);
    for from_client in [true, false] {
        let (client, child) = connected(&server);
        let who = if from_client { &client.id } else { &child };
        assert_eq!(who.disconnect(), 0);
        assert!(
            client
                .id
                .is(&client.channel.expect(RDMA_CM_EVENT_DISCONNECTED))
        );
        assert!(child.is(&server.channel.expect(RDMA_CM_EVENT_DISCONNECTED)));
        // The other side disconnects, too, as programs do, and the first one again.
        for id in [&client.id, &child, who] {
            assert_eq!(id.disconnect(), 0);
        }
        client.channel.expect_no_event(SOON);
        server.channel.expect_no_event(SOON);
    }
}

#[test]
fn simultaneous_disconnect_raises_one_event_per_side() {
    begin();
    let server = Server::new(0);
    for _ in 0..50 {
        let (client, child) = connected(&server);
        std::thread::scope(|s| {
            s.spawn(|| assert_eq!({ &client }.hang_up(), 0));
            assert_eq!(child.disconnect(), 0);
        });
        client.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
        server.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
        assert!(client.channel.try_next().is_none());
    }
    server.channel.expect_no_event(SOON);
}

impl Client {
    fn hang_up(&self) -> i32 {
        self.id.disconnect()
    }
}

// SAFETY: any thread may make calls about the identifier and the channel, and several at once.
unsafe impl Sync for Client {}

/// An end that comes while the beginning is still being reported must not be lost.
#[test]
fn disconnected_follows_established_on_early_end() {
    begin();
    let server = Server::new(0);
    for _ in 0..200 {
        let client = Client::resolved_to(server.at);
        assert_eq!(client.id.connect(b""), 0);
        let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        let child = asked.id();
        child.make_qp();
        assert_eq!(child.accept(b""), 0);
        drop(asked);
        // Its own connection is established when accept returns; the peer may not know yet.
        server.channel.expect(RDMA_CM_EVENT_ESTABLISHED);
        child.destroy_qp();
        client.channel.expect(RDMA_CM_EVENT_ESTABLISHED);
        client.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
    }
}

#[test]
fn rejection_carries_status_and_private_data() {
    begin();
    let server = Server::new(0);
    let client = Client::resolved_to(server.at);
    assert_eq!(client.id.connect(b"please"), 0);
    let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    let child = asked.id();
    assert_eq!(child.reject(b"no thanks"), 0);
    assert_eq!(child.reject(b"no thanks"), -1, "once");
    drop(asked);
    let refused = client.channel.expect(RDMA_CM_EVENT_REJECTED);
    assert_eq!(
        (refused.get().status, &refused.private_data()[..]),
        (28, &b"no thanks"[..])
    );
    drop(refused);
    drop(child);
    server.channel.expect_no_event(SOON);
    client.channel.expect_no_event(SOON);
}

#[test]
fn destroying_unanswered_identifier_rejects_request() {
    begin();
    let server = Server::new(0);
    let client = Client::resolved_to(server.at);
    assert_eq!(client.id.connect(b""), 0);
    let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    let child = asked.id();
    drop(asked);
    drop(child);
    client.channel.expect(RDMA_CM_EVENT_REJECTED);
}

#[test]
fn connect_without_listener_is_rejected() {
    begin();
    let port = {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        closed.local_addr().unwrap()
    };
    let client = Client::resolved_to(port);
    assert_eq!(client.id.connect(b""), 0);
    let refused = client.channel.expect(RDMA_CM_EVENT_REJECTED);
    assert_eq!(refused.get().status, -libc::ECONNREFUSED);
    drop(refused);
    client.channel.expect_no_event(SOON);
}

/// A peer that accepts the TCP connection and sends nothing is given up after the timeout; one that sends something else, at once.
#[test]
fn peer_without_mpa_reply_is_unreachable() {
    begin();
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::resolved_to(deaf.local_addr().unwrap());
    assert_eq!(client.id.connect(b""), 0);
    let lost = client.channel.expect(RDMA_CM_EVENT_UNREACHABLE);
    assert_eq!(lost.get().status, -libc::ETIMEDOUT);
    drop((lost, deaf));

    let rude = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::resolved_to(rude.local_addr().unwrap());
    assert_eq!(client.id.connect(b""), 0);
    // It tries both revisions.
    let over = Arc::new(AtomicBool::new(false));
    let (stop, at) = (over.clone(), rude.local_addr().unwrap());
    let web = std::thread::spawn(move || {
        let mut kept = Vec::new();
        for raw in rude.incoming() {
            if over.load(Ordering::Acquire) {
                break;
            }
            let mut raw = raw.unwrap();
            raw.read_exact(&mut [0; 20]).unwrap();
            std::io::Write::write_all(&mut raw, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            kept.push(raw);
        }
    });
    let lost = client.channel.expect(RDMA_CM_EVENT_UNREACHABLE);
    assert!(lost.get().status < 0);
    drop(lost);
    stop.store(true, Ordering::Release);
    // Ends its wait for a connection.
    drop(TcpStream::connect(at));
    web.join().unwrap();
}

#[test]
fn requests_beyond_backlog_are_rejected() {
    begin();
    let server = Server::new(2);
    let clients: Vec<_> = (0..5)
        .map(|_| {
            let client = Client::resolved_to(server.at);
            assert_eq!(client.id.connect(b""), 0);
            client
        })
        .collect();
    // The program has taken no event: two requests wait, and three are rejected at once.
    let refused = || {
        let has_event = |c: &&Client| crate::common::readable(c.channel.fd(), Duration::ZERO);
        clients.iter().filter(has_event).count()
    };
    super::streams::wait("three refusals", || refused() == 3);
    let children: Vec<_> = (0..2)
        .map(|_| server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id())
        .collect();
    for child in &children {
        child.make_qp();
        assert_eq!(child.accept(b""), 0, "{}", errno());
        assert!(child.is(&server.channel.expect(RDMA_CM_EVENT_ESTABLISHED)));
    }
    let mut kinds: Vec<_> = clients
        .iter()
        .map(|c| c.channel.next().get().event)
        .collect();
    kinds.sort_unstable();
    let (no, yes) = (RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ESTABLISHED);
    assert_eq!(kinds, [no, no, no, yes, yes]);
    server.channel.expect_no_event(SOON);
    // There is room for further requests now.
    drop(children);
    drop(clients);
    while server.channel.try_next().is_some() {}
    drop(connected(&server));
}

/// Connecting without a route, twice, or without a queue pair is an error of the program.
#[test]
fn calls_out_of_order_are_refused() {
    begin();
    let server = Server::new(0);
    let channel = Channel::new();
    let id = Id::new(&channel);
    assert_eq!((id.connect(b""), errno()), (-1, libc::EINVAL), "unresolved");
    assert_eq!((id.accept(b""), errno()), (-1, libc::EINVAL), "not asked");
    assert_eq!((id.disconnect(), errno()), (-1, libc::EINVAL), "nothing");
    id.resolve(&channel, server.at);
    assert_eq!((id.connect(b""), errno()), (-1, libc::EINVAL), "no pair");
    id.make_qp();
    assert_eq!(id.connect(b""), 0);
    assert_eq!(id.connect(b""), -1, "twice");
    let child = server.accept_next(b"");
    channel.expect(RDMA_CM_EVENT_ESTABLISHED);
    assert_eq!(id.connect(b""), -1, "it is connected");
    channel.expect_no_event(SOON);
    drop(child);
    channel.expect(RDMA_CM_EVENT_DISCONNECTED);
}

#[test]
fn ipv6_connection_carries_data() {
    begin();
    let server = Server::at("[::1]:0", 0);
    let (client, child) = connected(&server);
    // SAFETY: `client` and `child` are connected, so their identifiers have queue pairs; they own them.
    unsafe { check_transfer((*client.id.0).qp, (*child.0).qp) };
    let _: SocketAddr = server.at;
}
