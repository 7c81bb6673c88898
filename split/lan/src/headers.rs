//! Locates a frame's headers: Ethernet with up to two VLAN tags, IPv4 or IPv6, and the transport. All offsets lie within the frame.
//! Fragments and IPv6 packets with a routing header are rejected: their transport checksum cannot be computed from the frame.

use crate::error::FrameError;

/// Destination, source, type.
pub(crate) const ETH_HLEN: usize = 14;
/// Limit on VLAN tags that are skipped.
const MOST_TAGS: usize = 2;
pub(crate) const VLAN_HLEN: usize = 4;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// Limit on IPv6 extension headers that are skipped (RFC 8200, 4.1).
const MOST_EXTENSIONS: usize = 8;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// Offsets of a frame's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layers {
    pub(crate) ip: usize,
    pub(crate) v6: bool,
    /// End of the IP header, with options and extension headers.
    pub(crate) transport: usize,
    /// The transport protocol: [`TCP`], [`UDP`] or another.
    pub(crate) protocol: u8,
}

pub(crate) fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*two))
}

pub(crate) fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(two) = bytes.get_mut(at..at + 2) {
        two.copy_from_slice(&value.to_be_bytes());
    }
}

impl Layers {
    pub(crate) fn parse(frame: &[u8]) -> Result<Layers, FrameError> {
        let len = frame.len();
        let short = |header| move || FrameError::Short { header, len };
        let mut at = ETH_HLEN - 2;
        let mut kind = read_u16(frame, at).ok_or_else(short("Ethernet"))?;
        for _ in 0..MOST_TAGS {
            if TAGS.contains(&kind) {
                at += VLAN_HLEN;
                kind = read_u16(frame, at).ok_or_else(short("VLAN"))?;
            }
        }
        let ip = at + 2;
        match kind {
            IPV4 => Layers::v4(frame, ip).ok_or_else(short("IPv4"))?,
            IPV6 => Layers::v6(frame, ip).ok_or_else(short("IPv6"))?,
            _ => Err(FrameError::Mismatch { indicated: "IP" }),
        }
    }

    /// `None` if the frame ends within the header.
    fn v4(frame: &[u8], ip: usize) -> Option<Result<Layers, FrameError>> {
        let head = frame.get(ip..)?.first_chunk::<20>()?;
        let len = usize::from(head[0] & 0x0f) * 4;
        if head[0] >> 4 != 4 || len < 20 {
            return Some(Err(FrameError::Mismatch { indicated: "IPv4" }));
        }
        let above = ip + len;
        frame.get(..above)?;
        // RFC 791, 3.1: the MF flag or a fragment offset.
        let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
        Some(if fragment {
            Err(FrameError::Mismatch {
                indicated: "a whole packet",
            })
        } else {
            Ok(Layers {
                ip,
                v6: false,
                transport: above,
                protocol: head[9],
            })
        })
    }

    fn v6(frame: &[u8], ip: usize) -> Option<Result<Layers, FrameError>> {
        let head = frame.get(ip..)?.first_chunk::<40>()?;
        if head[0] >> 4 != 6 {
            return Some(Err(FrameError::Mismatch { indicated: "IPv6" }));
        }
        let (mut protocol, mut above) = (head[6], ip + 40);
        for _ in 0..MOST_EXTENSIONS {
            match protocol {
                // Hop-by-hop and destination options.
                0 | 60 => {
                    let [next, units] = *frame.get(above..)?.first_chunk::<2>()?;
                    (protocol, above) = (next, above + 8 + 8 * usize::from(units));
                    frame.get(..above)?;
                }
                // A routing header hides the final destination, which the checksum covers; a fragment does not contain the whole datagram.
                43 | 44 => {
                    return Some(Err(FrameError::Mismatch {
                        indicated: "a whole packet",
                    }));
                }
                _ => {
                    return Some(Ok(Layers {
                        ip,
                        v6: true,
                        transport: above,
                        protocol,
                    }));
                }
            }
        }
        Some(Err(FrameError::Mismatch {
            indicated: "IPv6 with few extension headers",
        }))
    }

    /// Source and destination address, adjacent as in the pseudo-header.
    pub(crate) fn addresses<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let (from, len) = if self.v6 { (8, 32) } else { (12, 8) };
        frame
            .get(self.ip + from..self.ip + from + len)
            .unwrap_or_default()
    }
}
