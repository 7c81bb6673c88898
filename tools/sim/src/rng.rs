//! The only source of randomness in a simulation: a stream of numbers that depends on the seed alone.
//! A seed gives the same run at all times, because the generator is fixed and the ranges are drawn here.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// A probability in parts of a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ratio(u16);

impl Ratio {
    /// Never.
    pub const NEVER: Ratio = Ratio(0);
    /// Always.
    pub const ALWAYS: Ratio = Ratio(1000);

    /// `n` times in a thousand.
    pub const fn per_mille(n: u16) -> Ratio {
        Ratio(if n > 1000 { 1000 } else { n })
    }
}

/// A random generator.
#[derive(Debug, Clone)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(ChaCha8Rng::seed_from_u64(seed))
    }

    /// An independent generator for a part of the simulation, so that draws there do not affect draws here.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.draw())
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`; zero when `n` is.
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias of the remainder is negligible, and the result never changes.
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

    /// True with this probability.
    pub fn chance(&mut self, ratio: Ratio) -> bool {
        self.below(1000) < u64::from(ratio.0)
    }

    /// True with probability one half.
    pub fn coin(&mut self) -> bool {
        self.draw() & 1 == 1
    }

    /// One of several choices.
    ///
    /// # Panics
    /// If there is nothing to pick from.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.0.fill_bytes(&mut out);
        out
    }
}

#[cfg(test)]
mod tests;
