//! A simple memory: regions in a map, each a vector of bytes between two guards.
//! Every access outside a region or its rights fails before a byte is moved.

use std::collections::BTreeMap;

use verbena_stream::AccessFault;
use verbena_wire::rdmap::AtomicOp;
use verbena_wire::{Stag, To};

use crate::work::TaggedAddr;

/// Bytes before and behind every region and receive that must not be written.
pub const GUARD: usize = 48;
/// Contents of the guards.
pub const GUARD_BYTE: u8 = 0xa5;
/// Initial contents of a receive.
pub const FRESH_BYTE: u8 = 0xee;

/// A kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// RDMA Write by the peer.
    RemoteWrite,
    /// RDMA Read by the peer.
    RemoteRead,
    /// Atomics by the peer.
    RemoteAtomic,
    /// Sink of a local read.
    LocalWrite,
}

/// The rights of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    /// RDMA Write by the peer.
    pub remote_write: bool,
    /// RDMA Read by the peer.
    pub remote_read: bool,
    /// Atomics by the peer.
    pub remote_atomic: bool,
    /// Sink of a local read.
    pub local_write: bool,
}

impl Rights {
    fn grants(self, right: Right) -> bool {
        match right {
            Right::RemoteWrite => self.remote_write,
            Right::RemoteRead => self.remote_read,
            Right::RemoteAtomic => self.remote_atomic,
            Right::LocalWrite => self.local_write,
        }
    }
}

/// A region to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSpec {
    /// Its STag and the address of its first byte.
    pub at: TaggedAddr,
    /// Its initial contents.
    pub bytes: Vec<u8>,
    /// Its access rights.
    pub rights: Rights,
}

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

#[derive(Debug, Clone)]
struct Region {
    base: To,
    rights: Rights,
    valid: bool,
    memory: Guarded,
}

/// Regions by STag.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    regions: BTreeMap<u32, Region>,
}

impl Memory {
    /// Registers a region.
    pub fn register(&mut self, spec: &RegionSpec) {
        let region = Region {
            base: spec.at.to,
            rights: spec.rights,
            valid: true,
            memory: Guarded::new(&spec.bytes),
        };
        self.regions.insert(spec.at.stag.get(), region);
    }

    /// Every region, valid or not, in order of its STag.
    pub fn regions(&self) -> impl Iterator<Item = (Stag, bool, &Guarded)> {
        let all = self.regions.iter();
        all.map(|(&stag, r)| (Stag::new(stag), r.valid, &r.memory))
    }

    /// Whether `len` bytes at `at` may be accessed so. The order of checks is that of RFC 5040 §8.1.1: STag, right, bounds.
    pub fn check(&self, at: TaggedAddr, len: u32, right: Right) -> Result<(), AccessFault> {
        self.resolve(at, len, right).map(|_| ())
    }

    fn resolve(&self, at: TaggedAddr, len: u32, right: Right) -> Result<(u32, usize), AccessFault> {
        let region = self.regions.get(&at.stag.get()).filter(|r| r.valid);
        let region = region.ok_or(AccessFault::InvalidStag)?;
        if !region.rights.grants(right) {
            return Err(AccessFault::Rights);
        }
        let end = at.to.checked_add(u64::from(len));
        end.ok_or(AccessFault::Wrap)?;
        let offset = at.to.get().checked_sub(region.base.get());
        let offset = offset.ok_or(AccessFault::Bounds)?;
        let fits = offset
            .checked_add(u64::from(len))
            .is_some_and(|end| end <= region.memory.len() as u64);
        if fits {
            Ok((at.stag.get(), offset as usize))
        } else {
            Err(AccessFault::Bounds)
        }
    }

    /// Writes bytes.
    pub fn write(&mut self, at: TaggedAddr, bytes: &[u8], right: Right) -> Result<(), AccessFault> {
        let (stag, offset) = self.resolve(at, bytes.len() as u32, right)?;
        if let Some(region) = self.regions.get_mut(&stag) {
            let target = region.memory.bytes_mut(offset, bytes.len());
            target.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Reads bytes.
    pub fn read(&self, at: TaggedAddr, len: u32, right: Right) -> Result<&[u8], AccessFault> {
        let (stag, offset) = self.resolve(at, len, right)?;
        let region = self.regions.get(&stag).ok_or(AccessFault::InvalidStag)?;
        Ok(&region.memory.bytes()[offset..offset + len as usize])
    }

    /// Executes an atomic on eight bytes in big-endian order; returns the original value.
    pub fn atomic(&mut self, at: TaggedAddr, op: &AtomicOp) -> Result<u64, AccessFault> {
        let word = self.read(at, 8, Right::RemoteAtomic)?;
        let original = u64::from_be_bytes(word.try_into().unwrap_or_default());
        let new = op.apply(original).to_be_bytes();
        self.write(at, &new, Right::RemoteAtomic)?;
        Ok(original)
    }

    /// Invalidates a region on request of the peer.
    pub fn invalidate(&mut self, stag: Stag) -> Result<(), AccessFault> {
        match self.regions.get_mut(&stag.get()).filter(|r| r.valid) {
            Some(region) => {
                region.valid = false;
                Ok(())
            }
            None => Err(AccessFault::CannotInvalidate),
        }
    }
}

#[cfg(test)]
mod tests;
