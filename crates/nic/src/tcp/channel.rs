//! Channel events of a queue pair on a TCP connection (E7): buffers low, descriptors returned, buffers posted that may not be.
//! The channel's pool is the receives that wait, its descriptors are receives. A queue pair without a channel counts and raises nothing.

use verbena_events::event::{ChannelEvent, Event, Outbox};

/// The channel whose events a queue pair raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TcpChannel {
    /// Its number in the events, below 32.
    pub number: u8,
    /// [`ChannelEvent::BuffersLow`] is raised when a receive was taken and fewer than this wait; once, until as many wait again. 0 raises
    /// none.
    pub low: usize,
}

/// What was raised, and what is yet to be.
#[derive(Debug)]
pub(super) struct ChannelState {
    channel: Option<TcpChannel>,
    /// The low pool was reported.
    is_low: bool,
    /// Receives that have completed and were not reported.
    returned: u32,
}

impl ChannelState {
    pub(super) fn new(channel: Option<TcpChannel>) -> ChannelState {
        ChannelState {
            channel,
            is_low: false,
            returned: 0,
        }
    }

    fn raise(&self, what: ChannelEvent, count: u32, out: &mut Outbox) {
        if let Some(TcpChannel { number, .. }) = self.channel {
            let channel = number;
            out.push(Event::Channel {
                channel,
                what,
                count,
            });
        }
    }

    /// A receive was taken from the pool, and `left` wait there.
    pub(super) fn note_taken(&mut self, left: impl FnOnce() -> usize, out: &mut Outbox) {
        let Some(TcpChannel { low, .. }) = self.channel else {
            return;
        };
        let left = left();
        let was_low = core::mem::replace(&mut self.is_low, left < low);
        if self.is_low && !was_low {
            // The pool is bounded by the limits of queues, far below 2³².
            self.raise(ChannelEvent::BuffersLow, left as u32, out);
        }
    }

    /// A receive was posted, and `left` wait in the pool.
    pub(super) fn note_posted(&mut self, left: usize) {
        if self.channel.is_some_and(|channel| left >= channel.low) {
            self.is_low = false;
        }
    }

    /// A receive has completed.
    pub(super) fn note_returned(&mut self) {
        if self.channel.is_some() {
            self.returned = self.returned.saturating_add(1);
        }
    }

    /// Raises the event for the receives that have completed since the last one.
    pub(super) fn report_returned(&mut self, out: &mut Outbox) {
        let count = core::mem::take(&mut self.returned);
        if count > 0 {
            self.raise(ChannelEvent::Returned, count, out);
        }
    }

    /// A receive was refused, when it was posted or when its memory was to be written.
    pub(super) fn report_illegal_post(&self, out: &mut Outbox) {
        self.raise(ChannelEvent::IllegalPost, 1, out);
    }
}
