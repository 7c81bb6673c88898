//! Buffers of a thread that serves TLS connections: what it reads, encrypts and sends passes through them, so that a
//! connection keeps only what is left over between two calls. They are made when a thread first needs them, about 400 KiB, and
//! go with it.

use std::cell::Cell;

/// The longest record: head, plaintext and what encryption may add (RFC 8446 §5.2).
pub(super) const MAX_RECORD: usize = 5 + (16 << 10) + 256;
/// Bytes that one read takes from a socket at most, and one write from its sources.
pub(super) const BURST: usize = 128 << 10;
/// What encryption makes of [`BURST`] bytes: each record of 16 KiB adds 22 bytes, and a key update may go before.
const SEALED: usize = BURST + 1024;

/// The buffers.
pub(super) struct Stage {
    /// From the socket, not decrypted: what was left over, then what came.
    pub(super) came: Vec<u8>,
    /// From the sources, not encrypted.
    pub(super) plain: Vec<u8>,
    /// Encrypted, for the socket.
    pub(super) sealed: Vec<u8>,
}

thread_local! {
    /// None while it is used.
    static STAGE: Cell<Option<Box<Stage>>> = const { Cell::new(None) };
}

/// Lends the buffers of this thread.
pub(super) fn with<R>(work: impl FnOnce(&mut Stage) -> R) -> R {
    // A thread that is about to end has none any more.
    let kept = STAGE.try_with(Cell::take).ok().flatten();
    let mut stage = kept.unwrap_or_else(|| {
        Box::new(Stage {
            came: vec![0; BURST + MAX_RECORD],
            plain: Vec::with_capacity(BURST),
            sealed: vec![0; SEALED],
        })
    });
    let done = work(&mut stage);
    let _ = STAGE.try_with(|place| place.set(Some(stage)));
    done
}
