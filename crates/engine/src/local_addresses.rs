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
        let found = device_addresses(&self.config.device)?;
        let found = found.ok_or(Error::NoDevice)?;
        Ok(self.found.get_or_init(|| found))
    }

    /// The loopback addresses, by which programs of this host reach a device that has none of its own. A host may have no IPv6.
    pub(crate) fn loopback(&self) -> Result<&'static [IpAddr], Error> {
        const LOOPBACK: &[IpAddr] = &[
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        let has_one = self.all()?.iter().any(IpAddr::is_loopback);
        Ok(if has_one { &[] } else { LOOPBACK })
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

/// The addresses of a device on this machine; none if the interface that the setting names has no usable one.
pub fn device_addresses(device: &Device) -> sys::Result<Option<Vec<IpAddr>>> {
    Ok(device.resolve(&sys::interfaces()?, can_bind))
}

/// A socket can be bound to this address of an interface: not to an IPv6 address that was just added, or that another host has (RFC 4862:
/// tentative, duplicate).
fn can_bind(ip: IpAddr) -> bool {
    ip.is_ipv4() || sys::DatagramSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}
