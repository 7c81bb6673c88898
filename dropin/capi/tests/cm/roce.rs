//! Connections by address over RoCEv2, as C programs make them: the events are those of TCP, and private data has the lengths of InfiniBand, with
//! zeros behind it. Each test has a process of its own, since the settings are read once.

use std::time::Duration;

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_testing::own_process;

use crate::common::streams::{Client, Server, check_transfer, connected, settings};
use crate::common::ud_peers::{
    RecvBuffer, UdPeer, conn_param as ud_param, make_qp, qp_number, send,
};
use crate::common::{call, errno};

const SETTINGS: &[(&str, &str)] = &[
    ("VERBENA_WIRE", "roce"),
    ("VERBENA_DEVICE", "127.0.0.1"),
    ("VERBENA_STARTUP_TIMEOUT", "2s"),
];

#[track_caller]
fn check_padded(got: &[u8], said: &[u8], len: usize) {
    assert_eq!(got.len(), len);
    let (data, zeros) = got.split_at(said.len());
    assert_eq!(data, said);
    assert!(zeros.iter().all(|byte| *byte == 0));
}

#[test]
fn connection_over_roce_has_the_events_of_tcp() {
    own_process!();
    settings(SETTINGS);
    let server = Server::new(0);
    let client = Client::resolved_to(server.at);
    assert_eq!(client.id.connect(b"who is there?"), 0, "{}", errno());
    let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    check_padded(&asked.private_data(), b"who is there?", 56);
    let conn = asked.conn();
    assert_eq!((conn.responder_resources, conn.initiator_depth), (4, 4));
    let child = asked.id();
    child.make_qp();
    assert_eq!(child.accept(b"me"), 0, "{}", errno());
    drop(asked);
    assert!(child.is(&server.channel.expect(RDMA_CM_EVENT_ESTABLISHED)));
    let answered = client.channel.expect(RDMA_CM_EVENT_ESTABLISHED);
    check_padded(&answered.private_data(), b"me", 196);
    drop(answered);
    // SAFETY: `client` and `child` own identifiers that have queue pairs, destroyed when they are dropped.
    unsafe {
        check_transfer((*client.id.0).qp, (*child.0).qp);
        check_transfer((*child.0).qp, (*client.id.0).qp);
    }
    for from_client in [true, false] {
        let (client, child) = connected(&server);
        let who = if from_client { &client.id } else { &child };
        assert_eq!(who.disconnect(), 0);
        client.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
        server.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
    }
}

#[test]
fn rejection_over_roce_has_a_status() {
    own_process!();
    settings(SETTINGS);
    let server = Server::new(0);
    let client = Client::resolved_to(server.at);
    assert_eq!(client.id.connect(b""), 0);
    let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    let child = asked.id();
    assert_eq!(child.reject(b"not today"), 0);
    drop(asked);
    let rejected = client.channel.expect(RDMA_CM_EVENT_REJECTED);
    assert_eq!(rejected.get().status, 28);
    check_padded(&rejected.private_data(), b"not today", 148);
    drop((rejected, child));
    let at = server.at;
    drop(server);
    let client = Client::resolved_to(at);
    assert_eq!(client.id.connect(b""), 0);
    let rejected = client.channel.expect(RDMA_CM_EVENT_REJECTED);
    assert_eq!(rejected.get().status, -libc::ECONNREFUSED);
}

#[test]
fn datagram_service_is_resolved_over_roce() {
    own_process!();
    settings(SETTINGS);
    let (server, here) = UdPeer::listening(0);
    let client = UdPeer::resolved_to(&here);
    make_qp(client.id);
    client.connect(b"where are you?");
    let asked = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    check_padded(&asked.private_data(), b"where are you?", 180);
    let child = asked.get().id;
    make_qp(child);
    let letters = RecvBuffer::of(child);
    let mut param = ud_param(b"here");
    assert_eq!(call!(rdma_accept(child, &raw mut param)), 0, "{}", errno());
    let answer = client.expect(RDMA_CM_EVENT_ESTABLISHED);
    check_padded(&answer.private_data(), b"here", 136);
    let mut ud = answer.ud();
    assert_eq!((ud.qp_num, ud.qkey), (qp_number(child), RDMA_UDP_QKEY));
    send(client.id, &mut ud, b"a letter");
    let (text, from) = letters.take(child);
    assert_eq!((text, from), (b"a letter".to_vec(), qp_number(client.id)));
    drop((asked, answer));
    call!(rdma_destroy_qp(child));
    drop(letters);
    assert_eq!(call!(rdma_destroy_id(child)), 0);
}

/// A request of a source that the setting names is dropped unread, and its sender repeats it until its time is over.
#[test]
fn denied_source_is_not_shown_to_the_program() {
    own_process!();
    settings(&[SETTINGS, &[("VERBENA_DENY", "127.0.0.1")]].concat());
    let server = Server::new(0);
    let client = Client::resolved_to(server.at);
    assert_eq!(client.id.connect(b""), 0, "{}", errno());
    let event = client.channel.expect(RDMA_CM_EVENT_UNREACHABLE);
    assert_eq!(event.get().status, -libc::ETIMEDOUT);
    server.channel.expect_no_event(Duration::ZERO);
}
