//! Queue pairs and shared receive queues of identifiers, ready to be connected. An identifier has at most one of each.
//! Completion queues that the program does not pass are created with completion channels of their own; their `cq_context` is the
//! identifier.

use core::ffi::c_int;
use core::ptr;
use std::sync::Arc;

use super::conn_param::MANAGED_ACCESS;
use super::{id, multicast};
use crate::abi::*;
use crate::caller::arg_mut;
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::errno::{Errno, minus_one};
use crate::qp::{self, ibv_destroy_qp, ibv_modify_qp};
use crate::srq::{self, ibv_create_srq, ibv_destroy_srq};
use crate::{context, log};

/// Creates the queue pair of an identifier.
///
/// # Safety
/// `id` was created by this library; `pd` is null or was created by this library; `attr` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: `create` requires of `id`, `pd` and `attr` what this function does.
    minus_one(unsafe { create(id, pd, attr) })
}

/// The same with the fields that later releases added.
///
/// # Safety
/// As for [`verbena_rdma_create_qp`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    let Some(ex) = arg_mut!(attr) else {
        return minus_one(Err(Errno::INVAL));
    };
    // SAFETY: the caller guarantees that `id` and the objects that `ex` names are null or were created by this library.
    minus_one(unsafe {
        let pd = if ex.comp_mask & IBV_QP_INIT_ATTR_PD != 0 {
            ex.pd
        } else {
            ptr::null_mut()
        };
        create_with(id, pd, |pd, wanted| {
            // An XRC target has no queues.
            if ex.qp_type != IBV_QPT_XRC_RECV {
                wanted(&mut ex.send_cq, &mut ex.recv_cq, &mut ex.srq, &ex.cap)?;
            }
            ex.pd = pd;
            ex.comp_mask |= IBV_QP_INIT_ATTR_PD;
            qp::create_managed_ex(ex)
        })
    })
}

/// # Safety
/// As for [`verbena_rdma_create_qp`].
pub(crate) unsafe fn create(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `attr` is null or valid, and that `id`, `pd` and the objects that it names are null or of this library.
    unsafe {
        let attr = attr.as_mut().ok_or(Errno::INVAL)?;
        create_with(id, pd, |pd, wanted| {
            wanted(
                &mut attr.send_cq,
                &mut attr.recv_cq,
                &mut attr.srq,
                &attr.cap,
            )?;
            qp::create_managed(pd, attr)
        })
    }
}

/// Sets the queues that the program left out.
type CreateQueues<'a> = dyn FnMut(&mut *mut ibv_cq, &mut *mut ibv_cq, &mut *mut ibv_srq, &ibv_qp_cap) -> Result<(), Errno>
    + 'a;

/// Creates a queue pair by calling `make` with its domain and a function that sets the missing queues.
///
/// # Safety
/// `id` was created by this library; `pd` is null or was created by this library.
unsafe fn create_with(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    make: impl FnOnce(*mut ibv_pd, &mut CreateQueues<'_>) -> Result<*mut ibv_qp, Errno>,
) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `id` and `pd` are null or were created by this library and exist during the call.
    unsafe {
        let own = id::of(id)?;
        own.open(id)?;
        if !(*id).qp.is_null() {
            return Err(Errno::INVAL);
        }
        let pd = if pd.is_null() { (*id).pd } else { pd };
        check_function(id, pd)?;
        let mut wanted = |send: &mut *mut ibv_cq,
                          recv: &mut *mut ibv_cq,
                          srq: &mut *mut ibv_srq,
                          cap: &ibv_qp_cap| {
            if send.is_null() {
                create_cq(id, cap.max_send_wr, true)?;
                *send = (*id).send_cq;
            }
            if recv.is_null() {
                create_cq(id, cap.max_recv_wr, false)?;
                *recv = (*id).recv_cq;
            }
            if srq.is_null() {
                *srq = (*id).srq;
            }
            Ok(())
        };
        let made = make(pd, &mut wanted).and_then(|qp| {
            let ready = prepare(qp);
            if ready.is_err() {
                ibv_destroy_qp(qp);
            }
            ready.map(|()| qp)
        });
        match made {
            Ok(qp) => {
                (*id).qp = qp;
                (*id).pd = pd;
                multicast::attach_all(id, own).inspect_err(|_| verbena_rdma_destroy_qp(id))
            }
            Err(errno) => {
                drop_queues(id);
                Err(errno)
            }
        }
    }
}

/// Checks that the domain is of the function that identifiers are on: a queue pair of another one could not be connected (V1).
///
/// # Safety
/// `id` was created by this library and has a device; `pd` is null or was created by this library.
unsafe fn check_function(id: *mut rdma_cm_id, pd: *mut ibv_pd) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `id` and `pd` are null or of this library; a domain's context is open while the domain exists.
    let (identifier, domain) = unsafe {
        let pd = pd.as_ref().ok_or(Errno::INVAL)?;
        (context::of((*id).verbs)?, context::of(pd.context)?)
    };
    if Arc::ptr_eq(&identifier.function, &domain.function) {
        return Ok(());
    }
    log::warn(|| {
        "rdma_create_qp: identifiers of rdma_cm are on the first device, and the protection domain is of another one: \
         allocate it with the identifier's context (id->verbs), or connect the queue pair by number (ibv_modify_qp)"
            .to_owned()
    });
    Err(Errno::INVAL)
}

/// Creates a completion queue of an identifier, unless there is one.
///
/// # Safety
/// `id` was created by this library and has a device.
unsafe fn create_cq(id: *mut rdma_cm_id, entries: u32, send: bool) -> Result<(), Errno> {
    let none = |pointer: bool| if pointer { Err(Errno::NOMEM) } else { Ok(()) };
    // SAFETY: the caller guarantees that `id` exists and that its context is open.
    unsafe {
        let has = if send { (*id).send_cq } else { (*id).recv_cq };
        if !has.is_null() {
            return Ok(());
        }
        let channel = ibv_create_comp_channel((*id).verbs);
        none(channel.is_null())?;
        let entries = c_int::try_from(entries.max(1)).map_err(|_| Errno::INVAL)?;
        let cq = ibv_create_cq((*id).verbs, entries, id.cast(), channel, 0);
        if cq.is_null() {
            ibv_destroy_comp_channel(channel);
            return Err(Errno::NOMEM);
        }
        if send {
            ((*id).send_cq, (*id).send_cq_channel) = (cq, channel);
        } else {
            ((*id).recv_cq, (*id).recv_cq_channel) = (cq, channel);
        }
    }
    Ok(())
}

/// Destroys the completion queues that were created for an identifier.
///
/// # Safety
/// `id` was created by this library.
unsafe fn drop_queues(id: *mut rdma_cm_id) {
    // SAFETY: the caller guarantees that `id` exists; its queues and channels are null or were created by `create_cq`.
    unsafe {
        for (cq, channel) in [
            (&mut (*id).recv_cq, &mut (*id).recv_cq_channel),
            (&mut (*id).send_cq, &mut (*id).send_cq_channel),
        ] {
            if !cq.is_null() {
                // It stays if another queue pair uses it.
                ibv_destroy_cq(core::mem::replace(cq, ptr::null_mut()));
            }
            if !channel.is_null() {
                ibv_destroy_comp_channel(core::mem::replace(channel, ptr::null_mut()));
            }
        }
    }
}

/// Moves a queue pair to INIT, where receives can be posted, or to RTS if it is for datagrams.
///
/// # Safety
/// `qp` was just created.
unsafe fn prepare(qp: *mut ibv_qp) -> Result<(), Errno> {
    let step = |attr: &mut ibv_qp_attr, mask: u32| {
        // SAFETY: the caller guarantees that `qp` exists; `attr` is a local of `prepare`.
        match unsafe { ibv_modify_qp(qp, attr, mask as c_int) } {
            0 => Ok(()),
            code => Err(Errno(code)),
        }
    };
    // SAFETY: the caller guarantees that `qp` exists.
    let datagrams = unsafe { (*qp).qp_type } == IBV_QPT_UD;
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        port_num: 1,
        qkey: RDMA_UDP_QKEY,
        qp_access_flags: MANAGED_ACCESS,
        ..ibv_qp_attr::zeroed()
    };
    let init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if !datagrams {
        return step(&mut attr, init | IBV_QP_ACCESS_FLAGS);
    }
    step(&mut attr, init | IBV_QP_QKEY)?;
    attr.qp_state = IBV_QPS_RTR;
    step(&mut attr, IBV_QP_STATE)?;
    attr.qp_state = IBV_QPS_RTS;
    step(&mut attr, IBV_QP_STATE | IBV_QP_SQ_PSN)
}

/// Destroys the queue pair of an identifier, and the queues that were created for it.
///
/// # Safety
/// `id` was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_destroy_qp(id: *mut rdma_cm_id) {
    if id.is_null() {
        return;
    }
    // SAFETY: `id` is not null, so the caller guarantees that it exists; the program does not use its queue pair after this call.
    unsafe {
        let qp = core::mem::replace(&mut (*id).qp, ptr::null_mut());
        if !qp.is_null() {
            ibv_destroy_qp(qp);
        }
        drop_queues(id);
    }
}

/// Creates the shared receive queue of an identifier.
///
/// # Safety
/// `id` was created by this library; `pd` is null or was created by this library; `attr` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the caller guarantees that `id` and `pd` are null or were created by this library, and that `attr` is null or valid.
    minus_one(unsafe {
        id::of(id).and_then(|own| {
            own.open(id)?;
            if !(*id).srq.is_null() {
                return Err(Errno::INVAL);
            }
            let pd = if pd.is_null() { (*id).pd } else { pd };
            let srq = ibv_create_srq(pd, attr);
            if srq.is_null() {
                return Err(Errno::last());
            }
            (*id).srq = srq;
            (*id).pd = pd;
            Ok(())
        })
    })
}

/// The same with the fields that later releases added: also a queue of an XRC domain. The program passes the domain and the completion queue.
///
/// # Safety
/// As for [`verbena_rdma_create_srq`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    let Some(ex) = arg_mut!(attr) else {
        return minus_one(Err(Errno::INVAL));
    };
    let has = |part| ex.comp_mask & part != 0;
    if has(IBV_SRQ_INIT_ATTR_TYPE) && ex.srq_type != IBV_SRQT_BASIC {
        // SAFETY: the caller guarantees that `id` and the objects that `ex` names are null or were created by this library.
        return minus_one(unsafe { create_xrc_srq(id, ex) });
    }
    let mut init = ibv_srq_init_attr {
        srq_context: ex.srq_context,
        attr: ex.attr,
    };
    let pd = if has(IBV_SRQ_INIT_ATTR_PD) {
        ex.pd
    } else {
        ptr::null_mut()
    };
    // SAFETY: the caller guarantees that `id` and `pd` are null or were created by this library; `init` is a local.
    let code = unsafe { verbena_rdma_create_srq(id, pd, &raw mut init) };
    ex.attr = init.attr;
    code
}

/// # Safety
/// As for [`verbena_rdma_create_srq`].
unsafe fn create_xrc_srq(id: *mut rdma_cm_id, ex: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `id` and the objects that `ex` names are null or were created by this library, and exist during the call.
    unsafe {
        let own = id::of(id)?;
        own.open(id)?;
        if ex.srq_type != IBV_SRQT_XRC {
            return Err(Errno::NOSUPP);
        }
        if !(*id).srq.is_null() {
            return Err(Errno::INVAL);
        }
        if ex.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            ex.pd = (*id).pd;
            ex.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        }
        let srq = srq::create_srq_ex((*id).verbs, ex);
        if srq.is_null() {
            return Err(Errno::last());
        }
        (*id).srq = srq;
        (*id).pd = ex.pd;
        Ok(())
    }
}

/// Destroys the shared receive queue of an identifier.
///
/// # Safety
/// `id` was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_destroy_srq(id: *mut rdma_cm_id) {
    if id.is_null() {
        return;
    }
    // SAFETY: `id` is not null, so the caller guarantees that it exists; the program does not use its queue after this call.
    unsafe {
        let srq = core::mem::replace(&mut (*id).srq, ptr::null_mut());
        if !srq.is_null() {
            ibv_destroy_srq(srq);
        }
    }
}
