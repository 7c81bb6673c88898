//! An object that a C program holds: the struct that it knows, and behind it what only we know.
//! It promises that the pointer a program was given leads to ours, and that memory is freed once, by whoever takes it back.
//! It refuses to check pointers that are not null: the originals cannot either.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

/// A C struct with what is ours behind it.
#[repr(C)]
pub(crate) struct Object<C, T> {
    /// Programs read it, and some of it they write, at any time; we touch single fields through raw pointers.
    c: UnsafeCell<C>,
    own: T,
}

impl<C, T> Object<C, T> {
    /// Gives one to the program.
    pub(crate) fn give(c: C, own: T) -> *mut C {
        let object = Object {
            c: UnsafeCell::new(c),
            own,
        };
        Box::into_raw(Box::new(object)).cast()
    }

    /// Room for one whose address must be known before it is made.
    pub(crate) fn room() -> Room<C, T> {
        Room(Box::new_uninit())
    }

    /// What is ours of it; nothing for a null pointer.
    ///
    /// # Safety
    /// `c` is null or came from [`give`](Object::give) of this very kind, and is not taken back while the answer is used.
    pub(crate) unsafe fn of<'a>(c: *const C) -> Option<&'a T> {
        // SAFETY: the caller's word; only the part is borrowed that no C code knows.
        (!c.is_null()).then(|| unsafe { &(*c.cast::<Object<C, T>>()).own })
    }

    /// Takes it back.
    ///
    /// # Safety
    /// `c` came from [`give`](Object::give) of this very kind; nobody uses it any more.
    pub(crate) unsafe fn take(c: *mut C) -> T {
        // SAFETY: the caller's word: it was boxed, and is ours alone again.
        let object = unsafe { Box::from_raw(c.cast::<Object<C, T>>()) };
        object.own
    }
}

/// Room for an object.
pub(crate) struct Room<C, T>(Box<MaybeUninit<Object<C, T>>>);

impl<C, T> Room<C, T> {
    /// Where the object will be.
    pub(crate) fn at(&self) -> *mut C {
        self.0.as_ptr().cast_mut().cast()
    }

    /// Gives it to the program.
    pub(crate) fn fill(self, c: C, own: T) -> *mut C {
        let object = Object {
            c: UnsafeCell::new(c),
            own,
        };
        Box::into_raw(Box::write(self.0, object)).cast()
    }
}
