//! What both sides say first, as private data of the connection: where the other may write, and how many messages at once.
//! It promises that a hello that was taken names memory that may be written, of a length that can be reckoned with.
//! It refuses anything else, with the reason; bytes behind it are left to later forms.

use verbena::{Access, RemoteMemory};

use crate::error::Error;

/// The first bytes: who speaks, and which form.
const MAGIC: &[u8; 4] = b"VRS1";
/// Bytes of a ring at most: offsets and lengths fit 32 bits with room to spare.
pub(crate) const RING_MOST: u64 = 1 << 30;

/// A side's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Where the other side writes.
    pub(crate) ring: RemoteMemory,
    /// Messages that the other side may have under way.
    pub(crate) messages: u16,
}

impl Hello {
    pub(crate) const BYTES: usize = 8 + RemoteMemory::BYTES;

    pub(crate) fn to_bytes(self) -> [u8; Hello::BYTES] {
        let mut bytes = [0; Hello::BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4..6].copy_from_slice(&self.messages.to_be_bytes());
        bytes[8..].copy_from_slice(&self.ring.to_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Hello, Error> {
        let Some((head, _)) = bytes.split_first_chunk::<{ Hello::BYTES }>() else {
            return Err(Error::Stranger("its private data is too short"));
        };
        if !head.starts_with(MAGIC) {
            return Err(Error::Stranger("its private data begins otherwise"));
        }
        let messages = u16::from_be_bytes([head[4], head[5]]);
        let ring = RemoteMemory::from_bytes(&head[8..])
            .map_err(|_| Error::Stranger("its ring is no handle of memory"))?;
        match () {
            () if head[6..8] != [0, 0] => Err(Error::Stranger("reserved bytes are not zero")),
            () if messages == 0 => Err(Error::Stranger("it takes no messages")),
            () if !(1..=RING_MOST).contains(&ring.len()) => {
                Err(Error::Stranger("its ring is empty or too long"))
            }
            () if !ring.access().contains(Access::REMOTE_WRITE) => {
                Err(Error::Stranger("its ring may not be written"))
            }
            () => Ok(Hello { ring, messages }),
        }
    }
}

#[cfg(test)]
mod tests;
