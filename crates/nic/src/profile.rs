//! Logical devices: as what one adapter appears, to its host and to its network (V2).
//! A profile promises to be whole: every device has a name of its own and does something, every packet has one owner, every queue
//! of a device is one of the adapter's. It refuses to move packets; it is data, made by configuration and looked up.
//!
//! Reading order: [`Service`], [`Services`] (several), [`Logical`] (a device) → [`host`] (device and queue → the adapter's queue) → [`network`]
//! (address, port, tuple → owner).

pub mod host;
pub mod network;
mod services;

pub use host::{HostMap, Part};
pub use network::{NetworkMap, Owner, Rule, Tuple};
pub use services::{Service, Services};

use core::fmt;
use std::collections::HashSet;

use crate::error::{Error, Object};

/// Most devices that one adapter appears as.
pub const MAX_DEVICES: usize = 64;

/// A device as programs see it: one that does several things is a multi-function device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logical {
    /// Its name.
    pub name: String,
    /// What it does.
    pub services: Vec<Service>,
}

impl Logical {
    /// An RDMA device and nothing else.
    pub fn rdma(name: impl Into<String>) -> Logical {
        Logical {
            name: name.into(),
            services: vec![Service::Rdma],
        }
    }

    /// A device that does everything that is there: what an adapter is that nobody said anything about.
    pub fn whole(name: impl Into<String>) -> Logical {
        Logical {
            name: name.into(),
            services: Services::THERE.iter().collect(),
        }
    }

    /// What it does and what is there of it.
    pub fn there(&self) -> Services {
        let there = self.services.iter().filter(|service| service.is_there());
        there.copied().collect()
    }
}

impl fmt::Display for Logical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.services.iter().map(|s| s.word()).collect();
        write!(f, "{}={}", self.name, words.join("+"))
    }
}

/// Why a profile cannot be so, or does not know what it is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// An adapter appears as something.
    #[error("a profile has 1 to {MAX_DEVICES} devices, not {0}")]
    Devices(usize),
    /// Two devices have one name.
    #[error("two devices are called {0}")]
    Twice(String),
    /// A device does nothing.
    #[error("device {0} does nothing: say rdma, nic or iscsi")]
    Idle(String),
    /// A device does something twice.
    #[error("device {device} has {service} twice")]
    Repeated {
        /// The device.
        device: String,
        /// What it does.
        service: Service,
    },
    /// No device has this name.
    #[error("no device is called {0}")]
    NoDevice(String),
    /// The device does not do this.
    #[error("device {device} has no {service}")]
    NoService {
        /// The device.
        device: String,
        /// What it does not do.
        service: Service,
    },
    /// The device does several things, and an owner must be one of them.
    #[error("device {0} does several things: say which, such as {0}/rdma")]
    Unclear(String),
    /// Two rules match the same packets.
    #[error("{rule} says who owns what {other} gives to another")]
    Contradiction {
        /// The later rule.
        rule: String,
        /// The earlier one.
        other: String,
    },
    /// A rule that names no packet of ours.
    #[error("{rule}: {why}")]
    Rule {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The service has a name and a place, but nobody has built it.
    #[error("device {device}: {service} is not there yet; {there} are", there = Services::THERE)]
    NotYet {
        /// The device.
        device: String,
        /// What it would do.
        service: Service,
    },
    /// No queue of the device, or of the adapter, has the number.
    #[error("no {object} has number {number} there")]
    NoQueue {
        /// What was named.
        object: Object,
        /// The number.
        number: u32,
    },
    /// The adapter has not enough for all of the profile's devices.
    #[error("device {device}: {why}")]
    Adapter {
        /// The device whose share is not left.
        device: String,
        /// What is missing.
        why: Error,
    },
}

/// As what an adapter appears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceProfile {
    devices: Vec<Logical>,
    network: NetworkMap,
}

impl DeviceProfile {
    /// These devices, and these rules for packets; what no rule is about belongs to the first device's first service.
    pub fn new(devices: Vec<Logical>, rules: Vec<Rule>) -> Result<DeviceProfile, ProfileError> {
        if !(1..=MAX_DEVICES).contains(&devices.len()) {
            return Err(ProfileError::Devices(devices.len()));
        }
        let mut names = HashSet::new();
        for device in &devices {
            if !names.insert(device.name.as_str()) {
                return Err(ProfileError::Twice(device.name.clone()));
            }
            let mut seen = HashSet::new();
            let twice = device.services.iter().find(|s| !seen.insert(**s));
            if let Some(&service) = twice {
                let device = device.name.clone();
                return Err(ProfileError::Repeated { device, service });
            }
            if device.services.is_empty() {
                return Err(ProfileError::Idle(device.name.clone()));
            }
        }
        let network = NetworkMap::new(&devices, rules)?;
        Ok(DeviceProfile { devices, network })
    }

    /// Its devices.
    pub fn devices(&self) -> &[Logical] {
        &self.devices
    }

    /// The network side: whose a packet is.
    pub fn network(&self) -> &NetworkMap {
        &self.network
    }

    /// The device with this name.
    pub fn device(&self, name: &str) -> Result<&Logical, ProfileError> {
        let found = self.devices.iter().find(|device| device.name == name);
        found.ok_or_else(|| ProfileError::NoDevice(name.to_owned()))
    }

    /// The function that serves a device's service, counted from the physical one; refused if nobody does yet.
    pub fn function(&self, name: &str, service: Service) -> Result<u32, ProfileError> {
        let device = self.device(name)?;
        if !device.services.contains(&service) {
            let device = name.to_owned();
            return Err(ProfileError::NoService { device, service });
        }
        let at = self.served().position(|served| served.name == name);
        let at = at.filter(|_| service.is_there());
        at.map(|at| at as u32).ok_or_else(|| ProfileError::NotYet {
            device: name.to_owned(),
            service,
        })
    }

    /// Devices that a function serves, in the order of the functions: one function does all that a device does, for its
    /// services share one table of memory.
    pub fn served(&self) -> impl Iterator<Item = &Logical> {
        let some = |device: &&Logical| !device.there().is_empty();
        self.devices.iter().filter(some)
    }
}

#[cfg(test)]
mod tests;
