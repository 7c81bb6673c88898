//! Receive buffers for many messages per call. Datagrams that the kernel joined (GRO) are returned one by one, and a message that was
//! longer than its buffer is skipped.

use std::net::SocketAddr;

use crate::ether::Header;
use crate::mac::Mac;
use crate::sys::many::{Arrival, MOST};

/// Receive buffers of equal length.
pub struct Inbox {
    rooms: Vec<u8>,
    room: usize,
    arrivals: Vec<Arrival>,
    came: usize,
}

impl core::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (rooms, room) = (self.arrivals.len(), self.room);
        write!(f, "Inbox({} in {rooms} rooms of {room})", self.came)
    }
}

impl Inbox {
    /// `rooms` buffers, 64 at most, of `room` bytes each.
    pub fn new(rooms: usize, room: usize) -> Inbox {
        let (rooms, room) = (rooms.clamp(1, MOST), room.max(1));
        Inbox {
            rooms: vec![0; rooms * room],
            room,
            arrivals: vec![Arrival::blank(); rooms],
            came: 0,
        }
    }

    /// The buffers, their length and their message headers, for the next receive; discards what is in them.
    pub(crate) fn refill(&mut self) -> (&mut [u8], usize, &mut [Arrival]) {
        self.came = 0;
        (&mut self.rooms, self.room, &mut self.arrivals)
    }

    pub(crate) fn filled(&mut self, came: usize) {
        self.came = came.min(self.arrivals.len());
    }

    /// The number of buffers.
    pub fn rooms(&self) -> usize {
        self.arrivals.len()
    }

    fn messages(&self) -> impl Iterator<Item = (&Arrival, &[u8])> {
        let came = self.arrivals.iter().take(self.came);
        let whole = came.zip(self.rooms.chunks_exact(self.room));
        whole
            .filter(|(arrival, _)| !arrival.cut)
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

    /// The datagrams that an [`Ether`](crate::Ether) received, with their senders and without padding.
    pub fn frames(&self) -> impl Iterator<Item = (Mac, &[u8])> {
        let ours = self.messages().filter(|(a, _)| a.from.is_to_host());
        ours.filter_map(|(_, frame)| Header::parse(frame))
    }
}
