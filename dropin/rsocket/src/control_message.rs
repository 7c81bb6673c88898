//! Control messages, each a Send of a few bytes. Parsing accepts only known kinds of the exact length, with reserved bytes zero. Numbers
//! are checked by `credit` and `link`.

use verbena::RemoteMemory;

/// Length of the longest word, and of the receives.
pub(crate) const MAX_LEN: usize = 40;

/// A control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlMessage {
    /// Bytes read and messages taken since the connection began.
    Credit { read: u64, messages: u64 },
    /// The sender will send no more.
    End,
    /// Memory that the receiver of this message may write, by offset.
    Map { offset: u64, memory: RemoteMemory },
    /// The mapping at this offset ends.
    Unmap { offset: u64 },
}

const CREDIT: u8 = 1;
const END: u8 = 2;
const MAP: u8 = 3;
const UNMAP: u8 = 4;

impl ControlMessage {
    /// The encoded word and its length.
    pub(crate) fn to_bytes(self) -> ([u8; MAX_LEN], usize) {
        let mut bytes = [0; MAX_LEN];
        let (kind, len) = match self {
            ControlMessage::Credit { read, messages } => {
                bytes[8..16].copy_from_slice(&read.to_be_bytes());
                bytes[16..24].copy_from_slice(&messages.to_be_bytes());
                (CREDIT, 24)
            }
            ControlMessage::End => (END, 8),
            ControlMessage::Map { offset, memory } => {
                bytes[8..16].copy_from_slice(&offset.to_be_bytes());
                bytes[16..40].copy_from_slice(&memory.to_bytes());
                (MAP, 40)
            }
            ControlMessage::Unmap { offset } => {
                bytes[8..16].copy_from_slice(&offset.to_be_bytes());
                (UNMAP, 16)
            }
        };
        bytes[0] = kind;
        (bytes, len)
    }

    /// `None` if it is malformed.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<ControlMessage> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let [kind, 0, 0, 0, 0, 0, 0, 0] = *head else {
            return None;
        };
        let number = |from: usize| {
            let word = rest.get(from..from + 8)?;
            Some(u64::from_be_bytes(word.try_into().ok()?))
        };
        match (kind, rest.len()) {
            (CREDIT, 16) => Some(ControlMessage::Credit {
                read: number(0)?,
                messages: number(8)?,
            }),
            (END, 0) => Some(ControlMessage::End),
            (MAP, 32) => Some(ControlMessage::Map {
                offset: number(0)?,
                memory: RemoteMemory::from_bytes(&rest[8..]).ok()?,
            }),
            (UNMAP, 8) => Some(ControlMessage::Unmap { offset: number(0)? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
