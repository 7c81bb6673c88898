//! A copy of an actor's memory at the end of a run, guards included.
//! It has every byte of the actor, written or not; what should be there is checked elsewhere.

use verbena_wire::Stag;

use super::memory::Guarded;

/// One region of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionImage {
    /// Its STag.
    pub stag: Stag,
    /// Whether it was not invalidated.
    pub valid: bool,
    /// Its bytes.
    pub memory: Guarded,
}

/// One receive of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveImage {
    /// Its number.
    pub id: u64,
    /// Its bytes.
    pub memory: Guarded,
}

/// An actor's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    /// Regions in order of their STags.
    pub regions: Vec<RegionImage>,
    /// Receives in order of their numbers, consumed or not.
    pub receives: Vec<ReceiveImage>,
}
