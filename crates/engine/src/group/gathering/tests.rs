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
struct Quiet {
    token: u64,
    socket: Socket,
    /// The group that it leaves when coalescing ends.
    leaves: Mutex<Option<Arc<Group>>>,
    is_quiet: AtomicBool,
    turns: AtomicU32,
}

impl Member for Quiet {
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

    fn can_gather(&self) -> bool {
        true
    }

    fn awaits_several(&self) -> bool {
        true
    }

    fn gather(&self, _: &mut Outbox) -> bool {
        self.is_quiet.store(true, Ordering::Relaxed);
        true
    }

    fn scatter(&self, _: &mut Outbox) {
        self.is_quiet.store(false, Ordering::Relaxed);
        if let Some(group) = self.leaves.lock().take() {
            group.leave(self);
        }
    }
}

fn group() -> (Arc<Group>, Arc<Quiet>) {
    let core = Core::new(Config::default()).unwrap();
    let group = Group::new(&core).unwrap();
    assert!(!group.gather(), "nobody is there");
    let member = join(&group, 77);
    (group, member)
}

fn join(group: &Group, token: u64) -> Arc<Quiet> {
    let member = Arc::new(Quiet {
        token,
        leaves: Mutex::default(),
        socket: connection(Ipv4Addr::LOCALHOST.into()).0,
        is_quiet: AtomicBool::new(false),
        turns: AtomicU32::new(0),
    });
    group.join(member.clone());
    member
}

fn is_quiet(member: &Quiet) -> bool {
    member.is_quiet.load(Ordering::Relaxed)
}

/// Any wake-up ends it, also a cancellation: the thread may not come back soon, and other threads must be woken.
#[test]
fn wakeup_ends_coalescing() {
    let (group, member) = group();
    group.fall_asleep();
    assert!(group.gather());
    assert!(is_quiet(&member));
    group.wake_up(sys::now());
    assert!(!is_quiet(&member));
}

#[test]
fn failed_coalescing_serves_members_and_backs_off() {
    let (group, member) = group();
    assert!(group.gather());
    group.look_after_gathering();
    assert_eq!(member.turns.load(Ordering::Relaxed), 1);
    group.scatter();
    assert!(!group.gather());
    assert!(!group.gather());
    assert!(!is_quiet(&member));
    assert!(group.gather(), "tried again");
    group.note_gathered();
    group.scatter();
    assert!(group.gather(), "it paid");
}

#[test]
fn group_without_members_does_not_coalesce() {
    let (group, member) = group();
    group.leave(&*member);
    assert!(!group.gather());
}

/// A queue pair that ended leaves its group in its next turn.
#[test]
fn member_that_leaves_does_not_skip_others() {
    let (group, first) = group();
    let second = join(&group, 78);
    *first.leaves.lock() = Some(group.clone());
    assert!(group.gather());
    assert!(is_quiet(&first) && is_quiet(&second));
    group.scatter();
    assert!(!is_quiet(&first) && !is_quiet(&second));
}
