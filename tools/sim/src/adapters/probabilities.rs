//! Probabilities of the rarer faults in a run of adapters.
//! They are high enough that a thousand seeds cover each, and low enough that most pairs have none. Probabilities of what is drawn in
//! every run are where it is drawn.
//!
//! These are drawn from a separate generator ([`World::extra_rng`](super::world::World)), so that adding one did not change the runs of
//! seeds that draw none of them.

use crate::rng::Ratio;

/// A host whose peers may name windows only (M7).
pub(super) const WINDOWS_ONLY: Ratio = Ratio::per_mille(120);
/// A side of a reliable pair that does not allow its peer to write, read, or use atomics.
pub(super) const DISABLED: Ratio = Ratio::per_mille(120);
/// A side that does not wait for receivers at all (`rnr_retry` 0).
pub(super) const NO_RNR_RETRY: Ratio = Ratio::per_mille(60);
/// A side of a RoCEv2 connection with a limited number of RNR retries.
pub(super) const RNR_LIMITED: Ratio = Ratio::per_mille(100);
/// A side of a RoCEv2 connection with so few retries that lost packets may use them up.
pub(super) const RETRY_LIMITED: Ratio = Ratio::per_mille(50);
/// A pair with checksums whose links flip bits.
pub(super) const FLIPPING: Ratio = Ratio::per_mille(60);
/// How often such a link flips a bit of a piece.
pub(super) const FLIP_RATES: [u16; 4] = [1, 5, 20, 100];
/// A run in which the faults below happen; each is a probability per step.
pub(super) const RARE_FAULTS: Ratio = Ratio::per_mille(400);
/// Such a run in which several queue pairs wait for one shared receive queue.
pub(super) const SRQ_CONTENTION: Ratio = Ratio::per_mille(150);
/// How many more pairs it has then.
pub(super) const EXTRA_PAIRS: usize = 4;
/// A queue pair is reset under traffic.
pub(super) const RESET_QP: Ratio = Ratio::per_mille(6);
/// A side with the iWARP personality closes, idle or not.
pub(super) const CLOSE: Ratio = Ratio::per_mille(12);
/// A queue pair to which a shared receive may have been assigned is failed before it takes it.
pub(super) const FAIL_ASSIGNED: Ratio = Ratio::per_mille(25);
/// A request is posted that the peer's domain, policy or queue pair forbids.
pub(super) const FORBIDDEN: Ratio = Ratio::per_mille(12);
/// A receive in memory of another domain is posted.
pub(super) const FOREIGN_RECEIVE: Ratio = Ratio::per_mille(3);
/// A queue pair that was reset or closed gets a new partner.
pub(super) const REUSE: Ratio = Ratio::per_mille(600);
/// A run whose connections move to other queue pairs under traffic (V1); drawn from another generator.
pub(super) const MIGRATING: Ratio = Ratio::per_mille(300);
/// One of them does, per step of such a run.
pub(super) const MIGRATE: Ratio = Ratio::per_mille(400);
/// A shared receive queue is armed for its limit event; per step of any run.
pub(super) const ARM: Ratio = Ratio::per_mille(60);
/// A one-touch window (M9); drawn, like the next, from another generator.
pub(super) const ONE_TOUCH: Ratio = Ratio::per_mille(500);
/// A peer that writes through such a window a second time.
pub(super) const TOUCH_AGAIN: Ratio = Ratio::per_mille(300);
