//! Numbers that a peer cannot predict, however many it has seen: SipHash-2-4 of a counter, under a key made of the
//! table's seed. The same seed gives the same numbers, which the simulator needs.

/// A source of such numbers.
#[derive(Debug)]
pub(super) struct StagRng {
    key: [u64; 2],
    counter: u64,
    /// Unused bytes of the last word, and how many.
    word: u64,
    left: u8,
}

impl StagRng {
    pub(super) fn new(seed: u64) -> StagRng {
        StagRng {
            // Both halves of the key come from the seed: it has 64 bits of entropy at most.
            key: [seed, mix(seed)],
            counter: 0,
            word: 0,
            left: 0,
        }
    }

    /// A byte. One hash yields eight of them.
    pub(super) fn byte(&mut self) -> u8 {
        if self.left == 0 {
            self.word = self.next();
            self.left = 8;
        }
        self.left -= 1;
        let byte = self.word as u8;
        self.word >>= 8;
        byte
    }

    /// A number below `bound`.
    fn below(&mut self, bound: u32) -> u32 {
        let random = self.next() & u64::from(u32::MAX);
        ((random * u64::from(bound)) >> 32) as u32
    }

    /// The numbers below `len` in random order (Fisher and Yates).
    pub(super) fn permutation(&mut self, len: u32) -> Box<[u32]> {
        let mut order: Box<[u32]> = (0..len).collect();
        for at in (1..len).rev() {
            let other = self.below(at + 1);
            order.swap(at as usize, other as usize);
        }
        order
    }

    fn next(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        siphash(self.key, self.counter)
    }
}

/// The finaliser of SplitMix64, a bijection.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SipHash-2-4 of one word of eight bytes (Aumasson and Bernstein, 2012).
fn siphash([k0, k1]: [u64; 2], message: u64) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    // The last word has the length in its highest byte.
    for word in [message, 8 << 56] {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of eight bytes of the reference implementation: key 00 01 … 0f, message 00 01 … 07.
    #[test]
    fn siphash_matches_its_reference() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(siphash(key, 0x0706_0504_0302_0100), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn order_is_a_shuffled_permutation() {
        let mut order = StagRng::new(1).permutation(1000);
        assert!(order.windows(2).filter(|w| w[0] + 1 == w[1]).count() < 10);
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..1000));
    }
}
