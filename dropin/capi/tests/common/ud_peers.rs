//! Helpers for tests of the connection manager's datagrams: identifiers with channels of their own, their events, and messages.
//! Objects are destroyed in order, and every wait has a limit.

use core::ffi::c_void;
use core::ptr;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use libc::{AF_INET, sockaddr, sockaddr_in};
use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_capi::verbs::*;

use super::streams::{Channel, Event};
use super::{call, errno, poll_cq, post_recv, post_send};

pub(crate) fn address(text: &str) -> sockaddr_in {
    let SocketAddr::V4(v4) = text.parse().unwrap() else {
        panic!("{text}");
    };
    // SAFETY: `sockaddr_in` is integers and arrays of them, for which zeros are valid.
    let mut address: sockaddr_in = unsafe { core::mem::zeroed() };
    address.sin_family = AF_INET as u16;
    address.sin_port = v4.port().to_be();
    address.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
    address
}

pub(crate) fn at(address: &sockaddr_in) -> *mut sockaddr {
    ptr::from_ref(address).cast_mut().cast()
}

/// A channel and an identifier on it; destroyed in order.
pub(crate) struct UdPeer {
    pub(crate) channel: Channel,
    pub(crate) id: *mut rdma_cm_id,
}

impl UdPeer {
    pub(crate) fn new(ps: u32) -> UdPeer {
        let channel = Channel::new();
        let mut id = ptr::null_mut();
        let context = 7 as *mut c_void;
        let code = call!(rdma_create_id(channel.0, &raw mut id, context, ps));
        assert_eq!(code, 0);
        UdPeer { channel, id }
    }

    /// One that listens, and its address.
    pub(crate) fn listening(port: u16) -> (UdPeer, sockaddr_in) {
        let party = UdPeer::new(RDMA_PS_UDP);
        let mut here = address(&format!("127.0.0.1:{port}"));
        assert_eq!(call!(rdma_bind_addr(party.id, at(&here))), 0, "{}", errno());
        assert_eq!(call!(rdma_listen(party.id, 0)), 0, "{}", errno());
        here.sin_port = call!(rdma_get_src_port(party.id));
        assert_ne!(here.sin_port, 0);
        (party, here)
    }

    /// One whose route to the address is resolved.
    pub(crate) fn resolved_to(there: &sockaddr_in) -> UdPeer {
        let party = UdPeer::new(RDMA_PS_UDP);
        let none = ptr::null_mut();
        assert_eq!(call!(rdma_resolve_addr(party.id, none, at(there), 1000)), 0);
        party.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_eq!(call!(rdma_resolve_route(party.id, 1000)), 0);
        party.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
        party
    }

    pub(crate) fn connect(&self, said: &[u8]) {
        let mut param = conn_param(said);
        assert_eq!(call!(rdma_connect(self.id, &raw mut param)), 0);
    }

    #[track_caller]
    pub(crate) fn next(&self) -> Event {
        self.channel.next()
    }

    #[track_caller]
    pub(crate) fn expect(&self, kind: u32) -> Event {
        self.channel.expect(kind)
    }

    #[track_caller]
    pub(crate) fn expect_no_event(&self, time: Duration) {
        self.channel.expect_no_event(time);
    }
}

impl Drop for UdPeer {
    fn drop(&mut self) {
        call!(rdma_destroy_qp(self.id));
        assert_eq!(call!(rdma_destroy_id(self.id)), 0);
    }
}

pub(crate) fn conn_param(said: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: said.as_ptr().cast(),
        private_data_len: said.len() as u8,
        ..rdma_conn_param::zeroed()
    }
}

pub(crate) fn make_qp(id: *mut rdma_cm_id) {
    let mut init = ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: ptr::null_mut(),
        recv_cq: ptr::null_mut(),
        srq: ptr::null_mut(),
        cap: ibv_qp_cap {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        },
        qp_type: IBV_QPT_UD,
        sq_sig_all: 1,
    };
    let made = call!(rdma_create_qp(id, ptr::null_mut(), &raw mut init));
    assert_eq!(made, 0, "{}", errno());
}

/// The number of an identifier's queue pair.
pub(crate) fn qp_number(id: *mut rdma_cm_id) -> u32 {
    // SAFETY: `make_qp` was called for `id`; the test destroys neither the identifier nor its queue pair before this returns.
    unsafe { (*(*id).qp).qp_num }
}

/// Memory of an identifier's queue pair, with a receive posted.
pub(crate) struct RecvBuffer {
    mr: *mut ibv_mr,
    bytes: Box<[u8; 256]>,
}

impl RecvBuffer {
    pub(crate) fn of(id: *mut rdma_cm_id) -> RecvBuffer {
        let mut bytes = Box::new([0; 256]);
        // SAFETY: `id` has a domain, since its address is resolved or bound; `bytes` is kept until the region is deregistered.
        let mr = unsafe { ibv_reg_mr((*id).pd, bytes.as_mut_ptr().cast(), 256, 1) };
        assert!(!mr.is_null());
        let this = RecvBuffer { mr, bytes };
        this.post_recv(id);
        this
    }

    pub(crate) fn post_recv(&self, id: *mut rdma_cm_id) {
        // SAFETY: `id` has a queue pair, and `self` keeps region and bytes until it is dropped, after that queue pair; request and entry are locals.
        unsafe {
            let mut sge = ibv_sge {
                addr: self.bytes.as_ptr() as u64,
                length: 256,
                lkey: (*self.mr).lkey,
            };
            let mut wr = ibv_recv_wr {
                sg_list: &raw mut sge,
                num_sge: 1,
                ..ibv_recv_wr::zeroed()
            };
            let mut bad = ptr::null_mut();
            assert_eq!(post_recv((*id).qp, &raw mut wr, &raw mut bad), 0);
        }
    }

    /// The received bytes, and the sender.
    pub(crate) fn take(&self, id: *mut rdma_cm_id) -> (Vec<u8>, u32) {
        // SAFETY: `id` has a queue pair, so its completion queue for receives exists.
        let wc = completion(unsafe { (*id).recv_cq });
        let len = wc.byte_len as usize;
        // SAFETY: the byte is one of `self.bytes`; the adapter writes them, so it is read as volatile.
        let read = |at: usize| unsafe { ptr::read_volatile(&raw const self.bytes[at]) };
        ((40..len).map(read).collect(), wc.src_qp)
    }
}

impl Drop for RecvBuffer {
    fn drop(&mut self) {
        // Its queue pair is destroyed, or does not use it any more.
        call!(ibv_dereg_mr(self.mr));
    }
}

#[track_caller]
pub(crate) fn completion(cq: *mut ibv_cq) -> ibv_wc {
    super::next_completion(cq)
}

pub(crate) fn assert_nothing_received(id: *mut rdma_cm_id) {
    let end = Instant::now() + Duration::from_millis(200);
    while Instant::now() < end {
        // SAFETY: `id` is not destroyed yet, and has the completion queue of its queue pair.
        let n = poll_cq(unsafe { (*id).recv_cq }, &mut [ibv_wc::zeroed()]);
        assert_eq!(n, 0);
        std::thread::yield_now();
    }
}

pub(crate) fn send(id: *mut rdma_cm_id, ud: &mut rdma_ud_param, text: &[u8]) {
    // SAFETY: `id` has a domain and a queue pair with a completion queue for sends; `ah` exists until the send has completed, and `text` is sent inline.
    unsafe {
        let ah = ibv_create_ah((*id).pd, &raw mut ud.ah_attr);
        assert!(!ah.is_null(), "{}", errno());
        let mut sge = ibv_sge {
            addr: text.as_ptr() as u64,
            length: text.len() as u32,
            lkey: 0,
        };
        let mut wr = ibv_send_wr {
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_INLINE,
            ..ibv_send_wr::zeroed()
        };
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = ud.qp_num;
        wr.wr.ud.remote_qkey = ud.qkey;
        let mut bad = ptr::null_mut();
        assert_eq!(post_send((*id).qp, &raw mut wr, &raw mut bad), 0);
        assert_eq!(completion((*id).send_cq).status, IBV_WC_SUCCESS);
        assert_eq!(ibv_destroy_ah(ah), 0);
    }
}
