//! Locks and channels of code that loom does not model: those of `parking_lot` and `std`, or shuttle's in a build for randomised schedules.
//! Both sets have the interface of `parking_lot`, and neither is poisoned by a panic.

#[cfg(not(shuttle))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(shuttle))]
pub use std::sync::{OnceLock, mpsc};

#[cfg(shuttle)]
pub use scheduled::{
    Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

#[cfg(shuttle)]
pub use shuttle::sync::mpsc;

#[cfg(shuttle)]
mod scheduled;
