//! Receive buffers for several messages of a UDP socket, and what was received into them.
//! A message is one datagram, or several of one sender and one length that the kernel joined (UDP_GRO); the last of those may be shorter.
//! Datagrams come out one by one, in the order of arrival.

use core::net::SocketAddr;

/// Messages that one call receives at most.
pub(super) const MAX_MESSAGES: usize = 8;

/// Buffers of equal length.
#[derive(Debug, Default)]
pub struct ReceiveBatch {
    buffers: Box<[u8]>,
    /// Bytes of each buffer.
    room: usize,
    messages: [Message; MAX_MESSAGES],
    /// Messages received by the last call.
    received: usize,
    /// The last call received none.
    was_empty: bool,
    /// The last call received as many as it looked for.
    is_full: bool,
}

/// A received message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Message {
    /// Its true length, which may exceed the buffer.
    pub(super) len: usize,
    /// The length of the datagrams that it was joined from; none for a single one.
    pub(super) segment: Option<usize>,
    /// None if the kernel reported no IP address.
    pub(super) from: Option<SocketAddr>,
}

/// A received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Its source.
    pub from: SocketAddr,
    /// Its bytes, as many as there was room for.
    pub bytes: &'a [u8],
    /// Its number in the message that it was joined to, from 0.
    pub number: u16,
    /// Some of its bytes are missing: it was longer than its buffer.
    pub truncated: bool,
}

impl ReceiveBatch {
    /// Buffers of `room` bytes for as many messages as one call receives.
    pub fn new(room: usize) -> ReceiveBatch {
        let room = room.max(1);
        ReceiveBatch {
            buffers: vec![0; room * MAX_MESSAGES].into(),
            room,
            ..ReceiveBatch::default()
        }
    }

    /// It has no buffers yet.
    pub fn is_unallocated(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Each buffer with its message, to be filled.
    pub(super) fn slots(&mut self) -> impl Iterator<Item = (&mut [u8], &mut Message)> {
        self.received = 0;
        let buffers = self.buffers.chunks_exact_mut(self.room.max(1));
        buffers.zip(self.messages.iter_mut())
    }

    /// The next call should receive one message only: after one that found none there probably is a single one, and looking for more
    /// takes time.
    pub(super) fn expects_one(&self) -> bool {
        self.was_empty
    }

    pub(super) fn set_received(&mut self, messages: usize) {
        let limit = if self.expects_one() { 1 } else { MAX_MESSAGES };
        self.received = messages.min(MAX_MESSAGES);
        self.is_full = messages >= limit;
        self.was_empty = messages == 0;
    }

    /// The last call received as many messages as it looked for: there may be more.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The datagrams that the last call received.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival<'_>> {
        let buffers = self.buffers.chunks_exact(self.room.max(1));
        let received = self.messages.iter().take(self.received).zip(buffers);
        received.flat_map(|(message, buffer)| Datagrams::new(message, buffer))
    }
}

/// The datagrams of one message.
struct Datagrams<'a> {
    from: Option<SocketAddr>,
    rest: &'a [u8],
    /// The number of the next one.
    number: u16,
    segment: usize,
    truncated: bool,
}

impl<'a> Datagrams<'a> {
    fn new(message: &Message, buffer: &'a [u8]) -> Datagrams<'a> {
        let rest = buffer.get(..message.len).unwrap_or(buffer);
        Datagrams {
            from: message.from,
            rest,
            number: 0,
            segment: message.segment.unwrap_or(message.len).max(1),
            truncated: rest.len() < message.len,
        }
    }
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = Arrival<'a>;

    fn next(&mut self) -> Option<Arrival<'a>> {
        let from = self.from?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(self.segment)
            .unwrap_or((self.rest, &[]));
        self.rest = rest;
        if rest.is_empty() {
            self.from = None;
        }
        let truncated = self.truncated && rest.is_empty();
        let number = self.number;
        self.number = number.wrapping_add(1);
        Some(Arrival {
            from,
            bytes,
            number,
            truncated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(messages: &[(usize, Option<usize>)]) -> ReceiveBatch {
        let mut batch = ReceiveBatch::new(10);
        for ((buffer, message), (len, segment)) in batch.slots().zip(messages) {
            for (value, byte) in (0..).zip(buffer) {
                *byte = value;
            }
            let from = Some(([127, 0, 0, 1], 7).into());
            *message = Message {
                len: *len,
                segment: *segment,
                from,
            };
        }
        batch.set_received(messages.len());
        batch
    }

    #[test]
    fn joined_datagrams_come_out_singly() {
        let batch = batch(&[(10, Some(4)), (3, None), (0, None), (8, Some(4))]);
        let bytes: Vec<&[u8]> = batch.arrivals().map(|arrival| arrival.bytes).collect();
        let expected: [&[u8]; 7] = [
            &[0, 1, 2, 3],
            &[4, 5, 6, 7],
            &[8, 9],
            &[0, 1, 2],
            &[],
            &[0, 1, 2, 3],
            &[4, 5, 6, 7],
        ];
        assert_eq!(bytes, expected);
        let numbers: Vec<u16> = batch.arrivals().map(|arrival| arrival.number).collect();
        assert_eq!(numbers, [0, 1, 2, 0, 0, 0, 1]);
        assert!(!batch.is_full());
    }

    #[test]
    fn one_message_is_expected_after_none() {
        let mut batch = ReceiveBatch::new(10);
        batch.set_received(1);
        assert!(!batch.expects_one() && !batch.is_full());
        batch.set_received(0);
        assert!(batch.expects_one() && !batch.is_full());
        batch.set_received(1);
        assert!(batch.is_full() && !batch.expects_one(), "there may be more");
        batch.set_received(MAX_MESSAGES);
        assert!(batch.is_full());
    }

    #[test]
    fn only_a_cut_datagram_is_truncated() {
        let batch = batch(&[(11, None), (10, None), (12, Some(6))]);
        let truncated: Vec<bool> = batch.arrivals().map(|arrival| arrival.truncated).collect();
        assert_eq!(truncated, [true, false, false, true]);
    }

    #[test]
    fn messages_without_a_source_are_skipped() {
        let mut batch = batch(&[(4, None), (5, None)]);
        batch.slots().next().unwrap().1.from = None;
        batch.set_received(2);
        assert_eq!(batch.arrivals().count(), 1);
        assert_eq!(ReceiveBatch::default().arrivals().count(), 0);
    }
}
