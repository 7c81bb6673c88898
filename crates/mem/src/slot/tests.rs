//! Tests of the grant protocol: plain ones, and a model of every interleaving (`--cfg loom`).

use std::sync::Arc;

use verbena_wire::To;

use super::*;
use crate::access::Access;
use crate::att::Att;
use crate::entry::{Kind, Pd};

fn entry(len: u64) -> Entry {
    Entry {
        kind: Kind::Region,
        start: To::new(0),
        len,
        pd: Pd(1),
        access: Access::ALL,
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
    fn only_the_right_key_of_a_valid_slot_is_granted() {
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
    fn claims_and_revocations_out_of_turn() {
        let slot = Slot::new(1);
        assert_eq!(slot.revoke(None).unwrap_err(), Unavailable::Invalid);
        slot.claim().unwrap().publish(1, entry(1));
        assert_eq!(slot.claim().unwrap_err(), Unavailable::Valid);
        assert_eq!(slot.revoke(Some(2)).unwrap_err(), Unavailable::Invalid);
        slot.revoke(Some(1)).unwrap().restore();
        assert!(slot.acquire(1).is_some(), "as it was");
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

    /// Two users and a revoker: an entry is never changed under a user, and no user sees a torn or old one.
    #[test]
    fn users_against_a_revoker() {
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

    /// A slot that is published again under another key while a user with the old key looks.
    #[test]
    fn a_user_with_an_old_key_against_reuse() {
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

    /// Two revokers: exactly one wins.
    #[test]
    fn two_revokers() {
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
}
