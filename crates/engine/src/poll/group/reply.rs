//! Waiting for a peer's response in a post, for threads that poll memory instead of a queue: they post, read a byte until the peer's
//! Write has changed it, and post again. A shard would have to wake for each response, beside a thread that never sleeps. A thread with [`ANSWERS`]
//! responses in turn receives the next one itself, for a short time, before its post returns.
//!
//! Consecutive posts without a response between them end this, and so does arming the queue. A response that does not arrive in time
//! is left to the shard.

use core::time::Duration;

use verbena_sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::Group;
use crate::poll::owner::{Event, Polling};
use crate::sys;

/// Responses in turn before a post waits for the next one.
const ANSWERS: u32 = 8;
/// How long it waits: a few times the round trip of a short message within one host.
const SPIN: Duration = Duration::from_micros(50);
/// The same for a thread that competes for its processor, and sleeps meanwhile.
const SLEEP: Duration = Duration::from_micros(500);

/// Posts and responses of a group that no thread polls.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// Requests were posted, and nothing was received since.
    awaited: AtomicBool,
    /// Responses in turn.
    answers: AtomicU32,
}

impl Reply {
    /// Requests were posted.
    pub(super) fn note_post(&self) {
        if self.awaited.swap(true, Ordering::Relaxed) {
            self.answers.store(0, Ordering::Relaxed);
        }
    }

    /// Forgets the responses: the thread does not wait in this way now.
    pub(super) fn reset(&self) {
        self.answers.store(0, Ordering::Relaxed);
    }

    fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }
}

impl Group {
    /// A member received data that it has to acknowledge.
    pub(crate) fn note_data(&self) {
        if self.reply.is_awaited() {
            self.reply.awaited.store(false, Ordering::Relaxed);
            let answers = self.reply.answers.load(Ordering::Relaxed);
            self.reply
                .answers
                .store((answers + 1).min(ANSWERS), Ordering::Relaxed);
        }
    }

    /// Requests were sent: receives their response here, if the previous ones had one each.
    pub(crate) fn await_reply(&self) {
        if self.reply.answers.load(Ordering::Relaxed) < ANSWERS || sys::is_own_thread() {
            return;
        }
        let busy = self.borrower.is_serving() || self.udp_ports.has_any();
        if busy || self.crowded.load(Ordering::Relaxed) || !self.reply.is_awaited() {
            return;
        }
        let start = sys::now();
        if !self.owner.is_lent() {
            self.borrower.set_current_thread();
            self.borrower.set_last_poll(start);
            self.apply(Event::Borrowed(Polling::Reply), || start);
        }
        let mut limit = SPIN;
        let mut now = start;
        while now.since(start) < limit {
            self.borrower.set_last_poll(now);
            self.serve_polling(now);
            if !self.reply.is_awaited() {
                // The loan is kept: this thread is about to post again.
                return;
            }
            self.note_empty_poll(now);
            if self.sleep_if_due() {
                limit = SLEEP;
            }
            verbena_sync::thread::spin_loop();
            now = sys::now();
        }
        self.take_back();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::core::Core;

    fn group() -> Arc<Group> {
        let core = Core::new(Config::default()).unwrap();
        Group::new(&core).unwrap()
    }

    /// Posts, each with a response that the shard receives.
    fn exchange(group: &Group, times: u32) {
        for _ in 0..times {
            group.note_post();
            group.note_data();
        }
    }

    /// Whether a post waits, which updates `last_poll`.
    fn waits(group: &Group) -> bool {
        group.note_post();
        let before = group.borrower.last_poll();
        group.await_reply();
        group.borrower.last_poll() != before
    }

    #[test]
    fn post_waits_after_enough_consecutive_responses() {
        let group = group();
        exchange(&group, ANSWERS - 1);
        assert!(!waits(&group), "too few answers");
        group.note_data();
        assert!(waits(&group));
    }

    #[test]
    fn late_response_is_left_to_the_shard() {
        let group = group();
        exchange(&group, ANSWERS);
        assert!(waits(&group));
        assert!(!group.owner.is_lent());
        group.note_data();
        assert!(!waits(&group), "it may be later the next time, too");
    }

    #[test]
    fn consecutive_posts_never_wait() {
        let group = group();
        exchange(&group, ANSWERS);
        group.note_post();
        assert!(!waits(&group));
        group.note_data();
        assert!(!waits(&group));
    }

    #[test]
    fn post_after_arming_never_waits() {
        let group = group();
        exchange(&group, ANSWERS);
        group.take_back();
        assert!(!waits(&group));
    }

    #[test]
    fn borrower_post_never_waits() {
        let group = group();
        while !group.owner.is_lent() {
            group.polled_empty();
        }
        exchange(&group, 2 * ANSWERS);
        assert!(!waits(&group));
    }

    #[test]
    fn adapter_threads_never_wait() {
        let group = group();
        exchange(&group, ANSWERS);
        let of_ours = sys::spawn("test", move || waits(&group)).unwrap();
        assert!(!of_ours.join().unwrap());
    }
}
