//! The device list of the connection manager: one context and domain, opened once and shared by all identifiers of the process, as in the
//! original. They are never closed, since programs may keep them.

use core::ffi::c_int;
use core::ptr;

use crate::abi::*;
use crate::errno::{Errno, pointer};
use crate::function::{SharedContext, config, shared_context_slot};
use crate::{check, device, open_device, pd};

/// The context and domain that all identifiers of the connection manager share; opened once, and never closed.
pub(crate) fn shared_context() -> Result<(*mut ibv_context, *mut ibv_pd), Errno> {
    let mut common = shared_context_slot().lock();
    if let Some(SharedContext(context, pd)) = *common {
        return Ok((context, pd));
    }
    let config = config().ok_or(Errno::INVAL)?;
    let first = device::devices(config).next().ok_or(Errno::NODEV)?;
    let context = open_device::open(first)?;
    // SAFETY: `context` was opened above.
    let pd = unsafe { pd::ibv_alloc_pd(context) };
    if pd.is_null() {
        return Err(Errno::last());
    }
    if let Some(checker) = check::checker() {
        checker.forget(context as usize);
        checker.forget(pd as usize);
    }
    *common = Some(SharedContext(context, pd));
    Ok((context, pd))
}

/// Lists the contexts of all devices.
///
/// # Safety
/// `count` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_get_devices(
    count: *mut c_int,
) -> *mut *mut ibv_context {
    let all = shared_context().map(|(context, _)| {
        let list = Box::new([context, ptr::null_mut()]);
        Box::into_raw(list).cast::<*mut ibv_context>()
    });
    if !count.is_null() {
        // SAFETY: the caller guarantees that `count` is valid for writes.
        unsafe { *count = c_int::from(all.is_ok()) };
    }
    pointer(all)
}

/// Frees a list of devices; they stay open.
///
/// # Safety
/// `list` came from [`verbena_rdma_get_devices`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_free_devices(list: *mut *mut ibv_context) {
    if !list.is_null() {
        // SAFETY: the caller guarantees that `list` came from `verbena_rdma_get_devices`, which boxed an array of two.
        drop(unsafe { Box::from_raw(list.cast::<[*mut ibv_context; 2]>()) });
    }
}
