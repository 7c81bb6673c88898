//! Lists of networks, for the settings `allow` and `deny`.
//! They are searched linearly for each connection and datagram, as they are short.

use core::net::IpAddr;

use super::peers::Network;

/// Any number of networks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks(pub Vec<Network>);

impl Networks {
    /// There are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This address is in one of them. An IPv4-mapped address is the one of IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.0.iter().any(|network| network.contains(ip))
    }
}
