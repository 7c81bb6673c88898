//! What a program sees of an engine's failure: its cause, and whether a wait would be ended. Tests make threads and interrupts fail here.

use std::sync::Arc;

use verbena_events::eqe::Cause;
use verbena_events::interrupts::Origin;

use crate::engine::Engine;
use crate::error::{EngineFailure, Error};
use crate::poll::shard::{ShardTask, next_token};
use crate::sys::{self, Ready};

/// A kind of thread that an engine starts.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineThread {
    /// Serves connections, listeners and timers.
    Shard,
    /// Serves control queue pairs.
    Control,
    /// Runs completion handlers on chosen processors.
    Handler,
}

impl Engine {
    /// Why it failed, if it did.
    pub fn failure(&self) -> Option<&EngineFailure> {
        self.core.lifecycle.failure()
    }

    /// An error once the engine has failed, is down or was shut down: a wait that begins now would not be ended.
    pub fn check_waits(&self) -> Result<(), Error> {
        self.core.check_waits()
    }

    /// For tests only: makes a thread of this kind panic.
    #[doc(hidden)]
    pub fn provoke_panic(&self, thread: EngineThread) -> Result<(), Error> {
        match thread {
            EngineThread::Shard => {
                let (shard, token) = (self.core.shards.pick()?, next_token());
                shard.serve(token, Arc::new(PanicTimer))?;
                shard.set_timer(sys::now(), token);
                Ok(())
            }
            EngineThread::Control => self.core.control_thread.provoke_panic(&self.core),
            EngineThread::Handler => self.core.notification.handler_threads.provoke_panic(),
        }
    }
}

impl Engine {
    /// For tests only: an event that cannot be delivered (E2).
    #[doc(hidden)]
    pub fn provoke_shutdown(&self) {
        let _ = self.core.notification.interrupts.destroy(0);
        let _ = self
            .core
            .notification
            .inject(Cause::Management { parameter: 0 }, Origin::UNSPECIFIED);
    }
}

/// Panics when its timer expires.
struct PanicTimer;

impl ShardTask for PanicTimer {
    fn ready(self: Arc<Self>, _: Ready) {}

    #[allow(clippy::panic, reason = "it is what a test asked for")]
    fn expire(self: Arc<Self>, _: verbena_stream::Time) {
        panic!("provoked by a test");
    }

    fn stop(self: Arc<Self>) {}
}
