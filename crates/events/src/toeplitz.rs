//! The Toeplitz hash over the addresses of a packet, by which connections are distributed over processors (E8).
//! It yields the published values of receive-side scaling for all four kinds of tuple.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the secret key.
pub const KEY_LEN: usize = 40;

/// A secret key. It decides which connections share a processor, so peers must not be able to guess it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; KEY_LEN]);

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// The hashed fields of a packet: its addresses, and its ports if it is TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tuple {
    /// IPv4.
    V4 {
        /// Source.
        from: Ipv4Addr,
        /// Destination.
        to: Ipv4Addr,
    },
    /// TCP over IPv4.
    TcpV4 {
        /// Source and its port.
        from: (Ipv4Addr, u16),
        /// Destination and its port.
        to: (Ipv4Addr, u16),
    },
    /// IPv6.
    V6 {
        /// Source.
        from: Ipv6Addr,
        /// Destination.
        to: Ipv6Addr,
    },
    /// TCP over IPv6.
    TcpV6 {
        /// Source and its port.
        from: (Ipv6Addr, u16),
        /// Destination and its port.
        to: (Ipv6Addr, u16),
    },
}

impl Tuple {
    /// The tuple of a packet that is not TCP; none if its addresses are of different families. IPv4-mapped addresses are IPv4.
    pub fn ip(from: IpAddr, to: IpAddr) -> Option<Tuple> {
        match (from.to_canonical(), to.to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Some(Tuple::V4 { from, to }),
            (IpAddr::V6(from), IpAddr::V6(to)) => Some(Tuple::V6 { from, to }),
            _ => None,
        }
    }

    /// The tuple of a TCP segment between two sockets; none if their addresses are of different families.
    pub fn segment(from: SocketAddr, to: SocketAddr) -> Option<Tuple> {
        let end = |at: SocketAddr| (at.ip().to_canonical(), at.port());
        Tuple::tcp(end(from), end(to))
    }

    /// The tuple of a TCP connection; none if its addresses are of different families.
    pub fn tcp(from: (IpAddr, u16), to: (IpAddr, u16)) -> Option<Tuple> {
        match (from, to) {
            ((IpAddr::V4(a), p), (IpAddr::V4(b), q)) => Some(Tuple::TcpV4 {
                from: (a, p),
                to: (b, q),
            }),
            ((IpAddr::V6(a), p), (IpAddr::V6(b), q)) => Some(Tuple::TcpV6 {
                from: (a, p),
                to: (b, q),
            }),
            _ => None,
        }
    }
}

impl Key {
    /// The hash of a packet: addresses in the order source, destination, then the ports likewise.
    pub fn hash(&self, tuple: Tuple) -> u32 {
        let mut state = Shift::new(self);
        match tuple {
            Tuple::V4 { from, to } => {
                state.feed(&from.octets());
                state.feed(&to.octets());
            }
            Tuple::TcpV4 { from, to } => {
                state.feed(&from.0.octets());
                state.feed(&to.0.octets());
                state.ports(from.1, to.1);
            }
            Tuple::V6 { from, to } => {
                state.feed(&from.octets());
                state.feed(&to.octets());
            }
            Tuple::TcpV6 { from, to } => {
                state.feed(&from.0.octets());
                state.feed(&to.0.octets());
                state.ports(from.1, to.1);
            }
        }
        state.hash
    }
}

/// The state of a hash computation: each input bit selects the 32 bits of the key at its offset.
struct Shift<'a> {
    key: &'a Key,
    /// Bytes of the input so far.
    at: usize,
    hash: u32,
}

impl<'a> Shift<'a> {
    fn new(key: &'a Key) -> Shift<'a> {
        Shift {
            key,
            at: 0,
            hash: 0,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            // The eight windows of this byte lie in five bytes of the key; the input has at most 36 bytes.
            let mut bits = 0u64;
            for offset in 0..5 {
                let next = self.key.0.get(self.at + offset);
                bits = bits << 8 | u64::from(next.copied().unwrap_or(0));
            }
            for bit in 0..8 {
                if byte & (0x80 >> bit) != 0 {
                    self.hash ^= (bits >> (8 - bit)) as u32;
                }
            }
            self.at += 1;
        }
    }

    fn ports(&mut self, from: u16, to: u16) {
        self.feed(&from.to_be_bytes());
        self.feed(&to.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
