//! Random numbers that a peer cannot guess: nonces, start ports, start indexes.
//! They come from the kernel's generator once it is seeded; if it fails, there is an error and no substitute.

use rustix::io::{Errno, retry_on_intr};
use rustix::rand::{GetRandomFlags, getrandom};

use super::{Error, Result};

/// 64 random bits.
pub fn random_u64() -> Result<u64> {
    let mut bytes = [0; 8];
    let got = retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))
        .map_err(Error::of("getrandom"))?;
    // Up to 256 bytes are returned whole (getrandom(2)).
    if got < bytes.len() {
        return Err(Error::new("getrandom", Errno::IO));
    }
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random_u64().unwrap(), random_u64().unwrap());
    }
}
