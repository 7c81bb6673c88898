//! The shared key of adapters that trust each other.
//! It promises not to show itself, neither in lists nor in debug output.
//! It refuses to be short enough to be guessed, or endless.

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
