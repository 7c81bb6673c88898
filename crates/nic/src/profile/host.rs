//! The host side of a profile: which of the adapter's queues a device's queue is (V2).
//! The map is one-to-one: every number of a device maps to one of the adapter's, and no two to the same. Services that are not
//! implemented and numbers beyond a device's share are errors.

use std::ops::Range;

use super::{DeviceProfile, ProfileError, Service, Services};
use crate::adapter::{Cursor, Ranges};
use crate::function::{FIRST_QP, Shares};
use crate::object::Object;

/// The function of the adapter that serves a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFunction {
    /// The device.
    pub device: String,
    /// The services that it serves.
    pub services: Services,
    /// The function; 0 is the physical one.
    pub function: u32,
    /// Its ranges in the adapter's numbers.
    pub ranges: Ranges,
}

impl DeviceFunction {
    /// The device's numbers of a kind of object, and the adapter's.
    pub fn number_ranges(&self, object: Object) -> Option<(Range<u32>, Range<u32>)> {
        let (first, inside) = match object {
            Object::Qp => (FIRST_QP, &self.ranges.qps),
            Object::Cq => (1, &self.ranges.cqs),
            Object::Srq => (1, &self.ranges.srqs),
            Object::Ssq => (1, &self.ranges.ssqs),
            Object::Pd => (1, &self.ranges.pds),
            // They appear on the wire, so both use the same numbers.
            Object::Stag => (self.ranges.stags.start, &self.ranges.stags),
            Object::EventQueue => (0, &self.ranges.event_queues),
            Object::Vector => (0, &self.ranges.vectors),
            Object::Function | Object::Control => return None,
        };
        let outside = first..first + (inside.end - inside.start);
        Some((outside, inside.clone()))
    }
}

/// The host side of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMap {
    profile: DeviceProfile,
    functions: Vec<DeviceFunction>,
}

impl HostMap {
    /// The map of a profile whose functions all have these shares, as an adapter created with them will have.
    pub fn plan(profile: &DeviceProfile, shares: &Shares) -> Result<HostMap, ProfileError> {
        let mut cursor = Cursor::default();
        let mut parts: Vec<DeviceFunction> = Vec::new();
        for (function, device) in profile.served_devices().enumerate() {
            let taken = parts.iter().map(|part: &DeviceFunction| &part.ranges);
            let ranges = cursor
                .allocate(shares, &taken)
                .map_err(|why| ProfileError::Adapter {
                    device: device.name.clone(),
                    why,
                })?;
            parts.push(DeviceFunction {
                device: device.name.clone(),
                services: device.implemented_services(),
                function: function as u32,
                ranges,
            });
        }
        let profile = profile.clone();
        Ok(HostMap {
            profile,
            functions: parts,
        })
    }

    /// The functions and the devices that they serve.
    pub fn functions(&self) -> &[DeviceFunction] {
        &self.functions
    }

    /// The function of a device's queue, and the adapter's number of it.
    pub fn to_adapter_number(
        &self,
        device: &str,
        service: Service,
        (object, number): (Object, u32),
    ) -> Result<(u32, u32), ProfileError> {
        let function = self.profile.function(device, service)?;
        let missing = ProfileError::NoQueue { object, number };
        let part = self
            .functions
            .get(function as usize)
            .ok_or(missing.clone())?;
        let (outside, inside) = part.number_ranges(object).ok_or(missing.clone())?;
        if !outside.contains(&number) {
            return Err(missing);
        }
        Ok((function, inside.start + (number - outside.start)))
    }

    /// The part that a queue of the adapter belongs to, and its number in the device.
    pub fn owner(
        &self,
        object: Object,
        number: u32,
    ) -> Result<(&DeviceFunction, u32), ProfileError> {
        let found = self.functions.iter().find_map(|part| {
            let (outside, inside) = part.number_ranges(object)?;
            let at = number.checked_sub(inside.start)?;
            inside
                .contains(&number)
                .then_some((part, outside.start + at))
        });
        found.ok_or(ProfileError::NoQueue { object, number })
    }
}
