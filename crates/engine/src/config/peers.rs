//! The setting `peers`: networks with the profiles expected there.
//! The longest prefix that matches an address decides. What a peer turns out to be is kept in its connection, not here.

use core::fmt;
use core::net::IpAddr;

use super::keywords::Profile;

/// Bits that all IPv4-mapped addresses begin with (RFC 4291 §2.5.5.2).
const MAPPED: u8 = 96;

/// All addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    ip: IpAddr,
    bits: u8,
}

impl Network {
    /// The first `bits` bits of `ip`; none if it has fewer. A network of IPv4-mapped addresses becomes one of IPv4.
    pub fn new(ip: IpAddr, bits: u8) -> Option<Network> {
        if bits > width(ip) {
            return None;
        }
        let mapped = bits.checked_sub(MAPPED).filter(|_| ip.is_ipv6());
        Some(match (ip.to_canonical(), mapped) {
            (IpAddr::V4(ip), Some(bits)) => Network {
                ip: ip.into(),
                bits,
            },
            _ => Network { ip, bits },
        })
    }

    /// Reads `address` or `address/bits`.
    pub fn read(text: &str) -> Option<Network> {
        match text.split_once('/') {
            Some((ip, bits)) => Network::new(ip.parse().ok()?, bits.parse().ok()?),
            None => {
                let ip = text.parse().ok()?;
                Network::new(ip, width(ip))
            }
        }
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        let differ = match (self.ip, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
            (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
            _ => return false,
        };
        differ.leading_zeros() >= u32::from(self.bits)
    }
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

/// Networks and their profiles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Peers(pub Vec<(Network, Profile)>);

impl Peers {
    /// Some network has this profile.
    pub fn have(&self, profile: Profile) -> bool {
        self.0.iter().any(|(_, has)| *has == profile)
    }

    /// The profile of the narrowest network that contains this address.
    pub fn find(&self, ip: IpAddr) -> Option<Profile> {
        let ip = ip.to_canonical();
        let holding = self.0.iter().filter(|(network, _)| network.contains(ip));
        let narrowest = holding.max_by_key(|(network, _)| network.bits)?;
        Some(narrowest.1)
    }
}
