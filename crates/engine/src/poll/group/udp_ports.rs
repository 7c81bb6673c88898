//! The UDP sockets that feed one completion queue: read by the thread that polls it while the group is lent, else by their shard.
//! A poll reads at most two of them, so its cost does not depend on their number.

use std::sync::Arc;

use arrayvec::ArrayVec;
use verbena_nic::Outbox;
use verbena_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use verbena_sync::locks::RwLock;

use crate::core::Core;
use crate::datagram::udp_port::UdpPort;
use crate::poll::owner::OwnerCell;
use crate::sys::poller::MAX_OTHERS;

/// Datagrams read per poll from one socket.
const READ_BATCH: usize = 16;

/// UDP sockets that feed one completion queue.
#[derive(Debug, Default)]
pub(crate) struct UdpPorts {
    list: RwLock<List>,
    /// There is at least one: most queues have none, and their polls should not pay for it.
    any: AtomicBool,
    /// The socket that had input last.
    hot: AtomicUsize,
    /// The other one to be read next.
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct List {
    /// Each with the number of queue pairs that it feeds.
    all: Vec<(Arc<UdpPort>, usize)>,
    /// They are lent to a polling thread.
    lent: bool,
}

impl UdpPorts {
    /// There is at least one.
    pub(super) fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// There are more than a sleeping thread can watch.
    pub(super) fn are_many(&self) -> bool {
        self.has_any() && self.list.read().all.len() > MAX_OTHERS
    }

    /// Those that wake a sleeping thread.
    pub(super) fn watched(&self) -> ArrayVec<Arc<UdpPort>, MAX_OTHERS> {
        if !self.has_any() {
            return ArrayVec::new();
        }
        let list = self.list.read();
        let all = list.all.iter().map(|(port, _)| port.clone());
        all.take(MAX_OTHERS).collect()
    }

    /// A socket feeds one more queue pair of a group with this owner.
    pub(super) fn join(&self, port: &Arc<UdpPort>, owner: &OwnerCell) {
        let mut list = self.list.write();
        list.apply_lent(owner);
        let known = list.all.iter_mut().find(|(m, _)| Arc::ptr_eq(m, port));
        if let Some((_, users)) = known {
            *users += 1;
            return;
        }
        if list.lent {
            port.lend();
        }
        list.all.push((port.clone(), 1));
        self.any.store(true, Ordering::Release);
    }

    /// A socket feeds one queue pair less.
    pub(crate) fn leave(&self, port: &Arc<UdpPort>) {
        let mut list = self.list.write();
        let at = list.all.iter().position(|(m, _)| Arc::ptr_eq(m, port));
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

    /// Lends or returns the sockets after the group was lent or returned. Each thread that changes that calls this afterwards, and
    /// the last call applies the final state.
    pub(super) fn apply_lent(&self, owner: &OwnerCell) {
        if self.any.load(Ordering::Acquire) {
            self.list.write().apply_lent(owner);
        }
    }

    /// Reads, for a polling thread, the socket that had input last and one of the others; true if there was input.
    pub(super) fn poll(&self, core: &Core) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let hot = self.hot.load(Ordering::Relaxed);
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let (first, second) = {
            let list = &self.list.read().all;
            if list.is_empty() {
                return false;
            }
            let (hot, next) = (hot % list.len(), next % list.len());
            let other = (next != hot).then(|| (next, list[next].0.clone()));
            ((hot, list[hot].0.clone()), other)
        };
        let (mut out, mut any) = (Outbox::new(), false);
        for (at, port) in [Some(first), second].into_iter().flatten() {
            // Both in any case: a socket that is never empty must not keep the others from being read.
            if port.read(READ_BATCH, &mut out) {
                self.hot.store(at, Ordering::Relaxed);
                any = true;
            }
        }
        core.deliver(&mut out);
        any
    }
}

impl List {
    fn apply_lent(&mut self, owner: &OwnerCell) {
        let lent = owner.is_lent();
        if core::mem::replace(&mut self.lent, lent) == lent {
            return;
        }
        for (port, _) in &self.all {
            if lent {
                port.lend();
            } else {
                port.take_back();
            }
        }
    }
}
