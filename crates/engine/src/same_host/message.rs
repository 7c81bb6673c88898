//! The two messages of a local connection, each one packet of 40 bytes: an offer with a memfd and the initiator's eventfd, and an answer with the
//! responder's eventfd. Numbers are big-endian; reserved bytes must be zero.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 4 | `VbSH` |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | 0 offer, 1 answer |
//! | 6 | 2 | 0 |
//! | 8 | 8 | the secret of the token that the receiver of this message made |
//! | 16 | 8 | offer: bytes of each ring; answer: 0 |
//! | 24 | 8 | address of a word in the sender's process |
//! | 32 | 8 | its value |

/// Bytes of a message.
pub(super) const LEN: usize = 40;

const START: [u8; 5] = *b"VbSH\x01";

/// One of the two messages.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) secret: u64,
    /// The word to be read: address and value.
    pub(super) probe: (u64, u64),
}

/// Which one it is.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(super) enum Kind {
    /// Of rings with so many bytes each.
    Offer(u64),
    Answer,
}

impl Message {
    pub(super) fn emit(&self) -> [u8; LEN] {
        let (kind, capacity) = match self.kind {
            Kind::Offer(capacity) => (0, capacity),
            Kind::Answer => (1, 0),
        };
        let mut bytes = [0; LEN];
        bytes[..5].copy_from_slice(&START);
        bytes[5] = kind;
        let words = [self.secret, capacity, self.probe.0, self.probe.1];
        for (chunk, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8; LEN]) -> Option<Message> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        let kind = match (bytes[5], word(16)) {
            (0, capacity) => Kind::Offer(capacity),
            (1, 0) => Kind::Answer,
            _ => return None,
        };
        (bytes[..5] == START && bytes[6..8] == [0; 2]).then(|| Message {
            kind,
            secret: word(8),
            probe: (word(24), word(32)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_parse_as_they_were_emitted() {
        for kind in [Kind::Offer(1 << 18), Kind::Answer] {
            let message = Message {
                kind,
                secret: 0x0102_0304_0506_0708,
                probe: (0x7fff_0000_1000, u64::MAX),
            };
            let bytes = message.emit();
            assert_eq!(Message::parse(&bytes), Some(message));
            for at in 0..8 {
                let mut other = bytes;
                other[at] ^= 0x40;
                assert_eq!(Message::parse(&other), None, "byte {at}");
            }
        }
    }

    #[test]
    fn an_answer_names_no_size() {
        let mut bytes = Message {
            kind: Kind::Answer,
            secret: 1,
            probe: (2, 3),
        }
        .emit();
        bytes[23] = 1;
        assert_eq!(Message::parse(&bytes), None);
    }
}
