//! Endpoints: an identifier, its address and its queue pair created in one call, for programs that use the synchronous mode.
//! Connections of a listening endpoint get queue pairs with the attributes that it was created with.

use core::ffi::c_int;

use super::id::{self, Template};
use super::{channel, qp, resolve};
use crate::abi::*;
use crate::errno::{Errno, minus_one};

/// Creates an endpoint.
///
/// # Safety
/// `res` is null or came from `rdma_getaddrinfo`; `id` is valid for writes; `pd` and `attr` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller guarantees the pointers above; `made` is an identifier that this call has created.
    minus_one(unsafe {
        res.as_ref().ok_or(Errno::INVAL).and_then(|res| {
            let made = id::create(
                core::ptr::null_mut(),
                core::ptr::null_mut(),
                res.ai_port_space as u32,
            )?;
            match set_up(made, res, pd, attr) {
                Ok(()) => {
                    *id = made;
                    Ok(())
                }
                Err(errno) => {
                    verbena_rdma_destroy_ep(made);
                    Err(errno)
                }
            }
        })
    })
}

/// # Safety
/// `id` was created by this library; the rest as for [`verbena_rdma_create_ep`].
unsafe fn set_up(
    id: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    // SAFETY: `id` was created by this library; the caller guarantees that the addresses of `res`, `pd` and `attr` are null or valid.
    unsafe {
        let own = id::of(id)?;
        if res.ai_flags as u32 & RAI_PASSIVE != 0 {
            resolve::bind(id, res.ai_src_addr)?;
            if let Some(attr) = attr.as_ref() {
                own.inner.lock().endpoint = Some(Template { pd, attr: *attr });
            }
            if !pd.is_null() {
                (*id).pd = pd;
            }
            return Ok(());
        }
        resolve::resolve_addr(id, res.ai_src_addr, res.ai_dst_addr)?;
        resolve::resolve_route(id)?;
        if let Some(attr) = attr.as_mut() {
            attr.qp_type = res.ai_qp_type as u32;
            qp::create(id, pd, attr)?;
        }
    }
    Ok(())
}

/// Destroys an endpoint with its queue pair.
///
/// # Safety
/// `id` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: the caller guarantees that `id` was created by this library and is not used after this call.
    unsafe {
        qp::verbena_rdma_destroy_qp(id);
        qp::verbena_rdma_destroy_srq(id);
        id::verbena_rdma_destroy_id(id);
    }
}

/// Waits for a connection request, and creates an identifier, with a queue pair if the listener was created with attributes for it.
///
/// # Safety
/// `listen` was created by this library; `id` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the caller guarantees that `listen` is null or was created by this library, and that `id` is valid for writes.
    minus_one(unsafe { get_request(listen, id) })
}

/// # Safety
/// As for [`verbena_rdma_get_request`].
unsafe fn get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `listen` is null or an identifier of this library that no thread destroys during the call, and that `id` is valid for
    // writes. `event` and `child` are valid until the event is acknowledged, and the program does not know `child` yet.
    unsafe {
        let own = id::of(listen)?;
        if !own.sync.load(core::sync::atomic::Ordering::Acquire) {
            return Err(Errno::INVAL);
        }
        let event = channel::next((*listen).channel)?;
        let (kind, status, child) = ((*event).event, (*event).status, (*event).id);
        if kind != RDMA_CM_EVENT_CONNECT_REQUEST || status != 0 {
            channel::verbena_rdma_ack_cm_event(event);
            return Err(Errno::INVAL);
        }
        // The new identifier is synchronous from now on; the request is the event of its first step.
        if let Err(errno) = id::migrate(child, core::ptr::null_mut()) {
            channel::verbena_rdma_ack_cm_event(event);
            id::verbena_rdma_destroy_id(child);
            return Err(errno);
        }
        (*child).event = event;
        let template = own.inner.lock().endpoint;
        if let Some(Template { pd, mut attr }) = template {
            attr.qp_type = (*listen).qp_type;
            if let Err(errno) = qp::create(child, pd, &raw mut attr) {
                verbena_rdma_destroy_ep(child);
                return Err(errno);
            }
        }
        *id = child;
    }
    Ok(())
}
