//! Where a frame's headers are: Ethernet with up to two VLAN tags, IPv4 or IPv6, and what follows.
//! It promises offsets within the frame, whatever the frame says.
//! It refuses fragments and routed IPv6 packets: their checksums cannot be made from what is here.

use crate::error::Unfit;

/// Destination, source, type.
pub(crate) const ETHERNET: usize = 14;
/// Tags that are looked through.
const MOST_TAGS: usize = 2;
pub(crate) const TAG: usize = 4;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// Extension headers that are looked through (RFC 8200, 4.1).
const MOST_EXTENSIONS: usize = 8;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// A frame's layers, as offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layers {
    pub(crate) ip: usize,
    pub(crate) v6: bool,
    /// Where the IP header, options and extensions included, ends.
    pub(crate) above: usize,
    /// What is there: [`TCP`], [`UDP`] or another.
    pub(crate) protocol: u8,
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*two))
}

pub(crate) fn set_word(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(two) = bytes.get_mut(at..at + 2) {
        two.copy_from_slice(&value.to_be_bytes());
    }
}

impl Layers {
    pub(crate) fn of(frame: &[u8]) -> Result<Layers, Unfit> {
        let len = frame.len();
        let short = |header| move || Unfit::Short { header, len };
        let mut at = ETHERNET - 2;
        let mut kind = word(frame, at).ok_or_else(short("Ethernet"))?;
        for _ in 0..MOST_TAGS {
            if TAGS.contains(&kind) {
                at += TAG;
                kind = word(frame, at).ok_or_else(short("VLAN"))?;
            }
        }
        let ip = at + 2;
        match kind {
            IPV4 => Layers::v4(frame, ip).ok_or_else(short("IPv4"))?,
            IPV6 => Layers::v6(frame, ip).ok_or_else(short("IPv6"))?,
            _ => Err(Unfit::Other { said: "IP" }),
        }
    }

    /// Nothing if the frame ends too early.
    fn v4(frame: &[u8], ip: usize) -> Option<Result<Layers, Unfit>> {
        let head = frame.get(ip..)?.first_chunk::<20>()?;
        let len = usize::from(head[0] & 0x0f) * 4;
        if head[0] >> 4 != 4 || len < 20 {
            return Some(Err(Unfit::Other { said: "IPv4" }));
        }
        let above = ip + len;
        frame.get(..above)?;
        // RFC 791, 3.1: more fragments, or not the first.
        let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
        Some(if fragment {
            Err(Unfit::Other {
                said: "a whole packet",
            })
        } else {
            Ok(Layers {
                ip,
                v6: false,
                above,
                protocol: head[9],
            })
        })
    }

    fn v6(frame: &[u8], ip: usize) -> Option<Result<Layers, Unfit>> {
        let head = frame.get(ip..)?.first_chunk::<40>()?;
        if head[0] >> 4 != 6 {
            return Some(Err(Unfit::Other { said: "IPv6" }));
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
                // A routing header hides the destination that the checksum covers; a fragment has none of its own.
                43 | 44 => {
                    return Some(Err(Unfit::Other {
                        said: "a whole packet",
                    }));
                }
                _ => {
                    return Some(Ok(Layers {
                        ip,
                        v6: true,
                        above,
                        protocol,
                    }));
                }
            }
        }
        Some(Err(Unfit::Other {
            said: "IPv6 with few extension headers",
        }))
    }

    /// Source and destination address, one after the other.
    pub(crate) fn addresses<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let (from, len) = if self.v6 { (8, 32) } else { (12, 8) };
        frame
            .get(self.ip + from..self.ip + from + len)
            .unwrap_or_default()
    }
}
