//! A copy of an actor's memory at the end of a run, guards included.
//! It promises to show every byte the actor owned, touched or not.
//! It refuses to say what should be there; that is a checker's business.

use verbena_wire::Stag;

use super::memory::Guarded;

/// One region of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionImage {
    /// Its name.
    pub stag: Stag,
    /// It was not invalidated.
    pub valid: bool,
    /// Its bytes.
    pub memory: Guarded,
}

/// One receive of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveImage {
    /// The number it was supplied under.
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
