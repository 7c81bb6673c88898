//! The header that `rdma_cm` puts in front of the private data of a REQ and a SIDR_REQ: the addresses and the port of a connection
//! between IP addresses. IPv4 addresses stand in the last four bytes of their fields.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Malformed, raw};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    version: u8,
    ip_version: u8,
    port: U16,
    src: [u8; 16],
    dst: [u8; 16],
}

/// The addresses of a connection between IP addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CmaHeader {
    /// The sender's port.
    pub port: u16,
    /// The sender's address.
    pub src: IpAddr,
    /// The receiver's address; of the same family.
    pub dst: IpAddr,
}

impl CmaHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 36;

    /// The port space of connections (`RDMA_PS_TCP`).
    pub const PS_TCP: u16 = 0x0106;
    /// The port space of datagrams (`RDMA_PS_UDP`).
    pub const PS_UDP: u16 = 0x0111;

    /// The service identifier of a port in a port space.
    pub const fn service_id(space: u16, port: u16) -> u64 {
        (space as u64) << 16 | port as u64
    }

    /// The port of a service identifier, if it is in this port space.
    pub const fn port_of(space: u16, service: u64) -> Option<u16> {
        if service >> 16 == space as u64 {
            Some(service as u16)
        } else {
            None
        }
    }

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("CMA header", bytes)?;
        if raw.version != 0 {
            return Err(Malformed::Mad {
                what: "CMA version",
                got: raw.version.into(),
            });
        }
        let address = |bytes: [u8; 16]| match raw.ip_version >> 4 {
            4 => {
                let [.., a, b, c, d] = bytes;
                Ok(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
            }
            6 => Ok(IpAddr::V6(Ipv6Addr::from(bytes))),
            got => Err(Malformed::Mad {
                what: "CMA IP version",
                got: got.into(),
            }),
        };
        Ok(Self {
            port: raw.port.get(),
            src: address(raw.src)?,
            dst: address(raw.dst)?,
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
            }
            IpAddr::V6(v6) => v6.octets(),
        };
        let ip_version = if self.src.is_ipv4() { 4 } else { 6 };
        zerocopy::transmute!(Raw {
            version: 0,
            ip_version: ip_version << 4,
            port: U16::new(self.port),
            src: octets(self.src),
            dst: octets(self.dst),
        })
    }
}

impl fmt::Display for CmaHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CMA {} port {} -> {}", self.src, self.port, self.dst)
    }
}
