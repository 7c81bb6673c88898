//! Atomics, cells and locks of the lock-free parts: those of `core` and `parking_lot`, loom's when the protocols are modelled, or shuttle's
//! in a build for randomised schedules.
//! All sets have the same interface.

#[cfg(not(loom))]
pub use crate::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
pub use crate::locks::Mutex;
#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(loom)]
pub use loom::{cell::UnsafeCell, sync::Arc};
#[cfg(not(loom))]
pub use std::sync::Arc;

/// A cell with loom's interface.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer to read the value.
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer to write the value.
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Loom's mutex with the interface of `parking_lot`'s, without poisoning.
#[cfg(loom)]
#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(loom)]
impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn try_lock(&self) -> Option<loom::sync::MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// Backs off in a loop that waits for another thread to finish a short piece of work.
pub fn pause(turn: u32) {
    #[cfg(loom)]
    {
        let _ = turn;
        loom::thread::yield_now();
    }
    #[cfg(shuttle)]
    {
        let _ = turn;
        shuttle::thread::yield_now();
    }
    // What is waited for lasts about one copy: spin for that long, then yield the processor.
    #[cfg(not(any(loom, shuttle)))]
    if turn < 200 {
        core::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
