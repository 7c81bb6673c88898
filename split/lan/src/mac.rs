//! An Ethernet (MAC) address. It is printed and parsed as six pairs of hexadecimal digits with colons, and in no other form.
//! Locally administered addresses are made from bits that the caller supplies.

use core::fmt;
use core::str::FromStr;

/// An Ethernet address, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac([u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// The address with these octets.
    pub const fn new(octets: [u8; 6]) -> Mac {
        Mac(octets)
    }

    /// The octets, as on the wire.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// A group address: multicast or broadcast.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// A unicast address other than zero.
    pub const fn is_station(self) -> bool {
        !self.is_group() && u64_of(self.0) != 0
    }

    /// An address that bridges do not forward (IEEE 802.1Q, table 8-1: spanning tree, pause, LLDP).
    pub const fn is_reserved(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
    }

    /// A locally administered unicast address from the low 48 bits, two of which (40 and 41) are replaced.
    pub const fn local(bits: u64) -> Mac {
        let b = bits.to_be_bytes();
        Mac([b[2] & 0xfc | 2, b[3], b[4], b[5], b[6], b[7]])
    }

    /// The six octets at `at`, if the frame has them.
    pub(crate) fn read_at(frame: &[u8], at: usize) -> Option<Mac> {
        let octets = frame.get(at..)?.first_chunk::<6>()?;
        Some(Mac(*octets))
    }
}

const fn u64_of(o: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, o[0], o[1], o[2], o[3], o[4], o[5]])
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an Ethernet address: six pairs of hexadecimal digits with colons between, as in 02:00:00:00:00:01"
)]
pub struct ParseMacError(String);

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Mac, ParseMacError> {
        let wrong = || ParseMacError(text.to_owned());
        let mut octets = [0; 6];
        let mut pairs = text.split(':');
        for octet in &mut octets {
            let pair = pairs.next().ok_or_else(wrong)?;
            let digits = pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
            let value = u8::from_str_radix(pair, 16).ok();
            *octet = value.filter(|_| digits).ok_or_else(wrong)?;
        }
        match pairs.next() {
            None => Ok(Mac(octets)),
            Some(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_mac_prints_in_lower_case() {
        let mac: Mac = "02:00:5E:10:ff:01".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:10:ff:01");
        assert_eq!(mac.octets(), [2, 0, 0x5e, 0x10, 0xff, 1]);
    }

    #[test]
    fn malformed_mac_texts_are_refused() {
        let wrong = [
            "",
            "02:00:5e:10:ff",
            "02:00:5e:10:ff:01:",
            "02:00:5e:10:ff:01:02",
            "2:0:5e:10:ff:1",
            "02-00-5e-10-ff-01",
            "02:00:5e:10:ff:+1",
            "02:00:5e:10:ff:0g",
        ];
        for text in wrong {
            assert_eq!(text.parse::<Mac>(), Err(ParseMacError(text.to_owned())));
        }
    }

    #[test]
    fn address_kinds_are_told_apart() {
        let mac = |text: &str| text.parse::<Mac>().unwrap();
        assert!(Mac::BROADCAST.is_group() && !Mac::BROADCAST.is_station());
        assert!(mac("33:33:00:00:00:01").is_group());
        assert!(!Mac::new([0; 6]).is_station());
        assert!(mac("01:80:c2:00:00:0e").is_reserved() && !mac("01:80:c2:00:00:10").is_reserved());
        for bits in [0, 1, u64::MAX] {
            let local = Mac::local(bits);
            assert!(local.is_station() && local.octets()[0] & 2 != 0, "{local}");
        }
    }
}
