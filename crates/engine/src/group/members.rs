//! The members of a group — connections, and streams of other drivers — in a list and by name.
//! It promises that finding, adding and removing one takes no longer the more there are.
//! It refuses to keep an order: who leaves is replaced by the last.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbena_nic::Outbox;
use verbena_stream::Time;

use super::{FEW, Group};
use crate::shard::ByToken;
use crate::sys::{self, Interest, Socket};

/// Whoever has a socket and is served with others that complete in the same queue.
pub(crate) trait Member: Send + Sync {
    /// Its name in the poller.
    fn token(&self) -> u64;

    /// Where bytes leave and come, and where they come instead if there is another end for that.
    fn sockets(&self) -> (&Socket, Option<&Socket>);

    /// A full turn: reads what is there, then sends.
    fn turn(&self, out: &mut Outbox);

    /// A turn of a thread that polls or sleeps with it; true if something to send was put off.
    fn poll_turn(&self, now: Time, out: &mut Outbox) -> bool;

    /// Sends what was put off; `late` if its borrower stayed away with it.
    fn send_deferred(&self, late: bool, out: &mut Outbox);

    /// Bytes that it has sent and received, where they are counted.
    fn carried(&self) -> u64 {
        0
    }

    /// It may wake for several things at once.
    fn can_gather(&self) -> bool {
        false
    }

    /// Several things are to come by now. Asked under the members' lock: it only looks.
    fn awaits_several(&self) -> bool {
        false
    }

    /// A thread sleeps with it that looks again in a moment: for as long, its socket need not wake anybody for each thing that comes. True
    /// if it does not.
    fn gather(&self, _: &mut Outbox) -> bool {
        false
    }

    /// From now on it wakes for everything.
    fn scatter(&self, _: &mut Outbox) {}
}

#[derive(Default)]
pub(super) struct Members {
    pub(super) list: Vec<Arc<dyn Member>>,
    /// Where each one is in the list: there may be thousands, and they come and go.
    places: ByToken<usize>,
}

impl Members {
    pub(super) fn add(&mut self, member: Arc<dyn Member>) {
        self.places.insert(member.token(), self.list.len());
        self.list.push(member);
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<Arc<dyn Member>> {
        let at = self.places.remove(&token)?;
        let gone = self.list.swap_remove(at);
        if let Some(moved) = self.list.get(at) {
            self.places.insert(moved.token(), at);
        }
        Some(gone)
    }

    pub(super) fn find(&self, token: u64) -> Option<Arc<dyn Member>> {
        let at = *self.places.get(&token)?;
        self.list.get(at).cloned()
    }
}

impl Group {
    /// A member joins; it is not watched yet.
    pub(crate) fn join(&self, member: Arc<dyn Member>) {
        let mut members = self.members.write();
        members.add(member);
        self.note_crowd(&members);
    }

    /// A member is watched for this from now on; `again` if it was watched before.
    pub(crate) fn watch(
        &self,
        member: &dyn Member,
        interest: Interest,
        again: bool,
    ) -> sys::Result<()> {
        let ((socket, other), token) = (member.sockets(), member.token());
        let watch = |socket: &Socket, interest| {
            if again {
                self.poller.arm(socket, token, interest)
            } else {
                self.poller.add(socket, token, interest)
            }
        };
        match other {
            None => watch(socket, interest),
            Some(other) => {
                // Each end for what it is there for.
                watch(
                    other,
                    Interest {
                        write: false,
                        ..interest
                    },
                )?;
                watch(
                    socket,
                    Interest {
                        read: false,
                        ..interest
                    },
                )
            }
        }
    }

    /// A member is not watched for now: nothing that could be told of it would be news.
    pub(crate) fn set_aside(&self, member: &dyn Member) {
        let (socket, other) = member.sockets();
        for socket in [Some(socket), other].into_iter().flatten() {
            let _ = self.poller.remove(socket);
        }
    }

    pub(crate) fn leave(&self, member: &dyn Member) {
        self.set_aside(member);
        let gone = {
            let mut members = self.members.write();
            let gone = members.remove(member.token());
            self.note_crowd(&members);
            gone
        };
        drop(gone);
    }

    fn note_crowd(&self, members: &Members) {
        let crowded = members.list.len() > FEW;
        self.crowded.store(crowded, Ordering::Relaxed);
        let possible = !members.list.is_empty();
        self.nap.possible.store(possible, Ordering::Relaxed);
        let can_gather = !crowded && members.list.iter().any(|one| one.can_gather());
        self.gathering.allow(can_gather);
    }
}
