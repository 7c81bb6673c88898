//! Where a driver says what happened, for people: one sentence at a time.
//! It promises nothing but order.
//! It refuses to know terminals and files.

use core::fmt;

/// Takes a sentence.
pub struct Journal(Box<dyn FnMut(&str) + Send>);

impl Journal {
    /// A journal that hands each sentence on.
    pub fn new(to: impl FnMut(&str) + Send + 'static) -> Journal {
        Journal(Box::new(to))
    }

    /// Nobody reads it.
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
