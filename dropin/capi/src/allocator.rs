//! The allocator of a parent domain: functions of the program that allocate the memory of queue pairs, completion queues and shared
//! receive queues. Memory that it returns is checked for its alignment, and is freed by the same allocator.

use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;

use crate::abi::*;
use crate::errno::Errno;

/// What the memory is for, as the program's functions see it (`resource_type`): the values are the library's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Resource {
    Qp = 1,
    Cq = 2,
    Srq = 3,
}

type Alloc = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64);

/// Functions of the program, and the arguments that they get.
#[derive(Clone, Copy)]
pub(crate) struct Allocator {
    alloc: Alloc,
    free: Free,
    pd: *mut ibv_pd,
    pd_context: *mut c_void,
}

// SAFETY: the pointers are only passed to the program's functions, which must allow calls from any thread, as the verbs do.
unsafe impl Send for Allocator {}
// SAFETY: as for `Send`; the fields do not change.
unsafe impl Sync for Allocator {}

impl Allocator {
    /// # Safety
    /// `alloc` returns null, `IBV_ALLOCATOR_USE_DEFAULT`, or memory of the size that it is asked for, which is of no other use until it is passed to `free`.
    pub(crate) unsafe fn new(
        alloc: Alloc,
        free: Free,
        pd: *mut ibv_pd,
        pd_context: *mut c_void,
    ) -> Allocator {
        Allocator {
            alloc,
            free,
            pd,
            pd_context,
        }
    }

    /// Memory of the program; none if the library is to allocate it.
    pub(crate) fn allocate(
        &self,
        layout: Layout,
        resource: Resource,
    ) -> Result<Option<CustomMemory>, Errno> {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: the program's function gets its own arguments, and the domain, which exists as long as this allocator.
        let memory =
            unsafe { (self.alloc)(self.pd, self.pd_context, size, align, resource as u64) };
        if memory == IBV_ALLOCATOR_USE_DEFAULT {
            return Ok(None);
        }
        let start = NonNull::new(memory.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let memory = CustomMemory {
            start,
            allocator: *self,
            resource,
        };
        if !start.as_ptr().addr().is_multiple_of(align) {
            memory.free();
            return Err(Errno::INVAL);
        }
        Ok(Some(memory))
    }
}

/// Memory that an [`Allocator`] has returned. It is not freed by dropping this: the object that lies in it contains it.
pub(crate) struct CustomMemory {
    start: NonNull<u8>,
    allocator: Allocator,
    resource: Resource,
}

// SAFETY: the memory belongs to no thread, and freeing it is allowed on any.
unsafe impl Send for CustomMemory {}
// SAFETY: a shared reference gives the address only.
unsafe impl Sync for CustomMemory {}

impl CustomMemory {
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn free(self) {
        let Allocator {
            free,
            pd,
            pd_context,
            ..
        } = self.allocator;
        let memory = self.start.as_ptr().cast();
        // SAFETY: the memory came from `alloc` of the same allocator and is freed once, since `self` is consumed; objects in memory of a
        // domain count as its users, so it still exists.
        unsafe { free(pd, pd_context, memory, self.resource as u64) };
    }
}
