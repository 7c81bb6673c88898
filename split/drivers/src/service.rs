//! The data of the configuration service's operations (P8), byte by byte: requests and answers. Data of another length than the
//! operation's is rejected, except for statistics, which a newer unit may extend.

use serde::{Deserialize, Serialize};
use verbena_lan::{Mac, Offloads};
use verbena_split_wire::push::{Operation, Status};

use crate::disk::MAX_DISK_NAME;

/// Initialise: the sender's offloads and its MTU. The answer has the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The offloads that the sender accepts in frames to it.
    pub accepts: Offloads,
    /// The sender's MTU; in an answer, the largest that the unit allows.
    pub mtu: u32,
}

impl Terms {
    /// Features (4) · MTU (4).
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        let (features, mtu) = bytes.split_at_mut(4);
        features.copy_from_slice(&bits(self.accepts).to_be_bytes());
        mtu.copy_from_slice(&self.mtu.to_be_bytes());
        bytes
    }

    /// Parses it; unknown features are ignored.
    pub fn parse(data: &[u8]) -> Option<Terms> {
        let [a, b, c, d, e, f, g, h] = *data else {
            return None;
        };
        Some(Terms {
            accepts: offloads(u32::from_be_bytes([a, b, c, d])),
            mtu: u32::from_be_bytes([e, f, g, h]),
        })
    }
}

fn bits(offloads: Offloads) -> u32 {
    let each = [
        offloads.checksum,
        offloads.tcp4,
        offloads.tcp6,
        offloads.ecn,
        offloads.udp,
    ];
    let on = each.into_iter().enumerate().filter(|(_, on)| *on);
    on.fold(0, |bits, (at, _)| bits | 1 << at)
}

fn offloads(bits: u32) -> Offloads {
    let on = |at: u32| bits >> at & 1 == 1;
    Offloads {
        checksum: on(0),
        tcp4: on(1),
        tcp6: on(2),
        ecn: on(3),
        udp: on(4),
    }
    .normalized()
}

/// A parsed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigRequest {
    /// Starts the service.
    Initialise(Terms),
    /// Requests an address that the unit suggests.
    GetMac,
    /// Sets the host's address.
    SetMac(Mac),
    /// Requests the state of the link.
    GetLink,
    /// The state of the link: of the LAN from a unit, of the interface from a host.
    SetLink(bool),
    /// Requests the counters.
    Statistics,
    /// Resets the counters.
    ResetStatistics,
    /// Sets the MTU.
    SetMtu(u32),
    /// Sets promiscuous mode.
    Promiscuous(bool),
    /// Sets the multicast groups to receive; `None`: all.
    MulticastFilter(Option<Vec<Mac>>),
    /// Ends the service.
    Shutdown,
    /// Attaches the disk of this name; the empty name is that of the only disk.
    OpenDisk(String),
}

impl ConfigRequest {
    /// Its operation and data.
    pub fn encode(&self) -> (Operation, Vec<u8>) {
        match self {
            ConfigRequest::Initialise(terms) => (Operation::Initialise, terms.to_bytes().to_vec()),
            ConfigRequest::GetMac => (Operation::GetMac, Vec::new()),
            ConfigRequest::SetMac(mac) => (Operation::SetMac, mac.octets().to_vec()),
            ConfigRequest::GetLink => (Operation::GetLink, Vec::new()),
            ConfigRequest::SetLink(up) => (Operation::SetLink, vec![u8::from(*up)]),
            ConfigRequest::Statistics => (Operation::Statistics, Vec::new()),
            ConfigRequest::ResetStatistics => (Operation::ResetStatistics, Vec::new()),
            ConfigRequest::SetMtu(mtu) => (Operation::SetMtu, mtu.to_be_bytes().to_vec()),
            ConfigRequest::Promiscuous(on) => (Operation::Promiscuous, vec![u8::from(*on)]),
            ConfigRequest::MulticastFilter(None) => (Operation::MulticastFilter, vec![0]),
            ConfigRequest::MulticastFilter(Some(groups)) => {
                let octets = groups.iter().flat_map(|mac| mac.octets());
                let data = core::iter::once(1).chain(octets).collect();
                (Operation::MulticastFilter, data)
            }
            ConfigRequest::Shutdown => (Operation::Shutdown, Vec::new()),
            ConfigRequest::OpenDisk(name) => (Operation::OpenDisk, name.as_bytes().to_vec()),
        }
    }

    /// Parses a request of the configuration service; an error is the status to answer with (docs/split.md, "Wire format").
    pub fn parse(operation: Operation, data: &[u8]) -> Result<ConfigRequest, Status> {
        let none = |ask: ConfigRequest| data.is_empty().then_some(ask);
        let ask = match operation {
            Operation::Initialise => Terms::parse(data).map(ConfigRequest::Initialise),
            Operation::GetMac => none(ConfigRequest::GetMac),
            Operation::SetMac => mac(data)
                .filter(|mac| mac.is_station())
                .map(ConfigRequest::SetMac),
            Operation::GetLink => none(ConfigRequest::GetLink),
            Operation::SetLink => flag(data).map(ConfigRequest::SetLink),
            Operation::Statistics => none(ConfigRequest::Statistics),
            Operation::ResetStatistics => none(ConfigRequest::ResetStatistics),
            Operation::SetMtu => word(data).map(ConfigRequest::SetMtu),
            Operation::Promiscuous => flag(data).map(ConfigRequest::Promiscuous),
            Operation::MulticastFilter => groups(data).map(ConfigRequest::MulticastFilter),
            Operation::Shutdown => none(ConfigRequest::Shutdown),
            Operation::OpenDisk => disk_name(data).map(ConfigRequest::OpenDisk),
            Operation::None | Operation::Unknown(_) => return Err(Status::UnknownOperation),
        };
        ask.ok_or(Status::BadData)
    }
}

/// An address, if the data is exactly that.
pub fn mac(data: &[u8]) -> Option<Mac> {
    <[u8; 6]>::try_from(data).ok().map(Mac::new)
}

/// A flag, if the data is exactly that.
pub fn flag(data: &[u8]) -> Option<bool> {
    match data {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

fn disk_name(data: &[u8]) -> Option<String> {
    let name = core::str::from_utf8(data).ok()?;
    let named = name.len() <= MAX_DISK_NAME && !name.chars().any(char::is_control);
    named.then(|| name.to_owned())
}

fn word(data: &[u8]) -> Option<u32> {
    <[u8; 4]>::try_from(data).ok().map(u32::from_be_bytes)
}

fn groups(data: &[u8]) -> Option<Option<Vec<Mac>>> {
    match data.split_first()? {
        (0, []) => Some(None),
        (1, octets) if octets.len() % 6 == 0 => {
            let macs = octets.chunks_exact(6).filter_map(mac).collect();
            Some(Some(macs))
        }
        _ => None,
    }
}

/// A unit's counters for one host, the answer to [`ConfigRequest::Statistics`]: eight numbers of 8 bytes, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Frames that the host sent.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Frames sent to the host.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames for the host that were dropped for lack of room.
    pub full: u64,
    /// Frames of the host that the switch dropped: malformed, or from an address that is not the host's.
    pub refused: u64,
    /// Packets of the host that were no frames or came before it set an address, and frames to it that fit neither its packets nor its offloads.
    pub unfit: u64,
    /// The host's violations of the message protocol.
    pub violations: u64,
}

impl Counts {
    /// Its encoding.
    pub fn to_bytes(self) -> Vec<u8> {
        let each = [
            self.frames_in,
            self.bytes_in,
            self.frames_out,
            self.bytes_out,
            self.full,
            self.refused,
            self.unfit,
            self.violations,
        ];
        each.into_iter().flat_map(u64::to_be_bytes).collect()
    }

    /// Leaves what was counted since then.
    pub fn subtract(&mut self, then: &Counts) {
        let each = [
            (&mut self.frames_in, then.frames_in),
            (&mut self.bytes_in, then.bytes_in),
            (&mut self.frames_out, then.frames_out),
            (&mut self.bytes_out, then.bytes_out),
            (&mut self.full, then.full),
            (&mut self.refused, then.refused),
            (&mut self.unfit, then.unfit),
            (&mut self.violations, then.violations),
        ];
        for (now, then) in each {
            *now = now.saturating_sub(then);
        }
    }

    /// Parses it; a newer unit may send more.
    pub fn parse(data: &[u8]) -> Option<Counts> {
        let mut each = data.chunks_exact(8).filter_map(|bytes| {
            let bytes = <[u8; 8]>::try_from(bytes).ok()?;
            Some(u64::from_be_bytes(bytes))
        });
        Some(Counts {
            frames_in: each.next()?,
            bytes_in: each.next()?,
            frames_out: each.next()?,
            bytes_out: each.next()?,
            full: each.next()?,
            refused: each.next()?,
            unfit: each.next()?,
            violations: each.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_parse_as_emitted() {
        let group = Mac::new([1, 0, 0x5e, 0, 0, 1]);
        let asks = [
            ConfigRequest::Initialise(Terms {
                accepts: Offloads::ALL,
                mtu: 9000,
            }),
            ConfigRequest::Initialise(Terms {
                accepts: Offloads::NONE,
                mtu: 68,
            }),
            ConfigRequest::GetMac,
            ConfigRequest::SetMac(Mac::new([2, 0, 0, 0, 0, 9])),
            ConfigRequest::GetLink,
            ConfigRequest::SetLink(true),
            ConfigRequest::SetLink(false),
            ConfigRequest::Statistics,
            ConfigRequest::ResetStatistics,
            ConfigRequest::SetMtu(1500),
            ConfigRequest::Promiscuous(true),
            ConfigRequest::MulticastFilter(None),
            ConfigRequest::MulticastFilter(Some(vec![group; 3])),
            ConfigRequest::MulticastFilter(Some(Vec::new())),
            ConfigRequest::Shutdown,
            ConfigRequest::OpenDisk(String::new()),
            ConfigRequest::OpenDisk("a disk".to_owned()),
        ];
        for ask in asks {
            let (operation, data) = ask.encode();
            assert_eq!(ConfigRequest::parse(operation, &data), Ok(ask.clone()));
            let longer = [&data[..], &[7]].concat();
            assert_eq!(
                ConfigRequest::parse(operation, &longer),
                Err(Status::BadData),
                "{ask:?}"
            );
        }
    }

    #[test]
    fn invalid_requests_get_an_error_status() {
        let unknown = ConfigRequest::parse(Operation::Unknown(99), &[]);
        assert_eq!(unknown, Err(Status::UnknownOperation));
        assert_eq!(
            ConfigRequest::parse(Operation::None, &[]),
            Err(Status::UnknownOperation)
        );
        let group = ConfigRequest::parse(Operation::SetMac, &[1, 0, 0, 0, 0, 0]);
        assert_eq!(group, Err(Status::BadData), "a group is no station");
        assert_eq!(
            ConfigRequest::parse(Operation::SetLink, &[2]),
            Err(Status::BadData)
        );
        for name in [&[0xff][..], b"a\0", &[b'x'; MAX_DISK_NAME + 1]] {
            let opened = ConfigRequest::parse(Operation::OpenDisk, name);
            assert_eq!(opened, Err(Status::BadData));
        }
    }

    #[test]
    fn longer_statistics_of_newer_units_are_parsed() {
        let counts = Counts {
            frames_in: 1,
            violations: u64::MAX,
            ..Counts::default()
        };
        let mut bytes = counts.to_bytes();
        assert_eq!(bytes.len(), 64);
        bytes.extend([9; 8]);
        assert_eq!(Counts::parse(&bytes), Some(counts));
        assert_eq!(Counts::parse(&bytes[..63]), None);
    }

    #[test]
    fn dependent_offloads_are_refused_alone() {
        assert_eq!(offloads(0b11110), Offloads::NONE);
        assert_eq!(offloads(u32::MAX), Offloads::ALL);
    }
}
