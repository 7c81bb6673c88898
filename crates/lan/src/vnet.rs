//! What a frame leaves to offloads, as the header before each frame says it (virtio 1.2, 5.1.6; Linux, `virtio_net.h`).
//! It promises values that can hold only meaningful headers, and to refuse the rest with its numbers.
//! It refuses to judge a frame: whether header and frame agree is for [`complete`](crate::complete) and [`cut`](crate::cut).

use crate::error::Unfit;

/// Length of the header on the wire.
pub const VNET: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_KNOWN: u8 = 2;
const GSO_ECN: u8 = 0x80;

/// Where a checksum is still to be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// Bytes from here to the end are summed.
    pub start: u16,
    /// The sum belongs so many bytes behind the start; it holds that of the pseudo-header by now.
    pub offset: u16,
}

/// How a super-frame is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of equal length, over either; not fragments of one datagram.
    Udp,
}

/// A super-frame: several frames in one, still to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// By which rules.
    pub kind: Kind,
    /// Payload of each frame but the last; never zero.
    pub size: u16,
    /// Length of all headers, as a hint; nobody may rely on it.
    pub headers: u16,
    /// The congestion window was reduced: only the first frame may say so (RFC 3168).
    pub ecn: bool,
}

/// The header before a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vnet {
    /// A checksum that is not complete.
    pub partial: Option<Partial>,
    /// Whoever wrote this has seen that the checksums are right.
    pub known_good: bool,
    /// Frames still to be cut.
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

    /// The same without what its sender says of its own checksums: from a peer that is not trusted, nobody must believe it.
    pub const fn unclaimed(self) -> Vnet {
        Vnet {
            known_good: false,
            ..self
        }
    }

    /// Reads a header in little endian, as it travels between machines.
    pub fn parse(bytes: &[u8; VNET]) -> Result<Vnet, Unfit> {
        Vnet::read(bytes, u16::from_le_bytes)
    }

    /// Writes a header in little endian.
    pub fn emit(&self) -> [u8; VNET] {
        self.write(u16::to_le_bytes)
    }

    /// Reads a header in the machine's order, as the kernel writes it unless told otherwise.
    pub(crate) fn parse_native(bytes: &[u8; VNET]) -> Result<Vnet, Unfit> {
        Vnet::read(bytes, u16::from_ne_bytes)
    }

    /// Writes a header in the machine's order.
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
        // A frame that is still to be cut has no complete checksum to cut it with.
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
            // Never both: a receiver would have to believe one of them.
            flags = NEEDS_CHECKSUM;
            (words[2], words[3]) = (partial.start, partial.offset);
        }
        let mut out = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        for (i, w) in words.into_iter().enumerate() {
            out[2 + 2 * i..4 + 2 * i].copy_from_slice(&word(w));
        }
        out
    }

    /// The same, with all places moved back: a VLAN tag went in before them.
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
