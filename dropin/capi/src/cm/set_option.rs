//! `rdma_set_option`: the options of an identifier, which are set before it is used.
//! Options that are not implemented are refused with `ENOSYS`.

use core::ffi::{c_int, c_void};

use super::id;
use crate::abi::*;
use crate::caller::handle;
use crate::errno::{Errno, minus_one};

/// Sets an option.
///
/// # Safety
/// `id` was created by this library; `value` points to `len` bytes that are valid for reads.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    let own = handle!(id::of(id));
    minus_one(own.and_then(|own| {
        // SAFETY: the caller guarantees `len` bytes at `value`.
        let number = unsafe { number(value, len)? };
        let mut inner = own.inner.lock();
        match (level as u32, name as u32) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => inner.options.family_only = number != 0,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => inner.options.reuse_address = number != 0,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => {
                inner.options.tos = Some(u8::try_from(number).map_err(|_| Errno::INVAL)?);
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
                let timeout = u8::try_from(number).map_err(|_| Errno::INVAL)?;
                if timeout > 31 {
                    return Err(Errno::INVAL);
                }
                inner.options.ack_timeout = Some(timeout);
            }
            _ => return Err(Errno(libc::ENOSYS)),
        }
        Ok(())
    }))
}

/// # Safety
/// `value` points to `len` bytes that are valid for reads.
unsafe fn number(value: *const c_void, len: usize) -> Result<i64, Errno> {
    if value.is_null() {
        return Err(Errno::INVAL);
    }
    match len {
        // SAFETY: `value` is not null, so the caller guarantees `len`, which is 1, bytes.
        1 => Ok(unsafe { value.cast::<u8>().read() }.into()),
        // SAFETY: `value` is not null, so the caller guarantees `len`, which is 4, bytes; they need not be aligned.
        4 => Ok(unsafe { value.cast::<c_int>().read_unaligned() }.into()),
        _ => Err(Errno::INVAL),
    }
}
