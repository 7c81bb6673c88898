//! An object that a C program holds: the struct of the C API, followed by the library's own part.
//! The program has the address of the struct. The allocation is freed by [`Object::take`]; pointers other than null are not checked, since
//! the originals cannot check them either.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

/// A C struct, followed by the library's own part.
#[repr(C)]
pub(crate) struct Object<C, T> {
    /// Programs read it, and write some fields, at any time: single fields are accessed through raw pointers.
    c: UnsafeCell<C>,
    own: T,
}

impl<C, T> Object<C, T> {
    /// Allocates one and returns the pointer for the program.
    pub(crate) fn allocate(c: C, own: T) -> *mut C {
        let object = Object {
            c: UnsafeCell::new(c),
            own,
        };
        Box::into_raw(Box::new(object)).cast()
    }

    /// Memory for an object whose address must be known before it is complete.
    pub(crate) fn new_uninit() -> UninitObject<C, T> {
        UninitObject(Box::new_uninit())
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
        // SAFETY: the caller guarantees that `c` is a leaked box of this type and that no other pointer to it is used.
        let object = unsafe { Box::from_raw(c.cast::<Object<C, T>>()) };
        object.own
    }
}

/// Memory for an object.
pub(crate) struct UninitObject<C, T>(Box<MaybeUninit<Object<C, T>>>);

impl<C, T> UninitObject<C, T> {
    /// The address that the object will have.
    pub(crate) fn as_ptr(&self) -> *mut C {
        self.0.as_ptr().cast_mut().cast()
    }

    /// Completes the object and returns the pointer for the program.
    pub(crate) fn fill(self, c: C, own: T) -> *mut C {
        let object = Object {
            c: UnsafeCell::new(c),
            own,
        };
        Box::into_raw(Box::write(self.0, object)).cast()
    }
}
