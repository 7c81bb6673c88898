//! Options of an identifier that are set before it is used.
//! Options that are not implemented are refused with `ENOSYS`.

use core::ffi::{c_int, c_void};

use super::id;
use crate::abi::*;
use crate::caller::handle;
use crate::errno::{Errno, minus_one};

/// The options that were set.
#[derive(Default)]
pub(crate) struct Options {
    /// `RDMA_OPTION_ID_REUSEADDR`: others with this option may bind the same address, as long as none of them listens.
    pub(crate) reuse_address: bool,
    /// `RDMA_OPTION_ID_AFONLY`: an IPv6 wildcard does not bind IPv4.
    pub(crate) family_only: bool,
    /// `RDMA_OPTION_ID_ACK_TIMEOUT`: 4.096 µs · 2^n.
    pub(crate) ack_timeout: Option<u8>,
    /// `RDMA_OPTION_ID_TOS`; connections of a listener have the listener's.
    pub(crate) tos: Option<u8>,
}

/// The ACK timeout if the program sets none: 67 ms.
const ACK_TIMEOUT: u8 = 14;

impl Options {
    /// The ACK timeout that the queue pair's attributes show.
    pub(crate) fn timeout(&self) -> u8 {
        self.ack_timeout.unwrap_or(ACK_TIMEOUT)
    }
}

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
