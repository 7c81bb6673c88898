//! Per-thread buffers for TLS: reads, encryption and writes go through them, so that a connection keeps only what is left over
//! between two calls. They are allocated when a thread first needs them, about 400 KiB, and freed with it.

use std::cell::Cell;

use verbena_sync::thread::thread_local;

/// The longest record: header, plaintext and encryption overhead (RFC 8446 §5.2).
pub(super) const MAX_RECORD: usize = 5 + (16 << 10) + 256;
/// Bytes that one read takes from a socket at most, and one write from its sources.
pub(super) const BURST: usize = 128 << 10;
/// The ciphertext of [`BURST`] bytes: each record of 16 KiB adds 22 bytes, and a key update may precede.
const SEALED: usize = BURST + 1024;

/// The buffers.
pub(super) struct Stage {
    /// From the socket, not decrypted: left over bytes first.
    pub(super) received: Vec<u8>,
    /// From the sources, not encrypted.
    pub(super) plain: Vec<u8>,
    /// Encrypted, for the socket.
    pub(super) sealed: Vec<u8>,
}

thread_local! {
    /// None while in use.
    static STAGE: Cell<Option<Box<Stage>>> = const { Cell::new(None) };
}

/// Runs `work` with the buffers of this thread.
pub(super) fn with<R>(work: impl FnOnce(&mut Stage) -> R) -> R {
    // Thread-local storage is gone while a thread ends.
    let kept = STAGE.try_with(Cell::take).ok().flatten();
    let mut stage = kept.unwrap_or_else(|| {
        Box::new(Stage {
            received: vec![0; BURST + MAX_RECORD],
            plain: Vec::with_capacity(BURST),
            sealed: vec![0; SEALED],
        })
    });
    let done = work(&mut stage);
    let _ = STAGE.try_with(|place| place.set(Some(stage)));
    done
}
