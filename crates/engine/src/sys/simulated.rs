//! A simulated operating system for whole engines (`--cfg shuttle`): TCP and UDP sockets, pollers, eventfds, a clock and threads in memory.
//! One seed decides the order of all threads, the sizes of buffers, short reads and random numbers, so a run can be repeated exactly. All
//! threads are coroutines of one thread of the real system ([`shuttle`]); time passes a little with every step, and jumps to the next timer
//! when every thread waits. Handover between processes, the monitor and multicast are not simulated.

mod descriptor;
mod mends;
mod network;
mod schedule;
mod waiting;
mod watches;
mod world;

pub(super) use descriptor::Descriptor;
pub(crate) use mends::connection_to_close;
pub use mends::{Case, Mend};
pub(super) use waiting::{block, point, wake};
pub(super) use world::{Event, Object, Stream, World, with};

use std::panic::{AssertUnwindSafe, catch_unwind};

use schedule::SeededScheduler;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Stack of a simulated thread: an engine's turn keeps buffers there.
const STACK: usize = 256 << 10;

/// One run of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The seed that decided everything.
    pub seed: u64,
    /// Scheduling decisions made.
    pub steps: u64,
    /// A digest of them: equal runs have equal digests.
    pub digest: u64,
}

/// Runs `program` once for each seed, as the first thread of a new system. `done` is told of each run that passed.
///
/// # Errors
/// The seed and step of the run that panicked, deadlocked, or made more than `max_steps` scheduling decisions; no further seed is tried.
pub fn run(
    seeds: core::ops::Range<u64>,
    max_steps: usize,
    program: impl Fn(u64) + Send + Sync + 'static,
    done: impl FnMut(Run) + 'static,
) -> Result<(), Run> {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(max_steps);
    config.silence_warnings = true;
    let runner = Runner::new(SeededScheduler::new(seeds, done), config);
    let body = move || {
        let seed = with(|world| world.seed());
        let clock = waiting::start_clock();
        program(seed);
        waiting::stop_clock();
        // A panic of the clock thread has failed the run already.
        let _ = clock.join();
    };
    // The panic hook has printed the message.
    catch_unwind(AssertUnwindSafe(|| runner.run(body)))
        .map(drop)
        .map_err(|_| schedule::current_run())
}

/// Descriptors of the run that failed, one line each.
pub fn describe() -> String {
    with(|world| world.describe())
}

/// TCP connections, counted by their open ends.
pub fn open_streams() -> usize {
    with(|world| world.open_streams())
}

/// Pauses the calling thread after this many of its steps, for a random number of steps of the others: as if it lost its processor in the
/// middle of the call that follows. A thread that is paused already is not paused longer.
pub fn pause_after(steps: u64) {
    let thread = shuttle::current::me();
    with(|world| world.request_pause(thread, steps));
}
