//! Threads that wait for a condition or a time, and the thread that lets time pass.
//! A thread that waits is parked; each change of the state wakes the threads whose condition holds. The clock thread is scheduled only when a
//! deadline has passed or no other thread can run: then it moves the time to the next deadline. If there is none, the run is a deadlock.

use core::time::Duration;

use shuttle::thread::Thread;
use verbena_stream::Time;

use super::world::{Waiter, World, with};

impl World {
    /// The next deadline of a waiting thread.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let deadlines = self.waiting.threads.iter().filter_map(|w| w.deadline);
        deadlines.min()
    }

    /// Removes the waits that are over, and returns their threads.
    fn take_woken(&mut self) -> Vec<Thread> {
        let mut threads = core::mem::take(&mut self.waiting.threads);
        let mut woken = Vec::new();
        threads.retain(|waiter| {
            let over = waiter.deadline.is_some_and(|d| d <= self.now) || (waiter.condition)(self);
            if over {
                woken.push(waiter.thread.clone());
            }
            !over
        });
        self.waiting.threads = threads;
        woken
    }

    fn advance(&mut self) {
        let Some(next) = self.next_deadline() else {
            let calls = self.waiting.threads.iter().map(|waiter| {
                let name = waiter.thread.name().unwrap_or("program");
                format!("{name} in {}", waiter.call)
            });
            let calls: Vec<String> = calls.collect();
            panic!(
                "deadlock: no thread can run and no timer is set; waiting: {}\n{}",
                calls.join(", "),
                self.describe()
            );
        };
        self.now = self.now.max(next);
    }
}

/// A point at which another thread may be scheduled, as during a system call.
pub(in crate::sys) fn point() {
    // Without the hint of `yield_now` that this thread cannot go on.
    shuttle::thread::sleep(Duration::ZERO);
}

/// The state has changed: wakes the threads whose wait is over.
pub(in crate::sys) fn wake() {
    for thread in with(World::take_woken) {
        thread.unpark();
    }
}

/// Waits until `condition` holds, or the deadline has passed; returns whether it holds. The condition must not change the state.
pub(in crate::sys) fn block(
    call: &'static str,
    deadline: Option<Time>,
    condition: impl Fn(&World) -> bool + Clone + 'static,
) -> bool {
    point();
    let deadline = deadline.map(Time::nanos);
    loop {
        let thread = shuttle::thread::current();
        let registered = with(|world| {
            if condition(world) {
                return Err(true);
            }
            if deadline.is_some_and(|deadline| deadline <= world.now) {
                return Err(false);
            }
            let waiting = &mut world.waiting;
            waiting.next += 1;
            waiting.threads.push(Waiter {
                number: waiting.next,
                call,
                condition: Box::new(condition.clone()),
                deadline,
                thread,
            });
            Ok(waiting.next)
        });
        let number = match registered {
            Ok(number) => number,
            Err(holds) => return holds,
        };
        shuttle::thread::park();
        with(|world| world.waiting.threads.retain(|w| w.number != number));
    }
}

/// Starts the clock thread.
pub(super) fn start_clock() -> shuttle::thread::JoinHandle<()> {
    let clock = shuttle::thread::spawn(|| {
        let own = shuttle::current::me();
        with(|world| world.waiting.clock = Some(own));
        loop {
            point();
            if with(|world| world.waiting.stopped) {
                break;
            }
            with(World::advance);
            wake();
        }
    });
    while with(|world| world.waiting.clock.is_none()) {
        shuttle::thread::yield_now();
    }
    clock
}

/// Ends the clock thread.
pub(super) fn stop_clock() {
    with(|world| world.waiting.stopped = true);
}
