//! The trace of a running process, for `verbena trace` (docs/tools.md): posts, frames, completions, polls and wake-ups with their times.
//! Each thread writes events into a ring of its own in memory that the process shares with the one that traces, which cannot write it. The oldest events are
//! overwritten, and the reader counts them; no thread waits. While no trace is attached to any adapter of the process there is one branch more where
//! something would be recorded.
//!
//! Reading order: [`record`] (what is in the rings) → [`rings`] (where they are) → `tracer` (the writing side) → `server` (attaching and
//! detaching) → [`client`] (the reading side). Frames come from the taps of [`crate::capture`].

pub mod client;
pub mod record;
pub mod rings;
mod server;
pub(crate) mod tracer;

pub(crate) use server::open;

/// Prefix of an adapter's abstract socket name; the process id, `/` and the adapter's number in the process follow.
pub const NAME: &str = "verbena-trace/";

/// The only message of a client; a descriptor of the rings, or none, is in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Events of a ring, a power of two within [`rings::EVENTS`].
    pub(crate) events: u32,
    /// The queue pair whose events are recorded, and those that belong to none; 0 for all.
    pub(crate) qp: u32,
}

impl Request {
    pub(crate) const LEN: usize = 16;
    const MAGIC: [u8; 8] = *b"vtrace\0\x01";

    pub(crate) fn emit(self) -> [u8; Request::LEN] {
        let mut bytes = [0; Request::LEN];
        let fields = [self.events, self.qp];
        let fields = fields.iter().flat_map(|word| word.to_le_bytes());
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
            events: word(0)?,
            qp: word(1)?,
        };
        let fits = rings::EVENTS.contains(&request.events) && request.events.is_power_of_two();
        (*magic == Request::MAGIC && fits).then_some(request)
    }
}

/// The answer, in one byte. The first two are those of a capture's answer, whose listener tells a client that there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// The rings are attached.
    Attached = 0,
    /// Another process traces already.
    Busy = 1,
    /// There is no memory for the rings.
    NoMemory = 2,
    /// The request is not one of this version, or exceeds a limit.
    Invalid = 3,
}

impl Status {
    pub(crate) fn parse(byte: u8) -> Option<Status> {
        let all = [
            Status::Attached,
            Status::Busy,
            Status::NoMemory,
            Status::Invalid,
        ];
        all.into_iter().find(|one| *one as u8 == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_beyond_a_limit_is_refused() {
        let good = Request {
            events: 1 << 14,
            qp: 7,
        };
        assert_eq!(Request::parse(&good.emit()), Some(good));
        for events in [0, 1, (1 << 14) + 1, 1 << 30, u32::MAX] {
            assert_eq!(Request::parse(&Request { events, ..good }.emit()), None);
        }
        let mut other = good.emit();
        other[7] += 1;
        assert_eq!(Request::parse(&other), None, "another version");
    }
}
