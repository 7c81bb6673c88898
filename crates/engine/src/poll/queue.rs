//! A completion queue: polling an empty one serves the connections that complete in it.
//! Arming it returns those connections to the shards. A poll does not block, except that it may sleep briefly when its thread competes
//! for the processor (`preemption.rs`).

use std::sync::{Arc, Weak};

use verbena_nic::{Arm, Cq, CqInfo, CqOptions, Event, Raise, Timestamp, Wc};
use verbena_sync::locks::OnceLock;
use verbena_sync::locks::RwLock;

use crate::core::Core;
use crate::error::Error;
use crate::notify::Notify;
use crate::notify::handler::{HandlerId, HandlerRef, HandlerRoute, Target};
use crate::notify::monitor::{self, Watched};
use crate::poll::group::Group;

/// A completion queue. Clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct CompletionQueue(pub(crate) Arc<Queue>);

/// A completion queue with its handler (N1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionQueueInfo {
    /// Its number.
    pub number: u32,
    /// The queue itself: entries, those that wait, whether any were lost, and the number of queue pairs that complete here.
    pub cq: CqInfo,
    /// Its handler, if it has one.
    pub handler: Option<HandlerId>,
}

#[derive(Debug)]
pub(crate) struct Queue {
    core: Arc<Core>,
    pub(crate) cq: Arc<Cq>,
    /// Connections that complete their receives here.
    pub(crate) group: Arc<Group>,
    /// Groups whose connections complete their sends here. Most queues have none, and every poll checks: hence the `OnceLock`.
    send_groups: OnceLock<RwLock<Arc<[Weak<Group>]>>>,
}

impl Queue {
    /// Connections of this group complete their sends here.
    pub(crate) fn add_send_group(&self, group: &Arc<Group>) {
        if Arc::ptr_eq(&self.group, group) {
            return;
        }
        let mut also = self
            .send_groups
            .get_or_init(|| RwLock::new(Arc::new([])))
            .write();
        let known = |g: &Weak<Group>| core::ptr::eq(g.as_ptr(), Arc::as_ptr(group));
        if !also.iter().any(known) {
            // Receive queues come and go while this one stays: dead entries are removed.
            let handshakes = |g: &&Weak<Group>| g.strong_count() > 0;
            let one_more = core::iter::once(Arc::downgrade(group));
            let all = also.iter().filter(handshakes).cloned().chain(one_more);
            *also = all.collect();
        }
    }

    /// Groups whose connections complete their sends here. A snapshot, since serving them may call the program's handlers,
    /// which must not run under the lock.
    fn send_groups(&self) -> Option<Arc<[Weak<Group>]>> {
        Some(self.send_groups.get()?.read().clone())
    }
}

impl Queue {
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn is_owner_process(&self) -> bool {
        self.core.is_alive()
    }

    /// Calls `act` for every group whose connections complete here.
    fn each_group(&self, act: impl Fn(&Group)) {
        act(&self.group);
        for group in self.send_groups().iter().flat_map(|all| all.iter()) {
            if let Some(group) = group.upgrade() {
                act(&group);
            }
        }
    }

    /// Sleeps in an empty poll, if this thread should: in the queue's own group, or in the only further one. Members of one group at
    /// most can wake it.
    fn sleep_if_due(&self) -> bool {
        if self.group.sleep_if_due() {
            return true;
        }
        match self.send_groups().as_deref() {
            Some([one]) => one.upgrade().is_some_and(|group| group.sleep_if_due()),
            _ => false,
        }
    }

    /// Groups whose connections complete here.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Arc<Group>> {
        let also = self.send_groups().into_iter().flat_map(|all| {
            let each = 0..all.len();
            each.filter_map(move |at| all[at].upgrade())
        });
        core::iter::once(self.group.clone()).chain(also)
    }
}

impl CompletionQueue {
    pub(crate) fn new(
        core: &Arc<Core>,
        entries: usize,
        handler: Option<HandlerId>,
        options: CqOptions,
    ) -> Result<CompletionQueue, Error> {
        let target = Target::Attached(match handler {
            Some(id) => core.notification.handlers.find(id)?.route(),
            None => HandlerRoute::DEFAULT,
        });
        let cq = core.function.create_cq_with(entries, options)?;
        let group = match Group::new(core) {
            Ok(group) => group,
            Err(error) => {
                let _ = core.function.destroy_cq(cq.number());
                return Err(error);
            }
        };
        core.notification.cq_notifications.add(cq.number(), target);
        // The monitor opens with the first completion queue: without one there are no events to watch.
        if core.config.monitor {
            let (described, captured) = (Arc::downgrade(core), Arc::downgrade(core));
            let controlled = Arc::downgrade(core);
            let join_all = move || {
                let Some(core) = captured.upgrade() else {
                    return;
                };
                for connection in core.routes.connections() {
                    connection.join_capture();
                }
                for connection in core.routes.roce_connections() {
                    connection.join_trace();
                }
            };
            let watched = Watched {
                describe: Arc::new(move || Some(described.upgrade()?.describe())),
                tap: core.tap.clone(),
                join_all: Arc::new(join_all),
                notification: Arc::downgrade(&core.notification),
                security: Arc::downgrade(&core.security),
                control_faults: Arc::new(move |request| {
                    let core = controlled.upgrade().ok_or("the adapter is closed")?;
                    core.control_faults(request)
                }),
            };
            let opened = &core.notification.monitor_opened;
            let wait = core.config.capture_wait;
            monitor::open_once(opened, watched, group.shard(), wait);
        }
        Ok(CompletionQueue(Arc::new(Queue {
            core: core.clone(),
            cq,
            group,
            send_groups: OnceLock::new(),
        })))
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.0.cq.number()
    }

    /// The queue object of the adapter.
    pub fn cq(&self) -> &Arc<Cq> {
        &self.0.cq
    }

    /// Takes the oldest completions, at most `out.len()`; returns how many.
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        if !self.0.core.is_alive() {
            return 0;
        }
        let n = self.0.cq.poll(out);
        if n > 0 {
            self.0.each_group(Group::polled_some);
            return n;
        }
        if out.is_empty() {
            return 0;
        }
        self.0.each_group(Group::polled_empty);
        let n = self.0.cq.poll(out);
        if n > 0 || !self.0.sleep_if_due() {
            return n;
        }
        self.0.each_group(Group::polled_empty);
        self.0.cq.poll(out)
    }

    /// Takes the oldest completion, with the time at which it was written; zeros if the queue was created without a clock.
    pub fn poll_stamped(&self) -> Option<(Wc, Timestamp)> {
        if !self.0.core.is_alive() {
            return None;
        }
        if let Some(first) = self.0.cq.poll_stamped() {
            self.0.each_group(Group::polled_some);
            return Some(first);
        }
        self.0.each_group(Group::polled_empty);
        let first = self.0.cq.poll_stamped();
        if first.is_some() || !self.0.sleep_if_due() {
            return first;
        }
        self.0.each_group(Group::polled_empty);
        self.0.cq.poll_stamped()
    }

    /// Whether a poll would return something; like a poll, it serves the connections of an empty queue.
    pub fn peek(&self) -> bool {
        if !self.0.core.is_alive() {
            return false;
        }
        if !self.0.cq.is_empty() {
            return true;
        }
        self.0.each_group(Group::polled_empty);
        !self.0.cq.is_empty()
    }

    /// Requests one notification (`ibv_req_notify_cq`); poll once more afterwards, since completions already queued do not notify.
    pub fn arm(&self, arm: Arm) {
        if !self.0.core.is_alive() {
            return;
        }
        self.0.cq.arm(arm);
        self.0.each_group(Group::take_back);
    }

    /// Sets the listener that is notified when the armed queue has a completion.
    pub fn set_notify(&self, notify: Option<Arc<dyn Notify>>) {
        if self.0.core.is_alive() {
            self.0
                .core
                .notification
                .cq_notifications
                .set_notify(self.number(), notify);
        }
    }

    /// Sets its completion handler, or none (N4). A notification already raised goes to the previous one.
    pub fn set_handler(&self, handler: Option<HandlerId>) -> Result<(), Error> {
        self.0.core.check()?;
        let way = match handler {
            Some(id) => self.0.core.notification.handlers.find(id)?.route(),
            None => HandlerRoute::DEFAULT,
        };
        self.attach(way);
        Ok(())
    }

    /// Sets its completion handler, which was named before; fails if that was cleared meanwhile, also if another one has its id now.
    pub fn set_handler_ref(&self, handler: &HandlerRef) -> Result<(), Error> {
        self.0.core.check()?;
        let handlers = &self.0.core.notification.handlers;
        let gone = Error::NoHandler {
            id: handler.id.0,
            limit: handlers.limit(),
        };
        let found = handlers.find_by_route(handler.route).ok_or(gone)?;
        self.attach(found.route());
        Ok(())
    }

    fn attach(&self, way: HandlerRoute) {
        let (cq, notification) = (self.number(), &self.0.core.notification);
        let target = Target::Attached(way);
        if let Some(reason) = notification.cq_notifications.set_target(cq, target) {
            notification.raise(Event::Completion { cq, reason });
        }
    }

    /// Removes its handler (N4): notifications are kept until another one is set.
    pub fn detach_handler(&self) {
        if self.0.core.is_alive() {
            let cq = self.number();
            // Detaching releases no kept notification.
            let _ = self
                .0
                .core
                .notification
                .cq_notifications
                .set_target(cq, Target::Detached);
        }
    }

    /// Its size, fill level, users and handler (N1).
    pub fn query(&self) -> Result<CompletionQueueInfo, Error> {
        self.0.core.check()?;
        let (number, core) = (self.number(), &self.0.core);
        Ok(CompletionQueueInfo {
            number,
            cq: core.function.query_cq(number)?,
            handler: core.notification.cq_notifications.handler(number),
        })
    }

    /// Changes its size; queued completions stay.
    pub fn resize(&self, entries: usize) -> Result<(), Error> {
        self.0.core.check()?;
        Ok(self.0.core.function.resize_cq(self.number(), entries)?)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.core.is_alive() {
            return;
        }
        self.core
            .notification
            .cq_notifications
            .remove(self.cq.number());
        self.group.retire();
        // Every queue pair that completes here holds a reference to this queue, so none is left.
        let destroyed = self.core.function.destroy_cq(self.cq.number());
        debug_assert!(destroyed.is_ok(), "a queue in use is held");
    }
}
