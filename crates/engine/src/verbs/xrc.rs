//! XRC domains that several processes of a user have: who is in one, and conversations between them (docs/decisions.md, decision 54).
//! A process has one of [`MEMBERS`] numbers in a domain as long as it listens at the name with this number, which the kernel frees when it ends.
//! The upper bits of a shared receive queue's number are its process's, so that nothing else must be agreed.

mod member;
mod open_target;
mod path;
mod server;
mod waiters;

pub(crate) use member::{Member, XrcFile};
pub use open_target::{TargetElsewhere, TargetHandle};
pub(crate) use waiters::XrcWaiters;

use verbena_nic::Outbox;

/// The numbers of processes, at most so many in a domain.
const MEMBERS: u32 = 1 << 10;
/// Shared receive queues that a process may have in a domain.
const QUEUES: u32 = 1 << 14;
const _: () = assert!(MEMBERS * QUEUES == 1 << 24);

/// The engine, as these parts know it.
pub(crate) trait XrcHost: Send + Sync {
    /// Handles what a turn left in its outbox. The caller holds no lock.
    fn deliver(&self, out: &mut Outbox);

    /// What waits for receives on behalf of other processes.
    fn waiters(&self) -> &XrcWaiters;
}
