//! Tests of the grant protocol: plain ones, and a model of every interleaving (`--cfg loom`).

use std::sync::Arc;

use verbena_wire::To;

use super::*;
use crate::access::Access;
use crate::att::Att;
use crate::entry::{Kind, Pd, Policy};

fn entry(len: u64) -> Entry {
    Entry {
        kind: Kind::Region,
        start: To::new(0),
        len,
        pd: Pd(1),
        policy: Policy::Verbs,
        access: Access::ALL.into(),
        one_touch: false,
        invalidatable: false,
        att: Arc::new(Att::direct(core::ptr::null_mut(), len)),
        att_offset: 0,
        parent: None,
    }
}

#[cfg(not(loom))]
mod plain {
    use super::*;

    #[test]
    fn acquire_needs_valid_slot_and_matching_key() {
        let slot = Slot::new(7);
        assert!(slot.acquire(7).is_none(), "free");
        slot.claim().unwrap().publish(7, entry(1));
        assert!(slot.acquire(6).is_none());
        assert_eq!(slot.acquire(7).unwrap().entry(|e| e.len), Some(1));
    }

    #[test]
    fn a_released_slot_changes_its_key() {
        let slot = Slot::new(255);
        slot.claim().unwrap().publish(255, entry(1));
        slot.revoke(Some(255)).unwrap().release();
        assert_eq!(slot.key(), 0);
        assert!(slot.acquire(255).is_none() && slot.acquire(0).is_none());
    }

    #[test]
    fn out_of_turn_claim_and_revoke_fail() {
        let slot = Slot::new(1);
        assert_eq!(slot.revoke(None).unwrap_err(), Unavailable::Invalid);
        slot.claim().unwrap().publish(1, entry(1));
        assert_eq!(slot.claim().unwrap_err(), Unavailable::Valid);
        assert_eq!(slot.revoke(Some(2)).unwrap_err(), Unavailable::Invalid);
        slot.revoke(Some(1)).unwrap().restore();
        assert!(slot.acquire(1).is_some(), "as it was");
    }

    #[test]
    fn pending_slot_can_be_inspected_not_acquired() {
        let slot = Slot::new(1);
        slot.claim().unwrap().publish_pending(1, entry(5));
        assert!(slot.acquire(1).is_none() && slot.is_pending(1));
        assert!(matches!(slot.lookup(2), Lookup::NotFound), "another key");
        let Lookup::Pending(look) = slot.lookup(1) else {
            panic!("not pending");
        };
        assert_eq!(look.entry(|e| e.len), Some(5));
        drop(look);
        assert_eq!(slot.claim().unwrap_err(), Unavailable::Pending);
        assert_eq!(slot.revoke(Some(1)).unwrap_err(), Unavailable::Pending);
        assert_eq!(slot.settle(2).unwrap_err(), Unavailable::Invalid);
        slot.settle(1).unwrap().publish(1, entry(6));
        assert_eq!(slot.acquire(1).unwrap().entry(|e| e.len), Some(6));
        assert_eq!(slot.settle(1).unwrap_err(), Unavailable::Invalid);
    }

    #[test]
    fn a_vacated_slot_keeps_its_key() {
        let slot = Slot::new(9);
        slot.claim().unwrap().publish_pending(9, entry(0));
        slot.settle(9).unwrap().vacate();
        assert_eq!(slot.key(), 9);
        assert!(slot.acquire(9).is_none() && slot.claim().is_ok());
    }

    #[test]
    fn a_revoker_waits_for_the_last_grant() {
        let slot = Slot::new(1);
        slot.claim().unwrap().publish(1, entry(1));
        let done = core::sync::atomic::AtomicBool::new(false);
        let grant = slot.acquire(1).unwrap();
        std::thread::scope(|scope| {
            let revoker = scope.spawn(|| {
                slot.revoke(Some(1)).unwrap().release();
                assert!(done.load(core::sync::atomic::Ordering::SeqCst));
            });
            while slot.acquire(1).is_some() {
                std::thread::yield_now();
            }
            done.store(true, core::sync::atomic::Ordering::SeqCst);
            drop(grant);
            revoker.join().unwrap();
        });
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two users and a revoker: an entry is never changed while a user reads it, and no user sees a torn or old one.
    #[test]
    fn concurrent_users_never_see_a_changing_entry() {
        loom::model(|| {
            let slot = Arc::new(Slot::new(1));
            slot.claim().unwrap().publish(1, entry(1));
            let users: Vec<_> = (0..2)
                .map(|_| {
                    let slot = slot.clone();
                    thread::spawn(move || {
                        if let Some(grant) = slot.acquire(1) {
                            assert_eq!(grant.entry(|e| e.len), Some(1));
                        }
                    })
                })
                .collect();
            slot.revoke(Some(1)).unwrap().release();
            assert!(slot.acquire(1).is_none());
            for user in users {
                user.join().unwrap();
            }
        });
    }

    /// A slot is published again under another key while a user looks up the old key.
    #[test]
    fn old_key_never_reads_the_reused_slot() {
        loom::model(|| {
            let slot = Arc::new(Slot::new(1));
            slot.claim().unwrap().publish(1, entry(1));
            let user = {
                let slot = slot.clone();
                thread::spawn(move || {
                    if let Some(grant) = slot.acquire(1) {
                        assert_eq!(grant.entry(|e| e.len), Some(1));
                    }
                })
            };
            slot.revoke(Some(1)).unwrap().publish(2, entry(2));
            assert_eq!(slot.acquire(2).unwrap().entry(|e| e.len), Some(2));
            user.join().unwrap();
        });
    }

    /// Of two concurrent revokers exactly one succeeds.
    #[test]
    fn one_of_two_revokers_succeeds() {
        loom::model(|| {
            let slot = Arc::new(Slot::new(1));
            slot.claim().unwrap().publish(1, entry(1));
            let other = {
                let slot = slot.clone();
                thread::spawn(move || slot.revoke(Some(1)).map(Owned::release).is_ok())
            };
            let ours = slot.revoke(Some(1)).map(Owned::release).is_ok();
            assert!(ours != other.join().unwrap());
        });
    }

    /// V5: a pending entry becomes valid while two users look it up. None uses it before, none sees a torn one, and a user
    /// that finds it pending reads the reserved entry.
    #[test]
    fn users_never_see_a_half_completed_entry() {
        loom::model(|| {
            let slot = Arc::new(Slot::new(1));
            slot.claim().unwrap().publish_pending(1, entry(1));
            let users: Vec<_> = (0..2)
                .map(|_| {
                    let slot = slot.clone();
                    thread::spawn(move || match slot.lookup(1) {
                        Lookup::Valid(grant) => assert_eq!(grant.entry(|e| e.len), Some(2)),
                        Lookup::Pending(look) => assert_eq!(look.entry(|e| e.len), Some(1)),
                        // V5: to be tried again, not a failure.
                        Lookup::Settling => {}
                        Lookup::NotFound => panic!("promised, and not there"),
                    })
                })
                .collect();
            slot.settle(1).unwrap().publish(1, entry(2));
            assert!(slot.acquire(1).is_some());
            for user in users {
                user.join().unwrap();
            }
        });
    }

    /// V5: of concurrent completion and removal exactly one settles the pending entry.
    #[test]
    fn completion_or_cancellation_settles_exactly_once() {
        loom::model(|| {
            let slot = Arc::new(Slot::new(1));
            slot.claim().unwrap().publish_pending(1, entry(1));
            let other = {
                let slot = slot.clone();
                thread::spawn(move || slot.settle(1).map(Owned::release).is_ok())
            };
            let ours = slot
                .settle(1)
                .map(|owned| owned.publish(1, entry(2)))
                .is_ok();
            assert!(ours != other.join().unwrap());
            assert_eq!(slot.acquire(1).is_some(), ours);
        });
    }

    /// M9: two messages end in a one-touch entry at once, each with a grant; exactly one of them is the first, and removes the
    /// entry when both grants are dropped.
    #[test]
    fn one_of_two_touches_is_first() {
        loom::model(|| {
            let slot = Arc::new(Slot::new(1));
            slot.claim().unwrap().publish(1, entry(1));
            let touch = |slot: &Slot, number| {
                let Some(grant) = slot.acquire(1) else {
                    return false;
                };
                let first = grant.slot().set_touch(Touch::Held(number)).is_ok();
                drop(grant);
                if first {
                    slot.revoke(Some(1)).unwrap().release();
                }
                first
            };
            let other = {
                let slot = slot.clone();
                thread::spawn(move || touch(&slot, 1))
            };
            let ours = touch(&slot, 2);
            assert!(ours != other.join().unwrap());
            assert!(slot.acquire(1).is_none() && slot.was_spent(1));
            slot.claim().unwrap().publish(3, entry(3));
            assert_eq!(slot.touch(), None);
        });
    }
}
