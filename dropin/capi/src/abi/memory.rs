//! Protection domains, memory regions and windows, device memory, thread domains and XRC domains.
//! The structs describe memory of the program and do not own it.

#![allow(
    missing_docs,
    reason = "fields are the original's, whose manual pages say what each means"
)]

use std::ffi::{c_int, c_void};

use super::context::ibv_context;
use super::layout::layouts;

/// A protection domain.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

/// Attributes for creating a thread domain.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_td_init_attr {
    pub comp_mask: u32,
}

/// A thread domain.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_td {
    pub context: *mut ibv_context,
}

/// Returned by the allocator of a parent domain to let the library allocate.
pub const IBV_ALLOCATOR_USE_DEFAULT: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// Attributes for creating a parent domain.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_parent_domain_init_attr {
    pub pd: *mut ibv_pd,
    pub td: *mut ibv_td,
    pub comp_mask: u32,
    pub alloc: Option<
        unsafe extern "C" fn(
            pd: *mut ibv_pd,
            pd_context: *mut c_void,
            size: usize,
            alignment: usize,
            resource_type: u64,
        ) -> *mut c_void,
    >,
    pub free: Option<
        unsafe extern "C" fn(
            pd: *mut ibv_pd,
            pd_context: *mut c_void,
            ptr: *mut c_void,
            resource_type: u64,
        ),
    >,
    pub pd_context: *mut c_void,
}

/// Attributes for creating an XRC domain.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_xrcd_init_attr {
    pub comp_mask: u32,
    pub fd: c_int,
    pub oflags: c_int,
}

/// An XRC domain.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_xrcd {
    pub context: *mut ibv_context,
}

/// A memory region.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// A memory window.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub r#type: u32,
}

/// The region and range that a window is bound to.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: u32,
}

/// The binding of a window of type 1.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_mw_bind {
    pub wr_id: u64,
    pub send_flags: u32,
    pub bind_info: ibv_mw_bind_info,
}

/// Attributes for creating device memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_alloc_dm_attr {
    pub length: usize,
    pub log_align_req: u32,
    pub comp_mask: u32,
}

/// Device memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_dm {
    pub context: *mut ibv_context,
    pub memcpy_to_dm: Option<
        unsafe extern "C" fn(
            dm: *mut ibv_dm,
            dm_offset: u64,
            host_addr: *const c_void,
            length: usize,
        ) -> c_int,
    >,
    pub memcpy_from_dm: Option<
        unsafe extern "C" fn(
            host_addr: *mut c_void,
            dm: *mut ibv_dm,
            dm_offset: u64,
            length: usize,
        ) -> c_int,
    >,
    pub comp_mask: u32,
    /// Padding in older releases.
    pub handle: u32,
}

layouts! {
    struct ibv_pd [16] {
        context: 0, handle: 8,
    }
    struct ibv_td_init_attr [4] {
        comp_mask: 0,
    }
    struct ibv_td [8] {
        context: 0,
    }
    struct ibv_parent_domain_init_attr [48] {
        pd: 0, td: 8, comp_mask: 16, alloc: 24, free: 32, pd_context: 40,
    }
    struct ibv_xrcd_init_attr [12] {
        comp_mask: 0, fd: 4, oflags: 8,
    }
    struct ibv_xrcd [8] {
        context: 0,
    }
    struct ibv_mr [48] {
        context: 0, pd: 8, addr: 16, length: 24, handle: 32, lkey: 36, rkey: 40,
    }
    struct ibv_mw [32] {
        context: 0, pd: 8, rkey: 16, handle: 20, r#type: 24,
    }
    struct ibv_mw_bind_info [32] {
        mr: 0, addr: 8, length: 16, mw_access_flags: 24,
    }
    struct ibv_mw_bind [48] {
        wr_id: 0, send_flags: 8, bind_info: 16,
    }
    struct ibv_alloc_dm_attr [16] {
        length: 0, log_align_req: 8, comp_mask: 12,
    }
    struct ibv_dm [32] {
        context: 0, memcpy_to_dm: 8, memcpy_from_dm: 16, comp_mask: 24, handle: 28,
    }
}
