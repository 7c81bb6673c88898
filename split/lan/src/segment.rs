//! Segments a super-frame into frames with correct lengths, numbers and checksums, as a card's segmentation offload does. Frames that
//! do not match their header are rejected before the first piece; one super-frame makes at most `MOST_PIECES` frames.

use crate::checksum::Sum;
use crate::error::FrameError;
use crate::frame::MAX_FRAME_LEN;
use crate::headers::{Layers, TCP, UDP, read_u16, write_u16};
use crate::vnet::{Gso, GsoKind, PartialChecksum};

/// Limit on the frames of one super-frame: 64 bytes of payload in each at the greatest length.
const MOST_PIECES: usize = 1024;

/// RFC 9293, 3.1: the flags of the header's 14th byte.
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// The layout of a super-frame, checked against its header.
struct Plan {
    layers: Layers,
    tcp: bool,
    /// Length of all headers.
    headers: usize,
    /// Identification of the IPv4 packet; incremented for each piece.
    id: u16,
    /// Sequence number of the first TCP byte.
    sequence: u32,
    /// Bytes of payload in all.
    payload: usize,
    size: usize,
}

/// Segments `frame` and passes each piece to `each`, complete and in order. Every piece is built in `room`.
///
/// The payload size of the pieces is the one in `gso`, which the sender chose for the MTU of its path.
pub fn segment(
    frame: &[u8],
    gso: Gso,
    partial: Option<PartialChecksum>,
    room: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> Result<(), FrameError> {
    let plan = Plan::of(frame, gso, partial)?;
    let (headers, payload) = frame.split_at(plan.headers);
    let mut done = 0;
    loop {
        let end = payload.len().min(done + plan.size);
        room.clear();
        room.extend_from_slice(headers);
        room.extend_from_slice(&payload[done..end]);
        plan.fix_headers(room, done, end);
        each(room);
        done = end;
        if done == payload.len() {
            return Ok(());
        }
    }
}

impl Plan {
    fn of(frame: &[u8], gso: Gso, partial: Option<PartialChecksum>) -> Result<Plan, FrameError> {
        let len = frame.len();
        if len > MAX_FRAME_LEN {
            return Err(FrameError::Long {
                len,
                most: MAX_FRAME_LEN,
            });
        }
        let layers = Layers::parse(frame)?;
        let (said, agrees, tcp) = match gso.kind {
            GsoKind::Tcp4 => ("TCP over IPv4", !layers.v6 && layers.protocol == TCP, true),
            GsoKind::Tcp6 => ("TCP over IPv6", layers.v6 && layers.protocol == TCP, true),
            GsoKind::Udp => ("UDP", layers.protocol == UDP, false),
        };
        if !agrees {
            return Err(FrameError::Mismatch { indicated: said });
        }
        let above = layers.transport;
        let (least, header) = if tcp { (20, "TCP") } else { (8, "UDP") };
        let short = FrameError::Short { header, len };
        let head = frame.get(above..).filter(|head| head.len() >= least);
        let head = head.ok_or(short)?;
        let length = if tcp {
            usize::from(head[12] >> 4) * 4
        } else {
            least
        };
        if length < least {
            return Err(FrameError::Mismatch { indicated: said });
        }
        let headers = above + length;
        let payload = len.checked_sub(headers).ok_or(short)?;
        let offset = if tcp { 16 } else { 6 };
        // Only the checksum of the TCP or UDP header can be recomputed for each piece.
        let meant = partial.is_some_and(|p| usize::from(p.start) == above && p.offset == offset);
        if !meant {
            return Err(FrameError::Mismatch {
                indicated: "the checksum of what it carries",
            });
        }
        let size = usize::from(gso.size);
        let most = MOST_PIECES;
        if size == 0 {
            return Err(FrameError::ZeroGsoSize);
        }
        if payload.div_ceil(size) > most {
            return Err(FrameError::TooManySegments {
                payload,
                size,
                most,
            });
        }
        let high = read_u16(head, 4).unwrap_or(0);
        let low = read_u16(head, 6).unwrap_or(0);
        Ok(Plan {
            layers,
            tcp,
            headers,
            id: read_u16(frame, layers.ip + 4).unwrap_or(0),
            sequence: u32::from(high) << 16 | u32::from(low),
            payload,
            size,
        })
    }

    /// Sets lengths, numbers, flags and checksums of one piece, which carries payload `from..to` of the whole.
    fn fix_headers(&self, piece: &mut [u8], from: usize, to: usize) {
        let Layers {
            ip,
            transport: above,
            v6,
            ..
        } = self.layers;
        let len = piece.len();
        if v6 {
            write_u16(piece, ip + 4, (len - ip - 40) as u16);
        } else {
            write_u16(piece, ip + 2, (len - ip) as u16);
            // RFC 6864: packets that may be fragmented need distinct identifications.
            let id = self.id.wrapping_add((from / self.size) as u16);
            write_u16(piece, ip + 4, id);
            write_u16(piece, ip + 10, 0);
            let sum = Sum::default().with(&piece[ip..above]).finish();
            write_u16(piece, ip + 10, sum);
        }
        let field = if self.tcp {
            let sequence = self.sequence.wrapping_add(from as u32);
            piece[above + 4..above + 8].copy_from_slice(&sequence.to_be_bytes());
            // FIN and PSH belong to the last piece, CWR to the first (RFC 3168, 6.1.2).
            if to < self.payload {
                piece[above + 13] &= !FIN_PSH;
            }
            if from > 0 {
                piece[above + 13] &= !CWR;
            }
            above + 16
        } else {
            write_u16(piece, above + 4, (len - above) as u16);
            above + 6
        };
        write_u16(piece, field, 0);
        let sum = Sum::default()
            .with(self.layers.addresses(piece))
            .with(&[0, self.layers.protocol])
            .with(&((len - above) as u16).to_be_bytes())
            .with(&piece[above..]);
        write_u16(piece, field, sum.finish_not_zero());
    }
}

#[cfg(test)]
mod tests;
