//! The Internet checksum (RFC 1071), and completing a partial one that was left to an offload. [`complete_checksum`] writes the same bytes as
//! the kernel's own completion (a zero becomes the equivalent `0xffff`) and rejects a checksum field outside the frame.

use crate::error::FrameError;
use crate::headers::write_u16;
use crate::vnet::PartialChecksum;

/// A sum that is not folded yet, in native byte order: the ones' complement sum is independent of byte order (RFC 1071, 2).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds these bytes; an odd last byte is padded with a zero, so only the last slice may be of odd length.
    pub(crate) fn with(self, bytes: &[u8]) -> Sum {
        let mut sum = self.0;
        let (words, rest) = bytes.as_chunks::<4>();
        // The sum overflows after 2^32 such words at the earliest; a frame has far fewer.
        for word in words {
            sum += u64::from(u32::from_ne_bytes(*word));
        }
        let (pairs, last) = rest.as_chunks::<2>();
        for pair in pairs {
            sum += u64::from(u16::from_ne_bytes(*pair));
        }
        if let [last] = last {
            sum += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        Sum(sum)
    }

    /// The folded and complemented sum, as the checksum field holds it.
    pub(crate) fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let [a, b] = (sum as u16).to_ne_bytes();
        !u16::from_be_bytes([a, b])
    }

    /// As [`Sum::finish`], for UDP and TCP: UDP uses zero for "no checksum" (RFC 768).
    pub(crate) fn finish_not_zero(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            sum => sum,
        }
    }
}

/// Completes a checksum: sums from the start to the frame's end, including the partial sum in the field, and writes the result there.
pub fn complete_checksum(frame: &mut [u8], partial: PartialChecksum) -> Result<(), FrameError> {
    let PartialChecksum { start, offset } = partial;
    let (from, at) = (usize::from(start), usize::from(start) + usize::from(offset));
    let len = frame.len();
    if at + 2 > len {
        return Err(FrameError::Checksum { start, offset, len });
    }
    let sum = Sum::default().with(&frame[from..]).finish_not_zero();
    write_u16(frame, at, sum);
    Ok(())
}

#[cfg(test)]
mod tests;
