//! The log of a driver: one sentence per call, in order. The caller decides where sentences go; the driver writes to no file or terminal.

use core::fmt;

/// A callback that takes a sentence.
pub struct Journal(Box<dyn FnMut(&str) + Send>);

impl Journal {
    /// A journal that passes each sentence to `to`.
    pub fn new(to: impl FnMut(&str) + Send + 'static) -> Journal {
        Journal(Box::new(to))
    }

    /// A journal that discards all sentences.
    pub fn silent() -> Journal {
        Journal::new(|_| {})
    }

    pub(crate) fn note(&mut self, what: &str) {
        (self.0)(what);
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Journal")
    }
}
