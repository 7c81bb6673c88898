//! Reading and acknowledging asynchronous events of a context. An event is acknowledged to the object that it is about.

use core::ffi::c_int;

use crate::abi::*;
use crate::caller::arg_ref;
use crate::errno::minus_one;
use crate::{check, context, cq, qp, srq};

/// Waits for an asynchronous event.
///
/// # Safety
/// `context` was opened by this library; `event` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller guarantees that `context` exists when it calls. It may be closed while a thread waits, which waits on then, as with
    // the kernel's. No lock is held while it waits: the thread may be cancelled.
    let events = match unsafe { context::of(context) } {
        Ok(own) => own.events.clone(),
        Err(errno) => return minus_one(Err(errno)),
    };
    let next = events.next();
    minus_one(next.map(|next| {
        // SAFETY: the caller guarantees that `event` is valid for writes.
        unsafe { *event = next };
        if let Some(checker) = check::checker()
            && let Some(about) = about(&next)
        {
            checker.event_given(about);
        }
    }))
}

/// Acknowledges an asynchronous event: its object can be destroyed from then on.
///
/// # Safety
/// `event` came from [`ibv_get_async_event`], and the object that it is about exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    let Some(event) = arg_ref!(event) else {
        return;
    };
    // SAFETY: the caller guarantees that the event is about an existing object; its type says which member of the union was written.
    let event_source = unsafe {
        match event.event_type {
            IBV_EVENT_CQ_ERR => cq::event_source(event.element.cq),
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => srq::event_source(event.element.srq),
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => qp::event_source(event.element.qp),
            // Events of a port and of the device itself belong to no object.
            _ => None,
        }
    };
    if let Some((checker, about)) = check::checker().zip(about(event)) {
        checker.events_acknowledged(about, 1);
    }
    if let Some(source) = event_source {
        source.acknowledged();
    }
}

/// The object that an event is about, by its address; none for events of a port or of the device.
fn about(event: &ibv_async_event) -> Option<usize> {
    let element = event.element;
    // SAFETY: the type of the event says which member of the union was written, all of which are pointers.
    unsafe {
        Some(match event.event_type {
            IBV_EVENT_CQ_ERR => element.cq as usize,
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => element.srq as usize,
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_QP_LAST_WQE_REACHED => element.qp as usize,
            _ => return None,
        })
    }
}
