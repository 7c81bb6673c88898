//! The memory of the programs: regions that are added on demand, divided into slots that are used once.
//! Since a slot is used once, every byte found in it later has one possible source.

use verbena_mem::{Access, Pd};
use verbena_nic::Sge;
use verbena_nic::wr::RemoteAddr;

use super::record::{FRESH, RegionRecord, Slot, Use};
use super::world::{LiveRegion, World, Zone};
use crate::fabric::{remote, sge};

const PD: Pd = Pd(1);
const FOREIGN_PD: Pd = Pd(2);
/// Bytes between two slots that must not be written.
const GUARD: usize = 8;
/// Least bytes of a region.
const REGION: usize = 4096;

impl World {
    /// Reserves `len` bytes, aligned for atomics; returns the region and the offset.
    pub(super) fn reserve(&mut self, host: usize, zone: Zone, len: usize) -> (usize, usize) {
        let fits = |live: &LiveRegion| {
            live.host == host
                && live.zone == zone
                && live.revoked.is_none()
                && live.next + len + GUARD <= live.buffer.len()
        };
        let found = self.regions.iter().position(fits);
        let area = found.unwrap_or_else(|| self.region(host, zone, len));
        let at = self.regions[area].next;
        self.regions[area].next = (at + len + GUARD).next_multiple_of(8);
        (area, at)
    }

    fn region(&mut self, host: usize, zone: Zone, len: usize) -> usize {
        let access = match zone {
            Zone::ReadOnly => Access::LOCAL_READ | Access::REMOTE_READ,
            Zone::Windowed => Access::LOCAL_READ | Access::LOCAL_WRITE | Access::BIND,
            Zone::Stable | Zone::Transient | Zone::Foreign => Access::ALL,
        };
        let pd = if zone == Zone::Foreign {
            FOREIGN_PD
        } else {
            PD
        };
        let size = REGION.max(len + 2 * GUARD);
        let buffer = self
            .fabric
            .memory_with(self.hosts[host], size, pd, access)
            .expect("the table has room");
        buffer.write(0, &vec![FRESH; size]);
        self.regions.push(LiveRegion {
            host,
            zone,
            buffer,
            next: GUARD,
            revoked: None,
        });
        self.regions.len() - 1
    }

    /// Records a slot for one purpose; fixed bytes and zero words are written at once.
    pub(super) fn slot(&mut self, (area, at): (usize, usize), len: usize, usage: Use) -> usize {
        let buffer = &self.regions[area].buffer;
        match &usage {
            Use::Fixed(bytes) => buffer.write(at, bytes),
            Use::Counter => buffer.write(at, &[0; 8]),
            Use::Swap(_, from, _) => buffer.write(at, &from.to_ne_bytes()),
            Use::Target(..) | Use::Receive(_) | Use::Result(_) | Use::Cell | Use::Seen(_) => true,
        };
        self.record.slots.push(Slot {
            region: area,
            at,
            len,
            usage,
        });
        self.record.slots.len() - 1
    }

    /// Random bytes that differ from fresh memory.
    pub(super) fn payload(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = self.rng.bytes(len);
        for byte in &mut bytes {
            *byte = if *byte == FRESH { !FRESH } else { *byte };
        }
        bytes
    }

    pub(super) fn sge(&self, (area, at): (usize, usize), len: usize) -> Sge {
        sge(&self.regions[area].buffer, at, len)
    }

    pub(super) fn remote(&self, (area, at): (usize, usize)) -> RemoteAddr {
        remote(&self.regions[area].buffer, at)
    }

    /// Deregisters a passing region, whatever is under way in it.
    pub(super) fn revoke_region(&mut self) {
        let passing: Vec<usize> = (0..self.regions.len())
            .filter(|a| {
                self.regions[*a].zone == Zone::Transient && self.regions[*a].revoked.is_none()
            })
            .collect();
        if passing.is_empty() {
            return;
        }
        let area = self.rng.pick(&passing);
        let live = &mut self.regions[area];
        let tpt = self.fabric.tpt(self.hosts[live.host]);
        if tpt.deregister(live.buffer.stag()).is_ok() {
            live.revoked = Some(live.image());
            self.log(format!("region {area} deregistered"));
        }
    }

    /// Records and deregisters all regions. Returns the number of entries left in each table.
    pub(super) fn deregister_all(&mut self) -> Vec<u32> {
        for window in &self.windows {
            let tpt = self.fabric.tpt(self.hosts[window.host]);
            // Whether bound, unbound or invalidated: its owner may free it. What stays shows in the count below.
            let _ = tpt.deregister(window.stag);
        }
        for live in core::mem::take(&mut self.regions) {
            self.record.regions.push(RegionRecord {
                host: live.host,
                revoked: live.revoked.clone(),
                image: live.image(),
            });
        }
        let hosts = self.hosts.iter();
        hosts.map(|h| self.fabric.tpt(*h).len()).collect()
    }
}
