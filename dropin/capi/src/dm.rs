//! Memory of the device (`ibv_alloc_dm`): bytes of the adapter that the program copies in and out of, and registers zero-based.
//! All of it together is limited by the setting `dm_size`. Memory with regions is not freed (`EBUSY`).

use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
use std::sync::Arc;

use crate::abi::*;
use crate::caller::{arg_ref, handle};
use crate::context;
use crate::errno::{Errno, number, pointer};
use crate::function::AdapterFunction;
use crate::object::Object;
use crate::uses::{Use, Uses};

/// The least alignment, a cache line, as a binary logarithm.
const LOG_ALIGN_MIN: u32 = 6;
/// The largest: no page is larger.
const LOG_ALIGN_MAX: u32 = 30;

/// The library's part of device memory.
pub(crate) struct DeviceMemory {
    start: NonNull<u8>,
    layout: Layout,
    pub(crate) uses: Uses,
    function: Arc<AdapterFunction>,
    _context: Use,
}

// SAFETY: the bytes belong to no thread, and are copied by address.
unsafe impl Send for DeviceMemory {}
// SAFETY: address and length are fixed, and no reference to the bytes is made.
unsafe impl Sync for DeviceMemory {}

type DmObject = Object<ibv_dm, DeviceMemory>;

/// The library's part of the memory behind this pointer; `EINVAL` for null.
///
/// # Safety
/// `dm` is null or was created by this library, and is not freed while the result is used.
pub(crate) unsafe fn of<'a>(dm: *const ibv_dm) -> Result<&'a DeviceMemory, Errno> {
    handle!(DmObject::of(dm)).ok_or(Errno::INVAL)
}

impl DeviceMemory {
    /// The address of `len` bytes at `offset`; none if they exceed the memory.
    pub(crate) fn range(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        let fits = offset.checked_add(len)? <= self.layout.size();
        fits.then(|| self.start.as_ptr().wrapping_add(offset))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `alloc_dm` with this layout and freed only here; no region translates to it any more.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
        self.function.return_device_memory(self.layout.size());
    }
}

/// Allocates device memory, which is zero.
///
/// # Safety
/// `context` is open; `attr` is null or valid during the call.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    let (own, attr) = (handle!(context::of(context)), arg_ref!(attr));
    pointer(own.and_then(|own| {
        let attr = attr.ok_or(Errno::INVAL)?;
        if attr.comp_mask != 0
            || attr.length == 0
            || attr.length > own.function.device_memory_size()
            || attr.log_align_req > LOG_ALIGN_MAX
        {
            return Err(Errno::INVAL);
        }
        let align = 1 << attr.log_align_req.max(LOG_ALIGN_MIN);
        let layout = Layout::from_size_align(attr.length, align).map_err(|_| Errno::INVAL)?;
        if !own.function.take_device_memory(layout.size()) {
            return Err(Errno::NOMEM);
        }
        // SAFETY: the layout has a size, which is checked above.
        let Some(start) = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }) else {
            own.function.return_device_memory(layout.size());
            return Err(Errno::NOMEM);
        };
        let memory = DeviceMemory {
            start,
            layout,
            uses: Uses::default(),
            function: own.function.clone(),
            _context: own.uses.begin(),
        };
        let dm = ibv_dm {
            context,
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            ..ibv_dm::zeroed()
        };
        Ok(DmObject::allocate(dm, memory))
    }))
}

/// Frees device memory that no region has.
///
/// # Safety
/// `dm` was created by this library, and is not used after this call.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    let own = handle!(of(dm));
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        // SAFETY: `dm` came from `DmObject::allocate`, no region has it, and the caller does not use it after this call.
        drop(unsafe { DmObject::take(dm) });
        Ok(())
    }))
}

/// Copies from the program's memory to device memory.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    host: *const c_void,
    len: usize,
) -> c_int {
    let own = handle!(of(dm));
    number(own.and_then(|own| {
        let to = own.range(offset, len).ok_or(Errno(libc::EFAULT))?;
        check_host(host, len)?;
        // SAFETY: `len` bytes at `to` are device memory; the caller guarantees as many at `host`, which is memory of its own.
        unsafe { ptr::copy(host.cast::<u8>(), to, len) };
        Ok(())
    }))
}

/// Copies from device memory to the program's memory.
unsafe extern "C" fn memcpy_from_dm(
    host: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    len: usize,
) -> c_int {
    let own = handle!(of(dm));
    number(own.and_then(|own| {
        let from = own.range(offset, len).ok_or(Errno(libc::EFAULT))?;
        check_host(host, len)?;
        // SAFETY: `len` bytes at `from` are device memory; the caller guarantees room for as many at `host`, which is memory of its own.
        unsafe { ptr::copy(from, host.cast::<u8>(), len) };
        Ok(())
    }))
}

fn check_host(host: *const c_void, len: usize) -> Result<(), Errno> {
    if host.is_null() && len > 0 {
        return Err(Errno::INVAL);
    }
    Ok(())
}
