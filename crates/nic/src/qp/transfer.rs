//! How a queue pair moves bytes: what goes directly, how much is done at once, and how long a peer waits.
//! The values are settings; each stands with what it means.

use core::time::Duration;

/// When payload goes straight between the carrier and its memory, and how much is done at once.
///
/// A long run saves a copy that way; a short one costs more in the carrier than the copy does. Whatever is summed (CRC)
/// is staged: a program may change its memory at any time, and the sum would be wrong. MPA markers cut what is received
/// into short runs, and what is sent with them is staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The shortest run that goes directly.
    pub direct_min: u32,
    /// Bytes read beyond a run that goes directly: the end of its frame and the head of the next. At least one is.
    pub lookahead: usize,
    /// Bytes framed ahead of the carrier; one frame at least is.
    pub batch: usize,
    /// How long a message whose sender cannot send it again waits for a receive.
    pub receive_wait: Duration,
    /// How long a peer's access waits for an entry that is pending (V5), or behind a request of ours that is half sent and
    /// cannot go on.
    pub memory_wait: Duration,
    /// How long a peer may hold a receive of a shared queue without going on with the message that needs it.
    pub shared_receive_wait: Duration,
    /// Bytes that a queue pair copies of the responses it owes because a later request changes their memory. Above this,
    /// such a request is held until the responses have left.
    pub snapshot_max: usize,
}

impl Default for Transfer {
    fn default() -> Transfer {
        Transfer {
            direct_min: 16 << 10,
            lookahead: 128,
            batch: 256 << 10,
            receive_wait: Duration::from_secs(1),
            memory_wait: Duration::from_secs(5),
            shared_receive_wait: Duration::from_secs(60),
            snapshot_max: 4 << 20,
        }
    }
}
