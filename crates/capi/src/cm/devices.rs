//! The devices of the connection manager: the one there is, opened once for all identifiers of the process.
//! It promises that identifiers share a context and a domain, as they do in the original. It refuses to close it: programs may
//! hold it for ever.

use core::ffi::c_int;
use core::ptr;

use crate::abi::*;
use crate::errno::{Errno, pointer};
use crate::home;

/// The context and the domain that identifiers have.
pub(crate) fn common() -> Result<(*mut ibv_context, *mut ibv_pd), Errno> {
    home::common()
}

/// Lists the contexts of all devices.
///
/// # Safety
/// `count` is null or the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_get_devices(
    count: *mut c_int,
) -> *mut *mut ibv_context {
    let all = common().map(|(context, _)| {
        let list = Box::new([context, ptr::null_mut()]);
        Box::into_raw(list).cast::<*mut ibv_context>()
    });
    if !count.is_null() {
        // SAFETY: the program's word.
        unsafe { *count = c_int::from(all.is_ok()) };
    }
    pointer(all)
}

/// Forgets a list of devices; they stay open.
///
/// # Safety
/// `list` came from [`verbena_rdma_get_devices`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_free_devices(list: *mut *mut ibv_context) {
    if !list.is_null() {
        // SAFETY: the program's word: an array of two, made above.
        drop(unsafe { Box::from_raw(list.cast::<[*mut ibv_context; 2]>()) });
    }
}
