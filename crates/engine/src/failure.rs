//! Failure of an engine: one of its threads panicked, or an event could not be delivered (E2).
//! Every queue pair goes to the error state, `SrqError` is raised once for each shared receive queue and `DeviceFatal` once, every blocked call returns, and later calls
//! fail with the cause. The process continues; how to react is the program's decision.

use std::sync::{Arc, Weak};

use verbena_events::eqe::{Cause, Eqe};
use verbena_events::vector::Shutdown;
use verbena_nic::{Event, Outbox, QpState};

use crate::core::Core;
use crate::error::{EngineFailure, Error};
use crate::guard::{Supervisor, catch_panic};
use crate::notify::handler_threads::{HandlerHost, Task};
use crate::notify::pipeline::Notification;
use crate::notify::signals::SignalHost;

impl Supervisor for Core {
    fn fail(&self, why: EngineFailure) {
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
}

impl SignalHost for Core {
    fn notification(&self) -> &Arc<Notification> {
        &self.notification
    }

    /// E2: a program that relies on events cannot continue; connections end.
    fn fail_undelivered(&self, _: Shutdown) {
        self.flush_all();
        self.end_waits();
    }
}

impl HandlerHost for Core {
    fn run(&self, task: Task) {
        match task {
            Task::Signal(signal) => self.notification.serve(signal),
            Task::Completion { cq, reason, way } => {
                self.notification.dispatch_completion(cq, reason, way);
            }
        }
    }
}

impl Core {
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

    /// Raises `SrqError` for each shared receive queue and then `DeviceFatal`, once, and wakes every thread that waits for the engine. They bypass
    /// the event queues, which may be what failed.
    pub(crate) fn end_waits(&self) {
        if !self.lifecycle.end_waits() {
            return;
        }
        // First: a thread that waits for completions finds the flushed ones.
        for notify in self.notification.cq_notifications.all_notifiers() {
            catch_panic(|| notify.end());
        }
        let srqs = self.function.srq_numbers().into_iter();
        let ended = srqs.map(|srq| Event::SrqError { srq });
        for event in ended.chain([Event::DeviceFatal]) {
            self.notification
                .dispatch_event(Eqe::new(Cause::Rdma(event)));
        }
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
