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
