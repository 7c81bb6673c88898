//! The header of a datagram in an Ethernet frame: destination, source, EtherType, and two bytes with the length of the datagram.
//! A frame that is shorter than its length field says is not parsed; what is behind the datagram is padding.

use crate::mac::Mac;

/// Destination, source and type.
pub(super) const ETH_HLEN: usize = 14;
/// The length field behind the type.
pub(super) const LENGTH_FIELD: usize = 2;

/// The headers of a datagram.
pub(crate) struct Header(pub(super) [u8; ETH_HLEN + LENGTH_FIELD]);

impl Header {
    pub(super) fn new(to: Mac, from: Mac, kind: u16, len: usize) -> Header {
        let mut bytes = [0; ETH_HLEN + LENGTH_FIELD];
        bytes[..6].copy_from_slice(&to.octets());
        bytes[6..12].copy_from_slice(&from.octets());
        bytes[12..14].copy_from_slice(&kind.to_be_bytes());
        // A datagram beyond 64 KiB exceeds every MTU, and the kernel rejects its frame.
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        bytes[14..].copy_from_slice(&len.to_be_bytes());
        Header(bytes)
    }

    /// The sender of a frame and its datagram; `None` if the frame is shorter than its length field says.
    pub(crate) fn parse(frame: &[u8]) -> Option<(Mac, &[u8])> {
        let from = Mac::read_at(frame, 6)?;
        let (len, rest) = frame.get(ETH_HLEN..)?.split_first_chunk::<LENGTH_FIELD>()?;
        let len = usize::from(u16::from_be_bytes(*len));
        Some((from, rest.get(..len)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_no_part_of_a_datagram() {
        let (to, from) = (Mac::local(1), Mac::local(2));
        let mut frame = Header::new(to, from, 0x88b5, 3).0.to_vec();
        frame.extend_from_slice(b"abc");
        // A driver's padding need not be zero.
        frame.resize(60, 7);
        assert_eq!(Header::parse(&frame), Some((from, &b"abc"[..])));
        assert_eq!(Header::parse(&frame[..18]), None, "shorter than it says");
        for len in 0..16 {
            assert_eq!(Header::parse(&frame[..len]), None);
        }
    }
}
