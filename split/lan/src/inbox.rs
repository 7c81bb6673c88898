//! Receive buffers for many messages per call. Datagrams that the kernel joined (GRO) are returned one by one, and a message that was
//! longer than its buffer is skipped.

use std::net::SocketAddr;

use crate::ether::header::Header;
use crate::mac::Mac;
use crate::sys::mmsg::{MAX_MESSAGES, RxMessage};

/// Receive buffers of equal length.
pub struct Inbox {
    buffers: Vec<u8>,
    buffer_len: usize,
    headers: Vec<RxMessage>,
    received: usize,
}

impl core::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (rooms, room) = (self.headers.len(), self.buffer_len);
        write!(f, "Inbox({} in {rooms} rooms of {room})", self.received)
    }
}

impl Inbox {
    /// `rooms` buffers, 64 at most, of `room` bytes each.
    pub fn new(rooms: usize, room: usize) -> Inbox {
        let (rooms, room) = (rooms.clamp(1, MAX_MESSAGES), room.max(1));
        Inbox {
            buffers: vec![0; rooms * room],
            buffer_len: room,
            headers: vec![RxMessage::blank(); rooms],
            received: 0,
        }
    }

    /// The buffers, their length and their message headers, for the next receive; discards what is in them.
    pub(crate) fn refill(&mut self) -> (&mut [u8], usize, &mut [RxMessage]) {
        self.received = 0;
        (&mut self.buffers, self.buffer_len, &mut self.headers)
    }

    pub(crate) fn set_received(&mut self, came: usize) {
        self.received = came.min(self.headers.len());
    }

    /// The number of buffers.
    pub fn buffers(&self) -> usize {
        self.headers.len()
    }

    fn messages(&self) -> impl Iterator<Item = (&RxMessage, &[u8])> {
        let came = self.headers.iter().take(self.received);
        let whole = came.zip(self.buffers.chunks_exact(self.buffer_len));
        whole
            .filter(|(arrival, _)| !arrival.truncated)
            .map(|(arrival, bytes)| (arrival, bytes.get(..arrival.len).unwrap_or_default()))
    }

    /// The datagrams that a [`Datagrams`](crate::Datagrams) received, with their senders.
    pub fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        self.messages().flat_map(|(arrival, bytes)| {
            let from = arrival.from.to_ip();
            let each = arrival.segment.unwrap_or(usize::MAX);
            let datagrams = bytes.chunks(each);
            from.into_iter()
                .flat_map(move |from| datagrams.clone().map(move |datagram| (from, datagram)))
        })
    }

    /// The datagrams that an [`EtherSocket`](crate::EtherSocket) received, with their senders and without padding.
    pub fn frames(&self) -> impl Iterator<Item = (Mac, &[u8])> {
        let ours = self.messages().filter(|(a, _)| a.from.is_to_host());
        ours.filter_map(|(_, frame)| Header::parse(frame))
    }
}
