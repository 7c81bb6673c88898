//! An open device: the function table that inline functions of the headers call, and the queue of asynchronous events.
//! Functions that the headers call without a check are all set; of those that they check for null, the ones not implemented are null.
//! A context with objects left is not freed when it is closed, so that these stay valid until the process ends.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::abi::*;
use crate::async_event::Events;
use crate::caller::{arg_ref, handle};
use crate::errno::{Errno, minus_one, number, pointer};
use crate::function::{AdapterFunction, open_function};
use crate::uses::Uses;
use crate::{cq, device, mw, port, qp, query, srq};

/// The library's part of a context.
pub(crate) struct Context {
    pub(crate) function: Arc<AdapterFunction>,
    pub(crate) events: Arc<Events>,
    pub(crate) uses: Uses,
    /// Shown as `cmd_fd`: programs duplicate it and pass it to another process before they ask whether a device can be imported by it.
    _commands: Option<File>,
}

#[repr(C)]
struct OpenContext {
    verbs: verbs_context,
    own: Context,
}

const CONTEXT_OFFSET: usize = offset_of!(OpenContext, verbs) + offset_of!(verbs_context, context);

/// The library's part of the context behind this pointer; `EINVAL` for null.
///
/// # Safety
/// `context` is null or was opened by this library and is not closed while the answer is used.
pub(crate) unsafe fn of<'a>(context: *const ibv_context) -> Result<&'a Context, Errno> {
    if context.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller guarantees that `context` is the field of an `OpenContext` that `open` allocated.
    let opened = unsafe { context.byte_sub(CONTEXT_OFFSET) }.cast::<OpenContext>();
    // SAFETY: `opened` is that `OpenContext`, which the caller does not close while the result is used. C code has no access to the field that is borrowed.
    Ok(unsafe { &(*opened).own })
}

pub(crate) fn open(device: *mut ibv_device) -> Result<*mut ibv_context, Errno> {
    let function = open_function(device::number(device).ok_or(Errno::NODEV)?)?;
    let events = Arc::new(Events::new()?);
    function.register_context(&events)?;
    let mut verbs = verbs_context::zeroed();
    verbs.sz = size_of::<verbs_context>();
    verbs.query_port = Some(port::query_port);
    verbs.query_device_ex = Some(query::query_device_ex);
    verbs.create_cq_ex = Some(cq::create_cq_ex);
    verbs.modify_cq = Some(cq::modify_cq);
    verbs.create_qp_ex = Some(qp::create_qp_ex);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    let context = &mut verbs.context;
    context.device = device;
    context.ops.alloc_mw = Some(mw::alloc_mw);
    context.ops.bind_mw = Some(mw::bind_mw);
    context.ops.dealloc_mw = Some(mw::dealloc_mw);
    context.ops.poll_cq = Some(cq::poll_cq);
    context.ops.req_notify_cq = Some(cq::req_notify_cq);
    context.ops.post_srq_recv = Some(srq::post_srq_recv);
    context.ops.post_send = Some(qp::post_send);
    context.ops.post_recv = Some(qp::post_recv);
    // It takes no commands: a device cannot be imported by it. It is -1 if /dev/null cannot be opened.
    let commands = File::open("/dev/null").ok();
    context.cmd_fd = commands.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    context.async_fd = events.fd();
    context.num_comp_vectors = function.vector_count() as c_int;
    // This value tells the headers that `verbs_context` surrounds the context.
    context.abi_compat = ptr::without_provenance_mut::<c_void>(usize::MAX);
    let uses = Uses::default();
    let opened = Box::into_raw(Box::new(OpenContext {
        verbs,
        own: Context {
            function,
            events,
            uses,
            _commands: commands,
        },
    }));
    // SAFETY: `opened` was allocated above; only the address of a field is taken.
    Ok(unsafe { &raw mut (*opened).verbs.context })
}

/// Opens a device.
///
/// # Safety
/// `device` comes from [`ibv_get_device_list`](crate::device::ibv_get_device_list).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer(open(device))
}

/// Would open a device by another process's descriptor; not supported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_device(_cmd_fd: c_int) -> *mut ibv_context {
    pointer(Err(Errno::NOSUPP))
}

/// Closes a device.
///
/// # Safety
/// `context` was opened by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let own = match handle!(of(context)) {
        Ok(own) => own,
        Err(errno) => return number(Err(errno)),
    };
    if !own.uses.any() {
        // SAFETY: `context` lies in the box that `open` leaked; no object uses it, and the caller does not use it after this call.
        drop(unsafe { Box::from_raw(context.byte_sub(CONTEXT_OFFSET).cast::<OpenContext>()) });
    }
    0
}

/// Waits for an asynchronous event.
///
/// # Safety
/// `context` was opened by this library; `event` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller guarantees that `context` exists during the call. No lock is held while it waits: the thread may be cancelled.
    let events = match unsafe { of(context) } {
        Ok(own) => &*own.events,
        Err(errno) => return minus_one(Err(errno)),
    };
    let next = events.next();
    minus_one(next.map(|next| {
        // SAFETY: the caller guarantees that `event` is valid for writes.
        unsafe { *event = next };
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
    if let Some(ear) = event_source {
        ear.acknowledged();
    }
}
