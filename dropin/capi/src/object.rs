//! An object that a C program holds: the struct of the C API, followed by the library's own part.
//! The program has the address of the struct. The allocation is freed by [`Object::take`]; pointers other than null are not checked, since
//! the originals cannot check them either. Objects of a parent domain may lie in memory of the program's own allocator.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::allocator::{Allocator, CustomMemory, Resource};
use crate::check;
use crate::errno::Errno;

/// A C struct, followed by the library's own part.
#[repr(C)]
pub(crate) struct Object<C, T> {
    /// Programs read it, and write some fields, at any time: single fields are accessed through raw pointers.
    c: UnsafeCell<C>,
    own: T,
    /// The memory that it lies in, if the library did not allocate it.
    memory: Option<CustomMemory>,
}

impl<C, T> Object<C, T> {
    /// Allocates one and returns the pointer for the program.
    pub(crate) fn allocate(c: C, own: T) -> *mut C {
        Object::new_uninit().fill(c, own)
    }

    /// Memory for an object whose address must be known before it is complete.
    pub(crate) fn new_uninit() -> UninitObject<C, T> {
        let memory = Box::<Object<C, T>>::new_uninit();
        UninitObject {
            start: NonNull::from(Box::leak(memory)).cast(),
            memory: None,
        }
    }

    /// The same, from the program's allocator if there is one.
    pub(crate) fn new_uninit_in(
        allocator: Option<&Allocator>,
        resource: Resource,
    ) -> Result<UninitObject<C, T>, Errno> {
        let layout = Layout::new::<Object<C, T>>();
        let memory = match allocator {
            Some(allocator) => allocator.allocate(layout, resource)?,
            None => None,
        };
        Ok(match memory {
            Some(memory) => UninitObject {
                start: memory.start().cast(),
                memory: Some(memory),
            },
            None => Object::new_uninit(),
        })
    }

    /// The library's part; none for a null pointer.
    ///
    /// # Safety
    /// `c` is null or came from [`allocate`](Object::allocate) or [`fill`](UninitObject::fill) of this type, and is not taken back while the result is used.
    pub(crate) unsafe fn of<'a>(c: *const C) -> Option<&'a T> {
        // SAFETY: `c` is not null, so the caller guarantees a live object of this type; C code has no access to the field that is borrowed.
        (!c.is_null()).then(|| unsafe { &(*c.cast::<Object<C, T>>()).own })
    }

    /// Frees the object and returns the library's part.
    ///
    /// # Safety
    /// `c` came from [`allocate`](Object::allocate) or [`fill`](UninitObject::fill) of this type, and is not used after this call.
    pub(crate) unsafe fn take(c: *mut C) -> T {
        let at = c.cast::<Object<C, T>>();
        // SAFETY: the caller guarantees a live object of this type at `at`, of which no pointer is used after this call.
        let Object { own, memory, .. } = unsafe { at.read() };
        if let Some(checker) = check::checker() {
            checker.destroyed(c as usize);
        }
        // SAFETY: the object was moved out, and its memory came from the program's allocator or from a leaked box of this type.
        unsafe { free::<C, T>(at, memory) };
        own
    }
}

/// Frees the memory of an object that is not initialized, or not any more.
///
/// # Safety
/// `at` is `memory`, or if there is none, it came from a box of this type, and is not used after this call.
unsafe fn free<C, T>(at: *mut Object<C, T>, memory: Option<CustomMemory>) {
    match memory {
        Some(memory) => memory.free(),
        // SAFETY: the caller guarantees that it came from a box; `MaybeUninit` needs no drop.
        None => drop(unsafe { Box::from_raw(at.cast::<MaybeUninit<Object<C, T>>>()) }),
    }
}

/// Memory for an object.
pub(crate) struct UninitObject<C, T> {
    start: NonNull<Object<C, T>>,
    memory: Option<CustomMemory>,
}

impl<C, T> UninitObject<C, T> {
    /// The address that the object will have.
    pub(crate) fn as_ptr(&self) -> *mut C {
        self.start.as_ptr().cast()
    }

    /// Completes the object and returns the pointer for the program.
    pub(crate) fn fill(mut self, c: C, own: T) -> *mut C {
        let (at, memory) = (self.start.as_ptr(), self.memory.take());
        core::mem::forget(self);
        let object = Object {
            c: UnsafeCell::new(c),
            own,
            memory,
        };
        // SAFETY: `at` is valid for writes of the object: a box of its type, or memory of its size and alignment of the program's allocator.
        unsafe { at.write(object) };
        if let Some(checker) = check::checker() {
            checker.created(at as usize, core::any::type_name::<C>());
        }
        at.cast()
    }
}

impl<C, T> Drop for UninitObject<C, T> {
    fn drop(&mut self) {
        // SAFETY: not filled, so no other pointer to the memory is used.
        unsafe { free(self.start.as_ptr(), self.memory.take()) };
    }
}
