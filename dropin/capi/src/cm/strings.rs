//! Names of the connection manager's events, as the original has them, and ports of addresses.
//! An unknown event is "UNKNOWN EVENT".

use core::ffi::c_char;

use super::address;
use crate::abi::*;

/// The name of an event.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn verbena_rdma_event_str(event: u32) -> *const c_char {
    let word = match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"UNKNOWN EVENT",
    };
    word.as_ptr()
}

/// The port of an address, in network order; 0 if it has none.
///
/// # Safety
/// `at` points to a socket address of the family that it names, or of an unknown family.
unsafe fn port(at: *const libc::sockaddr) -> u16 {
    // SAFETY: the caller guarantees a socket address at `at`.
    let address = unsafe { address::read(at) }.ok().flatten();
    address.map_or(0, |address| address.port().to_be())
}

/// The local port, in network order.
///
/// # Safety
/// `id` is null or was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    if id.is_null() {
        return 0;
    }
    // SAFETY: `id` is not null, so the caller guarantees that it exists; the field is a `sockaddr_storage`.
    unsafe { port((&raw const (*id).route.addr.src).cast()) }
}

/// The peer's port, in network order.
///
/// # Safety
/// `id` is null or was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    if id.is_null() {
        return 0;
    }
    // SAFETY: `id` is not null, so the caller guarantees that it exists; the field is a `sockaddr_storage`.
    unsafe { port((&raw const (*id).route.addr.dst).cast()) }
}
