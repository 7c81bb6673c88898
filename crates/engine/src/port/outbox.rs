//! Bytes of a connection that are not acknowledged, and how they are cut into segments: during the startup as they come, then one FPDU each.
//! The stack names ranges of them whenever it sends or repeats; what it has released is dropped.

use core::ops::Range;

use verbena_mem::Sources;
use verbena_stream::Time;
use verbena_tcpip::{ConnectionId, Stack};
use verbena_wire::mpa::fpdu::{LENGTH_LEN, Layout, Phase};
use verbena_wire::mpa::marker::Marker;

/// Bytes that one connection keeps until they are acknowledged.
pub(super) const MAX_UNACKNOWLEDGED: usize = 4 << 20;
/// A full outbox has room again when so many bytes are free.
const ROOM: usize = MAX_UNACKNOWLEDGED / 4;
/// Released bytes at the front are dropped when there are so many, and they are half of all.
const DROPPED_AT_ONCE: usize = 64 << 10;
/// Bytes from one marker to the next (RFC 5044 §4.3).
const MARKER_SPACING: u64 = 512;

/// How the connection is to end once everything is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The peer's data is still taken.
    Close,
    /// It is not.
    Release,
}

impl Ending {
    /// Ends the connection.
    pub(super) fn apply(self, stack: &mut Stack, id: ConnectionId, now: Time) {
        match self {
            Ending::Close => stack.close(id, now),
            Ending::Release => stack.release(id, now),
        }
    }
}

/// Bytes that are written and not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// Bytes at the front that are released already.
    head: usize,
    /// The offset in the stream of the first byte behind them.
    released: u64,
    /// Where what the stack knows of ends.
    queued: u64,
    /// Bytes of the message that was queued in part.
    rest: u64,
    /// From this offset on there are FPDUs, with markers or without.
    frames: Option<(u64, bool)>,
    /// The writer found no room.
    pub(super) is_full: bool,
    ending: Option<Ending>,
}

impl Outbox {
    /// Bytes that are not acknowledged.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// Bytes that are not acknowledged, if everything before this offset is.
    pub(super) fn unacknowledged(&self, released: u64) -> u64 {
        self.end().saturating_sub(released)
    }

    fn end(&self) -> u64 {
        self.released + self.len() as u64
    }

    /// Bytes that may be written.
    pub(super) fn room(&self) -> usize {
        MAX_UNACKNOWLEDGED.saturating_sub(self.len())
    }

    /// A writer that found no room can go on: true once.
    pub(super) fn takes_again(&mut self) -> bool {
        let takes = self.is_full && self.room() >= ROOM;
        self.is_full &= !takes;
        takes
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends as much of the sources as there is room for; `None` if their memory is not mapped.
    pub(super) fn take(&mut self, sources: &Sources<'_>) -> Option<usize> {
        let room = self.room();
        let before = self.bytes.len();
        let taken = sources.copy_to(&mut self.bytes, room);
        taken.inspect_err(|_| self.bytes.truncate(before)).ok()
    }

    /// FPDUs follow.
    pub(super) fn begin_frames(&mut self, markers: bool) {
        self.frames = Some((self.end(), markers));
    }

    /// Nothing is written any more.
    pub(super) fn end_with(&mut self, ending: Ending) {
        self.ending = Some(match self.ending {
            Some(Ending::Release) => Ending::Release,
            _ => ending,
        });
    }

    /// The peer has acknowledged everything before this offset.
    pub(super) fn release(&mut self, offset: u64) {
        let gone = offset.saturating_sub(self.released);
        let gone = usize::try_from(gone).map_or(self.len(), |gone| gone.min(self.len()));
        self.head += gone;
        self.released += gone as u64;
        if self.head == self.bytes.len() {
            self.bytes.clear();
            self.head = 0;
            if self.bytes.capacity() > DROPPED_AT_ONCE * 4 {
                self.bytes.shrink_to(DROPPED_AT_ONCE);
            }
        } else if self.head >= DROPPED_AT_ONCE && self.head * 2 >= self.bytes.len() {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
    }

    /// The bytes of a range of the stream; none of it if a part was released.
    pub(super) fn slice(&self, range: &Range<u64>) -> Option<&[u8]> {
        let place = |offset: u64| {
            let at = offset.checked_sub(self.released)?;
            Some(self.head + usize::try_from(at).ok()?)
        };
        self.bytes.get(place(range.start)?..place(range.end)?)
    }

    /// Tells the stack what there is to send, and ends the connection if that was to follow.
    pub(super) fn advance(&mut self, stack: &mut Stack, id: ConnectionId, now: Time) {
        if let Some(ending) = self.queue(stack, id) {
            ending.apply(stack, id, now);
        }
    }

    /// Tells the stack what there is to send, each FPDU as a message; returns how the connection ends if everything is told.
    fn queue(&mut self, stack: &mut Stack, id: ConnectionId) -> Option<Ending> {
        while self.queued < self.end() {
            if self.rest == 0 {
                let left = self.end() - self.queued;
                self.rest = match self.next_frame() {
                    Some(len) if len <= left => len,
                    _ if self.ending.is_some() || self.frames.is_none() => left,
                    // The queue pair has written a part of an FPDU: it waits for the rest.
                    _ => return None,
                };
            }
            // Longer than a segment only if the path has become smaller since.
            let most = stack.connection(id)?.mss() as u64;
            let part = self.rest.min(most);
            // If too much is queued, acknowledgements make room.
            stack.queue(id, part).ok()?;
            self.queued += part;
            self.rest -= part;
        }
        self.ending.take()
    }

    /// The size of the FPDU at the end of what is queued, as far as it is known.
    fn next_frame(&self) -> Option<u64> {
        let (start, markers) = self.frames?;
        if self.queued < start {
            return Some(start - self.queued);
        }
        let position = self.queued - start;
        let phase = markers.then(|| {
            let distance = (MARKER_SPACING - position % MARKER_SPACING) % MARKER_SPACING;
            Phase::new(distance as u16)
        });
        let phase = phase.flatten();
        let lead = if phase == Some(Phase::START) {
            Marker::LEN as u64
        } else {
            0
        };
        let at = self.queued + lead;
        let field = self.slice(&(at..at + LENGTH_LEN as u64))?;
        let len = u16::from_be_bytes(field.try_into().ok()?);
        Some(Layout::new(len, phase).size() as u64)
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, SocketAddr};

    use verbena_tcpip::tcp::{Framing, TcpConfig};
    use verbena_tcpip::{InterfaceAddress, StackConfig, TrafficClass};

    use super::*;

    fn connection() -> (Stack, ConnectionId) {
        let address = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let config = StackConfig {
            addresses: vec![InterfaceAddress {
                address: address(1),
                prefix: 24,
            }],
            ..StackConfig::default()
        };
        let tcp = TcpConfig {
            framing: Framing::Messages,
            ..TcpConfig::default()
        };
        let mut stack = Stack::new(config, [1; 32]);
        let to = SocketAddr::new(address(2), 80);
        let opened = stack.connect(to, None, tcp, TrafficClass::default(), Time::ZERO);
        (stack, opened.unwrap())
    }

    fn fpdu(len: u16) -> Vec<u8> {
        let mut bytes = vec![7; Layout::new(len, None).size()];
        bytes[..2].copy_from_slice(&len.to_be_bytes());
        bytes
    }

    #[test]
    fn fpdus_are_queued_when_they_are_whole() {
        let (mut stack, id) = connection();
        let mut outbox = Outbox::default();
        outbox.push(b"startup");
        outbox.queue(&mut stack, id);
        outbox.begin_frames(false);
        let (first, second) = (fpdu(100), fpdu(7));
        outbox.push(&first);
        outbox.push(&second[..5]);
        outbox.queue(&mut stack, id);
        let queued = |stack: &Stack| stack.connection(id).unwrap().queued();
        assert_eq!(queued(&stack), 7 + first.len() as u64);
        outbox.push(&second[5..]);
        outbox.queue(&mut stack, id);
        let all = 7 + (first.len() + second.len()) as u64;
        assert_eq!(queued(&stack), all);
        assert_eq!(outbox.slice(&(7..9)), Some(&[0, 100][..]));
        outbox.release(all - 1);
        assert_eq!((outbox.len(), outbox.slice(&(7..9))), (1, None));
    }

    #[test]
    fn end_follows_everything_that_was_written() {
        let (mut stack, id) = connection();
        let mut outbox = Outbox::default();
        outbox.begin_frames(false);
        outbox.push(&fpdu(100)[..50]);
        assert_eq!(outbox.queue(&mut stack, id), None);
        outbox.end_with(Ending::Release);
        outbox.end_with(Ending::Close);
        assert_eq!(outbox.queue(&mut stack, id), Some(Ending::Release));
        assert_eq!(stack.connection(id).unwrap().queued(), 50);
        assert_eq!(outbox.queue(&mut stack, id), None);
    }

    #[test]
    fn fpdu_longer_than_a_segment_is_cut() {
        let (mut stack, id) = connection();
        let mut outbox = Outbox::default();
        outbox.begin_frames(false);
        let long = fpdu(4000);
        outbox.push(&long);
        outbox.queue(&mut stack, id);
        assert_eq!(stack.connection(id).unwrap().queued(), long.len() as u64);
    }

    #[test]
    fn full_outbox_takes_again_when_there_is_much_room() {
        let mut outbox = Outbox::default();
        outbox.push(&vec![0; MAX_UNACKNOWLEDGED]);
        assert_eq!(outbox.room(), 0);
        outbox.is_full = true;
        outbox.release(ROOM as u64 - 1);
        assert!(!outbox.takes_again());
        outbox.release(ROOM as u64);
        assert!(outbox.takes_again() && !outbox.takes_again());
    }
}
