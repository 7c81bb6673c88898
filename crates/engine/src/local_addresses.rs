//! The device's own addresses, from the setting `device`, and the addresses to which its listeners bind.
//! They are resolved at the first query and stay: a later change of the machine's interfaces has no effect on this engine.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use verbena_sync::locks::OnceLock;

use crate::config::{Config, Device};
use crate::error::Error;
use crate::sys;

/// The addresses of an engine.
#[derive(Debug)]
pub(crate) struct LocalAddresses {
    config: Arc<Config>,
    /// Set at the first query.
    found: OnceLock<Vec<IpAddr>>,
}

impl LocalAddresses {
    pub(crate) fn new(config: &Arc<Config>) -> LocalAddresses {
        LocalAddresses {
            config: config.clone(),
            found: OnceLock::new(),
        }
    }

    /// The device's own addresses.
    pub(crate) fn all(&self) -> Result<&[IpAddr], Error> {
        if let Some(addresses) = self.found.get() {
            return Ok(addresses);
        }
        let mut machine = sys::interfaces()?;
        // An IPv6 address that was just added, or that another host has, cannot be used (RFC 4862: tentative).
        machine.retain(|i| i.ip.is_ipv4() || can_bind(i.ip));
        let found = self.config.device.resolve(&machine);
        let found = found.ok_or(Error::NoDevice)?;
        Ok(self.found.get_or_init(|| found))
    }

    /// The loopback addresses, by which programs of this host reach a device that has none of its own.
    pub(crate) fn loopback(&self) -> Result<Vec<IpAddr>, Error> {
        if self.all()?.iter().any(IpAddr::is_loopback) {
            return Ok(Vec::new());
        }
        let mut loopback = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        // A host may have no IPv6.
        loopback.retain(|ip| can_bind(*ip));
        Ok(loopback)
    }

    /// The address to bind to for a requested one. With a `device` of loopback addresses only, the adapter must not be reachable from
    /// other hosts: the unspecified address becomes the loopback address, and others are refused.
    pub(crate) fn to_bind(&self, at: SocketAddr) -> Result<SocketAddr, Error> {
        if self.config.device == Device::Auto || at.ip().is_loopback() {
            return Ok(at);
        }
        // A missing device does not prevent listening.
        let own = self.all().unwrap_or_default();
        if own.is_empty() || !own.iter().all(IpAddr::is_loopback) {
            return Ok(at);
        }
        match at.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => {
                Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), at.port()))
            }
            IpAddr::V6(ip) if ip.is_unspecified() => {
                Ok(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), at.port()))
            }
            _ => Err(sys::Error::not_loopback().into()),
        }
    }
}

/// A socket can be bound to this address.
fn can_bind(ip: IpAddr) -> bool {
    sys::DatagramSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}
