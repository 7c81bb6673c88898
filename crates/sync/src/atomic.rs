//! Atomics of code that loom does not model: those of `core`, or shuttle's in a build for randomised schedules.
//! With shuttle every access is a point at which another thread may be scheduled, and every ordering is sequentially consistent.
//! A `static` must use `core`'s, since shuttle's belong to one execution.

#[cfg(not(shuttle))]
pub use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
pub use core::sync::atomic::{Ordering, fence};
#[cfg(shuttle)]
pub use shuttle::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
