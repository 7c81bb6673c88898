//! Wake-up coalescing: while a thread sleeps with a group, its members wake it only after [`COALESCING_DELAY`], or when much has arrived.
//! The sleeper checks all members after that time, and any other wake-up ends the coalescing, so input is delayed by [`COALESCING_DELAY`] at most. If members
//! did not end the sleep by themselves, coalescing is tried less often.
//!
//! A wake-up of a thread takes as long as a handful of short responses. A program that reads 4 KiB at a time from an iSCSI target, 64 at a time,
//! took half the processor time with it (docs/performance.md).

use core::time::Duration;
use std::sync::Arc;

use arrayvec::ArrayVec;
use verbena_nic::Outbox;
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_sync::locks::Mutex;

use super::{Group, MAX_DIRECT_POLL, Member};
use crate::poll::backoff::Backoff;
use crate::sys;

/// How long a response may be delayed.
pub(crate) const COALESCING_DELAY: Duration = Duration::from_millis(1);

/// State of wake-up coalescing.
#[derive(Debug, Default)]
pub(super) struct WakeupCoalescing {
    /// Some members support it.
    allowed: AtomicBool,
    /// It may be on for some members.
    is_on: AtomicBool,
    backoff: Mutex<Backoff>,
}

impl WakeupCoalescing {
    pub(super) fn allow(&self, allowed: bool) {
        self.allowed.store(allowed, Ordering::Relaxed);
    }
}

impl Group {
    /// For a thread that is about to sleep with the group: true if members coalesce, so that it must sleep for [`COALESCING_DELAY`] at most, and
    /// must end it with [`end_coalescing`](Group::end_coalescing) before it sleeps again.
    pub(crate) fn begin_coalescing(&self) -> bool {
        let coalescing = &self.coalescing;
        if !coalescing.allowed.load(Ordering::Relaxed) {
            return false;
        }
        if !self.awaits_several() {
            return false;
        }
        let mut attempts = coalescing.backoff.lock();
        if !attempts.should_attempt() {
            attempts.skip();
            return false;
        }
        drop(attempts);
        // Set first, and cleared by the one thread that ends it: another sleeper may wake at any time.
        coalescing.is_on.store(true, Ordering::SeqCst);
        let mut any = false;
        self.each_few(&self.few(), |member, out| {
            any |= member.begin_coalescing(out);
        });
        any
    }

    /// A member woke the sleeper in time.
    pub(super) fn note_coalesced_wakeup(&self) {
        if self.coalescing.is_on.load(Ordering::Relaxed) {
            self.coalescing.backoff.lock().record(true);
        }
    }

    /// No member did: the sleeper checks them itself.
    pub(crate) fn poll_after_coalescing(&self) {
        if !self.coalescing.is_on.load(Ordering::Relaxed) {
            return;
        }
        self.coalescing.backoff.lock().record(false);
        let (now, mut owes) = (sys::now(), false);
        self.each_few(&self.few(), |member, out| {
            owes |= member.poll_turn(now, out);
        });
        if owes {
            self.note_deferred_acks();
        }
    }

    /// Ends coalescing.
    pub(crate) fn end_coalescing(&self) {
        let coalescing = &self.coalescing;
        if coalescing.is_on.load(Ordering::SeqCst) && coalescing.is_on.swap(false, Ordering::SeqCst)
        {
            self.each_few(&self.few(), |member, out| member.end_coalescing(out));
        }
    }

    /// Whether a member has several responses outstanding. The lock is held because no turn is taken, and the answer is mostly no.
    fn awaits_several(&self) -> bool {
        let members = self.members.read();
        let mut few = members.list.iter().take(MAX_DIRECT_POLL);
        few.any(|member| member.awaits_several())
    }

    /// Copies of the first [`MAX_DIRECT_POLL`] members; groups with more do not coalesce.
    fn few(&self) -> ArrayVec<Arc<dyn Member>, MAX_DIRECT_POLL> {
        let members = self.members.read();
        members.list.iter().take(MAX_DIRECT_POLL).cloned().collect()
    }

    /// The lock is not held: a member may leave in its turn.
    fn each_few(
        &self,
        members: &[Arc<dyn Member>],
        mut work: impl FnMut(&dyn Member, &mut Outbox),
    ) {
        let mut out = Outbox::new();
        for member in members {
            work(&**member, &mut out);
        }
        self.core.deliver(&mut out);
    }
}

#[cfg(test)]
mod tests;
