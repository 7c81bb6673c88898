//! Shuttle's locks with the interface of `parking_lot`'s.
//! All threads of an execution are coroutines of one thread of the system, so a lock of the system that is held across a scheduling
//! point would never be released; these suspend the coroutine instead.

use core::fmt;
use core::ops::{Deref, DerefMut};
use std::sync::PoisonError;

pub use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

/// Releases the lock of a [`Mutex`] on drop.
pub struct MutexGuard<'a, T: ?Sized> {
    /// `None` only while a [`Condvar`] waits.
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        let inner = self.0.into_inner();
        inner.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { held: Some(held) }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(std::sync::TryLockError::Poisoned(error)) => error.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { held: Some(held) })
    }

    /// Whether the lock is held.
    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    /// Access through a unique reference, which needs no lock.
    pub fn get_mut(&mut self) -> &mut T {
        let inner = self.0.get_mut();
        inner.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_deref().expect("the guard holds the lock")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_deref_mut().expect("the guard holds the lock")
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A lock for many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(shuttle::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(shuttle::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for shared access.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for exclusive access.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets threads wait for a change of the value in a [`Mutex`].
#[derive(Debug)]
pub struct Condvar(shuttle::sync::Condvar);

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl Condvar {
    /// One without waiting threads.
    pub const fn new() -> Condvar {
        Condvar(shuttle::sync::Condvar::new())
    }

    /// Releases the lock, waits for a notification, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect("the guard holds the lock");
        let held = self.0.wait(held);
        guard.held = Some(held.unwrap_or_else(PoisonError::into_inner));
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A value that is set once. Threads that find it being initialized wait as coroutines.
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    initializing: Mutex<()>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    /// One without a value.
    pub const fn new() -> OnceLock<T> {
        OnceLock {
            value: std::sync::OnceLock::new(),
            initializing: Mutex::new(()),
        }
    }

    /// The value, if it is set.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Sets the value, or returns the argument if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _alone = self.initializing.lock();
        self.value.set(value)
    }

    /// The value, which `init` makes if there is none.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let _alone = self.initializing.lock();
        // The closure may be suspended: the system's lock is only taken for the finished value.
        if self.value.get().is_none() {
            let value = init();
            return self.value.get_or_init(|| value);
        }
        self.value.get_or_init(|| unreachable!("the value is set"))
    }
}
