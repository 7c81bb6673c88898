//! The offloads that a side takes over: completing checksums, segmenting super-frames. Segmentation needs checksums, and
//! [`Offloads::normalized`] removes combinations without them.

use crate::vnet::{GsoKind, Vnet};

/// Work that a side takes over from the sender of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloads {
    /// It accepts frames with a partial checksum.
    pub checksum: bool,
    /// It accepts super-frames of TCP over IPv4.
    pub tcp4: bool,
    /// It accepts super-frames of TCP over IPv6.
    pub tcp6: bool,
    /// It accepts TCP super-frames with CWR set.
    pub ecn: bool,
    /// It accepts super-frames of UDP.
    pub udp: bool,
}

impl Offloads {
    /// No offloads: every frame must be complete.
    pub const NONE: Offloads = Offloads {
        checksum: false,
        tcp4: false,
        tcp6: false,
        ecn: false,
        udp: false,
    };

    /// All offloads.
    pub const ALL: Offloads = Offloads {
        checksum: true,
        tcp4: true,
        tcp6: true,
        ecn: true,
        udp: true,
    };

    /// The offloads that can be had together: segmentation only with checksums, ECN only with TCP.
    pub const fn normalized(self) -> Offloads {
        let tcp = self.checksum && (self.tcp4 || self.tcp6);
        Offloads {
            checksum: self.checksum,
            tcp4: self.tcp4 && self.checksum,
            tcp6: self.tcp6 && self.checksum,
            ecn: self.ecn && tcp,
            udp: self.udp && self.checksum,
        }
    }

    /// The offloads that both sides accept.
    pub const fn intersection(self, other: Offloads) -> Offloads {
        Offloads {
            checksum: self.checksum && other.checksum,
            tcp4: self.tcp4 && other.tcp4,
            tcp6: self.tcp6 && other.tcp6,
            ecn: self.ecn && other.ecn,
            udp: self.udp && other.udp,
        }
    }

    /// A frame with this header is accepted as it is.
    pub const fn accepts(&self, vnet: &Vnet) -> bool {
        let cuts = match &vnet.gso {
            None => true,
            Some(gso) => {
                let kind = match gso.kind {
                    GsoKind::Tcp4 => self.tcp4,
                    GsoKind::Tcp6 => self.tcp6,
                    GsoKind::Udp => self.udp,
                };
                kind && (self.ecn || !gso.ecn)
            }
        };
        cuts && (self.checksum || vnet.partial.is_none())
    }
}
