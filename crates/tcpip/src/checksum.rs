//! The internet checksum over parts of any length, and over the pseudo-headers of IPv4 and IPv6 (RFC 1071, RFC 8200, 8.1).
//! Sums are kept in the byte order of the packet, so the result is written as it is.

use core::net::IpAddr;

use etherparse::checksum::Sum16BitWords;

/// A sum of bytes so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checksum {
    sum: u32,
    is_odd: bool,
}

impl Checksum {
    /// The sum of the pseudo-header of a packet whose payload has `len` bytes.
    pub fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> Checksum {
        let mut sum = Checksum::default();
        for address in [source, destination] {
            match address {
                IpAddr::V4(address) => sum.add(&address.octets()),
                IpAddr::V6(address) => sum.add(&address.octets()),
            }
        }
        sum.add(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        sum.add(&[0, 0, 0, protocol]);
        sum
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        // The complement of a complement is the folded sum.
        let part = !Sum16BitWords::new().add_slice(bytes).ones_complement();
        let part = if self.is_odd { part.swap_bytes() } else { part };
        self.sum += u32::from(part);
        self.sum = (self.sum & 0xffff) + (self.sum >> 16);
        self.is_odd ^= bytes.len() % 2 == 1;
    }

    /// The sum, not complemented, as hardware that completes it expects.
    pub const fn partial(self) -> [u8; 2] {
        (self.sum as u16).to_ne_bytes()
    }

    /// The checksum as it is written into the packet.
    pub const fn finish(self) -> [u8; 2] {
        (!(self.sum as u16)).to_ne_bytes()
    }

    /// Whether the bytes, their checksum among them, are as they were sent.
    pub const fn is_valid(self) -> bool {
        self.sum == 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_does_not_depend_on_the_parts() {
        let bytes: Vec<u8> = (0..101u32).map(|at| (at * 37) as u8).collect();
        let mut whole = Checksum::default();
        whole.add(&bytes);
        for cut in 0..bytes.len() {
            let mut parts = Checksum::default();
            parts.add(&bytes[..cut]);
            parts.add(&[]);
            parts.add(&bytes[cut..]);
            assert_eq!(parts.finish(), whole.finish(), "{cut}");
        }
    }

    #[test]
    fn example_of_rfc_1071() {
        let mut sum = Checksum::default();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.partial(), [0xdd, 0xf2]);
        let mut checked = sum;
        checked.add(&sum.finish());
        assert!(checked.is_valid());
    }
}
