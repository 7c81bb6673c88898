//! Programs that fork: nothing has to be prepared for it, and a child opens a device of its own.
//! Registered memory is written by the process itself and not by hardware, so copy-on-write after a fork does no harm to it.

use core::ffi::{c_int, c_void};

use crate::abi::IBV_FORK_UNNEEDED;

/// Prepares for `fork`: nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Whether `fork` must be prepared for: no.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> u32 {
    IBV_FORK_UNNEEDED
}

/// Would keep memory from being copied into a child: not needed.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Undoes [`ibv_dontfork_range`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
