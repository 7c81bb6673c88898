//! Work requests and their scatter/gather entries. The opcode decides which members of the unions are valid.
//! Nothing is checked here: lengths and pointers are as the program wrote them.

#![allow(
    missing_docs,
    reason = "fields are the original's, whose manual pages say what each means"
)]

use std::ffi::{c_int, c_void};

use super::address::ibv_ah;
use super::layout::layouts;
use super::memory::{ibv_mw, ibv_mw_bind_info};

/// A scatter/gather entry.
#[derive(Clone, Copy)]
// Programs keep them in packed structs, too, as libiscsi does: any address is valid.
#[repr(C, packed)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// A buffer of memory that need not be registered.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_data_buf {
    pub addr: *mut c_void,
    pub length: usize,
}

/// `wr.rdma` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr__wr__rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// `wr.atomic` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr__wr__atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// `wr.ud` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr__wr__ud {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// `wr` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_send_wr__wr {
    pub rdma: ibv_send_wr__wr__rdma,
    pub atomic: ibv_send_wr__wr__atomic,
    pub ud: ibv_send_wr__wr__ud,
}

/// `qp_type.xrc` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr__qp_type__xrc {
    pub remote_srqn: u32,
}

/// `qp_type` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_send_wr__qp_type {
    pub xrc: ibv_send_wr__qp_type__xrc,
}

/// `bind_or_tso.bind_mw` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr__bind_or_tso__bind_mw {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

/// `bind_or_tso.tso` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr__bind_or_tso__tso {
    pub hdr: *mut c_void,
    pub hdr_sz: u16,
    pub mss: u16,
}

/// `bind_or_tso` of [`ibv_send_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_send_wr__bind_or_tso {
    pub bind_mw: ibv_send_wr__bind_or_tso__bind_mw,
    pub tso: ibv_send_wr__bind_or_tso__tso,
}

/// A work request of the send queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    /// In network order; in C also `invalidate_rkey` (a union of both), which is in host order.
    pub imm_data: u32,
    pub wr: ibv_send_wr__wr,
    pub qp_type: ibv_send_wr__qp_type,
    /// Unnamed in C, where its members are accessed directly.
    pub bind_or_tso: ibv_send_wr__bind_or_tso,
}

/// A work request of a receive queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

/// `tm.add` of [`ibv_ops_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_ops_wr__tm__add {
    pub recv_wr_id: u64,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub tag: u64,
    pub mask: u64,
}

/// `tm` of [`ibv_ops_wr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_ops_wr__tm {
    pub unexpected_cnt: u32,
    pub handle: u32,
    pub add: ibv_ops_wr__tm__add,
}

/// An operation on a tag-matching queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_ops_wr {
    pub wr_id: u64,
    pub next: *mut ibv_ops_wr,
    pub opcode: u32,
    pub flags: c_int,
    pub tm: ibv_ops_wr__tm,
}

layouts! {
    struct ibv_sge [16] {
        addr: 0, length: 8, lkey: 12,
    }
    struct ibv_data_buf [16] {
        addr: 0, length: 8,
    }
    struct ibv_send_wr [128] {
        wr_id: 0, next: 8, sg_list: 16, num_sge: 24, opcode: 28, send_flags: 32, imm_data: 36,
        wr: 40, wr.rdma: 40, wr.rdma.remote_addr: 40, wr.rdma.rkey: 48, wr.atomic: 40,
        wr.atomic.remote_addr: 40, wr.atomic.compare_add: 48, wr.atomic.swap: 56,
        wr.atomic.rkey: 64, wr.ud: 40, wr.ud.ah: 40, wr.ud.remote_qpn: 48, wr.ud.remote_qkey: 52,
        qp_type: 72, qp_type.xrc: 72, qp_type.xrc.remote_srqn: 72,
        bind_or_tso.bind_mw as "bind_mw": 80, bind_or_tso.bind_mw.mw as "bind_mw.mw": 80,
        bind_or_tso.bind_mw.rkey as "bind_mw.rkey": 88,
        bind_or_tso.bind_mw.bind_info as "bind_mw.bind_info": 96, bind_or_tso.tso as "tso": 80,
        bind_or_tso.tso.hdr as "tso.hdr": 80, bind_or_tso.tso.hdr_sz as "tso.hdr_sz": 88,
        bind_or_tso.tso.mss as "tso.mss": 90,
    }
    struct ibv_recv_wr [32] {
        wr_id: 0, next: 8, sg_list: 16, num_sge: 24,
    }
    struct ibv_ops_wr [72] {
        wr_id: 0, next: 8, opcode: 16, flags: 20, tm: 24, tm.unexpected_cnt: 24, tm.handle: 28,
        tm.add: 32, tm.add.recv_wr_id: 32, tm.add.sg_list: 40, tm.add.num_sge: 48, tm.add.tag: 56,
        tm.add.mask: 64,
    }
}
