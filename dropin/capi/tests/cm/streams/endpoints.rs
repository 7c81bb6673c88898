//! The synchronous mode: identifiers without a channel, and endpoints that are created in one call.

use core::ptr;
use std::ffi::CString;

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;

use super::begin;
use crate::common::streams::{Server, SockAddr, check_transfer, conn_param, init};
use crate::common::{call, errno};

/// The result of a lookup, freed at the end.
struct AddrInfo(*mut rdma_addrinfo);

impl AddrInfo {
    fn new(node: Option<&str>, service: &str, flags: u32) -> AddrInfo {
        let hints = rdma_addrinfo {
            ai_flags: flags as i32,
            ai_port_space: RDMA_PS_TCP as i32,
            ..rdma_addrinfo::zeroed()
        };
        let node = node.map(|text| CString::new(text).unwrap());
        let service = CString::new(service).unwrap();
        let mut found = ptr::null_mut();
        let at = node.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let code = call!(rdma_getaddrinfo(
            at,
            service.as_ptr(),
            &raw const hints,
            &raw mut found
        ));
        assert_eq!(code, 0);
        AddrInfo(found)
    }
}

impl Drop for AddrInfo {
    fn drop(&mut self) {
        call!(rdma_freeaddrinfo(self.0));
    }
}

#[test]
fn synchronous_endpoints_connect_and_exchange_data() {
    begin();
    let here = AddrInfo::new(Some("127.0.0.1"), "0", RAI_PASSIVE);
    let mut listener = ptr::null_mut();
    let mut template = init();
    // SAFETY: `listener`, `child` and `id` are endpoints that exist until `rdma_destroy_ep` at the end, and `id` is used by one thread at a time. An endpoint's
    // event exists until its next call; attributes and parameters are locals.
    unsafe {
        let code = rdma_create_ep(
            &raw mut listener,
            here.0,
            ptr::null_mut(),
            &raw mut template,
        );
        assert_eq!(code, 0, "{}", errno());
        assert_eq!(rdma_listen(listener, 4), 0);
        let port = u16::from_be(rdma_get_src_port(listener));
        assert_ne!(port, 0);
        let client = std::thread::spawn(move || {
            let there = AddrInfo::new(Some("127.0.0.1"), &port.to_string(), 0);
            let (mut id, mut wanted) = (ptr::null_mut(), init());
            let code = rdma_create_ep(&raw mut id, there.0, ptr::null_mut(), &raw mut wanted);
            assert_eq!(code, 0, "{}", errno());
            assert!(!(*id).qp.is_null());
            let mut param = conn_param(b"hello");
            assert_eq!(rdma_connect(id, &raw mut param), 0, "{}", errno());
            let event = (*id).event;
            assert_eq!((*event).event, RDMA_CM_EVENT_ESTABLISHED);
            let said = (*event).param.conn;
            assert_eq!(said.private_data_len, 7);
            id as usize
        });
        let mut child = ptr::null_mut();
        assert_eq!(rdma_get_request(listener, &raw mut child), 0);
        assert!(!(*child).qp.is_null(), "made like the listener's template");
        let event = (*child).event;
        assert_eq!((*event).event, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!((*event).param.conn.private_data_len, 5);
        let mut param = conn_param(b"welcome");
        assert_eq!(rdma_accept(child, &raw mut param), 0, "{}", errno());
        let id = client.join().unwrap() as *mut rdma_cm_id;
        check_transfer((*id).qp, (*child).qp);
        check_transfer((*child).qp, (*id).qp);
        assert_eq!(rdma_disconnect(id), 0);
        assert_eq!(rdma_disconnect(child), 0);
        assert_eq!((*(*child).event).event, RDMA_CM_EVENT_DISCONNECTED);
        rdma_destroy_ep(id);
        rdma_destroy_ep(child);
        rdma_destroy_ep(listener);
    }
}

/// Calls of an identifier without a channel return what the event says.
#[test]
fn synchronous_connect_returns_rejection_as_error() {
    begin();
    let server = Server::new(0);
    let mut there = SockAddr::of(server.at);
    // SAFETY: `id` is used by one thread at a time, and destroyed at the end; its event exists until its next call. Address, attributes and parameters are locals.
    unsafe {
        let mut id = ptr::null_mut();
        let code = rdma_create_id(ptr::null_mut(), &raw mut id, ptr::null_mut(), RDMA_PS_TCP);
        assert_eq!(code, 0);
        assert_eq!(rdma_resolve_addr(id, ptr::null_mut(), there.at(), 100), 0);
        assert_eq!(rdma_resolve_route(id, 100), 0);
        assert_eq!(rdma_create_qp(id, ptr::null_mut(), &mut init()), 0);
        let at = id as usize;
        let client = std::thread::spawn(move || {
            let id = at as *mut rdma_cm_id;
            let code = rdma_connect(id, &mut conn_param(b""));
            (code, errno())
        });
        let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        let child = asked.id();
        assert_eq!(child.reject(b"never"), 0);
        drop(asked);
        assert_eq!(client.join().unwrap(), (-1, libc::ECONNREFUSED));
        assert_eq!((*(*id).event).event, RDMA_CM_EVENT_REJECTED);
        assert_eq!((*(*id).event).param.conn.private_data_len, 5);
        rdma_destroy_ep(id);
    }
}

/// A queue pair that cannot be created: the caller gets the error, the request is rejected, and nothing is left behind.
#[test]
fn failed_qp_creation_rejects_the_request() {
    begin();
    let here = AddrInfo::new(Some("127.0.0.1"), "0", RAI_PASSIVE);
    let (mut listener, mut template) = (ptr::null_mut(), init());
    template.cap.max_send_wr = u32::MAX;
    let code = call!(rdma_create_ep(
        &raw mut listener,
        here.0,
        ptr::null_mut(),
        &raw mut template,
    ));
    assert_eq!(code, 0);
    assert_eq!(call!(rdma_listen(listener, 4)), 0);
    let port = u16::from_be(call!(rdma_get_src_port(listener)));
    let at = core::net::SocketAddr::from(([127, 0, 0, 1], port));
    let client = crate::common::streams::Client::resolved_to(at);
    assert_eq!(client.id.connect(b""), 0);
    let mut child = ptr::null_mut();
    assert_eq!(call!(rdma_get_request(listener, &raw mut child)), -1);
    client.channel.expect(RDMA_CM_EVENT_REJECTED);
    call!(rdma_destroy_ep(listener));
}
