//! The private data with which a host requests a channel. From it alone a unit knows which service connection a channel belongs to, and
//! what runs on it. Anything that is not exactly of this form and version is rejected.

use verbena_push::Arrangement;

use crate::channel_kinds::{ChannelKinds, InvalidKinds};
use crate::lane::{InvalidQueue, Lane};

const MAGIC: [u8; 4] = *b"VSPL";
const VERSION: u8 = 1;
/// With the attributes of the channels. It is sent only if they are not the arrangement's own, so that earlier units understand the others.
const VERSION_WITH_KINDS: u8 = 2;
const FIXED: usize = 16;
/// Bytes of the attributes: flags (1), zero (3), number of the data pair (4).
const KINDS: usize = 8;
const ACKNOWLEDGED: u8 = 1;
const CONNECTIONLESS: u8 = 2;
/// Numbers of pairs have 24 bits.
const MAX_PAIR: u32 = 0xff_ffff;
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
    /// The attributes of the channels (P2); `None`: those of the arrangement.
    pub kinds: Option<ChannelKinds>,
    /// The number of the host's data pair, if the data channel is connectionless: it is not requested by a hello of its own.
    pub data_pair: Option<u32>,
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
    #[error(
        "version {0} of the split driver is not supported, only {VERSION} and {VERSION_WITH_KINDS}"
    )]
    Version(u8),
    /// Attributes that the arrangement cannot use.
    #[error(transparent)]
    Kinds(#[from] InvalidKinds),
    /// Unknown flags, or the number of a data pair where there is none, or none where it is needed.
    #[error("the attributes of the channels are invalid")]
    Attributes,
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
        let version = match self.kinds {
            Some(_) => VERSION_WITH_KINDS,
            None => VERSION,
        };
        bytes.extend([
            version,
            letter(self.arrangement),
            self.channel,
            self.lane.to_byte(),
        ]);
        bytes.extend(self.service.to_be_bytes());
        if let Some(kinds) = self.kinds {
            let acknowledged = u8::from(kinds.acknowledged) * ACKNOWLEDGED;
            let connectionless = u8::from(kinds.connectionless) * CONNECTIONLESS;
            bytes.extend([acknowledged | connectionless, 0, 0, 0]);
            bytes.extend(self.data_pair.unwrap_or(0).to_be_bytes());
        }
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
        if [m, a, g, i] != MAGIC {
            return Err(HelloError::OtherProtocol);
        }
        let (kinds, name) = match version {
            VERSION => (None, name),
            VERSION_WITH_KINDS => {
                let kinds = name.split_first_chunk::<KINDS>();
                let (kinds, name) = kinds.ok_or(HelloError::OtherProtocol)?;
                (Some(*kinds), name)
            }
            _ => return Err(HelloError::Version(version)),
        };
        if name.len() > MAX_NAME {
            return Err(HelloError::OtherProtocol);
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
        let (kinds, data_pair) = match kinds {
            None => (None, None),
            Some(kinds) => {
                let (kinds, pair) = parse_kinds(kinds).ok_or(HelloError::Attributes)?;
                kinds.check(named)?;
                if kinds.connectionless && channel != 0 {
                    return Err(refused);
                }
                (Some(kinds), pair)
            }
        };
        // The name is printed: control characters could move a terminal's cursor.
        let name = String::from_utf8_lossy(name);
        let name = name.chars().map(|c| if c.is_control() { '?' } else { c });
        Ok(Hello {
            service: u64::from_be_bytes(service),
            arrangement: named,
            channel,
            lane,
            kinds,
            data_pair,
            name: name.collect(),
        })
    }

    /// The attributes of the channels.
    pub fn channel_kinds(&self) -> ChannelKinds {
        let own = ChannelKinds::of(self.arrangement);
        self.kinds.unwrap_or(own)
    }
}

/// The attributes, and the number of the data pair; a number is given exactly if the data channel is connectionless.
fn parse_kinds(bytes: [u8; KINDS]) -> Option<(ChannelKinds, Option<u32>)> {
    let [flags, 0, 0, 0, number @ ..] = bytes else {
        return None;
    };
    let kinds = ChannelKinds {
        acknowledged: flags & ACKNOWLEDGED != 0,
        connectionless: flags & CONNECTIONLESS != 0,
    };
    let number = u32::from_be_bytes(number);
    match (flags, kinds.connectionless, number) {
        (4.., _, _) => None,
        (_, false, 0) => Some((kinds, None)),
        (_, true, 1..=MAX_PAIR) => Some((kinds, Some(number))),
        _ => None,
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

/// Number of channels that are connected: a connectionless data channel is not.
pub const fn connected_channels(arrangement: Arrangement, kinds: ChannelKinds) -> u8 {
    match kinds.connectionless {
        true => 1,
        false => channels(arrangement),
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
                        kinds: None,
                        data_pair: None,
                        name: "a host".to_owned(),
                    };
                    assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
                }
            }
        }
    }

    #[test]
    fn attributes_parse_as_emitted() {
        let hello = |kinds, data_pair| Hello {
            service: 7,
            arrangement: Arrangement::Sends,
            channel: 0,
            lane: Lane::ONLY,
            kinds: Some(kinds),
            data_pair,
            name: "a host".to_owned(),
        };
        let kinds = |acknowledged, connectionless| ChannelKinds {
            acknowledged,
            connectionless,
        };
        for acknowledged in [false, true] {
            let connected = hello(kinds(acknowledged, false), None);
            assert_eq!(Hello::parse(&connected.to_bytes()), Ok(connected));
            let connectionless = hello(kinds(acknowledged, true), Some(0xff_ffff));
            assert_eq!(Hello::parse(&connectionless.to_bytes()), Ok(connectionless));
        }
        let bytes = hello(kinds(true, true), Some(0x0a_0b0c)).to_bytes();
        assert_eq!(&bytes[..8], b"VSPL\x02A\0\0");
        assert_eq!(&bytes[16..24], [3, 0, 0, 0, 0, 0x0a, 0x0b, 0x0c]);
        for len in 0..FIXED + KINDS {
            let short = Hello::parse(&bytes[..len]);
            assert_eq!(short, Err(HelloError::OtherProtocol), "{len}");
        }
    }

    #[test]
    fn invalid_attributes_are_rejected() {
        let hello = Hello {
            service: 7,
            arrangement: Arrangement::Writes,
            channel: 0,
            lane: Lane::ONLY,
            kinds: Some(ChannelKinds {
                acknowledged: true,
                connectionless: true,
            }),
            data_pair: Some(5),
            name: String::new(),
        };
        let bytes = hello.to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Hello::parse(&bytes)
        };
        // Unknown flags and reserved bytes; no number; a number of 32 bits; a number of a connected channel.
        for (at, byte) in [(16, 7), (17, 1), (19, 1), (23, 0), (20, 1), (16, 1)] {
            assert_eq!(with(at, byte), Err(HelloError::Attributes), "{at}: {byte}");
        }
        let writes = HelloError::Kinds(InvalidKinds::UnacknowledgedWrites);
        assert_eq!(with(16, 2), Err(writes));
        let refused = HelloError::Channel {
            arrangement: b'B',
            channel: 1,
        };
        assert_eq!(with(6, 1), Err(refused), "it is not requested");
        let single = HelloError::Kinds(InvalidKinds::NoDataChannel);
        assert_eq!(with(5, b'C'), Err(single));
    }

    #[test]
    fn wrong_header_bytes_are_rejected() {
        let hello = Hello {
            service: 7,
            arrangement: Arrangement::Writes,
            channel: 1,
            lane: Lane::ONLY,
            kinds: None,
            data_pair: None,
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
            kinds: None,
            data_pair: None,
            name: String::new(),
        }
        .to_bytes();
        bytes.extend(b"a\x1b[2Jb\xff");
        assert_eq!(Hello::parse(&bytes).unwrap().name, "a?[2Jb\u{fffd}");
    }
}
