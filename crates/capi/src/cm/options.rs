//! What a program may ask of an identifier before it is used.
//! It promises to keep what it accepts. It refuses options that it would have to ignore.

use core::ffi::{c_int, c_void};

use super::id;
use crate::abi::*;
use crate::errno::{Errno, minus_one};

/// What was asked for.
#[derive(Default)]
pub(crate) struct Options {
    /// Others with this option may bind the same address, as long as none of them listens.
    pub(crate) reuse_address: bool,
    /// An IPv6 wildcard leaves IPv4 alone.
    pub(crate) family_only: bool,
    /// 4.096 µs · 2^n is how long an acknowledgement may take.
    pub(crate) ack_timeout: Option<u8>,
    /// Type of service of its connections; those who come to a listener have the listener's.
    pub(crate) service: Option<u8>,
}

/// The timeout of a connection whose program did not name one: 67 ms.
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
/// `id` was made here; `value` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { id::of(id) };
    minus_one(own.and_then(|own| {
        // SAFETY: the program's word.
        let number = unsafe { number(value, len)? };
        let mut inner = own.inner.lock();
        match (level as u32, name as u32) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => inner.options.family_only = number != 0,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => inner.options.reuse_address = number != 0,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => {
                inner.options.service = Some(u8::try_from(number).map_err(|_| Errno::INVAL)?);
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
/// `value` has `len` bytes.
unsafe fn number(value: *const c_void, len: usize) -> Result<i64, Errno> {
    if value.is_null() {
        return Err(Errno::INVAL);
    }
    match len {
        // SAFETY: the caller's word.
        1 => Ok(unsafe { value.cast::<u8>().read() }.into()),
        // SAFETY: as above; programs do not always align it.
        4 => Ok(unsafe { value.cast::<c_int>().read_unaligned() }.into()),
        _ => Err(Errno::INVAL),
    }
}
