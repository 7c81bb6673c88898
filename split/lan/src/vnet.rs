//! The header before each frame with the work left to offloads (virtio 1.2, 5.1.6; Linux, `virtio_net.h`). Its types hold only
//! consistent values, and parsing rejects others. Whether a header matches its frame is checked by [`complete_checksum`](crate::complete_checksum) and
//! [`segment`](crate::segment()).

use crate::error::FrameError;

/// Length of the header on the wire.
pub const VNET_HDR_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_ECN: u8 = 0x80;

/// A checksum that is still to be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Offset from which bytes are summed, to the end of the frame.
    pub start: u16,
    /// Offset of the checksum field from the start; the field contains the sum of the pseudo-header.
    pub offset: u16,
}

/// The protocol of a super-frame, which determines its segmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
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
    pub kind: GsoKind,
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
    pub partial: Option<PartialChecksum>,
    /// The sender of the header has verified the checksums.
    pub data_valid: bool,
    /// The frame is still to be segmented.
    pub gso: Option<Gso>,
}

impl Vnet {
    /// A frame that is complete.
    pub const PLAIN: Vnet = Vnet {
        partial: None,
        data_valid: false,
        gso: None,
    };

    /// Nothing is left to offloads.
    pub const fn is_plain(&self) -> bool {
        self.partial.is_none() && self.gso.is_none()
    }

    /// The same header without the claim that checksums are verified, which must not be believed from an untrusted peer.
    pub const fn without_data_valid(self) -> Vnet {
        Vnet {
            data_valid: false,
            ..self
        }
    }

    /// Parses a header in little-endian byte order, as between machines.
    pub fn parse(bytes: &[u8; VNET_HDR_LEN]) -> Result<Vnet, FrameError> {
        Vnet::read(bytes, u16::from_le_bytes)
    }

    /// Emits a header in little-endian byte order.
    pub fn emit(&self) -> [u8; VNET_HDR_LEN] {
        self.write(u16::to_le_bytes)
    }

    /// Parses a header in native byte order, the kernel's default.
    pub(crate) fn parse_native(bytes: &[u8; VNET_HDR_LEN]) -> Result<Vnet, FrameError> {
        Vnet::read(bytes, u16::from_ne_bytes)
    }

    /// Emits a header in native byte order.
    pub(crate) fn emit_native(&self) -> [u8; VNET_HDR_LEN] {
        self.write(u16::to_ne_bytes)
    }

    fn read(bytes: &[u8; VNET_HDR_LEN], word: fn([u8; 2]) -> u16) -> Result<Vnet, FrameError> {
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
            (size > 0)
                .then_some(Some(gso))
                .ok_or(FrameError::ZeroGsoSize)
        };
        let gso = match kind & !GSO_ECN {
            0 => None,
            1 => of(GsoKind::Tcp4)?,
            4 => of(GsoKind::Tcp6)?,
            5 => of(GsoKind::Udp)?,
            _ => return Err(FrameError::GsoKind { kind: *kind }),
        };
        let partial = (flags & NEEDS_CHECKSUM != 0).then_some(PartialChecksum { start, offset });
        // Segmentation recomputes the checksums, and needs to know where they are.
        if gso.is_some() && partial.is_none() {
            return Err(FrameError::NoPartialChecksum);
        }
        Ok(Vnet {
            partial,
            data_valid: flags & DATA_VALID != 0,
            gso,
        })
    }

    fn write(&self, word: fn(u16) -> [u8; 2]) -> [u8; VNET_HDR_LEN] {
        let mut flags = if self.data_valid { DATA_VALID } else { 0 };
        let (mut kind, mut words) = (0, [0u16; 4]);
        if let Some(gso) = self.gso {
            kind = match gso.kind {
                GsoKind::Tcp4 => 1,
                GsoKind::Tcp6 => 4,
                GsoKind::Udp => 5,
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
