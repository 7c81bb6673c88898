//! The private data with which a unit accepts a channel. From it a host can tell whether two of its queues reached the same unit.
//! It is optional: an accept without it is valid.

use crate::random;

/// Identifies a unit: a random number, the same on all its queues, and new at every start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Welcome(pub u64);

impl Welcome {
    /// For a unit that is starting.
    pub fn new() -> Welcome {
        Welcome(random())
    }

    /// Its encoding.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Its encoding with the number of the unit's data pair, for a host whose data channel is connectionless.
    pub fn with_data_pair(self, number: Option<u32>) -> Vec<u8> {
        let mut bytes = self.to_bytes().to_vec();
        bytes.extend(number.iter().flat_map(|number| number.to_be_bytes()));
        bytes
    }

    /// The number of the unit's data pair, if there is one.
    pub fn data_pair(bytes: &[u8]) -> Option<u32> {
        let (_, rest) = bytes.split_first_chunk::<8>()?;
        Some(u32::from_be_bytes(*rest.first_chunk()?))
    }

    /// Parses it, ignoring what follows; `None` if it is too short, as from earlier units, which sent none.
    pub fn parse(bytes: &[u8]) -> Option<Welcome> {
        let number = bytes.first_chunk()?;
        Some(Welcome(u64::from_be_bytes(*number)))
    }
}

impl Default for Welcome {
    fn default() -> Welcome {
        Welcome::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_parses_as_emitted() {
        let welcome = Welcome(0x0102_0304_0506_0708);
        let bytes = welcome.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Welcome::parse(&bytes), Some(welcome));
        let more = [&bytes[..], b"and more"].concat();
        assert_eq!(Welcome::parse(&more), Some(welcome));
        for len in 0..8 {
            assert_eq!(Welcome::parse(&bytes[..len]), None);
        }
        assert_ne!(Welcome::new(), Welcome::new());
        assert_eq!(welcome.with_data_pair(None), bytes);
        let numbered = welcome.with_data_pair(Some(0x0a_0b0c));
        assert_eq!(Welcome::parse(&numbered), Some(welcome));
        assert_eq!(Welcome::data_pair(&numbered), Some(0x0a_0b0c));
        for len in 0..12 {
            assert_eq!(Welcome::data_pair(&numbered[..len]), None);
        }
    }
}
