//! How a queue pair moves bytes: what is transferred directly, how much at once, and how long a peer waits.
//! The values are settings.

use core::time::Duration;

/// When payload is transferred directly between the carrier and its memory, and how much at once.
///
/// A long run saves a copy that way; a short one costs more in the carrier than the copy does. Frames with a CRC are
/// staged: a program may change its memory at any time, and the CRC would be wrong. MPA markers cut received payload
/// into short runs, and payload sent with them is staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The shortest run that is transferred directly.
    pub direct_min: u32,
    /// Bytes read beyond a run that is read directly: the end of its frame and the header of the next. At least one is.
    pub lookahead: usize,
    /// Bytes framed ahead of the carrier; at least one frame is.
    pub batch: usize,
    /// How long a message whose sender cannot send it again waits for a receive.
    pub receive_wait: Duration,
    /// How long a peer's access waits for an entry that is pending (V5), or behind a local request that is half sent and
    /// cannot continue.
    pub memory_wait: Duration,
    /// How long a peer may hold a receive of a shared queue without continuing the message that needs it.
    pub shared_receive_wait: Duration,
    /// Bytes that a queue pair copies of the responses it owes because a later request changes their memory. Above this,
    /// such a request is held until the responses have been sent.
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
