//! Addresses: resolved, bound, in use, shared.

use core::ffi::c_void;
use core::net::SocketAddr;
use core::ptr;
use std::ffi::CString;
use std::process::Command;

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;

use super::begin;
use crate::common::streams::{Channel, Id, Server, SockAddr, connected};
use crate::common::{call, errno};

fn bind(id: &Id, at: &str) -> i32 {
    let mut at = SockAddr::of(at.parse().unwrap());
    call!(rdma_bind_addr(id.0, at.at()))
}

#[test]
fn rdma_getaddrinfo_resolves_names_and_services() {
    begin();
    let find = |node: Option<&str>, service: Option<&str>, hints: *const rdma_addrinfo| {
        let text = |text: Option<&str>| text.map(|text| CString::new(text).unwrap());
        let (node, service) = (text(node), text(service));
        let at = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let mut found = ptr::null_mut();
        let code = call!(rdma_getaddrinfo(
            at(&node),
            at(&service),
            hints,
            &raw mut found
        ));
        (code, found)
    };
    // SAFETY: each `found` is a list that `rdma_getaddrinfo` returned, freed after its last use; hints, and the addresses in them, are locals.
    unsafe {
        let (code, found) = find(Some("127.0.0.1"), Some("7174"), ptr::null());
        assert_eq!(code, 0);
        let info = &*found;
        assert_eq!(
            (info.ai_family, info.ai_port_space),
            (libc::AF_INET, RDMA_PS_TCP as i32)
        );
        assert_eq!(info.ai_qp_type, IBV_QPT_RC as i32);
        assert!(!info.ai_dst_addr.is_null());
        assert!(
            !info.ai_src_addr.is_null(),
            "the address of ours that leads there"
        );
        rdma_freeaddrinfo(found);

        let hints = rdma_addrinfo {
            ai_flags: RAI_PASSIVE as i32,
            ..rdma_addrinfo::zeroed()
        };
        let (code, found) = find(None, Some("7174"), &raw const hints);
        assert_eq!(code, 0);
        assert!(!(*found).ai_src_addr.is_null() && (*found).ai_dst_addr.is_null());
        rdma_freeaddrinfo(found);

        // Hints only: their addresses are the result.
        let mut there = SockAddr::of("127.0.0.1:99".parse().unwrap());
        let hints = rdma_addrinfo {
            ai_port_space: RDMA_PS_TCP as i32,
            ai_dst_addr: there.at(),
            ai_dst_len: 16,
            ..rdma_addrinfo::zeroed()
        };
        let (code, found) = find(None, None, &raw const hints);
        assert_eq!(code, 0);
        let to = (*found).ai_dst_addr;
        assert!(!to.is_null() && to != there.at(), "a copy");
        rdma_freeaddrinfo(found);

        assert_eq!(find(None, None, ptr::null()).0, -1);
        assert_eq!(errno(), libc::EINVAL);
        let hints = rdma_addrinfo {
            ai_flags: RAI_NUMERICHOST as i32,
            ..rdma_addrinfo::zeroed()
        };
        let (code, _) = find(Some("not a number"), Some("1"), &raw const hints);
        assert_ne!(code, 0);
        rdma_freeaddrinfo(ptr::null_mut());
    }
}

#[test]
fn afonly_option_lets_families_share_port() {
    begin();
    let channel = Channel::new();
    let four = Id::new(&channel);
    let port = four.listen("0.0.0.0:0", 0);
    let six = Id::new(&channel);
    let mut yes: i32 = 1;
    let code = call!(rdma_set_option(
        six.0,
        RDMA_OPTION_ID as i32,
        RDMA_OPTION_ID_AFONLY as i32,
        (&raw mut yes).cast::<c_void>(),
        4,
    ));
    assert_eq!(code, 0);
    assert_eq!(six.listen(&format!("[::]:{port}"), 0), port);
    for (to, listener) in [("127.0.0.1", &four), ("::1", &six)] {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        let client = crate::common::streams::Client::resolved_to(to);
        assert_eq!(client.id.connect(b""), 0);
        let asked = channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(asked.get().listen_id, listener.0, "{to}");
        let child = asked.id();
        drop(asked);
        drop(child);
        client.channel.expect(RDMA_CM_EVENT_REJECTED);
    }
}

/// One listener accepts both families, unless its program asked for one.
#[test]
fn ipv6_wildcard_listener_accepts_ipv4() {
    begin();
    let mut server = Server::at("[::]:0", 0);
    for ip in ["127.0.0.1", "::1"] {
        server.at.set_ip(ip.parse().unwrap());
        drop(connected(&server));
        while server.channel.try_next().is_some() {}
    }
}

#[test]
fn destroyed_identifier_frees_its_port() {
    begin();
    let channel = Channel::new();
    let id = Id::new(&channel);
    assert_eq!(bind(&id, "127.0.0.1:0"), 0);
    let port = id.port();
    assert_ne!(port, 0);
    assert_eq!(bind(&id, "127.0.0.1:0"), -1, "once");
    assert_eq!(errno(), libc::EINVAL);
    let other = Id::new(&channel);
    assert_eq!(call!(rdma_listen(id.0, 0)), 0);
    assert_eq!(bind(&other, &format!("127.0.0.1:{port}")), -1);
    assert_eq!(errno(), libc::EADDRINUSE);
    drop(id);
    assert_eq!(bind(&other, &format!("127.0.0.1:{port}")), 0);
    let foreign = Id::new(&channel);
    assert_eq!(bind(&foreign, "192.0.2.7:0"), -1);
    assert_eq!(errno(), libc::EADDRNOTAVAIL);
    // Listening without an address binds any.
    let any = Id::new(&channel);
    assert_eq!(call!(rdma_listen(any.0, 0)), 0);
    assert_ne!(any.port(), 0);
}

fn reuses(id: &Id) {
    let mut yes: i32 = 1;
    let (level, name) = (RDMA_OPTION_ID as i32, RDMA_OPTION_ID_REUSEADDR as i32);
    let code = call!(rdma_set_option(
        id.0,
        level,
        name,
        (&raw mut yes).cast::<c_void>(),
        4
    ));
    assert_eq!(code, 0);
}

#[test]
fn a_bound_port_is_refused_to_others() {
    begin();
    let channel = Channel::new();
    for (first, second, refused) in [
        ("127.0.0.1", "127.0.0.1", Some(libc::EADDRINUSE)),
        ("0.0.0.0", "127.0.0.1", Some(libc::EADDRINUSE)),
        // As Linux does for wildcard addresses.
        ("127.0.0.1", "0.0.0.0", Some(libc::EADDRNOTAVAIL)),
        ("0.0.0.0", "0.0.0.0", Some(libc::EADDRNOTAVAIL)),
        ("0.0.0.0", "[::]", Some(libc::EADDRNOTAVAIL)),
        ("127.0.0.1", "127.0.0.2", None),
    ] {
        let id = Id::new(&channel);
        assert_eq!(bind(&id, &format!("{first}:0")), 0);
        let at = format!("{second}:{}", id.port());
        for shares in [false, true] {
            let other = Id::new(&channel);
            if shares {
                // Both must have the option.
                reuses(&other);
            }
            let said = (bind(&other, &at) != 0).then(errno);
            assert_eq!(said, refused, "{first}, then {at}");
        }
    }
}

#[test]
fn a_bound_port_is_refused_to_other_processes() {
    begin();
    let channel = Channel::new();
    let id = Id::new(&channel);
    assert_eq!(bind(&id, "127.0.0.1:0"), 0);
    let at = format!("127.0.0.1:{}", id.port());
    // As the library in another process does: std sets SO_REUSEADDR.
    let other = std::net::TcpListener::bind(&at);
    let refused = other.map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(std::io::ErrorKind::AddrInUse));
}

#[test]
fn reuseaddr_shares_port_until_one_listens() {
    begin();
    let channel = Channel::new();
    let [first, second, third] = [(); 3].map(|()| Id::new(&channel));
    reuses(&first);
    reuses(&second);
    reuses(&third);
    assert_eq!(bind(&first, "127.0.0.1:0"), 0);
    let at = format!("127.0.0.1:{}", first.port());
    assert_eq!(bind(&second, &at), 0);
    assert_eq!(second.port(), first.port());
    assert_eq!(call!(rdma_listen(second.0, 0)), 0);
    assert_eq!(call!(rdma_listen(first.0, 0)), -1);
    assert_eq!(errno(), libc::EADDRINUSE);
    assert_eq!(bind(&third, &at), -1);
    assert_eq!(errno(), libc::EADDRINUSE);
}

/// A server whose connections are in TIME_WAIT can be started again at its port.
#[test]
fn port_with_time_wait_connections_can_be_bound() {
    begin();
    let server = Server::new(0);
    let at = server.at.to_string();
    let (client, child) = connected(&server);
    // The side that closes first keeps the connection in TIME_WAIT.
    assert_eq!(child.disconnect(), 0);
    client.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
    drop((child, client, server));
    let channel = Channel::new();
    for _ in 0..2 {
        let again = Id::new(&channel);
        assert_eq!(bind(&again, &at), 0, "{}", errno());
        let other = Id::new(&channel);
        assert_eq!(bind(&other, &at), -1);
        assert_eq!(errno(), libc::EADDRINUSE);
        assert_eq!(call!(rdma_listen(again.0, 0)), 0, "{}", errno());
    }
}

/// An ordinary server has the port. The next test reads the message of this one.
#[test]
fn bind_to_port_in_use_fails() {
    begin();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let channel = Channel::new();
    let id = Id::new(&channel);
    assert_eq!(bind(&id, &at), -1);
    assert_eq!(errno(), libc::EADDRINUSE);
}

#[test]
fn port_in_use_message_names_cm_port_offset() {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([
            "streams::addresses::bind_to_port_in_use_fails",
            "--exact",
            "--nocapture",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("1 passed"));
    assert!(
        said.contains("is in use by another program") && said.contains("cm_port_offset"),
        "{said}"
    );
}

#[test]
fn unsupported_address_families_are_refused() {
    begin();
    let channel = Channel::new();
    let id = Id::new(&channel);
    let mut unix = libc::sockaddr {
        sa_family: libc::AF_UNIX as u16,
        sa_data: [0; 14],
    };
    assert_eq!(call!(rdma_bind_addr(id.0, &raw mut unix)), -1);
    assert_eq!(errno(), libc::EAFNOSUPPORT);
    let none = ptr::null_mut();
    assert_eq!(call!(rdma_resolve_addr(id.0, none, &raw mut unix, 100)), -1);
    assert_eq!(call!(rdma_bind_addr(id.0, none)), -1);
    assert_eq!(errno(), libc::EINVAL);
    assert_eq!(call!(rdma_resolve_route(id.0, 100)), -1, "nowhere");
}
