//! What a polling thread has put off for the members of a group, done because it returns the group or goes to sleep.
//! Deferred acknowledgements are sent, otherwise with its next post or poll; and members whose input it polls in memory are told that a thread
//! sleeps, so that their peers wake it.

use verbena_sync::atomic::Ordering;

use verbena_nic::Outbox;

use super::Group;

impl Group {
    /// Acknowledgements were deferred.
    pub(super) fn note_deferred_acks(&self) {
        self.has_deferred_acks.store(true, Ordering::SeqCst);
        self.check_interval.pin();
    }

    /// Sends the deferred acknowledgements; `late` if the polling thread stayed away.
    pub(super) fn send_deferred_acks(&self, late: bool, out: &mut Outbox) {
        if self.has_deferred_acks.swap(false, Ordering::SeqCst) {
            let members = self.members.read().list.clone();
            for connection in members {
                connection.send_deferred(late, out);
            }
        }
    }

    /// A thread polls this member, which its peer need not wake.
    pub(crate) fn note_polled_awake(&self) {
        self.polls_awake.store(true, Ordering::SeqCst);
    }

    /// Before a thread sleeps in the poller.
    pub(super) fn prepare_members_to_sleep(&self) {
        if self.polls_awake.swap(false, Ordering::SeqCst) {
            let members = self.members.read().list.clone();
            for member in members {
                member.prepare_sleep();
            }
        }
    }

    /// This thread has polled members, and other threads sleep in the poller: it may be the last one that polls, and they do not prepare again.
    ///
    /// A thread that begins to sleep is counted before it prepares the members, and a member is noted before this looks at the count.
    pub(super) fn prepare_members_for_sleepers(&self) {
        if self.owner.load().sleepers() > 0 {
            self.prepare_members_to_sleep();
        }
    }

    /// Does so before the borrower sleeps, because the shard would not.
    pub(crate) fn finish_polling_before_sleep(&self) {
        self.prepare_members_to_sleep();
        if self.has_deferred_acks.load(Ordering::SeqCst) {
            let mut out = Outbox::new();
            self.send_deferred_acks(false, &mut out);
            self.core.deliver(&mut out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::{Arc, Weak};

    use verbena_stream::Time;
    use verbena_sync::atomic::AtomicU32;

    use super::super::members::Member;
    use super::*;
    use crate::config::Config;
    use crate::core::Core;
    use crate::poll::owner::{Event, Polling};
    use crate::sys::testing::connection;
    use crate::sys::{self, Socket};

    /// A member whose peer need not wake it after each polled turn.
    struct RingMember {
        socket: Socket,
        group: Weak<Group>,
        prepared: AtomicU32,
    }

    impl Member for RingMember {
        fn token(&self) -> u64 {
            77
        }

        fn sockets(&self) -> (&Socket, Option<&Socket>) {
            (&self.socket, None)
        }

        fn prepare_sleep(&self) {
            self.prepared.fetch_add(1, Ordering::Relaxed);
        }

        fn turn(&self, _: &mut Outbox) {}

        fn poll_turn(&self, _: Time, _: &mut Outbox) -> bool {
            self.group.upgrade().unwrap().note_polled_awake();
            false
        }

        fn send_deferred(&self, _: bool, _: &mut Outbox) {}
    }

    fn group() -> (Arc<Group>, Arc<RingMember>) {
        let core = Core::new(Config::default()).unwrap();
        let group = Group::new(&core).unwrap();
        let member = Arc::new(RingMember {
            socket: connection(Ipv4Addr::LOCALHOST.into()).0,
            group: Arc::downgrade(&group),
            prepared: AtomicU32::new(0),
        });
        group.join(member.clone());
        (group, member)
    }

    fn prepared(member: &RingMember) -> u32 {
        member.prepared.load(Ordering::Relaxed)
    }

    /// For example one that waits for the response to its request, and then ends.
    #[test]
    fn poll_of_another_thread_prepares_for_the_sleeper() {
        let (group, member) = group();
        group.apply(Event::Borrowed(Polling::Reply), sys::now);
        group.begin_sleep();
        assert!(group.owner.is_lent());
        let before = prepared(&member);
        group.serve_polling(sys::now());
        assert_eq!(prepared(&member), before + 1);
    }

    #[test]
    fn last_poll_of_a_woken_thread_prepares_for_another_sleeper() {
        let (group, member) = group();
        group.begin_sleep();
        group.begin_sleep();
        let before = prepared(&member);
        member.poll_turn(sys::now(), &mut Outbox::new());
        group.end_sleep(sys::now());
        assert_eq!(prepared(&member), before + 1);
    }
}
