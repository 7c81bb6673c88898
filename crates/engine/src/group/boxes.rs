//! The mailboxes that feed one completion queue: read by whoever polls it, while it is lent.
//! They promise that a mailbox is read by somebody at any time, and that a poll costs the same however many there are.
//! They refuse to know what is in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::RwLock;
use verbena_nic::Outbox;

use crate::core::Core;
use crate::mailbox::Mailbox;

/// Datagrams that one poll takes.
const AT_ONCE: usize = 16;

/// Mailboxes that feed one completion queue.
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    list: RwLock<List>,
    /// There is one: most queues have none, and their polls should not pay for it.
    any: AtomicBool,
    /// Where something came last.
    hot: AtomicUsize,
    /// Which other one is looked at next.
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct List {
    /// Each with how many queue pairs it feeds.
    all: Vec<(Arc<Mailbox>, usize)>,
    /// They are lent to a thread that polls.
    lent: bool,
}

impl Boxes {
    /// There is one.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// A mailbox feeds one more queue pair; `lent` says whether the group is lent.
    pub(super) fn join(&self, mailbox: &Arc<Mailbox>, lent: &AtomicBool) {
        let mut list = self.list.write();
        list.follow(lent);
        let known = list.all.iter_mut().find(|(m, _)| Arc::ptr_eq(m, mailbox));
        if let Some((_, users)) = known {
            *users += 1;
            return;
        }
        if list.lent {
            mailbox.lend();
        }
        list.all.push((mailbox.clone(), 1));
        self.any.store(true, Ordering::Release);
    }

    /// A mailbox feeds one queue pair less.
    pub(crate) fn leave(&self, mailbox: &Arc<Mailbox>) {
        let mut list = self.list.write();
        let at = list.all.iter().position(|(m, _)| Arc::ptr_eq(m, mailbox));
        let Some(at) = at else {
            return;
        };
        list.all[at].1 -= 1;
        if list.all[at].1 == 0 {
            let (gone, _) = list.all.swap_remove(at);
            if list.lent {
                gone.take_back();
            }
            self.any.store(!list.all.is_empty(), Ordering::Release);
        }
    }

    /// The group was lent or taken back a moment ago: so are its mailboxes. Whoever changed that comes here afterwards,
    /// and the last one to come finds how it stands.
    pub(super) fn follow(&self, lent: &AtomicBool) {
        if self.any.load(Ordering::Acquire) {
            self.list.write().follow(lent);
        }
    }

    /// A look by a thread that polls: where something came last, and at one of the others.
    pub(super) fn poll(&self, core: &Core) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let hot = self.hot.load(Ordering::Relaxed);
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let (first, second) = {
            let list = &self.list.read().all;
            if list.is_empty() {
                return;
            }
            let (hot, next) = (hot % list.len(), next % list.len());
            let other = (next != hot).then(|| (next, list[next].0.clone()));
            ((hot, list[hot].0.clone()), other)
        };
        let mut out = Outbox::new();
        for (at, mailbox) in [Some(first), second].into_iter().flatten() {
            // Both, whatever is in the first: one that never runs dry must not keep us from the others.
            if mailbox.read(AT_ONCE, &mut out) {
                self.hot.store(at, Ordering::Relaxed);
            }
        }
        core.deliver(&mut out);
    }
}

impl List {
    fn follow(&mut self, lent: &AtomicBool) {
        let lent = lent.load(Ordering::SeqCst);
        if core::mem::replace(&mut self.lent, lent) == lent {
            return;
        }
        for (mailbox, _) in &self.all {
            if lent {
                mailbox.lend();
            } else {
                mailbox.take_back();
            }
        }
    }
}
