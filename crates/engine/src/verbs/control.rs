//! Runs the requests of control queue pairs (V5) on one thread, which is started when it is first needed.
//! Posting never waits for a request in progress; each queue is processed in order, and the queues take turns. Work that waited for
//! memory continues as soon as its registration has ended. Only one request runs at a time: registrations contend for the page tables.

use crate::sys::JoinHandle;
use std::collections::VecDeque;
use std::sync::Arc;
use verbena_sync::atomic::{AtomicBool, Ordering};

use verbena_events::eqe::{Cause, SHORT_LIMIT};
use verbena_events::interrupts::Origin;
use verbena_mem::{Access, Misuse, Pd, Reserved, Tpt, WindowType};
use verbena_nic::control::MAX_REQUESTS;
use verbena_nic::{Control, ControlOp, ControlResult, Function, NewQp, Outbox, Subject};
use verbena_sync::locks::{Condvar, Mutex};
use verbena_wire::{Stag, To};

use crate::core::Core;
use crate::error::Error;
use crate::guard::{catch_panic, guard};
use crate::poll::queue::{CompletionQueue, Queue};
use crate::sys;

mod callback_guard;

use callback_guard::CallbackGuard;

/// Called with the result of a request, on the control thread and without any lock. A panic in it is caught.
pub type ControlCallback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// A control queue pair with the callbacks of its outstanding requests.
struct ControlEntry {
    control: Arc<Control>,
    /// One for each request, in the same order: the lock is held during the post.
    callbacks: Mutex<VecDeque<Option<ControlCallback>>>,
    /// It is in the list of queues to process.
    scheduled: AtomicBool,
}

impl ControlEntry {
    /// The remaining requests will not be done: their callbacks are called with an error.
    fn give_up(&self) {
        let left = core::mem::take(&mut *self.callbacks.lock());
        for callback in left.into_iter().flatten() {
            catch_panic(|| callback(Err(Error::Closed)));
        }
    }
}

/// The control thread of an engine, and its queues.
#[derive(Default)]
pub(crate) struct ControlThread {
    state: Mutex<State>,
    wakeup: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Arc<ControlEntry>>,
    thread: Option<JoinHandle<()>>,
    /// For requests of callers without a control queue pair.
    common: Option<Arc<ControlQueue>>,
    /// The queue whose request is in progress.
    current: Option<Arc<ControlEntry>>,
    stopping: bool,
    /// For tests: the thread panics.
    panics: bool,
}

impl ControlThread {
    /// Starts the thread, unless it was started before.
    fn start(&self, core: &Arc<Core>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.stopping {
            return Err(Error::Closed);
        }
        if state.thread.is_none() {
            let core = core.clone();
            let thread = sys::spawn("verbena-control", move || {
                guard(|| Some(core.clone()), || core.control_thread.run(&core));
                // After a callback has closed the engine on this thread, or after a panic: the remaining requests are given up.
                core.control_thread.give_up(&core);
            })?;
            state.thread = Some(thread);
        }
        Ok(())
    }

    /// The control queue pair for callers without one.
    pub(crate) fn common(&self, core: &Arc<Core>) -> Result<Arc<ControlQueue>, Error> {
        if let Some(common) = &self.state.lock().common {
            return Ok(common.clone());
        }
        let made = Arc::new(ControlQueue::new(core, None, MAX_REQUESTS)?);
        let mut state = self.state.lock();
        if state.stopping {
            return Err(Error::Closed);
        }
        let common = state.common.get_or_insert_with(|| made.clone()).clone();
        // A second one, made concurrently, is dropped without the lock.
        drop(state);
        Ok(common)
    }

    /// Schedules a queue to which a request was posted; false if the engine stops.
    fn schedule(&self, queued: &Arc<ControlEntry>) -> bool {
        let mut state = self.state.lock();
        if state.stopping {
            return false;
        }
        if !queued.scheduled.swap(true, Ordering::AcqRel) {
            state.ready.push_back(queued.clone());
            self.wakeup.notify_one();
        }
        true
    }

    fn run(&self, core: &Core) {
        while let Some(queued) = self.next() {
            let more = step(core, &queued);
            let mut state = self.state.lock();
            state.current = None;
            // A thread that posted after `step` found the queue scheduled and did not notify.
            if more || queued.control.outstanding() > 0 {
                state.ready.push_back(queued);
            } else {
                queued.scheduled.store(false, Ordering::Release);
            }
        }
    }

    /// Stops, and gives up the waiting requests.
    fn give_up(&self, core: &Core) {
        let (left, current) = {
            let mut state = self.state.lock();
            state.stopping = true;
            (core::mem::take(&mut state.ready), state.current.take())
        };
        for queued in left.into_iter().chain(current) {
            destroy_queue(core, &queued);
        }
    }

    /// Waits for the next queue; `None` if the engine stops.
    fn next(&self) -> Option<Arc<ControlEntry>> {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return None;
            }
            assert!(!state.panics, "provoked by a test");
            if let Some(queued) = state.ready.pop_front() {
                state.current = Some(queued.clone());
                return Some(queued);
            }
            self.wakeup.wait(&mut state);
        }
    }

    /// The thread ends after the request in progress, and then gives up the others.
    pub(crate) fn begin_stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        self.wakeup.notify_all();
    }

    /// For tests: the thread panics, now or after the request in progress.
    pub(crate) fn provoke_panic(&self, core: &Arc<Core>) -> Result<(), Error> {
        self.start(core)?;
        self.state.lock().panics = true;
        self.wakeup.notify_all();
        Ok(())
    }

    /// Ends the thread after the request in progress, and gives up the others.
    pub(crate) fn stop(&self, core: &Core) {
        let (thread, common) = {
            let mut state = self.state.lock();
            state.stopping = true;
            self.wakeup.notify_all();
            (state.thread.take(), state.common.take())
        };
        // The last handle of an engine may be dropped in a callback on this very thread.
        if let Some(thread) = thread
            && thread.thread().id() != sys::current_thread().id()
        {
            let _ = thread.join();
        }
        self.give_up(core);
        drop(common);
    }
}

/// Runs one request and its consequences; false if none was waiting.
fn step(core: &Core, queued: &ControlEntry) -> bool {
    let mut out = Outbox::new();
    // Taken before the request runs: a concurrent `give_up` must not call the callback of this one.
    let Some(callback) = queued.callbacks.lock().pop_front() else {
        return false;
    };
    let callback = CallbackGuard(callback);
    let done = core.function.run_control(queued.control.number(), &mut out);
    if let Ok(Some(done)) = &done {
        close_destroyed(core, done, &mut out);
    }
    // Operations that wait for memory continue before the callback is called.
    core.deliver(&mut out);
    if let Ok(Some(done)) = &done {
        report_done(core, queued, done);
    }
    let (outcome, more) = match done {
        Ok(Some(done)) => (done.outcome.map_err(Error::from), true),
        // The control queue pair was destroyed before.
        Ok(None) | Err(_) => (Err(Error::Closed), false),
    };
    callback.call(outcome);
    if queued.control.has_ended() {
        queued.give_up();
    }
    more
}

/// Raises the event of an executed command (E7), if there is an observer: no other part of the adapter or of a program sees it.
fn report_done(core: &Core, queued: &ControlEntry, done: &ControlResult) {
    if core.notification.observers.is_empty() {
        return;
    }
    let command = done.id as u32 & SHORT_LIMIT;
    let origin = Origin {
        context: queued.control.number(),
        ..Origin::UNSPECIFIED
    };
    // Fails only when the adapter is down, which was reported.
    let _ = core
        .notification
        .inject(Cause::CommandDone { command }, origin);
}

/// Closes the connection of a destroyed queue pair, after the frames that it has left.
fn close_destroyed(core: &Core, done: &ControlResult, out: &mut Outbox) {
    if let (Subject::Qp(qp), ControlOp::DestroyQp, Ok(())) = (done.subject, done.op, &done.outcome)
        && let Some(connection) = core.routes.connection_of(qp)
    {
        connection.close(done.final_bytes.clone(), out);
    }
}

fn destroy_queue(core: &Core, queued: &ControlEntry) {
    let mut out = Outbox::new();
    // It may be destroyed already.
    let _ = core
        .function
        .destroy_control(queued.control.number(), &mut out);
    core.deliver(&mut out);
    queued.give_up();
}

/// A control queue pair.
///
/// Requests are done by the engine's control thread, in order. A pending STag can be used at once: see [`verbena_nic::control`] for
/// which operations wait and which fail. Dropping the queue waits for the request in progress and gives up the others.
pub struct ControlQueue {
    core: Arc<Core>,
    entry: Arc<ControlEntry>,
    /// Kept as long as completions may be written.
    _cq: Option<Arc<Queue>>,
}

impl ControlQueue {
    pub(crate) fn new(
        core: &Arc<Core>,
        cq: Option<&CompletionQueue>,
        depth: usize,
    ) -> Result<ControlQueue, Error> {
        if let Some(cq) = cq {
            core.check_own(cq.0.core())?;
        }
        core.control_thread.start(core)?;
        let number = cq.map(CompletionQueue::number);
        let control = core.function.create_control(depth, number)?;
        Ok(ControlQueue {
            core: core.clone(),
            entry: Arc::new(ControlEntry {
                control,
                callbacks: Mutex::default(),
                scheduled: AtomicBool::new(false),
            }),
            _cq: cq.map(|cq| cq.0.clone()),
        })
    }

    /// Its number, as in its completions.
    pub fn number(&self) -> u32 {
        self.entry.control.number()
    }

    /// Requests that are not done yet.
    pub fn outstanding(&self) -> usize {
        self.entry.control.outstanding()
    }

    /// Registers a region; `reserve` reserves its entry in the table.
    pub fn register(
        &self,
        id: u64,
        pd: Pd,
        reserve: impl FnOnce(&Arc<Tpt>) -> Result<Reserved, Misuse>,
        callback: Option<ControlCallback>,
    ) -> Result<Stag, Error> {
        self.post(callback, |function, control| {
            function.post_register(control, id, pd, reserve)
        })
    }

    /// Registers the memory of a region again, with its own first address, domain and rights (M5).
    pub fn register_shared(
        &self,
        id: u64,
        of: Stag,
        terms: (To, Pd, Access),
        callback: Option<ControlCallback>,
    ) -> Result<Stag, Error> {
        self.post(callback, |function, control| {
            function.post_register_shared(control, id, of, terms)
        })
    }

    /// Allocates a window.
    pub fn allocate_window(
        &self,
        id: u64,
        ty: WindowType,
        pd: Pd,
        callback: Option<ControlCallback>,
    ) -> Result<Stag, Error> {
        self.post(callback, |function, control| {
            function.post_allocate_window(control, id, ty, pd)
        })
    }

    /// Removes a region or window.
    pub fn deregister(
        &self,
        id: u64,
        stag: Stag,
        callback: Option<ControlCallback>,
    ) -> Result<(), Error> {
        self.post(callback, |function, control| {
            function.post_deregister(control, id, stag)
        })
    }

    /// Creates a queue pair of the function that the engine does not serve: the caller moves its bytes.
    pub fn create_qp(
        &self,
        id: u64,
        new: NewQp,
        callback: Option<ControlCallback>,
    ) -> Result<u32, Error> {
        self.post(callback, |function, control| {
            function.post_create_qp(control, id, new)
        })
    }

    /// Destroys a queue pair; its connection is closed after its remaining frames were sent.
    pub fn destroy_qp(
        &self,
        id: u64,
        qp: u32,
        callback: Option<ControlCallback>,
    ) -> Result<(), Error> {
        self.post(callback, |function, control| {
            function.post_destroy_qp(control, id, qp)
        })
    }

    /// Creates a completion queue of the function that the engine does not serve.
    pub fn create_cq(
        &self,
        id: u64,
        entries: usize,
        callback: Option<ControlCallback>,
    ) -> Result<u32, Error> {
        self.post(callback, |function, control| {
            function.post_create_cq(control, id, entries)
        })
    }

    /// Destroys a completion queue.
    pub fn destroy_cq(
        &self,
        id: u64,
        cq: u32,
        callback: Option<ControlCallback>,
    ) -> Result<(), Error> {
        self.post(callback, |function, control| {
            function.post_destroy_cq(control, id, cq)
        })
    }

    /// Executes a task in its turn, on the control thread and without any lock of the engine: the creation, change or removal of an
    /// object that the engine serves. The task returns whether it succeeded. It is dropped if the queue ends before.
    pub fn run(
        &self,
        id: u64,
        op: ControlOp,
        task: Box<dyn FnOnce() -> bool + Send>,
        callback: Option<ControlCallback>,
    ) -> Result<(), Error> {
        self.post(callback, |function, control| {
            function.post_task(control, id, op, task)
        })
    }

    fn post<R>(
        &self,
        callback: Option<ControlCallback>,
        post: impl FnOnce(&Function, u32) -> Result<R, verbena_nic::Error>,
    ) -> Result<R, Error> {
        self.core.check()?;
        self.core.control_thread.start(&self.core)?;
        let answer = {
            let mut line = self.entry.callbacks.lock();
            let answer = post(&self.core.function, self.number())?;
            line.push_back(callback);
            answer
        };
        if !self.core.control_thread.schedule(&self.entry) {
            // The engine has stopped meanwhile: the callbacks are called with an error.
            destroy_queue(&self.core, &self.entry);
        }
        Ok(answer)
    }
}

impl Drop for ControlQueue {
    fn drop(&mut self) {
        if self.core.is_alive() {
            destroy_queue(&self.core, &self.entry);
        }
    }
}

impl core::fmt::Debug for ControlQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ControlQueue")
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}
