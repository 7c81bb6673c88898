//! The name of a service connection: host, unit, arrangement and number, as in the private data of a request.
//! No two connections of a run have the same number.

use core::fmt;

use verbena_push::{Arrangement, Channel};

/// A service connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServiceId {
    pub(super) host: usize,
    pub(super) unit: usize,
    pub(super) arrangement: Arrangement,
    pub(super) number: u32,
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServiceId {
            host,
            unit,
            arrangement,
            number,
        } = self;
        write!(
            f,
            "connection {number} ({arrangement:?}) of {host} to {unit}"
        )
    }
}

impl ServiceId {
    /// Its channels (P5).
    pub(super) fn channels(arrangement: Arrangement) -> &'static [Channel] {
        match arrangement {
            Arrangement::Sends | Arrangement::Writes => &[Channel::Control, Channel::Data],
            Arrangement::Single => &[Channel::Control],
        }
    }

    /// Whether it is the same service, perhaps at another time.
    pub(super) fn is_same_service(&self, other: &ServiceId) -> bool {
        let of = |name: &ServiceId| (name.host, name.unit, name.arrangement);
        of(self) == of(other)
    }

    /// The private data with which a host connects a channel.
    pub(super) fn private_data(&self, channel: Channel) -> Vec<u8> {
        let [a, b, c, d] = self.number.to_be_bytes();
        let (host, unit) = (self.host as u8, self.unit as u8);
        let arrangement = self.arrangement as u8;
        vec![host, unit, arrangement, channel as u8, a, b, c, d]
    }

    /// Parses that private data.
    pub(super) fn parse(private: &[u8]) -> Option<(ServiceId, Channel)> {
        let [host, unit, arrangement, channel, number @ ..] = private else {
            return None;
        };
        let arrangement = *Arrangement::ALL.get(usize::from(*arrangement))?;
        let name = ServiceId {
            host: usize::from(*host),
            unit: usize::from(*unit),
            arrangement,
            number: u32::from_be_bytes(number.try_into().ok()?),
        };
        let channel = *ServiceId::channels(arrangement).get(usize::from(*channel))?;
        Some((name, channel))
    }
}
