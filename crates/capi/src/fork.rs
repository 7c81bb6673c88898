//! Programs that fork: nothing has to be done for them, and a child opens a device of its own.
//! It promises that memory of a parent stays as it is: nobody writes it behind the kernel's back.

use core::ffi::{c_int, c_void};

use crate::abi::IBV_FORK_UNNEEDED;

/// Prepares for forking: there is nothing to prepare.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Whether forking needs to be prepared for: no.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> u32 {
    IBV_FORK_UNNEEDED
}

/// Keeps memory from a child: it may have its copy.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Lets a child have memory again.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
