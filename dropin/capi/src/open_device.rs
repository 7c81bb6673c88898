//! Opening a device: the function table that inline functions of the headers call is filled here.
//! Functions that the headers call without a check are all set; of those that they check for null, the ones not implemented are null.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::abi::*;
use crate::async_event::Events;
use crate::errno::{Errno, pointer};
use crate::function::{config, open_function};
use crate::{check, context, cq, device, dm, mr, mw, open_xrcd, pd, port, qp, query, srq, xrcd};

pub(crate) fn open(device: *mut ibv_device) -> Result<*mut ibv_context, Errno> {
    check::start(config().and_then(|config| config.check.as_deref()));
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
    verbs.open_xrcd = Some(open_xrcd::open_xrcd);
    verbs.close_xrcd = Some(xrcd::close_xrcd);
    verbs.open_qp = Some(qp::open_qp);
    verbs.query_rt_values = Some(query::query_rt_values);
    verbs.advise_mr = Some(mr::advise_mr);
    verbs.alloc_null_mr = Some(mr::alloc_null_mr);
    verbs.alloc_dm = Some(dm::alloc_dm);
    verbs.free_dm = Some(dm::free_dm);
    verbs.reg_dm_mr = Some(mr::reg_dm_mr);
    verbs.alloc_td = Some(pd::alloc_td);
    verbs.dealloc_td = Some(pd::dealloc_td);
    verbs.alloc_parent_domain = Some(pd::alloc_parent_domain);
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
    if check::checker().is_some() {
        check::verbs::install(&mut context.ops);
    }
    // It takes no commands: a device cannot be imported by it. It is -1 if /dev/null cannot be opened.
    let commands = File::open("/dev/null").ok();
    context.cmd_fd = commands.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    context.async_fd = events.fd();
    context.num_comp_vectors = function.vector_count() as c_int;
    // This value tells the headers that `verbs_context` surrounds the context.
    context.abi_compat = ptr::without_provenance_mut::<c_void>(usize::MAX);
    Ok(context::allocate(verbs, function, events, commands))
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
