//! Failure of an engine: one of its threads panicked, or an event could not be delivered (E2).
//! Every queue pair goes to the error state, `DeviceFatal` is raised once, every blocked call returns, and later calls
//! fail with the cause. The process continues; how to react is the program's decision.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use verbena_events::eqe::{Cause, Eqe};
use verbena_events::interrupts::Origin;
use verbena_events::vector::Shutdown;
use verbena_nic::{Event, Outbox, QpState};
use verbena_sync::locks::OnceLock;

use crate::core::Core;
use crate::engine::Engine;
use crate::error::{EngineFailure, Error};
use crate::notify::pipeline::catch_panic;
use crate::poll::shard::{ShardTask, next_token};
use crate::sys::{self, Ready};

/// The core of a thread; set when the core is complete, before any thread starts.
pub(crate) type CoreCell = Arc<OnceLock<Weak<Core>>>;

/// Runs a thread of the engine; a panic fails the engine.
pub(crate) fn guard(home: impl FnOnce() -> Option<Arc<Core>>, work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        let why = EngineFailure::Panic {
            thread: thread_name(),
            message: message(&*panic),
        };
        // The drop of the panic's payload may panic again.
        catch_panic(|| drop(panic));
        if let Some(core) = home() {
            core.fail(why);
        }
    }
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

impl Core {
    /// Fails the engine. Called without any lock; only the first cause is kept.
    pub(crate) fn fail(&self, why: EngineFailure) {
        if !self.is_alive() || !self.lifecycle.set_failure(why) {
            return;
        }
        self.lifecycle.close();
        catch_panic(|| self.oob.qpn_allocator.close());
        catch_panic(|| self.routes.ud_demux.close());
        self.flush_all();
        catch_panic(|| self.roce_ports.close());
        self.control_thread.begin_stop();
        self.end_waits();
        // Last: the shards end startups in progress and deliver what they flush.
        self.shards.begin_stop();
    }

    /// E2: an event could not be delivered. A program that relies on events cannot continue; connections end.
    pub(crate) fn fail_undelivered(&self, _: Shutdown) {
        self.flush_all();
        self.end_waits();
    }

    /// The number of queue pairs of every kind.
    pub(crate) fn pair_count(&self) -> usize {
        let (qps, uds) = (self.function.all_qps(), self.function.all_uds());
        qps.len() + uds.len() + self.routes.ulps.all().len()
    }

    /// Moves the queue pairs of every kind to the error state: posted work is flushed. A panic for one of them does not affect the
    /// others.
    pub(crate) fn flush_all(&self) {
        for qp in self.function.all_qps() {
            catch_panic(|| {
                self.run_on_qp(&qp, |qp, out| {
                    if qp.state() != QpState::Reset {
                        // Refused only if it was destroyed meanwhile, and then nothing is left to flush.
                        let _ = qp.modify(QpState::Err, out);
                    }
                });
            });
        }
        for qp in self.function.all_uds() {
            catch_panic(|| {
                let mut out = Outbox::new();
                if qp.state() != QpState::Reset {
                    let _ = qp.modify(QpState::Err, &mut out);
                }
                self.deliver(&mut out);
            });
        }
        for stream in self.routes.ulps.all() {
            catch_panic(|| {
                let mut out = Outbox::new();
                stream.qp.fail("the adapter ended", &mut out);
                stream.send(&mut out);
                self.deliver(&mut out);
            });
        }
    }

    /// Raises `DeviceFatal`, once, and wakes every thread that waits for the engine. It bypasses the event queues, which may be
    /// what failed.
    pub(crate) fn end_waits(&self) {
        if !self.lifecycle.end_waits() {
            return;
        }
        // First: a thread that waits for completions finds the flushed ones.
        for notify in self.notification.cq_notifications.all_notifiers() {
            catch_panic(|| notify.end());
        }
        self.notification
            .dispatch_event(Eqe::new(Cause::Rdma(Event::DeviceFatal)));
        self.notification.events.end();
        let listeners = core::mem::take(&mut *self.admission.pending_requests.lock());
        for waiting in listeners.iter().filter_map(Weak::upgrade) {
            waiting.end();
        }
    }

    /// An error if no notification will follow, so that a thread must not begin to wait.
    pub(crate) fn check_waits(&self) -> Result<(), Error> {
        if self.lifecycle.waits_ended() {
            self.check()?;
            return Err(Error::Closed);
        }
        Ok(())
    }
}

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
