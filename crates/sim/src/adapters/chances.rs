//! How often the rarer troubles of an adapter world happen, each under its name.
//! They promise to be frequent enough that a thousand seeds meet every one, and rare enough that most pairs stay whole.
//! What is drawn in every world is where it is drawn.
//!
//! These are drawn from a source of their own ([`World::extra`](super::drive::World)), so that a seed that meets none of
//! them tells the story it told before they were there.

use crate::rng::Ratio;

/// A host whose peers may name windows only (M7).
pub(super) const WINDOWS_ONLY: Ratio = Ratio::per_mille(120);
/// A side of a reliable pair that does not let its peer write, read, or do atomics.
pub(super) const DISABLED: Ratio = Ratio::per_mille(120);
/// A side that does not wait for receivers at all (`rnr_retry` 0).
pub(super) const HASTY: Ratio = Ratio::per_mille(60);
/// A pair with checksums whose links flip bits.
pub(super) const FLIPPING: Ratio = Ratio::per_mille(60);
/// How often such a link flips a bit of a piece.
pub(super) const FLIPS: [u16; 4] = [1, 5, 20, 100];
/// A world in which the troubles below happen; each is a chance per step.
pub(super) const TROUBLED: Ratio = Ratio::per_mille(400);
/// A troubled world in which one shared receive queue has several queue pairs that wait for it.
pub(super) const CROWDED: Ratio = Ratio::per_mille(150);
/// How many more pairs that means.
pub(super) const CROWD: usize = 4;
/// A queue pair is emptied under traffic.
pub(super) const EMPTY: Ratio = Ratio::per_mille(6);
/// A side of the RDMA Consortium's manners closes, in peace or not.
pub(super) const CLOSE: Ratio = Ratio::per_mille(12);
/// A queue pair that may have been promised a shared receive goes away before it takes it.
pub(super) const STRAND: Ratio = Ratio::per_mille(25);
/// A request is posted that domain, policy or queue pair of the peer refuse.
pub(super) const UNWELCOME: Ratio = Ratio::per_mille(12);
/// A receive in memory of another domain is posted.
pub(super) const FOREIGN_RECEIVE: Ratio = Ratio::per_mille(3);
/// A queue pair that ended its life, emptied or closed, gets a new partner.
pub(super) const REUSE: Ratio = Ratio::per_mille(600);
/// A world whose connections move to other queue pairs under traffic (V1); drawn from yet another source.
pub(super) const MOVING: Ratio = Ratio::per_mille(300);
/// One of them does, per step of such a world.
pub(super) const MOVE: Ratio = Ratio::per_mille(400);
/// A shared receive queue is armed to tell when it runs low; per step of any world.
pub(super) const ARM: Ratio = Ratio::per_mille(60);
/// A window that dies with the first message that ends in it (M9); drawn, like the next, from a source of its own.
pub(super) const ONE_TOUCH: Ratio = Ratio::per_mille(500);
/// A peer that writes through such a window although it has done so before.
pub(super) const TOUCH_AGAIN: Ratio = Ratio::per_mille(300);
