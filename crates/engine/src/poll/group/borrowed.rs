//! The groups that one polling thread has borrowed, so that it also serves those whose queues it does not poll at the moment.
//!
//! A thread that polls the queues of several connections by turns leaves out a queue without outstanding requests, and may wait for the
//! peer's next Write to that connection's memory instead: NCCL's senders wait for a receiver's credit so. Without this the bytes stay in the
//! socket until the timer returns the group to its shard, which takes `lend_time` and a wake-up. An empty poll of any queue serves one
//! other group that the thread has borrowed and has not served for `MAX_UNSERVED_NANOS`.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use verbena_stream::Time;
use verbena_sync::thread::thread_local;

use super::Group;

/// Groups of one thread; with more, the oldest is left to its timer.
const MAX_BORROWED: usize = 16;
/// How long a borrowed group is not served before an empty poll of another queue serves it, in nanoseconds; also the least time between
/// two such turns of a thread, which bounds what they cost.
const MAX_UNSERVED_NANOS: u64 = 10_000;

struct Borrowed {
    groups: Vec<Weak<Group>>,
    /// The group that is checked next.
    next: usize,
    /// The last turn of another group, in nanoseconds.
    last_served: u64,
}

thread_local! {
    static BORROWED: RefCell<Borrowed> = const {
        RefCell::new(Borrowed { groups: Vec::new(), next: 0, last_served: 0 })
    };
}

/// Records that this thread has borrowed the group.
pub(super) fn add(group: &Weak<Group>) {
    with(|borrowed| {
        let known = borrowed.groups.iter().any(|one| one.ptr_eq(group));
        if !known {
            if borrowed.groups.len() == MAX_BORROWED {
                borrowed.groups.remove(0);
            }
            borrowed.groups.push(group.clone());
        }
    });
}

/// A poll of `polled` found nothing: serves another group of this thread, if one was neglected.
pub(super) fn serve_other_group(polled: &Group, now: Time) {
    let found = with(|borrowed| borrowed.find_unserved(polled, now.nanos())).flatten();
    if let Some(group) = found {
        group.serve_polling(now);
        group.udp_ports.poll(&group.core);
    }
}

impl Borrowed {
    fn find_unserved(&mut self, polled: &Group, now: u64) -> Option<Arc<Group>> {
        if self.groups.len() < 2 || now.saturating_sub(self.last_served) < MAX_UNSERVED_NANOS {
            return None;
        }
        self.last_served = now;
        for _ in 0..self.groups.len() {
            let at = self.next % self.groups.len();
            let Some(group) = self.groups[at].upgrade() else {
                self.groups.swap_remove(at);
                break;
            };
            if !group.core.is_alive() {
                // Inherited by a forked child: serving it would take the parent's messages from shared memory.
                self.groups.swap_remove(at);
                break;
            }
            self.next = at + 1;
            if group.token == polled.token || !group.owner.is_lent() {
                continue;
            }
            if !group.borrower.is_current_thread() {
                // Another thread has borrowed it since.
                self.groups.swap_remove(at);
                break;
            }
            let before = group.borrower.last_poll().nanos();
            if now.saturating_sub(before) >= MAX_UNSERVED_NANOS {
                group.borrower.set_last_poll(Time::from_nanos(now));
                return Some(group);
            }
        }
        None
    }
}

fn with<T>(act: impl FnOnce(&mut Borrowed) -> T) -> Option<T> {
    // The thread-local storage of an ending thread is destroyed.
    let act = |cell: &RefCell<Borrowed>| Some(act(&mut *cell.try_borrow_mut().ok()?));
    BORROWED.try_with(act).ok().flatten()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicU32, Ordering};

    use verbena_nic::Outbox;

    use super::super::Member;
    use super::super::tests::is_lent;
    use super::*;
    use crate::config::Config;
    use crate::core::Core;
    use crate::poll::shard::ShardTask;
    use crate::sys::testing::connection;
    use crate::sys::{self, Socket};

    /// A member that counts its turns.
    struct Counting(Socket, AtomicU32);

    impl Member for Counting {
        fn token(&self) -> u64 {
            78
        }

        fn sockets(&self) -> (&Socket, Option<&Socket>) {
            (&self.0, None)
        }

        fn turn(&self, _: &mut Outbox) {}

        fn poll_turn(&self, _: Time, _: &mut Outbox) -> bool {
            self.1.fetch_add(1, Ordering::Relaxed);
            false
        }

        fn send_deferred(&self, _: bool, _: &mut Outbox) {}

        fn byte_count(&self) -> u64 {
            0
        }
    }

    fn borrow(core: &Arc<Core>) -> Arc<Group> {
        let group = Group::new(core).unwrap();
        while !is_lent(&group) {
            group.polled_empty();
        }
        group
    }

    #[test]
    fn polling_thread_serves_its_unpolled_groups() {
        let mut config = Config::default();
        // Long, so that the shard's own timer does not expire during the test.
        config.set("lend_time", "1s").unwrap();
        let core = Core::new(config).unwrap();
        let (polled, neglected) = (borrow(&core), borrow(&core));
        let (socket, _other) = connection(Ipv4Addr::LOCALHOST.into());
        let member = Arc::new(Counting(socket, AtomicU32::new(0)));
        neglected.join(member.clone());
        let turns = || member.1.load(Ordering::Relaxed);

        let mut now = sys::now() + Duration::from_secs(1);
        let mut poll = |after: u64| {
            now = now + Duration::from_nanos(after);
            polled.serve_or_lend(now);
            serve_other_group(&polled, now);
            now
        };
        let before = turns();
        poll(MAX_UNSERVED_NANOS);
        assert_eq!(turns(), before + 1);
        poll(MAX_UNSERVED_NANOS / 2);
        assert_eq!(turns(), before + 1, "a moment ago");
        let now = poll(MAX_UNSERVED_NANOS);
        assert_eq!(turns(), before + 2);
        neglected.clone().expire(now + Duration::from_millis(500));
        assert!(is_lent(&neglected), "its thread is there");

        // Another thread borrows it: this one no longer serves it.
        neglected.take_back();
        let other = neglected.clone();
        let borrows = std::thread::spawn(move || {
            while !is_lent(&other) {
                other.polled_empty();
            }
        });
        borrows.join().unwrap();
        let before = turns();
        poll(2_000 * MAX_UNSERVED_NANOS);
        poll(2_000 * MAX_UNSERVED_NANOS);
        assert_eq!(turns(), before);
        neglected.leave(&*member);
    }
}
