//! Drops a part of the packets that arrive, as the setting `roce_loss` says: for tests of programs on a lossy network.
//! Nothing is dropped, and no number is drawn, while the setting is 0.

use verbena_sync::atomic::{AtomicU64, Ordering};

/// Decides which packets are lost.
pub(crate) struct LossInjector {
    /// The state of the random numbers.
    state: AtomicU64,
}

impl LossInjector {
    /// Injectors with the same seed drop the same packets.
    pub(crate) fn new(seed: u64) -> LossInjector {
        LossInjector {
            state: AtomicU64::new(seed),
        }
    }

    /// Whether the next packet is lost; `loss` is the number of losses in a million.
    pub(crate) fn drops_next(&self, loss: u32) -> bool {
        if loss == 0 {
            return false;
        }
        // The steps of SplitMix64; a number that two threads draw at once does no harm.
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(step, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % 1_000_000 < u64::from(loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_as_frequent_as_set() {
        for (loss, expected) in [(0, 0..=0), (1000, 60..=140), (10_000, 850..=1150)] {
            let injector = LossInjector::new(7);
            let lost = (0..100_000).filter(|_| injector.drops_next(loss)).count();
            assert!(expected.contains(&lost), "{lost} at {loss}");
        }
    }
}
