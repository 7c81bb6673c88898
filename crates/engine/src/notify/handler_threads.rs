//! Handler threads on chosen processors, one for each class of service (N5, N6).
//! A handler of a better class never waits for one of a worse class: each class has its own queue, thread and scheduling policy. The
//! order within a class is decided here, between the classes by the kernel from those policies. A thread starts when it is first needed.

use crate::sys::JoinHandle;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use verbena_sync::locks::{OnceLock, mpsc};

use verbena_events::vector::Signal;
use verbena_nic::Reason;
use verbena_stream::Time;
use verbena_sync::locks::{Condvar, Mutex};

use crate::error::Error;
use crate::guard::{Supervisor, guard};
use crate::notify::handler::{Class, HandlerRoute};
use crate::sys::{self, SchedPolicy};

/// The engine of handler threads.
pub(crate) trait HandlerHost: Supervisor {
    /// Does a task on the thread that it was queued for.
    fn run(&self, task: Task);
}

/// All handler threads of an engine, in groups that run on the same processors; pinned vectors refer to a group by index.
#[derive(Default)]
pub(crate) struct HandlerThreads {
    groups: Mutex<ThreadGroups>,
    /// Serializes the start of threads; never held while waiting for a thread that may run a handler.
    start_lock: Mutex<()>,
}

#[derive(Default)]
struct ThreadGroups {
    all: Vec<Arc<HandlerThreadGroup>>,
    stopped: bool,
}

impl HandlerThreads {
    /// The index of the group for these processors, with a running thread for this class, so that signalling it cannot fail.
    pub(crate) fn index_for(
        &self,
        engine: &Weak<dyn HandlerHost>,
        processors: &[u16],
        class: Class,
    ) -> Result<u16, Error> {
        let mut wanted = processors.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            return Err(Error::NoProcessors);
        }
        let _opening = self.start_lock.lock();
        let found = {
            let groups = self.groups.lock();
            if groups.stopped {
                return Err(Error::Closed);
            }
            let at = groups.all.iter().position(|s| s.processors == wanted);
            at.map(|at| (at, groups.all[at].clone()))
        };
        if let Some((at, group)) = found {
            group.open(class)?;
            return Ok(at as u16);
        }
        let group = Arc::new(HandlerThreadGroup {
            engine: engine.clone(),
            processors: wanted,
            threads: [const { OnceLock::new() }; Class::ALL.len()],
        });
        // Started before it gets an index: a group whose thread cannot start is not kept.
        group.open(class)?;
        let mut groups = self.groups.lock();
        groups.all.push(group);
        // Each group has at least one thread, and no process can have 65536 of them.
        Ok((groups.all.len() - 1) as u16)
    }

    /// Makes sure that the group, if it exists, has a thread for this class.
    pub(crate) fn open(&self, at: u16, class: Class) -> Result<(), Error> {
        let _opening = self.start_lock.lock();
        match self.get(at) {
            Some(group) => group.open(class),
            None => Ok(()),
        }
    }

    pub(crate) fn get(&self, at: u16) -> Option<Arc<HandlerThreadGroup>> {
        self.groups.lock().all.get(usize::from(at)).cloned()
    }

    /// For tests: makes one of the threads panic.
    pub(crate) fn provoke_panic(&self) -> Result<(), Error> {
        let groups = self.groups.lock();
        let mut workers = groups.all.iter().flat_map(|s| &s.threads);
        let worker = workers.find_map(OnceLock::get).ok_or(Error::NoProcessors)?;
        worker.signal_queue.queue.lock().panic_requested = true;
        worker.signal_queue.wakeup.notify_one();
        Ok(())
    }

    /// Ends all threads after they have served the pending signals.
    pub(crate) fn stop(&self, patience: Duration) {
        let until = sys::now() + patience;
        let all = {
            // With the lock held, a thread that is starting is among those that end.
            let _opening = self.start_lock.lock();
            let mut groups = self.groups.lock();
            groups.stopped = true;
            core::mem::take(&mut groups.all)
        };
        let workers = || {
            all.iter()
                .flat_map(|s| &s.threads)
                .filter_map(OnceLock::get)
        };
        for worker in workers() {
            worker.signal_queue.queue.lock().stopped = true;
            worker.signal_queue.wakeup.notify_one();
        }
        for worker in workers() {
            worker.join(until);
        }
    }
}

/// Completions that may be queued for a thread; further ones are dispatched by the thread that serves their vector.
const MAX_TASKS: usize = 1 << 16;

/// What a handler thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Serves a signal of a vector that only its handlers have.
    Signal(Signal),
    /// Dispatches a completion of a handler that shares its vector with handlers of other threads.
    Completion {
        cq: u32,
        reason: Reason,
        way: HandlerRoute,
    },
}

/// A set of processors, with one thread per class.
pub(crate) struct HandlerThreadGroup {
    engine: Weak<dyn HandlerHost>,
    processors: Vec<u16>,
    threads: [OnceLock<ClassThread>; Class::ALL.len()],
}

struct ClassThread {
    signal_queue: Arc<SignalQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct SignalQueue {
    queue: Mutex<Pending>,
    wakeup: Condvar,
}

#[derive(Default)]
struct Pending {
    tasks: VecDeque<Task>,
    stopped: bool,
    /// For tests: the thread panics.
    panic_requested: bool,
}

/// What the thread of a class does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Run(Task),
    Wait,
    End,
}

impl Pending {
    /// Takes the oldest task. The thread ends only when none is left.
    fn next(&mut self) -> Next {
        match self.tasks.pop_front() {
            Some(task) => Next::Run(task),
            None if self.stopped => Next::End,
            None => Next::Wait,
        }
    }
}

/// The scheduling policy of a class's thread. Of the runnable threads of one processor the kernel runs `Idle` last, and preempts it.
fn policy_of(class: Class) -> SchedPolicy {
    match class {
        Class::Latency => SchedPolicy::Normal,
        Class::Normal => SchedPolicy::Batch,
        Class::Bulk => SchedPolicy::Idle,
    }
}

impl HandlerThreadGroup {
    /// Starts the thread of a class, if it does not run. Callers hold `start_lock`.
    fn open(&self, class: Class) -> Result<(), Error> {
        let slot = &self.threads[class as usize];
        if slot.get().is_none() {
            let worker = ClassThread::start(self.engine.clone(), &self.processors, class)?;
            slot.get_or_init(|| worker);
        }
        Ok(())
    }

    /// Queues a task; false if it would not be run: the thread has ended or never started, or too many tasks are queued.
    #[must_use = "a task that is not run is a lost notification"]
    pub(crate) fn queue_task(&self, task: Task, class: Class) -> bool {
        // A class has no thread while a handler is changing to or from it; then any other class serves it.
        let ours = self.threads[class as usize].get();
        let any = || self.threads.iter().find_map(OnceLock::get);
        let Some(worker) = ours.or_else(any) else {
            return false;
        };
        let mut pending = worker.signal_queue.queue.lock();
        // Checked under the lock: a thread ends when it finds the queue empty and this flag set.
        if pending.stopped {
            return false;
        }
        let queued = match task {
            // One entry is enough: serving takes all entries that the signal stands for.
            Task::Signal(_) => pending.tasks.contains(&task),
            Task::Completion { .. } if pending.tasks.len() >= MAX_TASKS => return false,
            Task::Completion { .. } => false,
        };
        if !queued {
            pending.tasks.push_back(task);
            drop(pending);
            worker.signal_queue.wakeup.notify_one();
        }
        true
    }
}

impl ClassThread {
    fn start(
        engine: Weak<dyn HandlerHost>,
        processors: &[u16],
        class: Class,
    ) -> Result<ClassThread, Error> {
        let signals = Arc::new(SignalQueue::default());
        let (ours, place) = (signals.clone(), processors.to_vec());
        let name = format!("verbena-{}", ["fast", "norm", "bulk"][class as usize]);
        let (settled, notified) = mpsc::channel();
        let thread = sys::spawn(&name, move || {
            let missing =
                pin_thread(&place).and_then(|()| Ok(sys::set_sched_policy(policy_of(class))?));
            let stays = missing.is_ok();
            // The starting thread waits for this result.
            let _ = settled.send(missing);
            if stays {
                let failed = || Some(engine.upgrade()? as Arc<dyn Supervisor>);
                guard(failed, || ours.run(&engine));
                // After a panic, later signals are served by the thread that fires them.
                ours.queue.lock().stopped = true;
            }
        })?;
        notified.recv().map_err(|_| Error::Closed)??;
        let thread = Mutex::new(Some(thread));
        Ok(ClassThread {
            signal_queue: signals,
            thread,
        })
    }

    /// Waits for the end of the thread up to `until`: a handler may never return.
    fn join(&self, until: Time) {
        let thread = self.thread.lock().take();
        // The last owner of an engine may be a handler that runs on this very thread.
        if let Some(thread) = thread
            && thread.thread().id() != sys::current_thread().id()
        {
            sys::wait(until, || thread.is_finished());
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

/// Pins this thread to exactly these processors. The affinity is read back, since the kernel ignores processors that it does not allow.
fn pin_thread(on: &[u16]) -> Result<(), Error> {
    let refused = sys::set_affinity(on).is_err();
    let settled = sys::processors()?;
    let missing = on.iter().find(|p| refused || !settled.contains(p));
    match missing {
        Some(&processor) => Err(Error::NoProcessor { processor }),
        None => Ok(()),
    }
}

impl SignalQueue {
    fn run(&self, engine: &Weak<dyn HandlerHost>) {
        loop {
            let mut pending = self.queue.lock();
            let task = loop {
                assert!(!pending.panic_requested, "provoked by a test");
                match pending.next() {
                    Next::Run(task) => break task,
                    Next::Wait => self.wakeup.wait(&mut pending),
                    Next::End => return,
                }
            };
            drop(pending);
            let Some(engine) = engine.upgrade() else {
                return;
            };
            engine.run(task);
        }
    }
}

impl core::fmt::Debug for HandlerThreads {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HandlerThreads").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
