//! Recognises frames that are pure TCP acknowledgements, and compares two of them. A pure acknowledgement has no data, no flag but
//! ACK and no option but timestamps; anything else, selective acknowledgements and ECN signals included, is not recognised or not
//! equal. Which frames are dropped is decided by the caller.
//!
//! A stream of super-frames is answered by an acknowledgement for each of them. Those that leave together cost both drivers as much
//! as all else, and only the last one tells their receiver anything (RFC 9293, 3.4: acknowledgements are cumulative).

use crate::headers::{Layers, TCP, read_u16};

#[cfg(test)]
mod tests;

/// Length of the TCP header without options, and the first bytes of the timestamps option as commonly padded (RFC 7323, appendix A).
const TCP_HLEN: usize = 20;
const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];
/// The ACK flag alone.
const ONLY_ACK: u8 = 0x10;

/// The content of a pure acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The frame with the fields zeroed that may differ between an acknowledgement and one that supersedes it.
    comparable: [u8; Ack::MAX_LEN],
    number: u32,
    timestamp: u32,
}

impl Ack {
    /// Bytes of the longest frame that can be one: Ethernet with two tags, IPv6, TCP with timestamps.
    pub const MAX_LEN: usize = 22 + 40 + 32;

    /// Parses a whole frame; `None` if it is not a pure acknowledgement.
    pub fn parse(frame: &[u8]) -> Option<Ack> {
        if frame.len() > Ack::MAX_LEN {
            return None;
        }
        let Layers {
            ip,
            v6,
            transport: above,
            protocol,
        } = Layers::parse(frame).ok()?;
        let len = match v6 {
            true => ip + 40 + usize::from(read_u16(frame, ip + 4)?),
            false => ip + usize::from(read_u16(frame, ip + 2)?),
        };
        // Bytes of the frame behind the packet are padding.
        let mut same = [0; Ack::MAX_LEN];
        let head = same.get_mut(..len)?;
        head.copy_from_slice(frame.get(..len)?);
        let tcp = head.get_mut(above..)?;
        let stamped = match tcp.get(TCP_HLEN..)? {
            [] => false,
            options if options.len() == 12 && options.starts_with(&TIMESTAMPS) => true,
            _ => return None,
        };
        if protocol != TCP
            || usize::from(*tcp.get(12)?) != (tcp.len() / 4) << 4
            || *tcp.get(13)? != ONLY_ACK
        {
            return None;
        }
        let number = take_u32(tcp, 8)?;
        let stamp = if stamped { take_u32(tcp, 24)? } else { 0 };
        // Window and checksum, and the echoed timestamp (TSecr).
        take_u32(tcp, 14)?;
        if stamped {
            take_u32(tcp, 28)?;
        }
        if !v6 {
            // Identification and header checksum.
            head.get_mut(ip + 4..ip + 6)?.fill(0);
            head.get_mut(ip + 10..ip + 12)?.fill(0);
        }
        Some(Ack {
            comparable: same,
            number,
            timestamp: stamp,
        })
    }

    /// It is a duplicate acknowledgement: same number as the earlier one, which signals a gap (RFC 5681, 2).
    pub fn is_duplicate_of(&self, earlier: &Ack) -> bool {
        self.comparable == earlier.comparable && self.number == earlier.number
    }

    /// It supersedes the earlier one: the same connection and state, a higher acknowledgement number, and no older timestamp. An
    /// acknowledgement of the same number does not qualify: it signals a gap or a new window.
    pub fn supersedes(&self, earlier: &Ack) -> bool {
        let more = self.number.wrapping_sub(earlier.number) as i32;
        let later = self.timestamp.wrapping_sub(earlier.timestamp) as i32;
        self.comparable == earlier.comparable && more > 0 && later >= 0
    }
}

/// Reads four bytes and zeroes them.
fn take_u32(bytes: &mut [u8], at: usize) -> Option<u32> {
    let four = bytes.get_mut(at..)?.first_chunk_mut::<4>()?;
    Some(u32::from_be_bytes(core::mem::take(four)))
}
