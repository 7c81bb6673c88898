//! Simulated threads: coroutines that the seed's schedule switches between.
//! They have names and can be joined, as those of the system.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use verbena_sync::thread::thread_local;

use super::Result;
use super::simulated::point;

pub use shuttle::thread::current as current_thread;

thread_local! {
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread was started by [`spawn`].
pub fn is_own_thread() -> bool {
    OWN.with(Cell::get)
}

/// Owns a thread; dropped, the thread continues.
#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: shuttle::thread::JoinHandle<T>,
    finished: Arc<AtomicBool>,
}

impl<T> JoinHandle<T> {
    /// The thread.
    pub fn thread(&self) -> &shuttle::thread::Thread {
        self.thread.thread()
    }

    /// Whether its function has returned.
    pub fn is_finished(&self) -> bool {
        point();
        self.finished.load(Ordering::Acquire)
    }

    /// Waits for its end.
    pub fn join(self) -> std::thread::Result<T> {
        self.thread.join()
    }
}

/// Starts a thread with a name.
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let finished = Arc::new(AtomicBool::new(false));
    let end = finished.clone();
    let run = move || {
        OWN.with(|own| own.set(true));
        let result = run();
        end.store(true, Ordering::Release);
        result
    };
    let thread = shuttle::thread::Builder::new().name(name.to_owned());
    let thread = thread
        .spawn(run)
        .map_err(|_| super::Error::new("pthread_create", rustix::io::Errno::AGAIN))?;
    Ok(JoinHandle { thread, finished })
}
