//! A short FPDU without checksum and markers: header, then payload that the caller appends, then zeros (RFC 5044 §4).
//! It has the same bytes as the [`Frame`](super::Frame) of the same message, with less work.

use verbena_wire::ddp::{Tagged, Untagged};
use verbena_wire::mpa::fpdu::{CRC_LEN, LENGTH_LEN, pad_len};

use super::ZEROS;

const ROOM: usize = LENGTH_LEN + Untagged::LEN;
const _: () = assert!(Untagged::LEN >= Tagged::LEN);

/// A plain frame to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    head: [u8; ROOM],
    head_len: u8,
    trailer: u8,
    payload_len: u16,
}

impl Plain {
    /// A frame with this DDP header; `None` if it is longer than `max_ulpdu`.
    #[inline]
    pub(crate) fn new<const N: usize>(
        header: &[u8; N],
        payload_len: u32,
        max_ulpdu: u16,
    ) -> Option<Plain> {
        const { assert!(N + LENGTH_LEN <= ROOM) };
        let ulpdu_len = u16::try_from(payload_len.checked_add(N as u32)?).ok()?;
        if ulpdu_len > max_ulpdu {
            return None;
        }
        let mut head = [0; ROOM];
        head[..LENGTH_LEN].copy_from_slice(&ulpdu_len.to_be_bytes());
        head[LENGTH_LEN..LENGTH_LEN + N].copy_from_slice(header);
        Some(Plain {
            head,
            head_len: (LENGTH_LEN + N) as u8,
            trailer: (pad_len(ulpdu_len) + CRC_LEN) as u8,
            payload_len: payload_len as u16,
        })
    }

    /// Bytes on the wire.
    pub fn size(&self) -> usize {
        usize::from(self.head_len) + usize::from(self.payload_len) + usize::from(self.trailer)
    }

    /// Appends the whole frame to `stage`; `append` adds the payload.
    #[inline]
    pub fn append(&self, stage: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>)) {
        let start = stage.len();
        stage.reserve(self.size() + ROOM);
        // The copy has a constant size and is truncated afterwards: that compiles to no call of memcpy.
        stage.extend_from_slice(&self.head);
        stage.truncate(start + usize::from(self.head_len));
        append(stage);
        let end = stage.len() + usize::from(self.trailer);
        stage.extend_from_slice(&ZEROS);
        stage.truncate(end);
        debug_assert_eq!(
            stage.len() - start,
            self.size(),
            "payload has the announced length"
        );
    }
}
