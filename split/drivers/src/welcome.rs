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
    }
}
