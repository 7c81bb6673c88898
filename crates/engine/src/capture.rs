//! The capture of what crosses the connections of a running process, for `verbena pcap` (docs/tools.md).
//! Frames are copied into a ring in memory that the process shares with the one that captures; what finds no room is counted, and nothing waits. While no capture
//! is attached to any adapter of the process, each call that moves bytes or packets has one branch more.
//!
//! Reading order: [`record`] (what is in the ring) → `framing` (where frames begin in a byte stream) → `tap` (the writing side) → `stream` (a
//! connection) → `server` (attaching and detaching) → [`client`] (the reading side).

pub mod client;
mod framing;
pub mod record;
mod server;
mod stream;
mod tap;

pub(crate) use server::open;
pub(crate) use stream::StreamTap;
pub(crate) use tap::{Tap, is_attached};

/// Prefix of an adapter's abstract socket name; the process id, `/` and the adapter's number in the process follow.
pub const NAME: &str = "verbena-capture/";
/// Bytes of the smallest and of the largest ring.
pub const RING_SIZES: core::ops::RangeInclusive<u32> = 1 << 17..=1 << 28;
/// The smallest and the largest number of bytes of a frame that are kept.
pub const SNAP_LENS: core::ops::RangeInclusive<u32> = 64..=1 << 18;

/// The only message of a client; a descriptor of the ring, or none, is in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes of the ring, a power of two.
    pub(crate) ring: u32,
    /// Bytes of a frame that are kept.
    pub(crate) snap_len: u32,
    /// The queue pair whose stream is captured, and packets; 0 for all.
    pub(crate) qp: u32,
}

impl Request {
    pub(crate) const LEN: usize = 20;
    const MAGIC: [u8; 8] = *b"vpcap\0\0\x01";

    pub(crate) fn emit(self) -> [u8; Request::LEN] {
        let mut bytes = [0; Request::LEN];
        let words = [self.ring, self.snap_len, self.qp];
        let fields = words.iter().flat_map(|word| word.to_le_bytes());
        for (to, from) in bytes
            .iter_mut()
            .zip(Request::MAGIC.into_iter().chain(fields))
        {
            *to = from;
        }
        bytes
    }

    /// A request within the limits.
    pub(crate) fn parse(bytes: &[u8; Request::LEN]) -> Option<Request> {
        let (magic, fields) = bytes.split_first_chunk::<8>()?;
        let word = |at: usize| Some(u32::from_le_bytes(*fields.get(at * 4..)?.first_chunk()?));
        let request = Request {
            ring: word(0)?,
            snap_len: word(1)?,
            qp: word(2)?,
        };
        let fits = RING_SIZES.contains(&request.ring)
            && request.ring.is_power_of_two()
            && SNAP_LENS.contains(&request.snap_len);
        (*magic == Request::MAGIC && fits).then_some(request)
    }
}

/// The answer to a request, and with other numbers to the wish to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// Frames that were captured, and that found no room.
    pub(crate) totals: Totals,
}

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// The ring is attached.
    Attached = 0,
    /// Another process captures already.
    Busy = 1,
    /// There is no memory for the ring.
    NoMemory = 2,
    /// The capture has ended; the totals are final.
    Ended = 3,
    /// The request is not one of this version, or exceeds a limit.
    Invalid = 4,
}

/// What was captured of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Frames in the ring.
    pub captured: u64,
    /// Frames that found no room in the ring.
    pub dropped: u64,
}

impl Answer {
    pub(crate) const LEN: usize = 17;

    pub(crate) fn emit(self) -> [u8; Answer::LEN] {
        let mut bytes = [self.status as u8; Answer::LEN];
        let words = [self.totals.captured, self.totals.dropped];
        let fields = words.iter().flat_map(|word| word.to_le_bytes());
        for (to, from) in bytes.iter_mut().skip(1).zip(fields) {
            *to = from;
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; Answer::LEN]) -> Option<Answer> {
        let (status, fields) = bytes.split_first()?;
        let word = |at: usize| Some(u64::from_le_bytes(*fields.get(at * 8..)?.first_chunk()?));
        let all = [
            Status::Attached,
            Status::Busy,
            Status::NoMemory,
            Status::Ended,
            Status::Invalid,
        ];
        Some(Answer {
            status: all.into_iter().find(|one| *one as u8 == *status)?,
            totals: Totals {
                captured: word(0)?,
                dropped: word(1)?,
            },
        })
    }
}

/// What a client sends to end its capture: one byte, so that it is no request.
pub(crate) const STOP: [u8; 1] = *b"x";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_beyond_a_limit_is_refused() {
        let good = Request {
            ring: 1 << 20,
            snap_len: 128,
            qp: 7,
        };
        assert_eq!(Request::parse(&good.emit()), Some(good));
        for ring in [0, 1 << 16, (1 << 20) + 8, 1 << 29, u32::MAX] {
            assert_eq!(Request::parse(&Request { ring, ..good }.emit()), None);
        }
        for snap_len in [0, 63, (1 << 18) + 1] {
            assert_eq!(Request::parse(&Request { snap_len, ..good }.emit()), None);
        }
        let mut other = good.emit();
        other[7] += 1;
        assert_eq!(Request::parse(&other), None, "another version");
    }
}
