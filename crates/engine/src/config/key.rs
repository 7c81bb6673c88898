//! The key that adapters share to authenticate each other.
//! Its length is limited on both sides, and neither [`fmt::Debug`] nor lists of settings show it.

use core::fmt;

/// Shortest key, in bytes.
pub const MIN_KEY: usize = 16;
/// Longest key, in bytes.
pub const MAX_KEY: usize = 1024;

/// A shared key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl Key {
    /// This key; none if it is shorter than [`MIN_KEY`] or longer than [`MAX_KEY`].
    pub fn new(bytes: &[u8]) -> Option<Key> {
        let sane = (MIN_KEY..=MAX_KEY).contains(&bytes.len());
        sane.then(|| Key(bytes.to_vec()))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}
