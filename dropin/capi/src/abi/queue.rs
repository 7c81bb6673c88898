//! Completion queues, shared receive queues and completions.
//! The functions of an extended completion queue are where inline functions of the headers call them. Structs that hold a lock cannot be copied.

#![allow(
    missing_docs,
    reason = "fields are the original's, whose manual pages say what each means"
)]

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::context::ibv_context;
use super::event::ibv_comp_channel;
use super::layout::{MUTEX, layouts};
use super::memory::{ibv_pd, ibv_xrcd};

/// A completion queue.
#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

/// Parameters of an extended poll; rdma-core 44 has no bit for `comp_mask`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_poll_cq_attr {
    pub comp_mask: u32,
}

/// The tag of a matched message.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_wc_tm_info {
    pub tag: u64,
    pub r#priv: u32,
}

/// An extended completion queue, which begins with the fields of [`ibv_cq`].
#[repr(C)]
pub struct ibv_cq_ex {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
    pub comp_mask: u32,
    pub status: u32,
    pub wr_id: u64,
    pub start_poll:
        Option<unsafe extern "C" fn(current: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int>,
    pub next_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> c_int>,
    pub end_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex)>,
    pub read_opcode: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    pub read_vendor_err: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    pub read_byte_len: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    pub read_imm_data: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    pub read_qp_num: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    pub read_src_qp: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    pub read_wc_flags: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    pub read_slid: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    pub read_sl: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u8>,
    pub read_dlid_path_bits: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u8>,
    pub read_completion_ts: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u64>,
    pub read_cvlan: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u16>,
    pub read_flow_tag: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    pub read_tm_info:
        Option<unsafe extern "C" fn(current: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info)>,
    pub read_completion_wallclock_ns: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u64>,
}

/// Attributes for creating an extended completion queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_cq_init_attr_ex {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut ibv_comp_channel,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut ibv_pd,
}

/// Moderation of completion events.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_moderate_cq {
    pub cq_count: u16,
    pub cq_period: u16,
}

/// Attributes of a completion queue to change.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_modify_cq_attr {
    pub attr_mask: u32,
    pub moderate: ibv_moderate_cq,
}

/// A completion.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// In network order; in C also `invalidated_rkey` (a union of both), which is in host order.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// Sizes of a shared receive queue, and its limit.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_srq_attr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// Attributes for creating a shared receive queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_srq_init_attr {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
}

/// Sizes of a tag-matching queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_tm_cap {
    pub max_num_tags: u32,
    pub max_ops: u32,
}

/// Attributes for creating an extended shared receive queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_srq_init_attr_ex {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
    /// Where the shorter struct has padding, so that it cannot be embedded here.
    pub comp_mask: u32,
    pub srq_type: u32,
    pub pd: *mut ibv_pd,
    pub xrcd: *mut ibv_xrcd,
    pub cq: *mut ibv_cq,
    pub tm_cap: ibv_tm_cap,
}

/// A shared receive queue.
#[repr(C)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

layouts! {
    struct ibv_cq [128 + MUTEX] {
        context: 0, channel: 8, cq_context: 16, handle: 24, cqe: 28, mutex: 32, cond: 72 + MUTEX,
        comp_events_completed: 120 + MUTEX, async_events_completed: 124 + MUTEX,
    }
    struct ibv_poll_cq_attr [4] {
        comp_mask: 0,
    }
    struct ibv_wc_tm_info [16] {
        tag: 0, r#priv: 8,
    }
    struct ibv_cq_ex [288 + MUTEX] {
        context: 0, channel: 8, cq_context: 16, handle: 24, cqe: 28, mutex: 32, cond: 72 + MUTEX,
        comp_events_completed: 120 + MUTEX, async_events_completed: 124 + MUTEX,
        comp_mask: 128 + MUTEX, status: 132 + MUTEX, wr_id: 136 + MUTEX, start_poll: 144 + MUTEX,
        next_poll: 152 + MUTEX, end_poll: 160 + MUTEX, read_opcode: 168 + MUTEX,
        read_vendor_err: 176 + MUTEX, read_byte_len: 184 + MUTEX, read_imm_data: 192 + MUTEX,
        read_qp_num: 200 + MUTEX, read_src_qp: 208 + MUTEX, read_wc_flags: 216 + MUTEX,
        read_slid: 224 + MUTEX, read_sl: 232 + MUTEX, read_dlid_path_bits: 240 + MUTEX,
        read_completion_ts: 248 + MUTEX, read_cvlan: 256 + MUTEX, read_flow_tag: 264 + MUTEX,
        read_tm_info: 272 + MUTEX, read_completion_wallclock_ns: 280 + MUTEX,
    }
    struct ibv_cq_init_attr_ex [56] {
        cqe: 0, cq_context: 8, channel: 16, comp_vector: 24, wc_flags: 32, comp_mask: 40,
        flags: 44, parent_domain: 48,
    }
    struct ibv_moderate_cq [4] {
        cq_count: 0, cq_period: 2,
    }
    struct ibv_modify_cq_attr [8] {
        attr_mask: 0, moderate: 4,
    }
    struct ibv_wc [48] {
        wr_id: 0, status: 8, opcode: 12, vendor_err: 16, byte_len: 20, imm_data: 24, qp_num: 28,
        src_qp: 32, wc_flags: 36, pkey_index: 40, slid: 42, sl: 44, dlid_path_bits: 45,
    }
    struct ibv_srq_attr [12] {
        max_wr: 0, max_sge: 4, srq_limit: 8,
    }
    struct ibv_srq_init_attr [24] {
        srq_context: 0, attr: 8,
    }
    struct ibv_tm_cap [8] {
        max_num_tags: 0, max_ops: 4,
    }
    struct ibv_srq_init_attr_ex [64] {
        srq_context: 0, attr: 8, comp_mask: 20, srq_type: 24, pd: 32, xrcd: 40, cq: 48,
        tm_cap: 56,
    }
    struct ibv_srq [128 + MUTEX] {
        context: 0, srq_context: 8, pd: 16, handle: 24, mutex: 32, cond: 72 + MUTEX,
        events_completed: 120 + MUTEX,
    }
}
