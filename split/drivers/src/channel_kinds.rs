//! The attributes of a connection's channels (P2): whether they are acknowledged, and whether the data channel is connected. The control
//! channel is always connected, since its messages must stay in order. Combinations that an arrangement cannot use are rejected.

use core::fmt;

use verbena_push::Arrangement;

/// The attributes of the channels of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelKinds {
    /// Every packet arrives, or the connection ends; otherwise packets may be lost.
    pub acknowledged: bool,
    /// The data channel is connectionless: each packet is one cell, and names its destination.
    pub connectionless: bool,
}

/// Attributes that do not fit an arrangement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKinds {
    /// Arrangement B without acknowledgements.
    #[error(
        "arrangement b needs acknowledged channels: the element of a lost RDMA write would never be free again"
    )]
    UnacknowledgedWrites,
    /// Arrangement C without a connection.
    #[error(
        "arrangement c has no data channel, and its only channel must be connected: connectionless packets need arrangement a or b"
    )]
    NoDataChannel,
}

impl ChannelKinds {
    /// The attributes that an arrangement has unless others are chosen (P5): only A is unacknowledged, and all channels are connected.
    pub const fn of(arrangement: Arrangement) -> ChannelKinds {
        ChannelKinds {
            acknowledged: !matches!(arrangement, Arrangement::Sends),
            connectionless: false,
        }
    }

    /// Checks that the arrangement can use them.
    pub const fn check(self, arrangement: Arrangement) -> Result<(), InvalidKinds> {
        match arrangement {
            Arrangement::Writes if !self.acknowledged => Err(InvalidKinds::UnacknowledgedWrites),
            Arrangement::Single if self.connectionless => Err(InvalidKinds::NoDataChannel),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ChannelKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.acknowledged, self.connectionless) {
            (true, false) => "acknowledged, connected",
            (true, true) => "acknowledged, data connectionless",
            (false, false) => "unacknowledged, connected",
            (false, true) => "unacknowledged, data connectionless",
        })
    }
}

/// The attributes that a user has chosen; `None` leaves a choice open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindChoice {
    /// [`ChannelKinds::acknowledged`].
    pub acknowledged: Option<bool>,
    /// [`ChannelKinds::connectionless`].
    pub connectionless: Option<bool>,
}

impl KindChoice {
    /// The attributes of a host's connection: what is open is as the arrangement has it.
    pub fn kinds(self, arrangement: Arrangement) -> Result<ChannelKinds, InvalidKinds> {
        let own = ChannelKinds::of(arrangement);
        let kinds = ChannelKinds {
            acknowledged: self.acknowledged.unwrap_or(own.acknowledged),
            connectionless: self.connectionless.unwrap_or(own.connectionless),
        };
        kinds.check(arrangement).map(|()| kinds)
    }

    /// Whether a unit accepts these; otherwise the message for the host.
    pub(crate) fn admit(self, kinds: ChannelKinds) -> Result<(), String> {
        let only = |what: &str, option: &str| {
            Err(format!(
                "this unit accepts {what} channels only: start the host with {option}"
            ))
        };
        match (self.acknowledged, self.connectionless) {
            (Some(true), _) if !kinds.acknowledged => {
                only("acknowledged", "--delivery acknowledged")
            }
            (Some(false), _) if kinds.acknowledged => {
                only("unacknowledged", "--delivery unacknowledged")
            }
            (_, Some(true)) if !kinds.connectionless => {
                only("connectionless data", "--data-channel connectionless")
            }
            (_, Some(false)) if kinds.connectionless => {
                only("connected data", "--data-channel connected")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [bool; 2] = [false, true];

    #[test]
    fn arrangements_reject_kinds_they_cannot_use() {
        let mut allowed = Vec::new();
        for arrangement in Arrangement::ALL {
            for acknowledged in BOTH {
                for connectionless in BOTH {
                    let choice = KindChoice {
                        acknowledged: Some(acknowledged),
                        connectionless: Some(connectionless),
                    };
                    if let Ok(kinds) = choice.kinds(arrangement) {
                        allowed.push((arrangement, kinds.to_string()));
                    }
                }
            }
        }
        let [a, b, c] = Arrangement::ALL;
        let expected = [
            (a, "unacknowledged, connected"),
            (a, "unacknowledged, data connectionless"),
            (a, "acknowledged, connected"),
            (a, "acknowledged, data connectionless"),
            (b, "acknowledged, connected"),
            (b, "acknowledged, data connectionless"),
            (c, "unacknowledged, connected"),
            (c, "acknowledged, connected"),
        ];
        assert_eq!(allowed, expected.map(|(a, text)| (a, text.to_owned())));
    }

    #[test]
    fn open_choices_follow_the_arrangement() {
        for arrangement in Arrangement::ALL {
            let kinds = KindChoice::default().kinds(arrangement).unwrap();
            assert_eq!(kinds, ChannelKinds::of(arrangement));
            assert_eq!(KindChoice::default().admit(kinds), Ok(()));
        }
    }

    #[test]
    fn a_refusal_names_the_option() {
        for acknowledged in BOTH {
            for connectionless in BOTH {
                let kinds = ChannelKinds {
                    acknowledged,
                    connectionless,
                };
                let other = KindChoice {
                    acknowledged: Some(!acknowledged),
                    connectionless: None,
                };
                let why = other.admit(kinds).unwrap_err();
                assert!(why.contains("--delivery "), "{why}");
                let other = KindChoice {
                    acknowledged: None,
                    connectionless: Some(!connectionless),
                };
                let why = other.admit(kinds).unwrap_err();
                assert!(why.contains("--data-channel "), "{why}");
            }
        }
    }
}
