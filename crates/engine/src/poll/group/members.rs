//! The members of a group (connections, and streams of upper-layer protocols) in a list and by token.
//! Finding, adding and removing one takes constant time; removal changes the order, as the last one takes the free position.

use std::sync::Arc;

use verbena_nic::Outbox;
use verbena_stream::Time;
use verbena_sync::atomic::Ordering;

use super::{Group, MAX_DIRECT_POLL};
use crate::poll::shard::ByToken;
use crate::sys::{self, Doorbell, Interest, Socket};

/// An object with a socket that is served together with others that complete in the same queue.
pub(crate) trait Member: Send + Sync {
    /// Its token in the poller.
    fn token(&self) -> u64;

    /// The socket for both directions, or for writes only if there is a second one for reads.
    fn sockets(&self) -> (&Socket, Option<&Socket>);

    /// The doorbell that is rung when a sleeping thread is to serve it, beside what its sockets report.
    fn doorbell(&self) -> Option<&Doorbell> {
        None
    }

    /// Whether room in its socket is what it waits for when it cannot write.
    fn watches_room(&self) -> bool {
        true
    }

    /// A thread is about to sleep in the group's poller: what arrives from now on, and what has arrived, must wake it.
    fn prepare_sleep(&self) {}

    /// A full turn: reads what is there, then sends.
    fn turn(&self, out: &mut Outbox);

    /// A turn of a thread that polls or sleeps with the group; true if something to send was deferred.
    fn poll_turn(&self, now: Time, out: &mut Outbox) -> bool;

    /// Sends what was deferred; `late` if the borrower stayed away.
    fn send_deferred(&self, late: bool, out: &mut Outbox);

    /// Bytes sent and received, where they are counted.
    fn byte_count(&self) -> u64 {
        0
    }

    /// It supports wake-up coalescing.
    fn can_coalesce(&self) -> bool {
        false
    }

    /// Several responses are outstanding. Called with the members' lock held: it must not take a turn.
    fn awaits_several(&self) -> bool {
        false
    }

    /// A thread sleeps with the group and checks again after [`COALESCING_DELAY`](super::COALESCING_DELAY): until then the socket need not wake it for each
    /// response. True if it does not.
    fn begin_coalescing(&self, _: &mut Outbox) -> bool {
        false
    }

    /// Ends coalescing: the socket wakes for all input.
    fn end_coalescing(&self, _: &mut Outbox) {}
}

#[derive(Default)]
pub(super) struct Members {
    pub(super) list: Vec<Arc<dyn Member>>,
    /// The position of each one in the list, which may have thousands.
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
    /// Adds a member; it is not watched yet.
    pub(crate) fn join(&self, member: Arc<dyn Member>) {
        let mut members = self.members.write();
        members.add(member);
        self.update_member_flags(&members);
    }

    /// Watches a member for this from now on; `again` if it was watched before.
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
                // Each end for its direction.
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

    /// Stops watching a member for now.
    pub(crate) fn unwatch(&self, member: &dyn Member) {
        let (socket, other) = member.sockets();
        for socket in [Some(socket), other].into_iter().flatten() {
            let _ = self.poller.remove(socket);
        }
    }

    /// The member has a doorbell from now on.
    pub(crate) fn watch_doorbell(&self, member: &dyn Member) -> sys::Result<()> {
        match member.doorbell() {
            Some(doorbell) => self.poller.add(doorbell, member.token(), Interest::READ),
            None => Ok(()),
        }
    }

    pub(crate) fn leave(&self, member: &dyn Member) {
        self.unwatch(member);
        if let Some(doorbell) = member.doorbell() {
            let _ = self.poller.remove(doorbell);
        }
        let gone = {
            let mut members = self.members.write();
            let gone = members.remove(member.token());
            self.update_member_flags(&members);
            gone
        };
        drop(gone);
    }

    fn update_member_flags(&self, members: &Members) {
        let crowded = members.list.len() > MAX_DIRECT_POLL;
        self.crowded.store(crowded, Ordering::Relaxed);
        let possible = !members.list.is_empty();
        self.poll_sleep.possible.store(possible, Ordering::Relaxed);
        let can_coalesce = !crowded && members.list.iter().any(|one| one.can_coalesce());
        self.coalescing.allow(can_coalesce);
    }
}
