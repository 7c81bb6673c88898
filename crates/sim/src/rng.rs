//! The one source of chance in a world: a stream of numbers that depends on the seed and on nothing else.
//! It promises that a seed means the same run for ever, because the generator is fixed and the ranges are drawn here.
//! It refuses to know time, threads or the machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// How often something happens, in parts of a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ratio(u16);

impl Ratio {
    /// It never happens.
    pub const NEVER: Ratio = Ratio(0);
    /// It always happens.
    pub const ALWAYS: Ratio = Ratio(1000);

    /// `n` times in a thousand.
    pub const fn per_mille(n: u16) -> Ratio {
        Ratio(if n > 1000 { 1000 } else { n })
    }

    /// It cannot happen.
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }
}

/// A stream of chance.
#[derive(Debug, Clone)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(ChaCha8Rng::seed_from_u64(seed))
    }

    /// An independent stream for a part of the world, so that a draw there moves no draw here.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.draw())
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`; zero when `n` is.
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias of a remainder is far below what any run could notice, and its result never changes.
        self.draw().checked_rem(n).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A length from `low` to `high`, both included.
    pub fn len(&mut self, low: usize, high: usize) -> usize {
        self.range(low as u64, high as u64) as usize
    }

    /// Does it happen this time?
    pub fn chance(&mut self, ratio: Ratio) -> bool {
        self.below(1000) < u64::from(ratio.0)
    }

    /// Heads?
    pub fn coin(&mut self) -> bool {
        self.draw() & 1 == 1
    }

    /// One of several.
    ///
    /// # Panics
    /// If there is nothing to pick from.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Arbitrary bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.0.fill_bytes(&mut out);
        out
    }
}

#[cfg(test)]
mod tests;
