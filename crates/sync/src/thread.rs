//! Thread-local storage and spinning: those of `std`, or shuttle's in a build for randomised schedules.
//! With shuttle each coroutine has its own values, which are dropped when it ends.

#[cfg(not(shuttle))]
pub use core::hint::spin_loop;
#[cfg(not(shuttle))]
pub use std::thread_local;

#[cfg(shuttle)]
pub use shuttle::hint::spin_loop;
#[cfg(shuttle)]
pub use shuttle::thread_local;
