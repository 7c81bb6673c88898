//! Structs for raw Ethernet packets: work queues, indirection tables, flows and counters.
//! Only those that appear in signatures or in other structs are defined; the specifications that follow a flow are not, since flows are not
//! supported.

#![allow(
    missing_docs,
    reason = "fields are the original's, whose manual pages say what each means"
)]

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::context::ibv_context;
use super::layout::{MUTEX, layouts};
use super::memory::ibv_pd;
use super::queue::ibv_cq;
use super::work::ibv_recv_wr;

/// Attributes for creating a work queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_wq_init_attr {
    pub wq_context: *mut c_void,
    pub wq_type: u32,
    pub max_wr: u32,
    pub max_sge: u32,
    pub pd: *mut ibv_pd,
    pub cq: *mut ibv_cq,
    pub comp_mask: u32,
    pub create_flags: u32,
}

/// How a work queue is changed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_wq_attr {
    pub attr_mask: u32,
    pub wq_state: u32,
    pub curr_wq_state: u32,
    pub flags: u32,
    pub flags_mask: u32,
}

/// A work queue.
#[repr(C)]
pub struct ibv_wq {
    pub context: *mut ibv_context,
    pub wq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub cq: *mut ibv_cq,
    pub wq_num: u32,
    pub handle: u32,
    pub state: u32,
    pub wq_type: u32,
    pub post_recv: Option<
        unsafe extern "C" fn(
            current: *mut ibv_wq,
            recv_wr: *mut ibv_recv_wr,
            bad_recv_wr: *mut *mut ibv_recv_wr,
        ) -> c_int,
    >,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
    pub comp_mask: u32,
}

/// An indirection table of work queues.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_rwq_ind_table {
    pub context: *mut ibv_context,
    pub ind_tbl_handle: c_int,
    pub ind_tbl_num: c_int,
    pub comp_mask: u32,
}

/// Attributes for creating an indirection table.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_rwq_ind_table_init_attr {
    pub log_ind_tbl_size: u32,
    pub ind_tbl: *mut *mut ibv_wq,
    pub comp_mask: u32,
}

/// Attributes for creating a flow; its specifications follow it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_flow_attr {
    pub comp_mask: u32,
    pub r#type: u32,
    pub size: u16,
    pub priority: u16,
    pub num_of_specs: u8,
    pub port: u8,
    pub flags: u32,
}

/// A flow.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_flow {
    pub comp_mask: u32,
    pub context: *mut ibv_context,
    pub handle: u32,
}

/// An action of a flow.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_flow_action {
    pub context: *mut ibv_context,
}

/// Attributes for creating an ESP action.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_flow_action_esp_attr {
    pub esp_attr: *mut ibv_flow_action_esp,
    pub keymat_proto: u32,
    pub keymat_len: u16,
    pub keymat_ptr: *mut c_void,
    pub replay_proto: u32,
    pub replay_len: u16,
    pub replay_ptr: *mut c_void,
    pub esp_encap: *mut ibv_flow_action_esp_encap,
    pub comp_mask: u32,
    pub esn: u32,
}

/// Attributes for creating counters.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_counters_init_attr {
    pub comp_mask: u32,
}

/// Counters.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_counters {
    pub context: *mut ibv_context,
}

/// How counters are attached.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_counter_attach_attr {
    pub counter_desc: u32,
    pub index: u32,
    pub comp_mask: u32,
}

/// Parameters of ESP, never read here.
#[repr(C)]
pub struct ibv_flow_action_esp {
    _private: [u8; 0],
}

/// Encapsulation of ESP, never read here.
#[repr(C)]
pub struct ibv_flow_action_esp_encap {
    _private: [u8; 0],
}

layouts! {
    struct ibv_wq_init_attr [48] {
        wq_context: 0, wq_type: 8, max_wr: 12, max_sge: 16, pd: 24, cq: 32, comp_mask: 40,
        create_flags: 44,
    }
    struct ibv_wq_attr [20] {
        attr_mask: 0, wq_state: 4, curr_wq_state: 8, flags: 12, flags_mask: 16,
    }
    struct ibv_wq [152 + MUTEX] {
        context: 0, wq_context: 8, pd: 16, cq: 24, wq_num: 32, handle: 36, state: 40, wq_type: 44,
        post_recv: 48, mutex: 56, cond: 96 + MUTEX, events_completed: 144 + MUTEX,
        comp_mask: 148 + MUTEX,
    }
    struct ibv_rwq_ind_table [24] {
        context: 0, ind_tbl_handle: 8, ind_tbl_num: 12, comp_mask: 16,
    }
    struct ibv_rwq_ind_table_init_attr [24] {
        log_ind_tbl_size: 0, ind_tbl: 8, comp_mask: 16,
    }
    struct ibv_flow_attr [20] {
        comp_mask: 0, r#type: 4, size: 8, priority: 10, num_of_specs: 12, port: 13, flags: 16,
    }
    struct ibv_flow [24] {
        comp_mask: 0, context: 8, handle: 16,
    }
    struct ibv_flow_action [8] {
        context: 0,
    }
    struct ibv_flow_action_esp_attr [56] {
        esp_attr: 0, keymat_proto: 8, keymat_len: 12, keymat_ptr: 16, replay_proto: 24,
        replay_len: 28, replay_ptr: 32, esp_encap: 40, comp_mask: 48, esn: 52,
    }
    struct ibv_counters_init_attr [4] {
        comp_mask: 0,
    }
    struct ibv_counters [8] {
        context: 0,
    }
    struct ibv_counter_attach_attr [12] {
        counter_desc: 0, index: 4, comp_mask: 8,
    }
}
