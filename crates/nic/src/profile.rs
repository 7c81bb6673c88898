//! Logical devices: what one adapter presents itself as, to its host and to its network (V2).
//! In a valid profile every device has a unique name and at least one service, every packet has one owner, and every queue of a device
//! maps to one of the adapter's. A profile is data, made from the configuration; packets are not handled here.
//!
//! Reading order: [`Service`], [`Services`] (a set), [`LogicalDevice`] (a device) → [`host`] (device and queue → the adapter's queue) →
//! [`network`] (address, port, tuple → owner).

pub mod host;
pub mod network;
pub(crate) mod services;

pub use host::{DeviceFunction, HostMap};
pub use network::{NetworkMap, Owner, Rule, Tuple};
pub use services::{Service, Services};

use core::fmt;
use std::collections::HashSet;

use crate::error::Error;
use crate::object::Object;

/// Most logical devices of one adapter.
pub const MAX_DEVICES: usize = 64;

/// A device as programs see it; with several services it is a multi-function device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalDevice {
    /// Its name.
    pub name: String,
    /// Its services.
    pub services: Vec<Service>,
}

impl LogicalDevice {
    /// A device with RDMA only.
    pub fn rdma(name: impl Into<String>) -> LogicalDevice {
        LogicalDevice {
            name: name.into(),
            services: vec![Service::Rdma],
        }
    }

    /// A device with all implemented services: the default.
    pub fn with_all_services(name: impl Into<String>) -> LogicalDevice {
        LogicalDevice {
            name: name.into(),
            services: Services::IMPLEMENTED.iter().collect(),
        }
    }

    /// Those of its services that are implemented.
    pub fn implemented_services(&self) -> Services {
        let there = self
            .services
            .iter()
            .filter(|service| service.is_implemented());
        there.copied().collect()
    }
}

impl fmt::Display for LogicalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.services.iter().map(|s| s.name()).collect();
        write!(f, "{}={}", self.name, words.join("+"))
    }
}

/// Why a profile is invalid, or a lookup in it fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The number of devices is out of range.
    #[error("a profile has 1 to {MAX_DEVICES} devices, not {0}")]
    Devices(usize),
    /// Two devices have one name.
    #[error("two devices are called {0}")]
    DuplicateName(String),
    /// A device has no service.
    #[error("device {0} has no service: add rdma, nic or iscsi")]
    NoServices(String),
    /// A device has a service twice.
    #[error("device {device} has {service} twice")]
    DuplicateService {
        /// The device.
        device: String,
        /// The service.
        service: Service,
    },
    /// No device has this name.
    #[error("no device is called {0}")]
    NoDevice(String),
    /// The device does not have this service.
    #[error("device {device} has no {service}")]
    NoService {
        /// The device.
        device: String,
        /// The service.
        service: Service,
    },
    /// The device has several services, and the owner does not say which.
    #[error("device {0} has several services: name one, such as {0}/rdma")]
    AmbiguousService(String),
    /// Two rules match the same packets.
    #[error("{rule} conflicts with {other}: both match the same packets")]
    ConflictingRules {
        /// The later rule.
        rule: String,
        /// The earlier one.
        other: String,
    },
    /// A rule that can match no packet.
    #[error("{rule}: {why}")]
    Rule {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The service has a name, but is not implemented.
    #[error("device {device}: {service} is not implemented; {there} are", there = Services::IMPLEMENTED)]
    NotImplemented {
        /// The device.
        device: String,
        /// The service.
        service: Service,
    },
    /// No queue of the device, or of the adapter, has the number.
    #[error("the device has no {object} with number {number}")]
    NoQueue {
        /// What was named.
        object: Object,
        /// The number.
        number: u32,
    },
    /// The adapter does not have enough numbers for all of the profile's devices.
    #[error("device {device}: {why}")]
    Adapter {
        /// The device whose share is not left.
        device: String,
        /// What is missing.
        why: Error,
    },
}

/// What an adapter presents itself as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceProfile {
    devices: Vec<LogicalDevice>,
    network: NetworkMap,
}

impl DeviceProfile {
    /// These devices, and these rules for packets; packets that match no rule belong to the first device's first service.
    pub fn new(
        devices: Vec<LogicalDevice>,
        rules: Vec<Rule>,
    ) -> Result<DeviceProfile, ProfileError> {
        if !(1..=MAX_DEVICES).contains(&devices.len()) {
            return Err(ProfileError::Devices(devices.len()));
        }
        let mut names = HashSet::new();
        for device in &devices {
            if !names.insert(device.name.as_str()) {
                return Err(ProfileError::DuplicateName(device.name.clone()));
            }
            let mut seen = HashSet::new();
            let twice = device.services.iter().find(|s| !seen.insert(**s));
            if let Some(&service) = twice {
                let device = device.name.clone();
                return Err(ProfileError::DuplicateService { device, service });
            }
            if device.services.is_empty() {
                return Err(ProfileError::NoServices(device.name.clone()));
            }
        }
        let network = NetworkMap::new(&devices, rules)?;
        Ok(DeviceProfile { devices, network })
    }

    /// Its devices.
    pub fn devices(&self) -> &[LogicalDevice] {
        &self.devices
    }

    /// The network side: the owner of a packet.
    pub fn network(&self) -> &NetworkMap {
        &self.network
    }

    /// The device with this name.
    pub fn device(&self, name: &str) -> Result<&LogicalDevice, ProfileError> {
        let found = self.devices.iter().find(|device| device.name == name);
        found.ok_or_else(|| ProfileError::NoDevice(name.to_owned()))
    }

    /// The function that serves a device's service, 0 being the physical one; an error if the service is not implemented.
    pub fn function(&self, name: &str, service: Service) -> Result<u32, ProfileError> {
        let device = self.device(name)?;
        if !device.services.contains(&service) {
            let device = name.to_owned();
            return Err(ProfileError::NoService { device, service });
        }
        let at = self.served_devices().position(|served| served.name == name);
        let at = at.filter(|_| service.is_implemented());
        at.map(|at| at as u32)
            .ok_or_else(|| ProfileError::NotImplemented {
                device: name.to_owned(),
                service,
            })
    }

    /// Devices that a function serves, in the order of the functions: one function serves all services of a device, because
    /// they share one table of memory.
    pub fn served_devices(&self) -> impl Iterator<Item = &LogicalDevice> {
        let some = |device: &&LogicalDevice| !device.implemented_services().is_empty();
        self.devices.iter().filter(some)
    }
}

#[cfg(test)]
mod tests;
