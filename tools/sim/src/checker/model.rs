//! A simple model of both memories: it executes a plan without any adapter, work by work.
//! For every byte it gives the value it must have, or the values it may have where a fault leaves that open. It has no messages,
//! segments or acknowledgements.

use std::collections::BTreeMap;

use verbena_wire::Stag;

use crate::work::{TaggedAddr, Work};
use crate::world::Transcript;

/// The expected state of a region.
#[derive(Debug, Clone)]
pub struct Region {
    base: u64,
    /// What each byte must be, if nothing is open about it.
    pub bytes: Vec<u8>,
    /// Other values a byte may have.
    pub open: BTreeMap<usize, Vec<u8>>,
    /// It must have been invalidated.
    pub invalidated: bool,
    /// It may have been invalidated.
    pub maybe_invalidated: bool,
    /// The bytes if everything open is executed.
    later: Vec<u8>,
}

impl Region {
    fn put(&mut self, offset: usize, bytes: &[u8], certain: bool) {
        self.later[offset..offset + bytes.len()].copy_from_slice(bytes);
        if certain {
            self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
            return;
        }
        for (k, &byte) in bytes.iter().enumerate() {
            self.open.entry(offset + k).or_default().push(byte);
        }
    }

    /// Whether the byte at `offset` may have this value.
    pub fn allows(&self, offset: usize, byte: u8) -> bool {
        self.bytes[offset] == byte || self.open.get(&offset).is_some_and(|o| o.contains(&byte))
    }
}

/// The expected state of both memories, and the result of each atomic.
#[derive(Debug, Clone)]
pub struct Model {
    /// Each side's regions, by STag.
    pub regions: [BTreeMap<u32, Region>; 2],
    /// The original values of each side's atomics, by the number of the work.
    pub originals: [BTreeMap<u64, u64>; 2],
}

impl Model {
    /// Executes what was posted; work that is not known to be executed is open.
    pub fn of(t: &Transcript) -> Model {
        let regions = [0, 1].map(|k| {
            let specs = t.session.plan.sides[k].regions.iter();
            specs
                .map(|spec| {
                    let region = Region {
                        base: spec.at.to.get(),
                        bytes: spec.bytes.clone(),
                        open: BTreeMap::new(),
                        invalidated: false,
                        maybe_invalidated: false,
                        later: spec.bytes.clone(),
                    };
                    (spec.at.stag.get(), region)
                })
                .collect()
        });
        let mut model = Model {
            regions,
            originals: [BTreeMap::new(), BTreeMap::new()],
        };
        for side in 0..2 {
            let executed = t.executed(side);
            let works = t.session.plan.sides[side].works.iter();
            for (id, posting) in works.take(t.posted[side]).enumerate() {
                let certain = id < executed;
                // Refused work changes nothing, but a part of it may be inside the bounds.
                if !posting.bad {
                    model.execute(side, id as u64, &posting.work, certain);
                }
            }
        }
        model
    }

    fn execute(&mut self, side: usize, id: u64, work: &Work, certain: bool) {
        let other = 1 - side;
        match work {
            Work::Write { at, payload, .. } => self.put(other, *at, payload, certain),
            Work::Send { invalidate, .. } => {
                let region = invalidate.and_then(|s| self.regions[other].get_mut(&s.get()));
                if let Some(region) = region {
                    region.invalidated |= certain;
                    region.maybe_invalidated = true;
                }
            }
            Work::Read {
                source, sink, len, ..
            } => {
                let bytes = self.later(other, *source, *len as usize);
                self.put(side, *sink, &bytes, certain);
            }
            Work::Atomic { at, op } => {
                let word = self.later(other, *at, 8);
                let original = u64::from_be_bytes(word.try_into().unwrap_or_default());
                self.originals[side].insert(id, original);
                self.put(other, *at, &op.apply(original).to_be_bytes(), certain);
            }
        }
    }

    fn find(&self, side: usize, stag: Stag) -> Option<&Region> {
        self.regions[side].get(&stag.get())
    }

    fn later(&self, side: usize, at: TaggedAddr, len: usize) -> Vec<u8> {
        let Some(region) = self.find(side, at.stag) else {
            return Vec::new();
        };
        let offset = (at.to.get() - region.base) as usize;
        region.later[offset..offset + len].to_vec()
    }

    fn put(&mut self, side: usize, at: TaggedAddr, bytes: &[u8], certain: bool) {
        // Zero bytes have no effect, whatever the address.
        if bytes.is_empty() {
            return;
        }
        if let Some(region) = self.regions[side].get_mut(&at.stag.get()) {
            let offset = (at.to.get() - region.base) as usize;
            region.put(offset, bytes, certain);
        }
    }
}
