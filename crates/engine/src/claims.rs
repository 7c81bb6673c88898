//! The network side of the profile (V2) as an engine obeys it: where its function may listen, be reached, and connect from.
//! It promises that nobody has a connection which a rule of the setting `owners` gives to another device or service, and says whose it is.
//! It refuses to judge what no rule is about: whoever has the socket has the packets.

use core::net::SocketAddr;

use verbena_nic::profile::{NetworkMap, Service, Tuple};

use crate::config::Config;
use crate::error::{Error, Owned};

/// The rules, and which of the devices obeys them here.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    network: NetworkMap,
    device: String,
}

impl Claims {
    /// Those of the physical function: it is the first device that does something which is there.
    pub(crate) fn physical(config: &Config) -> Option<Claims> {
        if config.owners.is_empty() {
            return None;
        }
        // Settings with a profile that makes no sense are not read.
        let profile = config.device_profile().ok()?;
        let first = profile.served().next();
        let device = first.map_or(&config.name, |device| &device.name);
        Some(Claims {
            device: device.clone(),
            network: profile.network().clone(),
        })
    }

    /// The same for the function that is called so.
    pub(crate) fn of(&self, device: &str) -> Claims {
        Claims {
            device: device.to_owned(),
            network: self.network.clone(),
        }
    }

    /// The function may have, for this service, what goes to `local`, and comes from `peer` if that is known.
    pub(crate) fn check(
        &self,
        service: Service,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<(), Error> {
        // A socket of version 6 says so of peers of version 4, too; rules have the addresses as they are meant.
        let plain = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let (local, peer) = (plain(local), peer.map(plain));
        let Some(rule) = self.network.rule(&Tuple { local, peer }) else {
            return Ok(());
        };
        // A device that does one thing needs no word for it.
        let here = rule.owner.service.is_none_or(|owner| owner == service);
        if here && rule.owner.device == self.device {
            return Ok(());
        }
        Err(Error::Owned(Box::new(Owned {
            at: local,
            owner: rule.owner.to_string(),
            device: self.device.clone(),
        })))
    }
}

#[cfg(test)]
mod tests;
