//! A copy of an actor's memory at the end of a run, guards included.
//! It has every byte of the actor, written or not; what should be there is checked elsewhere.

use verbena_wire::Stag;

/// Bytes before and behind every region and receive that must not be written.
pub const GUARD: usize = 48;
/// Contents of the guards.
pub const GUARD_BYTE: u8 = 0xa5;
/// Initial contents of a receive.
pub const FRESH_BYTE: u8 = 0xee;

/// Bytes between guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarded(Vec<u8>);

impl Guarded {
    /// These bytes, guarded.
    pub fn new(bytes: &[u8]) -> Guarded {
        let mut all = vec![GUARD_BYTE; GUARD];
        all.extend(bytes);
        all.extend([GUARD_BYTE; GUARD]);
        Guarded(all)
    }

    /// The bytes between the guards.
    pub fn bytes(&self) -> &[u8] {
        &self.0[GUARD..self.0.len() - GUARD]
    }

    /// Bytes from `offset` up to the end of the rear guard; an overrun by less than a guard is detected by a checker.
    pub fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        &mut self.0[GUARD + offset..][..len]
    }

    /// Number of bytes between the guards.
    pub fn len(&self) -> usize {
        self.0.len() - 2 * GUARD
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the guards are unchanged.
    pub fn is_intact(&self) -> bool {
        let (front, rear) = (&self.0[..GUARD], &self.0[self.0.len() - GUARD..]);
        front.iter().chain(rear).all(|&b| b == GUARD_BYTE)
    }
}

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
