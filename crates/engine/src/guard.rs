//! Runs code that may panic: threads of an engine, whose panic fails the engine, and callbacks of the program, whose panic is only caught.
//! An engine is known here as a [`Supervisor`], so that the files of its threads do not depend on the core, which starts them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use verbena_sync::locks::OnceLock;

use crate::error::EngineFailure;
use crate::sys;

/// Receives the failures of an engine's threads.
pub(crate) trait Supervisor: Send + Sync {
    /// Fails the engine. Called without any lock; only the first cause is kept.
    fn fail(&self, why: EngineFailure);
}

/// The engine of a thread; set when its core is complete, before any thread starts.
pub(crate) type SupervisorCell = Arc<OnceLock<Weak<dyn Supervisor>>>;

/// Runs a thread of an engine; a panic fails the engine.
pub(crate) fn guard(engine: impl FnOnce() -> Option<Arc<dyn Supervisor>>, work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        let why = EngineFailure::Panic {
            thread: thread_name(),
            message: message(&*panic),
        };
        // The drop of the panic's payload may panic again.
        catch_panic(|| drop(panic));
        if let Some(engine) = engine() {
            engine.fail(why);
        }
    }
}

/// Runs code of the program; a panic in it is caught, and the adapter continues.
pub(crate) fn catch_panic(work: impl FnOnce()) {
    // The panic hook has printed the message.
    let _ = catch_unwind(AssertUnwindSafe(work));
}

/// The name of the calling thread.
pub(crate) fn thread_name() -> String {
    let thread = sys::current_thread();
    thread.name().unwrap_or("without a name").to_owned()
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
