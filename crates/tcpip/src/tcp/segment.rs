//! A TCP segment: header fields and options as values, parsed and emitted by `etherparse` without allocation.
//! Options that are malformed end the list, and those after them are ignored (RFC 9293, 3.1); the payload is not part of the value.

use arrayvec::ArrayVec;
use etherparse::{TcpHeader, TcpOptionElement, TcpSlice};

/// The most blocks of selective acknowledgement that fit into a header.
pub const MAX_SACK_BLOCKS: usize = 4;
/// The largest shift of a window (RFC 7323, 2.3).
pub const MAX_WINDOW_SHIFT: u8 = 14;
/// Bytes of a header without options.
pub const TCP_HEADER_LEN: usize = TcpHeader::MIN_LEN;
/// Bytes of the longest header.
pub const MAX_TCP_HEADER: usize = TcpHeader::MAX_LEN;
/// Bytes of the timestamps option with its padding.
pub const TIMESTAMPS_LEN: usize = 12;

/// A bit of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpFlags {
    /// Synchronizes sequence numbers.
    pub syn: bool,
    /// The end of the sender's data.
    pub fin: bool,
    /// The connection is reset.
    pub rst: bool,
    /// The receiver should hand the data up.
    pub psh: bool,
}

/// The options that are understood.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TcpOptions {
    /// The longest segment that the sender accepts.
    pub mss: Option<u16>,
    /// The shift of the sender's windows.
    pub window_scale: Option<u8>,
    /// The sender understands selective acknowledgements.
    pub sack_permitted: bool,
    /// The sender's clock, and the receiver's as the sender saw it last.
    pub timestamps: Option<(u32, u32)>,
    /// Ranges of sequence numbers that arrived out of order.
    pub sacks: ArrayVec<(u32, u32), MAX_SACK_BLOCKS>,
}

/// A segment without its payload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Segment {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// The acknowledgement, if the ACK bit is set.
    pub ack: Option<u32>,
    /// The other bits.
    pub flags: TcpFlags,
    /// The window, not shifted.
    pub window: u16,
    /// The options.
    pub options: TcpOptions,
}

/// Bytes that are no TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The header is cut off or says a wrong length.
    #[error("a TCP header in {len} bytes is too short or has a wrong length")]
    Header {
        /// Bytes that there are.
        len: usize,
    },
    /// A port is zero.
    #[error("a TCP segment from port {source_port} to port {destination_port}: 0 is no port")]
    Port {
        /// The sender's port.
        source_port: u16,
        /// The receiver's port.
        destination_port: u16,
    },
}

impl Segment {
    /// Parses a header; the rest of the bytes is the payload.
    ///
    /// # Errors
    /// If the header is incomplete or names port 0.
    pub fn parse(bytes: &[u8]) -> Result<(Segment, &[u8]), SegmentError> {
        let tcp =
            TcpSlice::from_slice(bytes).map_err(|_| SegmentError::Header { len: bytes.len() })?;
        let (source_port, destination_port) = (tcp.source_port(), tcp.destination_port());
        if source_port == 0 || destination_port == 0 {
            return Err(SegmentError::Port {
                source_port,
                destination_port,
            });
        }
        let segment = Segment {
            source_port,
            destination_port,
            seq: tcp.sequence_number(),
            ack: tcp.ack().then(|| tcp.acknowledgment_number()),
            flags: TcpFlags {
                syn: tcp.syn(),
                fin: tcp.fin(),
                rst: tcp.rst(),
                psh: tcp.psh(),
            },
            window: tcp.window_size(),
            options: TcpOptions::parse(&tcp),
        };
        Ok((segment, tcp.payload()))
    }

    /// The header with a checksum of zero.
    pub fn emit(&self) -> ArrayVec<u8, MAX_TCP_HEADER> {
        let mut header = TcpHeader::new(
            self.source_port,
            self.destination_port,
            self.seq,
            self.window,
        );
        header.acknowledgment_number = self.ack.unwrap_or(0);
        header.ack = self.ack.is_some();
        header.syn = self.flags.syn;
        header.fin = self.flags.fin;
        header.rst = self.flags.rst;
        header.psh = self.flags.psh;
        // `elements` never makes more than fits.
        let _ = header.set_options(&self.options.elements());
        header.to_bytes().as_slice().iter().copied().collect()
    }

    /// Bytes of the header.
    pub fn header_len(&self) -> usize {
        TCP_HEADER_LEN + self.options.len()
    }
}

impl TcpOptions {
    fn parse(tcp: &TcpSlice<'_>) -> TcpOptions {
        let mut options = TcpOptions::default();
        for option in tcp.options_iterator() {
            let Ok(option) = option else { break };
            match option {
                TcpOptionElement::Noop => {}
                TcpOptionElement::MaximumSegmentSize(mss) => options.mss = Some(mss),
                TcpOptionElement::WindowScale(shift) => {
                    options.window_scale = Some(shift.min(MAX_WINDOW_SHIFT));
                }
                TcpOptionElement::SelectiveAcknowledgementPermitted => {
                    options.sack_permitted = true;
                }
                TcpOptionElement::Timestamp(value, echo) => {
                    options.timestamps = Some((value, echo));
                }
                TcpOptionElement::SelectiveAcknowledgement(first, rest) => {
                    options.sacks.clear();
                    options.sacks.push(first);
                    options.sacks.extend(rest.into_iter().flatten());
                }
            }
        }
        options
    }

    /// As elements, each aligned to words by padding before it; blocks that do not fit are left out.
    fn elements(&self) -> ArrayVec<TcpOptionElement, 16> {
        use TcpOptionElement as Element;
        let mut out = ArrayVec::new();
        out.extend(self.mss.map(Element::MaximumSegmentSize));
        if self.sack_permitted {
            out.extend([
                Element::Noop,
                Element::Noop,
                Element::SelectiveAcknowledgementPermitted,
            ]);
        }
        if let Some((value, echo)) = self.timestamps {
            out.extend([
                Element::Noop,
                Element::Noop,
                Element::Timestamp(value, echo),
            ]);
        }
        if let Some(shift) = self.window_scale {
            out.extend([Element::Noop, Element::WindowScale(shift)]);
        }
        let room = self.sack_room();
        let mut blocks = self.sacks.iter().copied().take(room);
        if let Some(first) = blocks.next() {
            let rest = [blocks.next(), blocks.next(), blocks.next()];
            out.extend([
                Element::Noop,
                Element::Noop,
                Element::SelectiveAcknowledgement(first, rest),
            ]);
        }
        out
    }

    /// How many blocks fit beside the other options.
    fn sack_room(&self) -> usize {
        let room = MAX_TCP_HEADER - TCP_HEADER_LEN - self.fixed_len();
        (room.saturating_sub(4) / 8).min(MAX_SACK_BLOCKS)
    }

    fn fixed_len(&self) -> usize {
        let flag = |set: bool, len: usize| if set { len } else { 0 };
        flag(self.mss.is_some(), 4)
            + flag(self.sack_permitted, 4)
            + flag(self.timestamps.is_some(), TIMESTAMPS_LEN)
            + flag(self.window_scale.is_some(), 4)
    }

    fn len(&self) -> usize {
        let blocks = self.sacks.len().min(self.sack_room());
        self.fixed_len() + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Segment {
        Segment {
            source_port: 1,
            destination_port: 2,
            seq: 3,
            ack: Some(4),
            flags: TcpFlags {
                psh: true,
                ..TcpFlags::default()
            },
            window: 5,
            options: TcpOptions {
                timestamps: Some((6, 7)),
                sacks: [(8, 9), (10, 11), (12, 13)].into_iter().collect(),
                ..TcpOptions::default()
            },
        }
    }

    #[test]
    fn emitted_segments_parse_as_the_same() {
        let syn = Segment {
            ack: None,
            flags: TcpFlags {
                syn: true,
                ..TcpFlags::default()
            },
            options: TcpOptions {
                mss: Some(1460),
                window_scale: Some(7),
                sack_permitted: true,
                timestamps: Some((1, 0)),
                ..TcpOptions::default()
            },
            ..full()
        };
        for segment in [
            full(),
            syn,
            Segment {
                ack: None,
                ..full()
            },
        ] {
            let mut bytes = segment.emit().to_vec();
            assert_eq!(bytes.len(), segment.header_len());
            bytes.extend_from_slice(b"payload");
            let (parsed, payload) = Segment::parse(&bytes).unwrap();
            assert_eq!(parsed, segment);
            assert_eq!(payload, b"payload");
        }
    }

    #[test]
    fn blocks_beyond_the_header_are_left_out() {
        let mut segment = full();
        segment.options.sacks.push((14, 15));
        let bytes = segment.emit();
        assert_eq!(bytes.len(), MAX_TCP_HEADER);
        assert_eq!(Segment::parse(&bytes).unwrap().0, full());
    }

    #[test]
    fn malformed_option_ends_the_list() {
        let mut bytes = full().emit();
        // The length of the selective acknowledgement.
        bytes[TCP_HEADER_LEN + TIMESTAMPS_LEN + 3] = 3;
        let (parsed, _) = Segment::parse(&bytes).unwrap();
        assert_eq!(parsed.options.timestamps, Some((6, 7)));
        assert!(parsed.options.sacks.is_empty());
    }

    #[test]
    fn every_prefix_of_a_header_is_refused() {
        let bytes = full().emit();
        for len in 0..bytes.len() {
            assert_eq!(
                Segment::parse(&bytes[..len]),
                Err(SegmentError::Header { len })
            );
        }
        let zero = Segment {
            source_port: 0,
            ..full()
        };
        assert!(matches!(
            Segment::parse(&zero.emit()),
            Err(SegmentError::Port { .. })
        ));
    }

    #[test]
    fn window_shift_is_limited() {
        let mut segment = full();
        segment.options.window_scale = Some(255);
        segment.options.sacks.clear();
        let (parsed, _) = Segment::parse(&segment.emit()).unwrap();
        assert_eq!(parsed.options.window_scale, Some(MAX_WINDOW_SHIFT));
    }
}
