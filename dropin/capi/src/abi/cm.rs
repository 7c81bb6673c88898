//! The structs of librdmacm: identifiers, channels, events, and results of address resolution.
//! The nesting is that of the original, whose padding puts `ps` at 344. The library's own part of an identifier follows the struct.

#![allow(
    missing_docs,
    reason = "fields are the original's, whose manual pages say what each means"
)]

use std::ffi::{c_char, c_int, c_void};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use super::address::{ibv_ah_attr, ibv_gid, ibv_sa_path_rec};
use super::context::ibv_context;
use super::event::ibv_comp_channel;
use super::layout::layouts;
use super::memory::ibv_pd;
use super::pair::ibv_qp;
use super::queue::{ibv_cq, ibv_srq};

/// The InfiniBand address of an identifier.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_ib_addr {
    pub sgid: ibv_gid,
    pub dgid: ibv_gid,
    /// In network order.
    pub pkey: u16,
}

/// `src` of [`rdma_addr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union rdma_addr__src {
    pub src_addr: sockaddr,
    pub src_sin: sockaddr_in,
    pub src_sin6: sockaddr_in6,
    pub src_storage: sockaddr_storage,
}

/// `dst` of [`rdma_addr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union rdma_addr__dst {
    pub dst_addr: sockaddr,
    pub dst_sin: sockaddr_in,
    pub dst_sin6: sockaddr_in6,
    pub dst_storage: sockaddr_storage,
}

/// `addr` of [`rdma_addr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union rdma_addr__addr {
    pub ibaddr: rdma_ib_addr,
}

/// Both addresses of an identifier; inline functions return pointers to them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_addr {
    /// Unnamed in C, where its members are accessed directly.
    pub src: rdma_addr__src,
    /// Unnamed in C, where its members are accessed directly.
    pub dst: rdma_addr__dst,
    pub addr: rdma_addr__addr,
}

/// Addresses and paths of an identifier; its padding is part of the layout.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_route {
    pub addr: rdma_addr,
    pub path_rec: *mut ibv_sa_path_rec,
    pub num_paths: c_int,
}

/// An event channel; the library's own part follows it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

/// A communication identifier; the library's own part follows it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: u32,
    pub port_num: u8,
    pub event: *mut rdma_cm_event,
    pub send_cq_channel: *mut ibv_comp_channel,
    pub send_cq: *mut ibv_cq,
    pub recv_cq_channel: *mut ibv_comp_channel,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub pd: *mut ibv_pd,
    pub qp_type: u32,
}

/// Parameters of a connection.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// Parameters of a datagram peer.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_ud_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub ah_attr: ibv_ah_attr,
    pub qp_num: u32,
    pub qkey: u32,
}

/// `param` of [`rdma_cm_event`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union rdma_cm_event__param {
    pub conn: rdma_conn_param,
    pub ud: rdma_ud_param,
}

/// An event of connection management.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: u32,
    pub status: c_int,
    pub param: rdma_cm_event__param,
}

/// A result of, or a hint to, address resolution.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_addrinfo {
    pub ai_flags: c_int,
    pub ai_family: c_int,
    pub ai_qp_type: c_int,
    pub ai_port_space: c_int,
    pub ai_src_len: socklen_t,
    pub ai_dst_len: socklen_t,
    pub ai_src_addr: *mut sockaddr,
    pub ai_dst_addr: *mut sockaddr,
    pub ai_src_canonname: *mut c_char,
    pub ai_dst_canonname: *mut c_char,
    pub ai_route_len: usize,
    pub ai_route: *mut c_void,
    pub ai_connect_len: usize,
    pub ai_connect: *mut c_void,
    pub ai_next: *mut rdma_addrinfo,
}

/// How a multicast group is joined.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_cm_join_mc_attr_ex {
    pub comp_mask: u32,
    pub join_flags: u32,
    pub addr: *mut sockaddr,
}

layouts! {
    struct rdma_ib_addr [40] {
        sgid: 0, dgid: 16, pkey: 32,
    }
    struct rdma_addr [296] {
        src.src_addr as "src_addr": 0, src.src_sin as "src_sin": 0, src.src_sin6 as "src_sin6": 0,
        src.src_storage as "src_storage": 0, dst.dst_addr as "dst_addr": 128,
        dst.dst_sin as "dst_sin": 128, dst.dst_sin6 as "dst_sin6": 128,
        dst.dst_storage as "dst_storage": 128, addr: 256, addr.ibaddr: 256,
    }
    struct rdma_route [312] {
        addr: 0, path_rec: 296, num_paths: 304,
    }
    struct rdma_event_channel [4] {
        fd: 0,
    }
    struct rdma_cm_id [416] {
        verbs: 0, channel: 8, context: 16, qp: 24, route: 32, ps: 344, port_num: 348, event: 352,
        send_cq_channel: 360, send_cq: 368, recv_cq_channel: 376, recv_cq: 384, srq: 392, pd: 400,
        qp_type: 408,
    }
    struct rdma_conn_param [24] {
        private_data: 0, private_data_len: 8, responder_resources: 9, initiator_depth: 10,
        flow_control: 11, retry_count: 12, rnr_retry_count: 13, srq: 14, qp_num: 16,
    }
    struct rdma_ud_param [56] {
        private_data: 0, private_data_len: 8, ah_attr: 16, qp_num: 48, qkey: 52,
    }
    struct rdma_cm_event [80] {
        id: 0, listen_id: 8, event: 16, status: 20, param: 24, param.conn: 24, param.ud: 24,
    }
    struct rdma_addrinfo [96] {
        ai_flags: 0, ai_family: 4, ai_qp_type: 8, ai_port_space: 12, ai_src_len: 16,
        ai_dst_len: 20, ai_src_addr: 24, ai_dst_addr: 32, ai_src_canonname: 40,
        ai_dst_canonname: 48, ai_route_len: 56, ai_route: 64, ai_connect_len: 72, ai_connect: 80,
        ai_next: 88,
    }
    struct rdma_cm_join_mc_attr_ex [16] {
        comp_mask: 0, join_flags: 4, addr: 8,
    }
}
