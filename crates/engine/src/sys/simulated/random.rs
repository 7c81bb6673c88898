//! Random numbers from the seed of the run.
//! They differ from each other as those of the kernel do, and are the same when the seed runs again.

use super::Result;
use super::simulated::with;

/// 64 random bits.
pub fn random_u64() -> Result<u64> {
    Ok(with(|world| world.random()))
}
