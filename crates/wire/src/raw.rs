//! Reads a fixed header layout from the front of a byte slice. A slice that is too short gives
//! [`Malformed::Truncated`] with both lengths.

use zerocopy::FromBytes;

use crate::Malformed;

/// Copies the layout `T` out of the front of `bytes`.
pub fn prefix<T: FromBytes>(what: &'static str, bytes: &[u8]) -> Result<T, Malformed> {
    match T::read_from_prefix(bytes) {
        Ok((raw, _)) => Ok(raw),
        Err(_) => Err(Malformed::Truncated {
            what,
            need: size_of::<T>(),
            got: bytes.len(),
        }),
    }
}
