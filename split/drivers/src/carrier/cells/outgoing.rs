//! A batch of datagrams to send: kept in order for each destination, and retained while the socket's buffer is full. Buffers are reused,
//! and the batch does not grow beyond [`BATCH`].

use verbena_split_wire::cell::PortAddress;

use super::datagram::{Datagram, PeerAddr};

/// Datagrams of a batch.
const BATCH: usize = 64;

/// A batch.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    datagrams: Vec<Datagram>,
    filled: usize,
    sent: usize,
    /// The buffer for the next datagram.
    spare: Vec<u8>,
}

impl Outgoing {
    pub(super) fn is_full(&self) -> bool {
        self.filled >= BATCH
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.sent >= self.filled
    }

    /// A buffer for the next datagram, to be returned by [`push`](Outgoing::push) or [`return_spare`](Outgoing::return_spare).
    pub(super) fn take_spare(&mut self) -> Vec<u8> {
        if let Some(next) = self.datagrams.get_mut(self.filled) {
            return core::mem::take(&mut next.bytes);
        }
        core::mem::take(&mut self.spare)
    }

    /// Returns an unused buffer.
    pub(super) fn return_spare(&mut self, bytes: Vec<u8>) {
        match self.datagrams.get_mut(self.filled) {
            Some(next) => next.bytes = bytes,
            None => self.spare = bytes,
        }
    }

    /// Appends a datagram.
    pub(super) fn push(&mut self, port: PortAddress, place: PeerAddr, bytes: Vec<u8>) {
        let datagram = Datagram {
            port,
            addr: place,
            bytes,
        };
        match self.datagrams.get_mut(self.filled) {
            Some(next) => *next = datagram,
            None => self.datagrams.push(datagram),
        }
        self.filled += 1;
    }

    /// Groups datagrams by destination, stably: those of one destination can be sent as one message.
    pub(super) fn sort(&mut self) {
        let waiting = self.datagrams.get_mut(self.sent..self.filled);
        let waiting = waiting.unwrap_or_default();
        if waiting
            .windows(2)
            .any(|two| matches!(two, [a, b] if a.port != b.port))
        {
            waiting.sort_by_key(|datagram| datagram.port);
        }
    }

    pub(super) fn waiting(&self) -> &[Datagram] {
        self.datagrams
            .get(self.sent..self.filled)
            .unwrap_or_default()
    }

    /// Removes `count` datagrams that were sent or dropped.
    pub(super) fn remove_sent(&mut self, count: usize) {
        self.sent += count;
        if self.is_empty() {
            (self.sent, self.filled) = (0, 0);
        }
    }
}
