//! The route to a peer: the local address that the system selects, and the MTU of the path as far as it is known.
//! No packet is sent; a datagram socket has both once it is connected.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::{self, SocketType, sockopt};

use super::listener::bind_socket;
use super::{Error, Result};

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The local address.
    pub local: IpAddr,
    /// The largest IP packet that leaves in one piece.
    pub mtu: u32,
}

/// The route to `peer`, from this address if one is given.
pub fn route_to(from: Option<IpAddr>, peer: SocketAddr) -> Result<Route> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let at = SocketAddr::new(from.unwrap_or(any), 0);
    let fd = bind_socket(at, SocketType::DGRAM, false)?;
    net::connect(&fd, &peer).map_err(Error::of("connect"))?;
    let name = net::getsockname(&fd).map_err(Error::of("getsockname"))?;
    let local = SocketAddr::try_from(name).map_err(Error::of("getsockname"))?;
    let mtu = match peer {
        SocketAddr::V4(_) => sockopt::ip_mtu(&fd),
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&fd),
    };
    Ok(Route {
        local: local.ip(),
        mtu: mtu.map_err(Error::of("getsockopt IP_MTU"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_on_loopback_has_its_mtu() {
        let peer = "127.0.0.3:4791".parse().unwrap();
        let from = "127.0.0.2".parse().unwrap();
        let route = route_to(Some(from), peer).unwrap();
        assert_eq!(route.local, from);
        assert!(route.mtu >= 1500, "{route:?}");
        assert!(route_to(None, peer).unwrap().local.is_loopback());
    }
}
