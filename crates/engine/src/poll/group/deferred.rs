//! Acknowledgements that a polling thread deferred, for all members of a group.
//! They are sent with its next post or poll; here they are sent because it returns the group or goes to sleep.

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

    /// Sends them before the borrower sleeps, because the shard would not.
    pub(crate) fn flush_acks_before_sleep(&self) {
        if self.has_deferred_acks.load(Ordering::SeqCst) {
            let mut out = Outbox::new();
            self.send_deferred_acks(false, &mut out);
            self.core.deliver(&mut out);
        }
    }
}
