//! What has arrived of a queue pair's stream beyond the byte that is processed next: held bytes, frames whose payload is placed, and the entries
//! of the read queue that requests there take. [`super::ahead`] decides what becomes of a segment.

use verbena_mem::{MemAccess, TouchAhead};
use verbena_stream::reads::ReadsAhead;
use verbena_stream::reassembly::Reassembly;

/// What has arrived beyond the next byte.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) pieces: Reassembly<PlacedFrame>,
    pub(super) reads: ReadsAhead,
    /// Held bytes on their way to the stream.
    pub(super) buffer: Vec<u8>,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead {
            pieces: Reassembly::new(0),
            reads: ReadsAhead::default(),
            buffer: Vec::new(),
        }
    }
}

impl Ahead {
    /// Nothing that is missing will arrive.
    pub(super) fn clear(&mut self) {
        *self = Ahead {
            pieces: Reassembly::new(self.pieces.next()),
            ..Ahead::default()
        };
    }
}

/// A frame whose payload is placed.
#[derive(Debug)]
pub(super) struct PlacedFrame {
    pub(super) head: Vec<u8>,
    pub(super) touch: PlacedTouch,
}

/// What a placed Write did to one-touch memory (M9).
#[derive(Debug)]
pub(super) enum PlacedTouch {
    /// Nothing.
    No,
    /// It goes there, and is not the last of its message.
    Seen(MemAccess),
    /// It ends there: the entry is removed when the stream reaches its end.
    Ahead(TouchAhead),
}
