//! Interfaces of the simulated system: the loopback interface.
//! Every address of 127.0.0.0/8 belongs to it.

use core::net::{IpAddr, Ipv4Addr};

use super::Result;
use crate::config::device::Interface;

const NAME: &str = "lo";

/// Each address with its interface.
pub fn interfaces() -> Result<Vec<Interface>> {
    Ok(vec![Interface {
        name: NAME.to_owned(),
        ip: Ipv4Addr::LOCALHOST.into(),
    }])
}

/// Each address of an interface that is up and has a carrier.
pub fn running_interfaces() -> Result<Vec<Interface>> {
    interfaces()
}

/// The name of the interface that has this address; none if no interface has it.
pub fn interface_name(ip: IpAddr) -> Result<Option<String>> {
    Ok(ip.is_loopback().then(|| NAME.to_owned()))
}

/// The index of the interface that has this address; none if no interface has it.
pub fn interface_of(ip: IpAddr) -> Result<Option<u32>> {
    Ok(ip.is_loopback().then_some(1))
}

/// The MTU of the interface that has this address, in bytes; none if no interface has it.
pub fn interface_mtu(ip: IpAddr) -> Result<Option<u32>> {
    Ok(ip.is_loopback().then_some(65_536))
}
