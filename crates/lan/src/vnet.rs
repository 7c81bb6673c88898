//! The header before each frame with the work left to offloads (virtio 1.2, 5.1.6; Linux, `virtio_net.h`). Its types hold only
//! consistent values, and parsing rejects others. Whether a header matches its frame is checked by [`complete`](crate::complete) and
//! [`cut`](crate::cut).

use crate::error::Unfit;

/// Length of the header on the wire.
pub const VNET: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_KNOWN: u8 = 2;
const GSO_ECN: u8 = 0x80;

/// A checksum that is still to be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// Offset from which bytes are summed, to the end of the frame.
    pub start: u16,
    /// Offset of the checksum field from the start; the field contains the sum of the pseudo-header.
    pub offset: u16,
}

/// The protocol of a super-frame, which determines its segmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of equal length, over either; not fragments of one datagram.
    Udp,
}

/// A super-frame: several frames in one, still to be segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// Its protocol.
    pub kind: Kind,
    /// Payload of each frame but the last; not zero.
    pub size: u16,
    /// Length of all headers, as a hint that receivers do not rely on.
    pub headers: u16,
    /// CWR is set, which only the first frame may carry (RFC 3168).
    pub ecn: bool,
}

/// The virtio-net header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vnet {
    /// A checksum that is still to be completed.
    pub partial: Option<Partial>,
    /// The sender of the header has verified the checksums.
    pub known_good: bool,
    /// The frame is still to be segmented.
    pub gso: Option<Gso>,
}

impl Vnet {
    /// A frame that is complete.
    pub const PLAIN: Vnet = Vnet {
        partial: None,
        known_good: false,
        gso: None,
    };

    /// Nothing is left to offloads.
    pub const fn is_plain(&self) -> bool {
        self.partial.is_none() && self.gso.is_none()
    }

    /// The same header without the claim that checksums are verified, which must not be believed from an untrusted peer.
    pub const fn unclaimed(self) -> Vnet {
        Vnet {
            known_good: false,
            ..self
        }
    }

    /// Parses a header in little-endian byte order, as between machines.
    pub fn parse(bytes: &[u8; VNET]) -> Result<Vnet, Unfit> {
        Vnet::read(bytes, u16::from_le_bytes)
    }

    /// Emits a header in little-endian byte order.
    pub fn emit(&self) -> [u8; VNET] {
        self.write(u16::to_le_bytes)
    }

    /// Parses a header in native byte order, the kernel's default.
    pub(crate) fn parse_native(bytes: &[u8; VNET]) -> Result<Vnet, Unfit> {
        Vnet::read(bytes, u16::from_ne_bytes)
    }

    /// Emits a header in native byte order.
    pub(crate) fn emit_native(&self) -> [u8; VNET] {
        self.write(u16::to_ne_bytes)
    }

    fn read(bytes: &[u8; VNET], word: fn([u8; 2]) -> u16) -> Result<Vnet, Unfit> {
        let [flags, kind, rest @ ..] = bytes;
        let at = |i: usize| word([rest[i], rest[i + 1]]);
        let (headers, size, start, offset) = (at(0), at(2), at(4), at(6));
        let ecn = kind & GSO_ECN != 0;
        let of = |kind| {
            let gso = Gso {
                kind,
                size,
                headers,
                ecn,
            };
            (size > 0).then_some(Some(gso)).ok_or(Unfit::NoSize)
        };
        let gso = match kind & !GSO_ECN {
            0 => None,
            1 => of(Kind::Tcp4)?,
            4 => of(Kind::Tcp6)?,
            5 => of(Kind::Udp)?,
            _ => return Err(Unfit::Kind { kind: *kind }),
        };
        let partial = (flags & NEEDS_CHECKSUM != 0).then_some(Partial { start, offset });
        // Segmentation recomputes the checksums, and needs to know where they are.
        if gso.is_some() && partial.is_none() {
            return Err(Unfit::WholeChecksum);
        }
        Ok(Vnet {
            partial,
            known_good: flags & CHECKSUM_KNOWN != 0,
            gso,
        })
    }

    fn write(&self, word: fn(u16) -> [u8; 2]) -> [u8; VNET] {
        let mut flags = if self.known_good { CHECKSUM_KNOWN } else { 0 };
        let (mut kind, mut words) = (0, [0u16; 4]);
        if let Some(gso) = self.gso {
            kind = match gso.kind {
                Kind::Tcp4 => 1,
                Kind::Tcp6 => 4,
                Kind::Udp => 5,
            };
            if gso.ecn {
                kind |= GSO_ECN;
            }
            (words[0], words[1]) = (gso.headers, gso.size);
        }
        if let Some(partial) = self.partial {
            // The two flags exclude each other.
            flags = NEEDS_CHECKSUM;
            (words[2], words[3]) = (partial.start, partial.offset);
        }
        let mut out = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        for (i, w) in words.into_iter().enumerate() {
            out[2 + 2 * i..4 + 2 * i].copy_from_slice(&word(w));
        }
        out
    }

    /// The same header for a frame into which a VLAN tag of `by` bytes is inserted.
    pub(crate) fn shifted(mut self, by: u16) -> Vnet {
        if let Some(partial) = &mut self.partial {
            partial.start = partial.start.saturating_add(by);
        }
        if let Some(gso) = &mut self.gso {
            gso.headers = gso.headers.saturating_add(by);
        }
        self
    }
}

#[cfg(test)]
mod tests;
