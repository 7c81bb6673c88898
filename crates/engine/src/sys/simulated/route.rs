//! Routes of the simulated system: everything is on the loopback interface.
//! The local address is the one that was asked for, or the interface's own.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Result;

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The local address.
    pub local: IpAddr,
    /// The largest IP packet that leaves in one piece.
    pub mtu: u32,
}

/// The route to `peer`, from this address if one is given.
pub fn route_to(from: Option<IpAddr>, _: SocketAddr) -> Result<Route> {
    Ok(Route {
        local: from.unwrap_or(Ipv4Addr::LOCALHOST.into()),
        mtu: 65_536,
    })
}
