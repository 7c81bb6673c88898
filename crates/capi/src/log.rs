//! What the C face says on standard error: little, and only what its program cannot know otherwise (setting `log`).
//! It promises one line per sentence, written at once. It refuses to speak unless something is wrong or somebody asked.

use core::sync::atomic::{AtomicU8, Ordering};
use std::io::Write;

use verbena::low::Log;

static LEVEL: AtomicU8 = AtomicU8::new(Log::Warn as u8);

/// Says this much from now on.
pub(crate) fn set(level: Log) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Something does not work, and this is why.
pub(crate) fn error(sentence: impl FnOnce() -> String) {
    say(Log::Error, sentence);
}

/// A program asked for something that cannot work, and may not know why.
pub(crate) fn warn(sentence: impl FnOnce() -> String) {
    say(Log::Warn, sentence);
}

/// Worth knowing for who looks for a reason.
pub(crate) fn info(sentence: impl FnOnce() -> String) {
    say(Log::Info, sentence);
}

fn say(level: Log, sentence: impl FnOnce() -> String) {
    if level as u8 <= LEVEL.load(Ordering::Relaxed) {
        // In one write, so that threads and processes do not mix their words; there is nobody to tell if that fails.
        let line = format!("verbena: {}\n", sentence());
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
