//! An IP address with the length of its network's prefix, as in `10.0.0.1/24`. The length is at most that of the address.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// An address and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// The text is not an address with a prefix length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address with a prefix length, as in 10.0.0.1/24 or fd00::1/64")]
pub struct ParsePrefixError(String);

const fn width(address: &IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The address's bits, left-aligned.
const fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => (address.to_bits() as u128) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Prefix {
    /// `None` if the length is more than the address has.
    pub const fn new(address: IpAddr, len: u8) -> Option<Prefix> {
        if len > width(&address) {
            return None;
        }
        Some(Prefix { address, len })
    }

    /// The address, with the bits behind the prefix.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The length of the prefix.
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// The default route.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether another address is in this network.
    pub const fn contains(&self, other: IpAddr) -> bool {
        if self.address.is_ipv4() != other.is_ipv4() {
            return false;
        }
        let differ = bits(self.address) ^ bits(other);
        self.len == 0 || differ >> (128 - self.len) == 0
    }

    /// The network: the address without the bits behind the prefix.
    pub fn network(&self) -> Prefix {
        let mask = match self.len {
            0 => 0,
            len => u128::MAX << (128 - len),
        };
        let address = match self.address {
            IpAddr::V4(_) => IpAddr::V4((((bits(self.address) & mask) >> 96) as u32).into()),
            IpAddr::V6(_) => IpAddr::V6((bits(self.address) & mask).into()),
        };
        Prefix { address, ..*self }
    }

    /// The broadcast address of an IPv4 network.
    pub(crate) fn is_broadcast(&self, other: IpAddr) -> bool {
        let host = match self.len {
            0..=30 => u32::MAX >> self.len,
            _ => return false,
        };
        match other {
            IpAddr::V4(v4) => self.contains(other) && v4.to_bits() & host == host,
            IpAddr::V6(_) => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Prefix, ParsePrefixError> {
        let wrong = || ParsePrefixError(text.to_owned());
        let (address, len) = text.split_once('/').ok_or_else(wrong)?;
        let address = address.parse().map_err(|_| wrong())?;
        let digits = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
        let len = len.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
        Prefix::new(address, len).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn membership_follows_the_prefix_length() {
        let table = [
            ("10.1.2.3/24", "10.1.2.255", true),
            ("10.1.2.3/24", "10.1.3.0", false),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "::1", false),
            ("fd00::1/64", "fd00::ffff:1", true),
            ("fd00::1/64", "fd00:0:0:1::1", false),
            ("::/0", "fd00::1", true),
        ];
        for (network, address, is_in) in table {
            let address = address.parse().unwrap();
            assert_eq!(prefix(network).contains(address), is_in, "{network}");
        }
        assert_eq!(prefix("10.1.2.3/20").network(), prefix("10.1.0.0/20"));
        assert_eq!(prefix("fd00::1/64").network(), prefix("fd00::/64"));
        assert!(prefix("10.1.2.3/24").is_broadcast("10.1.2.255".parse().unwrap()));
        assert!(!prefix("10.1.2.3/31").is_broadcast("10.1.2.3".parse().unwrap()));
    }

    #[test]
    fn malformed_prefixes_are_refused() {
        for text in [
            "10.0.0.1",
            "10.0.0.1/33",
            "10.0.0/8",
            "::1/129",
            "::1/",
            "10.0.0.1/+8",
            "a/1",
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(ParsePrefixError(text.into())));
        }
    }
}
