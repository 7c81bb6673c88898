//! Functions for tests of this crate: they make the adapter of the process fail. The drop-in libraries do not export them.

use core::time::Duration;

use verbena::unstable::EngineThread;

use crate::function::running;

/// A thread of a function's adapter panics, if the process uses that function.
pub fn provoke_panic(function: usize) -> bool {
    let found = running(function);
    found.is_some_and(|home| home.device.provoke_panic(EngineThread::Shard).is_ok())
}

/// A function's adapter is shut down (N8), if the process uses that function.
pub fn shut_down(function: usize) -> bool {
    let found = running(function);
    found.is_some_and(|home| home.device.shut_down(Duration::ZERO).is_ok())
}
