//! A frame that only acknowledges: TCP without data, of which a later one says everything that an earlier one said, and more.
//! It promises to recognise only those that say nothing else: nothing selective, no flag but the one, no news of congestion.
//! It refuses to decide which frames are sent.
//!
//! A stream of super-frames is answered by an acknowledgement for each of them. Those that leave together cost both drivers as much
//! as all else, and only the last one tells their receiver anything (RFC 9293, 3.4: acknowledgements are cumulative).

use crate::headers::{Layers, TCP, word};

#[cfg(test)]
mod tests;

/// The header of TCP without options, and the beginning of timestamps as everybody writes them (RFC 7323, appendix A).
const BARE: usize = 20;
const STAMPS: [u8; 4] = [1, 1, 8, 10];
/// The acknowledgement is valid, and nothing else is said.
const ONLY_ACK: u8 = 0x10;

/// What a frame acknowledges that does nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Everything that must be the same in a later one.
    same: [u8; Ack::LONGEST],
    number: u32,
    stamp: u32,
}

impl Ack {
    /// Bytes of the longest frame that can be one: Ethernet with two tags, IPv6, TCP with timestamps.
    pub const LONGEST: usize = 22 + 40 + 32;

    /// Of a whole frame; nothing if it is anything else.
    pub fn of(frame: &[u8]) -> Option<Ack> {
        if frame.len() > Ack::LONGEST {
            return None;
        }
        let Layers {
            ip,
            v6,
            above,
            protocol,
        } = Layers::of(frame).ok()?;
        let len = match v6 {
            true => ip + 40 + usize::from(word(frame, ip + 4)?),
            false => ip + usize::from(word(frame, ip + 2)?),
        };
        // What follows is padding.
        let mut same = [0; Ack::LONGEST];
        let head = same.get_mut(..len)?;
        head.copy_from_slice(frame.get(..len)?);
        let tcp = head.get_mut(above..)?;
        let stamped = match tcp.get(BARE..)? {
            [] => false,
            options if options.len() == 12 && options.starts_with(&STAMPS) => true,
            _ => return None,
        };
        if protocol != TCP
            || usize::from(*tcp.get(12)?) != (tcp.len() / 4) << 4
            || *tcp.get(13)? != ONLY_ACK
        {
            return None;
        }
        let number = take(tcp, 8)?;
        let stamp = if stamped { take(tcp, 24)? } else { 0 };
        // Its window and its sum, and the stamp that it answers.
        take(tcp, 14)?;
        if stamped {
            take(tcp, 28)?;
        }
        if !v6 {
            // What a packet is called, and its sum.
            head.get_mut(ip + 4..ip + 6)?.fill(0);
            head.get_mut(ip + 10..ip + 12)?.fill(0);
        }
        Some(Ack {
            same,
            number,
            stamp,
        })
    }

    /// It acknowledges what the earlier one did, and no more: it tells of a gap (RFC 5681, 2).
    pub fn repeats(&self, earlier: &Ack) -> bool {
        self.same == earlier.same && self.number == earlier.number
    }

    /// Whoever gets this one loses nothing without the earlier one. One that acknowledges no more than the earlier one is of another
    /// kind: it tells of a gap, or of a window.
    pub fn outdates(&self, earlier: &Ack) -> bool {
        let more = self.number.wrapping_sub(earlier.number) as i32;
        let later = self.stamp.wrapping_sub(earlier.stamp) as i32;
        self.same == earlier.same && more > 0 && later >= 0
    }
}

/// Four bytes, which are zero afterwards.
fn take(bytes: &mut [u8], at: usize) -> Option<u32> {
    let four = bytes.get_mut(at..)?.first_chunk_mut::<4>()?;
    Some(u32::from_be_bytes(core::mem::take(four)))
}
