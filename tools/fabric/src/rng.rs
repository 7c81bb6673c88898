//! A generator of random numbers that depends on its seed alone (SplitMix64). It is for faults and hashes, not for secrets.

/// A random generator.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`; zero if `n` is zero.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.draw().checked_rem(n).unwrap_or(0)
    }
}

/// A bijection whose result looks unrelated to its argument.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
