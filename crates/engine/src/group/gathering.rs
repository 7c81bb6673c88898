//! Waking for several things at once: a thread that sleeps with a group has its members keep quiet for a moment, or until much has come.
//! It promises that nothing is kept from anybody for longer than that moment: the sleeper looks then whatever came, and when it wakes for
//! another reason its members speak up again. It refuses to go on where a moment is too short for several things: then it is tried rarely.
//!
//! Each wake-up of a thread takes as long as a handful of short answers. Who reads 4 KiB at a time from an iSCSI target, 64 at a time, took half the
//! processor time with it (docs/performance.md).

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use parking_lot::Mutex;
use verbena_nic::Outbox;

use super::{FEW, Group, Member};
use crate::habit::Habit;
use crate::sys;

/// How long a sleeper may be kept waiting.
pub(crate) const MOMENT: Duration = Duration::from_millis(1);

/// Whether a group's members keep quiet.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Some members can.
    allowed: AtomicBool,
    /// Some do.
    is_on: AtomicBool,
    habit: Mutex<Habit>,
}

impl Gathering {
    pub(super) fn allow(&self, allowed: bool) {
        self.allowed.store(allowed, Ordering::Relaxed);
    }
}

impl Group {
    /// For a thread that is about to sleep with it: true if members keep quiet, so that it must not sleep longer than for the
    /// [moment](MOMENT), and not again before they [speak up](Group::scatter).
    pub(crate) fn gather(&self) -> bool {
        let gathering = &self.gathering;
        if !gathering.allowed.load(Ordering::Relaxed) {
            return false;
        }
        if !self.awaits_several() {
            return false;
        }
        let mut habit = gathering.habit.lock();
        if !habit.is_on() {
            habit.pass();
            return false;
        }
        drop(habit);
        // Before they do, and taken back by who has them speak up alone: another sleeper may wake at any time.
        gathering.is_on.store(true, Ordering::SeqCst);
        let mut any = false;
        self.each_few(&self.few(), |member, out| any |= member.gather(out));
        any
    }

    /// Members woke the sleeper in time.
    pub(super) fn note_gathered(&self) {
        if self.gathering.is_on.load(Ordering::Relaxed) {
            self.gathering.habit.lock().learn(true);
        }
    }

    /// The moment was over before that: the sleeper looks what came.
    pub(crate) fn look_after_gathering(&self) {
        if !self.gathering.is_on.load(Ordering::Relaxed) {
            return;
        }
        self.gathering.habit.lock().learn(false);
        let (now, mut owes) = (sys::now(), false);
        self.each_few(&self.few(), |member, out| {
            owes |= member.poll_turn(now, out);
        });
        if owes {
            self.owe();
        }
    }

    /// Members speak up.
    pub(crate) fn scatter(&self) {
        let gathering = &self.gathering;
        if gathering.is_on.load(Ordering::SeqCst) && gathering.is_on.swap(false, Ordering::SeqCst) {
            self.each_few(&self.few(), |member, out| member.scatter(out));
        }
    }

    /// Whether any of them has reason to. Under the lock: nobody is served, and most of the time the answer is no.
    fn awaits_several(&self) -> bool {
        let members = self.members.read();
        let mut few = members.list.iter().take(FEW);
        few.any(|member| member.awaits_several())
    }

    /// The members that may keep quiet: those that came first.
    fn few(&self) -> ArrayVec<Arc<dyn Member>, FEW> {
        let members = self.members.read();
        members.list.iter().take(FEW).cloned().collect()
    }

    /// Not under the lock: whoever is served may leave.
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
