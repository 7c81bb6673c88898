//! Data that the consumer has queued and that was never sent: how much, and where its messages end.
//! The bytes stay with the consumer. A message is one segment, unless the path or the peer's window has become too small for it.

use std::collections::VecDeque;

use super::seq::{Offset, distance};

/// Messages that are queued and not sent.
pub const MAX_QUEUED_MESSAGES: usize = 16_384;
/// Bytes that are queued and not acknowledged.
pub const MAX_QUEUED_BYTES: u64 = 1 << 30;

/// How queued data becomes segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// A stream of bytes: segments are as long as possible.
    #[default]
    Bytes,
    /// Every queued message is one segment, as FPDUs demand (RFC 5044, appendix A).
    Messages,
}

/// Why data was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The connection sends no more data.
    #[error("the connection was closed for sending")]
    Closed,
    /// A message is empty or longer than a segment.
    #[error("a message of {len} bytes, and a segment carries 1 to {mss}")]
    Length {
        /// Its length.
        len: u64,
        /// The longest message.
        mss: usize,
    },
    /// Too much is queued.
    #[error("{queued} bytes are queued, and acknowledgements must be awaited first")]
    Full {
        /// Bytes that are queued or not acknowledged.
        queued: u64,
    },
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    framing: Framing,
    end: Offset,
    /// Ends of the messages that were not sent.
    ends: VecDeque<Offset>,
    fin: bool,
}

/// The next segment that could be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) end: Offset,
    /// The last byte of a message, or of all that is queued.
    pub(crate) is_end: bool,
}

impl Queue {
    pub(crate) fn new(framing: Framing) -> Queue {
        Queue {
            framing,
            ..Queue::default()
        }
    }

    pub(crate) const fn framing(&self) -> Framing {
        self.framing
    }

    /// Where the queued data ends.
    pub(crate) const fn end(&self) -> Offset {
        self.end
    }

    /// No more data follows.
    pub(crate) const fn is_finished(&self) -> bool {
        self.fin
    }

    pub(crate) fn finish(&mut self) {
        self.fin = true;
    }

    /// Queues `len` bytes; `una` is the left edge.
    pub(crate) fn push(&mut self, len: u64, mss: usize, una: Offset) -> Result<(), QueueError> {
        if self.fin {
            return Err(QueueError::Closed);
        }
        let is_message = self.framing == Framing::Messages;
        if is_message && (len == 0 || len > mss as u64) {
            return Err(QueueError::Length { len, mss });
        }
        let queued = u64::try_from(self.end - una).unwrap_or(0);
        let is_full = is_message && self.ends.len() >= MAX_QUEUED_MESSAGES;
        if is_full || queued.saturating_add(len) > MAX_QUEUED_BYTES {
            return Err(QueueError::Full { queued });
        }
        self.end += distance(len);
        if is_message {
            self.ends.push_back(self.end);
        }
        Ok(())
    }

    /// The segment that begins at an offset.
    pub(crate) fn next(&self, at: Offset, mss: usize) -> Option<Next> {
        if at >= self.end {
            return None;
        }
        let whole = match self.framing {
            Framing::Bytes => self.end,
            Framing::Messages => *self.ends.front()?,
        };
        let end = whole.min(at + distance(mss as u64));
        Some(Next {
            end,
            is_end: end == whole,
        })
    }

    /// Everything before an offset was sent.
    pub(crate) fn sent(&mut self, until: Offset) {
        while self.ends.front().is_some_and(|&end| end <= until) {
            self.ends.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_one_segment() {
        let mut queue = Queue::new(Framing::Messages);
        for len in [100, 1, 1000] {
            queue.push(len, 1000, 0).unwrap();
        }
        let mut at = 0;
        for end in [100, 101, 1101] {
            assert_eq!(queue.next(at, 1000), Some(Next { end, is_end: true }));
            queue.sent(end);
            at = end;
        }
        assert_eq!(queue.next(at, 1000), None);
    }

    #[test]
    fn message_is_cut_when_segments_become_shorter() {
        let mut queue = Queue::new(Framing::Messages);
        queue.push(1000, 1000, 0).unwrap();
        let cut = Next {
            end: 600,
            is_end: false,
        };
        assert_eq!(queue.next(0, 600), Some(cut));
        queue.sent(600);
        let rest = Next {
            end: 1000,
            is_end: true,
        };
        assert_eq!(queue.next(600, 600), Some(rest));
    }

    #[test]
    fn limits_are_enforced() {
        let mut queue = Queue::new(Framing::Messages);
        for len in [0, 11] {
            assert_eq!(
                queue.push(len, 10, 0),
                Err(QueueError::Length { len, mss: 10 })
            );
        }
        for _ in 0..MAX_QUEUED_MESSAGES {
            queue.push(1, 10, 0).unwrap();
        }
        assert!(matches!(queue.push(1, 10, 0), Err(QueueError::Full { .. })));
        let mut queue = Queue::new(Framing::Bytes);
        queue.push(MAX_QUEUED_BYTES, 10, 0).unwrap();
        assert!(queue.push(1, 10, 0).is_err());
        assert!(queue.push(1, 10, 1).is_ok());
        queue.finish();
        assert_eq!(queue.push(1, 10, 1), Err(QueueError::Closed));
    }
}
