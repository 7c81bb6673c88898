//! Acknowledgements that a polling thread put off, of all members of a group.
//! They leave with its next post or poll; here they leave because it gives the group back or goes to sleep.

use std::sync::atomic::Ordering;

use verbena_nic::Outbox;

use super::Group;

impl Group {
    /// Acknowledgements were put off.
    pub(super) fn owe(&self) {
        self.owes.store(true, Ordering::SeqCst);
        self.trust.end();
    }

    /// Sends the acknowledgements that a polling thread put off; `late` if it stayed away with them.
    pub(super) fn pay(&self, late: bool, out: &mut Outbox) {
        if self.owes.swap(false, Ordering::SeqCst) {
            let members = self.members.read().list.clone();
            for connection in members {
                connection.send_deferred(late, out);
            }
        }
    }

    /// What was put off leaves: nobody would send it while its borrower sleeps.
    pub(crate) fn pay_before_sleep(&self) {
        if self.owes.load(Ordering::SeqCst) {
            let mut out = Outbox::new();
            self.pay(false, &mut out);
            self.core.deliver(&mut out);
        }
    }
}
