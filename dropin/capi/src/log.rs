//! Messages of the C API on standard error (setting `log`): by default errors, and warnings about what an error number cannot tell a program.
//! Each message is one line, written by one call.

use core::sync::atomic::{AtomicU8, Ordering};
use std::io::Write;

use verbena::unstable::Log;

static LEVEL: AtomicU8 = AtomicU8::new(Log::Warn as u8);

/// Sets the level.
pub(crate) fn set(level: Log) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Why something does not work.
pub(crate) fn error(sentence: impl FnOnce() -> String) {
    log_at(Log::Error, sentence);
}

/// The program requested something that cannot work.
pub(crate) fn warn(sentence: impl FnOnce() -> String) {
    log_at(Log::Warn, sentence);
}

/// Details for finding the reason of an error.
pub(crate) fn info(sentence: impl FnOnce() -> String) {
    log_at(Log::Info, sentence);
}

fn log_at(level: Log, sentence: impl FnOnce() -> String) {
    if level as u8 <= LEVEL.load(Ordering::Relaxed) {
        // One write, so that lines of several threads and processes do not mix; a failure cannot be reported anywhere else.
        let line = format!("verbena: {}\n", sentence());
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
