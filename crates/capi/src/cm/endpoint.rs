//! Endpoints: an identifier, its address and its queue pair made in one call, for programs that wait for each step.
//! It promises that a listener's connections get queue pairs like the one it was told of. It refuses nothing that its parts do not.

use core::ffi::c_int;

use super::id::{self, Template};
use super::{channel, qp, resolve};
use crate::abi::*;
use crate::errno::{Errno, minus_one};

/// Makes an endpoint.
///
/// # Safety
/// `res` is a result of `rdma_getaddrinfo`; the others are null or the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program's word.
    minus_one(unsafe {
        res.as_ref().ok_or(Errno::INVAL).and_then(|res| {
            let made = id::create(
                core::ptr::null_mut(),
                core::ptr::null_mut(),
                res.ai_port_space as u32,
            )?;
            match furnish(made, res, pd, attr) {
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
/// As of [`verbena_rdma_create_ep`].
unsafe fn furnish(
    id: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    // SAFETY: the program's word, all along.
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
/// `id` was made here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: the program's word.
    unsafe {
        qp::verbena_rdma_destroy_qp(id);
        qp::verbena_rdma_destroy_srq(id);
        id::verbena_rdma_destroy_id(id);
    }
}

/// Waits for somebody to come, and makes an identifier, and a queue pair if the listener was told of one.
///
/// # Safety
/// `listen` was made here; `id` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the program's word.
    minus_one(unsafe { get_request(listen, id) })
}

/// # Safety
/// As of [`verbena_rdma_get_request`].
unsafe fn get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the program's word, all along.
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
        // From here on the newcomer waits for its own steps; its event is the first of them.
        id::migrate(child, core::ptr::null_mut())?;
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
