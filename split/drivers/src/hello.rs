//! The private data with which a host requests a channel. From it alone a unit knows which service connection a channel belongs to, and
//! what runs on it. Anything that is not exactly of this form and version is rejected.

use verbena_push::Arrangement;

use crate::lane::{InvalidQueue, Lane};

const MAGIC: [u8; 4] = *b"VSPL";
const VERSION: u8 = 1;
const FIXED: usize = 16;
/// Bytes of the longest name.
pub const MAX_NAME: usize = 64;

/// The request for one channel of a service connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Identifies the service connection: the same in all its channels, best a random number.
    pub service: u64,
    /// The arrangement of the connection.
    pub arrangement: Arrangement,
    /// The channel: 0 is control, 1 data.
    pub channel: u8,
    /// The host's queue that the channel belongs to.
    pub lane: Lane,
    /// The host's name, for messages to operators.
    pub name: String,
}

/// Why private data is not a valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Another protocol.
    #[error("not a host of a split driver")]
    OtherProtocol,
    /// Another version.
    #[error("version {0} of the split driver is not supported, only {VERSION}")]
    Version(u8),
    /// An impossible queue.
    #[error(transparent)]
    Queue(#[from] InvalidQueue),
    /// An unknown arrangement, or a channel that it does not have.
    #[error("no channel {channel} in arrangement {arrangement}")]
    Channel {
        /// As it came.
        arrangement: u8,
        /// As it came.
        channel: u8,
    },
}

impl Hello {
    /// Its encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED + MAX_NAME);
        bytes.extend(MAGIC);
        bytes.extend([
            VERSION,
            letter(self.arrangement),
            self.channel,
            self.lane.to_byte(),
        ]);
        bytes.extend(self.service.to_be_bytes());
        let name = self.name.as_bytes();
        bytes.extend(name.get(..MAX_NAME).unwrap_or(name));
        bytes
    }

    /// Parses it.
    pub fn parse(bytes: &[u8]) -> Result<Hello, HelloError> {
        let (fixed, name) = bytes
            .split_first_chunk::<FIXED>()
            .ok_or(HelloError::OtherProtocol)?;
        let [
            m,
            a,
            g,
            i,
            version,
            arrangement,
            channel,
            lane,
            service @ ..,
        ] = *fixed;
        if [m, a, g, i] != MAGIC || name.len() > MAX_NAME {
            return Err(HelloError::OtherProtocol);
        }
        if version != VERSION {
            return Err(HelloError::Version(version));
        }
        let refused = HelloError::Channel {
            arrangement,
            channel,
        };
        let named = Arrangement::ALL
            .into_iter()
            .find(|a| letter(*a) == arrangement);
        let named = named.ok_or(refused)?;
        if channel >= channels(named) {
            return Err(refused);
        }
        let lane = Lane::from_byte(lane)?;
        // The name is printed: control characters could move a terminal's cursor.
        let name = String::from_utf8_lossy(name);
        let name = name.chars().map(|c| if c.is_control() { '?' } else { c });
        Ok(Hello {
            service: u64::from_be_bytes(service),
            arrangement: named,
            channel,
            lane,
            name: name.collect(),
        })
    }
}

/// The letter of an arrangement (P5).
pub const fn letter(arrangement: Arrangement) -> u8 {
    match arrangement {
        Arrangement::Sends => b'A',
        Arrangement::Writes => b'B',
        Arrangement::Single => b'C',
    }
}

/// Number of channels of an arrangement.
pub const fn channels(arrangement: Arrangement) -> u8 {
    match arrangement {
        Arrangement::Sends | Arrangement::Writes => 2,
        Arrangement::Single => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::MOST_QUEUES;

    #[test]
    fn private_data_parses_as_emitted() {
        for arrangement in Arrangement::ALL {
            for channel in 0..channels(arrangement) {
                for lane in (1..=MOST_QUEUES).flat_map(Lane::all) {
                    let hello = Hello {
                        service: 0x0102_0304_0506_0708,
                        arrangement,
                        channel,
                        lane,
                        name: "a host".to_owned(),
                    };
                    assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
                }
            }
        }
    }

    #[test]
    fn wrong_header_bytes_are_rejected() {
        let hello = Hello {
            service: 7,
            arrangement: Arrangement::Writes,
            channel: 1,
            lane: Lane::ONLY,
            name: String::new(),
        };
        let bytes = hello.to_bytes();
        assert_eq!(&bytes[..8], b"VSPL\x01B\x01\0");
        for at in 0..7 {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x40;
            assert!(Hello::parse(&wrong).is_err(), "byte {at}");
        }
        // The last byte is a queue, or invalid.
        for byte in 0..=u8::MAX {
            let mut other = bytes.clone();
            other[7] = byte;
            match (Hello::parse(&other), Lane::from_byte(byte)) {
                (Ok(parsed), Ok(lane)) => assert_eq!(
                    parsed,
                    Hello {
                        lane,
                        ..hello.clone()
                    }
                ),
                (Err(HelloError::Queue(no)), Err(why)) => assert_eq!(no, why),
                (parsed, _) => panic!("{byte:#x}: {parsed:?}"),
            }
        }
        for len in 0..FIXED {
            assert_eq!(Hello::parse(&bytes[..len]), Err(HelloError::OtherProtocol));
        }
        let long = [&bytes[..], &[b'x'; MAX_NAME + 1]].concat();
        assert_eq!(Hello::parse(&long), Err(HelloError::OtherProtocol));
    }

    #[test]
    fn control_characters_of_a_name_are_replaced() {
        let mut bytes = Hello {
            service: 7,
            arrangement: Arrangement::Single,
            channel: 0,
            lane: Lane::ONLY,
            name: String::new(),
        }
        .to_bytes();
        bytes.extend(b"a\x1b[2Jb\xff");
        assert_eq!(Hello::parse(&bytes).unwrap().name, "a?[2Jb\u{fffd}");
    }
}
