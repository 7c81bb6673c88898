//! The network rules of the device profile (V2, setting `owners`): where a function may listen, accept and connect from.
//! A connection that a rule gives to another device or service is refused with the owner's name. Connections that match no rule
//! are allowed.

use core::net::SocketAddr;

use verbena_nic::profile::{NetworkMap, Service, Tuple};

use crate::config::Config;
use crate::error::{Error, OwnedByOther};

/// The rules, and the name of the device they are applied for.
#[derive(Debug, Clone)]
pub(crate) struct OwnerRules {
    network: NetworkMap,
    device: String,
}

impl OwnerRules {
    /// The rules for the physical function: the first device of the profile that has a service.
    pub(crate) fn physical(config: &Config) -> Option<OwnerRules> {
        if config.owners.is_empty() {
            return None;
        }
        // `Config` accepts only valid profiles, so this does not fail.
        let profile = config.device_profile().ok()?;
        let first = profile.served_devices().next();
        let device = first.map_or(&config.name, |device| &device.name);
        Some(OwnerRules {
            device: device.clone(),
            network: profile.network().clone(),
        })
    }

    /// The same rules for the function of this name.
    pub(crate) fn for_device(&self, device: &str) -> OwnerRules {
        OwnerRules {
            device: device.to_owned(),
            network: self.network.clone(),
        }
    }

    /// Whether the function may use, for this service, the local address `local` and, where known, the peer address `peer`.
    pub(crate) fn check(
        &self,
        service: Service,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<(), Error> {
        // An IPv6 socket reports IPv4 peers as mapped addresses; rules are written with the IPv4 address.
        let plain = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let (local, peer) = (plain(local), peer.map(plain));
        let Some(rule) = self.network.rule(&Tuple { local, peer }) else {
            return Ok(());
        };
        // A rule without a service covers all services of its device.
        let here = rule.owner.service.is_none_or(|owner| owner == service);
        if here && rule.owner.device == self.device {
            return Ok(());
        }
        Err(Error::OwnedByOther(Box::new(OwnedByOther {
            at: local,
            owner: rule.owner.to_string(),
            device: self.device.clone(),
        })))
    }
}

#[cfg(test)]
mod tests;
