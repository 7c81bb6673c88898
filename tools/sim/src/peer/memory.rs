//! A simple memory: regions in a map, each a vector of bytes between two guards.
//! Every access outside a region or its rights fails before a byte is moved.

use std::collections::BTreeMap;

use verbena_stream::AccessFault;
use verbena_wire::rdmap::AtomicOp;
use verbena_wire::{Stag, To};

use crate::image::Guarded;
use crate::work::TaggedAddr;

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
