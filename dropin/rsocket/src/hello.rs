//! The first message of both sides, in the private data of the connection: the ring that the other side may write, and the number of
//! messages in flight. An accepted hello names writable memory of a valid length; anything else is rejected with the reason. Bytes
//! behind it are reserved for later versions.

use verbena::{Access, RemoteMemory};

use crate::error::Error;

/// The first bytes: protocol and version.
const MAGIC: &[u8; 4] = b"VRS1";
/// Limit on the length of a ring: offsets and lengths fit 32 bits.
pub(crate) const MAX_RING: u64 = 1 << 30;

/// The terms of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The ring that the other side writes.
    pub(crate) ring: RemoteMemory,
    /// Messages that the other side may have in flight.
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
            return Err(Error::WrongProtocol("its private data is too short"));
        };
        if !head.starts_with(MAGIC) {
            return Err(Error::WrongProtocol(
                "its private data has a wrong magic number",
            ));
        }
        let messages = u16::from_be_bytes([head[4], head[5]]);
        let ring = RemoteMemory::from_bytes(&head[8..])
            .map_err(|_| Error::WrongProtocol("its ring is not a valid memory handle"))?;
        match () {
            () if head[6..8] != [0, 0] => Err(Error::WrongProtocol("reserved bytes are not zero")),
            () if messages == 0 => Err(Error::WrongProtocol("it accepts no messages")),
            () if !(1..=MAX_RING).contains(&ring.len()) => {
                Err(Error::WrongProtocol("its ring is empty or too long"))
            }
            () if !ring.access().contains(Access::REMOTE_WRITE) => {
                Err(Error::WrongProtocol("its ring may not be written"))
            }
            () => Ok(Hello { ring, messages }),
        }
    }
}

#[cfg(test)]
mod tests;
