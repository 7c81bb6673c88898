//! Tests of wake-up coalescing: when it begins, and what ends it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::*;
use crate::config::Config;
use crate::core::Core;
use crate::sys::Socket;
use crate::sys::testing::connection;

/// A member that always coalesces, and counts its turns.
struct CoalescingMember {
    token: u64,
    socket: Socket,
    /// The group that it leaves when coalescing ends.
    leaves: Mutex<Option<Arc<Group>>>,
    coalesces: AtomicBool,
    turns: AtomicU32,
}

impl Member for CoalescingMember {
    fn token(&self) -> u64 {
        self.token
    }

    fn sockets(&self) -> (&Socket, Option<&Socket>) {
        (&self.socket, None)
    }

    fn turn(&self, _: &mut Outbox) {}

    fn poll_turn(&self, _: verbena_stream::Time, _: &mut Outbox) -> bool {
        self.turns.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn send_deferred(&self, _: bool, _: &mut Outbox) {}

    fn can_coalesce(&self) -> bool {
        true
    }

    fn awaits_several(&self) -> bool {
        true
    }

    fn begin_coalescing(&self, _: &mut Outbox) -> bool {
        self.coalesces.store(true, Ordering::Relaxed);
        true
    }

    fn end_coalescing(&self, _: &mut Outbox) {
        self.coalesces.store(false, Ordering::Relaxed);
        if let Some(group) = self.leaves.lock().take() {
            group.leave(self);
        }
    }
}

fn group() -> (Arc<Group>, Arc<CoalescingMember>) {
    let core = Core::new(Config::default()).unwrap();
    let group = Group::new(&core).unwrap();
    assert!(!group.begin_coalescing(), "no member is there");
    let member = join(&group, 77);
    (group, member)
}

fn join(group: &Group, token: u64) -> Arc<CoalescingMember> {
    let member = Arc::new(CoalescingMember {
        token,
        leaves: Mutex::default(),
        socket: connection(Ipv4Addr::LOCALHOST.into()).0,
        coalesces: AtomicBool::new(false),
        turns: AtomicU32::new(0),
    });
    group.join(member.clone());
    member
}

fn coalesces(member: &CoalescingMember) -> bool {
    member.coalesces.load(Ordering::Relaxed)
}

/// Any wake-up ends it, also a cancellation: the thread may not come back soon, and other threads must be woken.
#[test]
fn wakeup_ends_coalescing() {
    let (group, member) = group();
    group.begin_sleep();
    assert!(group.begin_coalescing());
    assert!(coalesces(&member));
    group.end_sleep(sys::now());
    assert!(!coalesces(&member));
}

#[test]
fn failed_coalescing_serves_members_and_backs_off() {
    let (group, member) = group();
    assert!(group.begin_coalescing());
    group.poll_after_coalescing();
    assert_eq!(member.turns.load(Ordering::Relaxed), 1);
    group.end_coalescing();
    assert!(!group.begin_coalescing());
    assert!(!group.begin_coalescing());
    assert!(!coalesces(&member));
    assert!(group.begin_coalescing(), "tried again");
    group.note_coalesced_wakeup();
    group.end_coalescing();
    assert!(group.begin_coalescing(), "it paid");
}

#[test]
fn group_without_members_does_not_coalesce() {
    let (group, member) = group();
    group.leave(&*member);
    assert!(!group.begin_coalescing());
}

/// A queue pair that ended leaves its group in its next turn.
#[test]
fn member_that_leaves_does_not_skip_others() {
    let (group, first) = group();
    let second = join(&group, 78);
    *first.leaves.lock() = Some(group.clone());
    assert!(group.begin_coalescing());
    assert!(coalesces(&first) && coalesces(&second));
    group.end_coalescing();
    assert!(!coalesces(&first) && !coalesces(&second));
}
