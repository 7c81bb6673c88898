//! Cutting a super-frame into the frames that it stands for, with all lengths, numbers and checksums (what a card's
//! segmentation offload does). It promises frames that any station takes, made in one buffer, and a bound on their number.
//! It refuses frames that are not what their header says, before the first piece.

use crate::checksum::Sum;
use crate::error::Unfit;
use crate::frame::LONGEST;
use crate::headers::{Layers, TCP, UDP, set_word, word};
use crate::vnet::{Gso, Kind, Partial};

/// Frames that one super-frame may become: 64 bytes of payload in each, if it is as long as can be.
const MOST_PIECES: usize = 1024;

/// RFC 9293, 3.1: the flags of the header's 14th byte.
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Where a super-frame is cut.
struct Plan {
    layers: Layers,
    tcp: bool,
    /// Length of all headers.
    headers: usize,
    /// Of IPv4: each packet gets its own.
    id: u16,
    /// Of TCP.
    sequence: u32,
    /// Of the whole payload.
    payload: usize,
    size: usize,
}

/// Cuts `frame` and hands each piece to `each`, complete and in order, made in `room`.
///
/// The sizes are the super-frame's own: whoever sent it knew its path's MTU.
pub fn cut(
    frame: &[u8],
    gso: Gso,
    partial: Option<Partial>,
    room: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> Result<(), Unfit> {
    let plan = Plan::of(frame, gso, partial)?;
    let (headers, payload) = frame.split_at(plan.headers);
    let mut done = 0;
    loop {
        let end = payload.len().min(done + plan.size);
        room.clear();
        room.extend_from_slice(headers);
        room.extend_from_slice(&payload[done..end]);
        plan.mend(room, done, end);
        each(room);
        done = end;
        if done == payload.len() {
            return Ok(());
        }
    }
}

impl Plan {
    fn of(frame: &[u8], gso: Gso, partial: Option<Partial>) -> Result<Plan, Unfit> {
        let len = frame.len();
        if len > LONGEST {
            return Err(Unfit::Long { len, most: LONGEST });
        }
        let layers = Layers::of(frame)?;
        let (said, agrees, tcp) = match gso.kind {
            Kind::Tcp4 => ("TCP over IPv4", !layers.v6 && layers.protocol == TCP, true),
            Kind::Tcp6 => ("TCP over IPv6", layers.v6 && layers.protocol == TCP, true),
            Kind::Udp => ("UDP", layers.protocol == UDP, false),
        };
        if !agrees {
            return Err(Unfit::Other { said });
        }
        let above = layers.above;
        let (least, header) = if tcp { (20, "TCP") } else { (8, "UDP") };
        let short = Unfit::Short { header, len };
        let head = frame.get(above..).filter(|head| head.len() >= least);
        let head = head.ok_or(short)?;
        let length = if tcp {
            usize::from(head[12] >> 4) * 4
        } else {
            least
        };
        if length < least {
            return Err(Unfit::Other { said });
        }
        let headers = above + length;
        let payload = len.checked_sub(headers).ok_or(short)?;
        let offset = if tcp { 16 } else { 6 };
        // Summing from elsewhere would mean a checksum of something else.
        let meant = partial.is_some_and(|p| usize::from(p.start) == above && p.offset == offset);
        if !meant {
            return Err(Unfit::Other {
                said: "the checksum of what it carries",
            });
        }
        let size = usize::from(gso.size);
        let most = MOST_PIECES;
        if size == 0 {
            return Err(Unfit::NoSize);
        }
        if payload.div_ceil(size) > most {
            return Err(Unfit::Pieces {
                payload,
                size,
                most,
            });
        }
        let high = word(head, 4).unwrap_or(0);
        let low = word(head, 6).unwrap_or(0);
        Ok(Plan {
            layers,
            tcp,
            headers,
            id: word(frame, layers.ip + 4).unwrap_or(0),
            sequence: u32::from(high) << 16 | u32::from(low),
            payload,
            size,
        })
    }

    /// Makes the headers of one piece say what it is: payload `from..to` of the whole.
    fn mend(&self, piece: &mut [u8], from: usize, to: usize) {
        let Layers { ip, above, v6, .. } = self.layers;
        let len = piece.len();
        if v6 {
            set_word(piece, ip + 4, (len - ip - 40) as u16);
        } else {
            set_word(piece, ip + 2, (len - ip) as u16);
            // RFC 6864: whoever may fragment them needs them apart.
            let id = self.id.wrapping_add((from / self.size) as u16);
            set_word(piece, ip + 4, id);
            set_word(piece, ip + 10, 0);
            let sum = Sum::default().with(&piece[ip..above]).finish();
            set_word(piece, ip + 10, sum);
        }
        let field = if self.tcp {
            let sequence = self.sequence.wrapping_add(from as u32);
            piece[above + 4..above + 8].copy_from_slice(&sequence.to_be_bytes());
            // The end belongs to the last piece, and the reduced window to the first (RFC 3168, 6.1.2).
            if to < self.payload {
                piece[above + 13] &= !FIN_PSH;
            }
            if from > 0 {
                piece[above + 13] &= !CWR;
            }
            above + 16
        } else {
            set_word(piece, above + 4, (len - above) as u16);
            above + 6
        };
        set_word(piece, field, 0);
        let sum = Sum::default()
            .with(self.layers.addresses(piece))
            .with(&[0, self.layers.protocol])
            .with(&((len - above) as u16).to_be_bytes())
            .with(&piece[above..]);
        set_word(piece, field, sum.finish_not_zero());
    }
}

#[cfg(test)]
mod tests;
