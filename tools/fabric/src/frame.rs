//! An Ethernet frame with its virtio-net header, and its VLAN tag. A frame is any bytes: accessors return `None` beyond its end. Inserting
//! and removing a tag keeps the offsets of a partial checksum right.

use verbena_lan::{Mac, Vnet};

/// Destination, source, type.
pub(crate) const ETH_LEN: usize = 14;
const ADDRESSES_LEN: usize = 12;
const TAG_LEN: usize = 4;
const TPID: [u8; 2] = [0x81, 0x00];

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// From the destination address on, without the frame check sequence.
    pub bytes: Vec<u8>,
    /// What is left to offloads.
    pub vnet: Vnet,
    /// Switches and routers that it has passed.
    pub(crate) hops: u8,
}

/// The content of an 802.1Q tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The VLAN; zero for a tag that has a priority only.
    pub vlan: u16,
    /// The priority (PCP), 0 to 7.
    pub priority: u8,
}

impl Frame {
    /// A frame that leaves nothing to offloads.
    pub fn plain(bytes: Vec<u8>) -> Frame {
        Frame::new(bytes, Vnet::PLAIN)
    }

    /// A frame with its header.
    pub fn new(bytes: Vec<u8>, vnet: Vnet) -> Frame {
        Frame {
            bytes,
            vnet,
            hops: 0,
        }
    }

    /// The destination.
    pub fn target(&self) -> Option<Mac> {
        self.mac(0)
    }

    /// The source.
    pub fn source(&self) -> Option<Mac> {
        self.mac(6)
    }

    fn mac(&self, at: usize) -> Option<Mac> {
        let octets = self.bytes.get(at..)?.first_chunk::<6>()?;
        Some(Mac::new(*octets))
    }

    /// The outermost 802.1Q tag.
    pub fn tag(&self) -> Option<Tag> {
        let tag = self.bytes.get(ADDRESSES_LEN..)?.first_chunk::<4>()?;
        let word = u16::from_be_bytes([tag[2], tag[3]]);
        ([tag[0], tag[1]] == TPID).then_some(Tag {
            vlan: word & 0x0fff,
            priority: (word >> 13) as u8,
        })
    }

    /// The EtherType of a frame without a tag.
    pub(crate) fn ether_type(&self) -> Option<u16> {
        let kind = self.bytes.get(ADDRESSES_LEN..)?.first_chunk::<2>()?;
        Some(u16::from_be_bytes(*kind))
    }

    /// The priority, 0 to 7: that of the tag, or the class selector of IP (RFC 2474, 4.2.2).
    pub(crate) fn priority(&self) -> usize {
        if let Some(tag) = self.tag() {
            return usize::from(tag.priority);
        }
        let byte = |at: usize| self.bytes.get(ETH_LEN + at).copied().unwrap_or(0);
        match self.ether_type() {
            Some(0x0800) => usize::from(byte(1) >> 5),
            Some(0x86dd) => usize::from((byte(0) & 0x0f) >> 1),
            _ => 0,
        }
    }

    pub(crate) fn remove_tag(&mut self) {
        if self.tag().is_some() {
            self.bytes.drain(ADDRESSES_LEN..ADDRESSES_LEN + TAG_LEN);
            self.shift(|at| at.saturating_sub(TAG_LEN as u16));
        }
    }

    pub(crate) fn insert_tag(&mut self, tag: Tag) {
        if self.bytes.len() < ADDRESSES_LEN {
            return;
        }
        let word = (u16::from(tag.priority & 7) << 13) | (tag.vlan & 0x0fff);
        let [a, b] = word.to_be_bytes();
        let all = [TPID[0], TPID[1], a, b];
        self.bytes.splice(ADDRESSES_LEN..ADDRESSES_LEN, all);
        self.shift(|at| at.saturating_add(TAG_LEN as u16));
    }

    fn shift(&mut self, by: impl Fn(u16) -> u16) {
        if let Some(partial) = &mut self.vnet.partial {
            partial.start = by(partial.start);
        }
        if let Some(gso) = &mut self.vnet.gso {
            gso.headers = by(gso.headers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_inserted_and_removed() {
        let mut frame = Frame::plain((0..60).collect());
        frame.vnet.partial = Some(verbena_lan::PartialChecksum {
            start: 34,
            offset: 16,
        });
        let before = frame.clone();
        let tag = Tag {
            vlan: 7,
            priority: 5,
        };
        frame.insert_tag(tag);
        assert_eq!(frame.bytes[12..18], [0x81, 0, 0xa0, 7, 12, 13]);
        assert_eq!((frame.tag(), frame.priority()), (Some(tag), 5));
        assert_eq!(frame.vnet.partial.unwrap().start, 38);
        frame.remove_tag();
        assert_eq!(frame, before);
    }

    #[test]
    fn short_frames_have_no_fields() {
        for len in 0..ETH_LEN {
            let mut frame = Frame::plain(vec![0x81; len]);
            frame.remove_tag();
            frame.insert_tag(Tag {
                vlan: 1,
                priority: 0,
            });
            assert_eq!(frame.priority(), 0);
        }
    }
}
