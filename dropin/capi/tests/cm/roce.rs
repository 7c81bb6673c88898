//! Connections by address over RoCEv2, as C programs make them: the events are those of TCP, and private data has the lengths of InfiniBand, with
//! zeros behind it. Each test has a process of its own, since the settings are read once.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_testing::own_process;

use crate::common::streams::{Client, Server, check_transfer, connected, settings};
use crate::common::ud_peers::{
    RecvBuffer, UdPeer, conn_param as ud_param, make_qp, qp_number, send,
};
use crate::common::{SideParams, call, errno, next_completion};

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
    // At the address of the other tests, which run at once, their packets may arrive here.
    let here = [("VERBENA_DEVICE", "::1"), ("VERBENA_DENY", "::1")];
    settings(&[SETTINGS, &here].concat());
    let server = Server::at("[::1]:0", 0);
    let client = Client::resolved_to(server.at);
    assert_eq!(client.id.connect(b""), 0, "{}", errno());
    let event = client.channel.expect(RDMA_CM_EVENT_UNREACHABLE);
    assert_eq!(event.get().status, -libc::ETIMEDOUT);
    server.channel.expect_no_event(Duration::ZERO);
}

/// The next test reads the message of this one.
#[test]
fn taken_roce_port_leaves_tcp() {
    own_process!();
    let address = std::env::var(TAKEN_AT).unwrap_or_else(|_| "127.89.1.1".to_owned());
    settings(&[
        ("VERBENA_DEVICE", &address),
        ("VERBENA_PEERS", "127.89.1.9/32=roce"),
    ]);
    let _taken = UdpSocket::bind(format!("{address}:4791")).unwrap();
    let server = Server::at(&format!("{address}:0"), 0);
    let (client, child) = connected(&server);
    // SAFETY: `client` and `child` own identifiers that have queue pairs, destroyed when they are dropped.
    unsafe { check_transfer((*client.id.0).qp, (*child.0).qp) };
    drop((client, child, server));
    let _again = Server::at(&format!("{address}:0"), 0);
}

/// The address of the port that is taken, where another test runs this one at the same time.
const TAKEN_AT: &str = "TEST_TAKEN_AT";

#[test]
fn taken_roce_port_is_reported_once() {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["roce::taken_roce_port_leaves_tcp", "--exact", "--nocapture"])
        .env(TAKEN_AT, "127.89.1.2")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let sentence = "verbena: UDP port 4791 at 127.89.1.2 is in use by another user's process or by the kernel (rxe): \
                    RoCEv2 cannot be used there, TCP can\n";
    assert_eq!(said.matches(sentence).count(), 1, "{said}");
}

/// With `wire = auto` a peer with a number that is no Verbena's is an adapter: the message leaves from UDP port 4791.
#[test]
fn adapter_is_reached_by_number() {
    own_process!();
    settings(&[
        ("VERBENA_DEVICE", "127.89.2.1"),
        ("VERBENA_DEAD_AFTER", "1s"),
    ]);
    let adapter = UdpSocket::bind("127.89.2.2:4791").unwrap();
    adapter.set_read_timeout(Some(crate::common::LONG)).unwrap();
    let side = crate::common::Side::new(SideParams::default());
    side.to_init();
    let (mut attr, mask) = side.rtr_attr(0x11);
    let peer = std::net::Ipv4Addr::new(127, 89, 2, 2).to_ipv6_mapped();
    attr.ah_attr.grh.dgid = ibv_gid { raw: peer.octets() };
    assert_eq!(side.modify(&mut attr, mask), 0, "{}", errno());
    let (mut attr, mask) = side.rts_attr();
    assert_eq!(side.modify(&mut attr, mask), 0, "{}", errno());
    assert_eq!(side.send(1, IBV_WR_SEND, side.sge(0, 8), |_| ()), 0);
    let mut packet = [0; 128];
    let (len, from) = adapter.recv_from(&mut packet).unwrap();
    assert_eq!(from, "127.89.2.1:4791".parse().unwrap());
    // Header, payload, ICRC: a Send of one packet for the peer's queue pair, with the first PSN.
    assert_eq!((len, packet[0]), (12 + 8 + 4, 4));
    assert_eq!(
        (&packet[5..8], &packet[9..12]),
        (&[0, 0, 0x11][..], &[0, 0, 7][..])
    );
    // An adapter that is silent then fails the request.
    assert_eq!(next_completion(side.cq).status, IBV_WC_RETRY_EXC_ERR);
}
