//! What a side does itself, so that others need not: completing checksums, cutting super-frames.
//! It promises that no side is said to cut what it cannot sum.
//! It refuses to guess: what is granted is what the system said yes to.

use crate::vnet::{Kind, Vnet};

/// Work that a side takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloads {
    /// It takes frames whose checksum is not complete.
    pub checksum: bool,
    /// It takes super-frames of TCP over IPv4.
    pub tcp4: bool,
    /// It takes super-frames of TCP over IPv6.
    pub tcp6: bool,
    /// It takes such super-frames also where congestion was signalled.
    pub ecn: bool,
    /// It takes super-frames of UDP.
    pub udp: bool,
}

impl Offloads {
    /// Everything is done by the sender.
    pub const NONE: Offloads = Offloads {
        checksum: false,
        tcp4: false,
        tcp6: false,
        ecn: false,
        udp: false,
    };

    /// All there is.
    pub const ALL: Offloads = Offloads {
        checksum: true,
        tcp4: true,
        tcp6: true,
        ecn: true,
        udp: true,
    };

    /// Only what can be had together: nobody cuts what he cannot sum.
    pub const fn sound(self) -> Offloads {
        let tcp = self.checksum && (self.tcp4 || self.tcp6);
        Offloads {
            checksum: self.checksum,
            tcp4: self.tcp4 && self.checksum,
            tcp6: self.tcp6 && self.checksum,
            ecn: self.ecn && tcp,
            udp: self.udp && self.checksum,
        }
    }

    /// What both take.
    pub const fn and(self, other: Offloads) -> Offloads {
        Offloads {
            checksum: self.checksum && other.checksum,
            tcp4: self.tcp4 && other.tcp4,
            tcp6: self.tcp6 && other.tcp6,
            ecn: self.ecn && other.ecn,
            udp: self.udp && other.udp,
        }
    }

    /// The side takes a frame with this header as it is.
    pub const fn take(&self, vnet: &Vnet) -> bool {
        let cuts = match &vnet.gso {
            None => true,
            Some(gso) => {
                let kind = match gso.kind {
                    Kind::Tcp4 => self.tcp4,
                    Kind::Tcp6 => self.tcp6,
                    Kind::Udp => self.udp,
                };
                kind && (self.ecn || !gso.ecn)
            }
        };
        cuts && (self.checksum || vnet.partial.is_none())
    }
}
