//! Completion channels and asynchronous events.
//! The descriptor of a channel is where programs read it in order to poll it.

#![allow(
    missing_docs,
    reason = "fields are the original's, whose manual pages say what each means"
)]

use std::ffi::c_int;

use super::context::ibv_context;
use super::layout::layouts;
use super::pair::ibv_qp;
use super::queue::{ibv_cq, ibv_srq};
use super::raw::ibv_wq;

/// A completion channel.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// `element` of [`ibv_async_event`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_async_event__element {
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub srq: *mut ibv_srq,
    pub wq: *mut ibv_wq,
    pub port_num: c_int,
}

/// An asynchronous event.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_async_event {
    pub element: ibv_async_event__element,
    pub event_type: u32,
}

layouts! {
    struct ibv_comp_channel [16] {
        context: 0, fd: 8, refcnt: 12,
    }
    struct ibv_async_event [16] {
        element: 0, element.cq: 0, element.qp: 0, element.srq: 0, element.wq: 0,
        element.port_num: 0, event_type: 8,
    }
}
