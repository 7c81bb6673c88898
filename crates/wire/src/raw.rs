//! The one way a header file reads its raw layout from bytes. It promises that a short input
//! becomes an error with both lengths in it. It does not know any particular layout.

use zerocopy::FromBytes;

use crate::Malformed;

/// Copies the layout `T` out of the front of `bytes`.
pub(crate) fn prefix<T: FromBytes>(what: &'static str, bytes: &[u8]) -> Result<T, Malformed> {
    match T::read_from_prefix(bytes) {
        Ok((raw, _)) => Ok(raw),
        Err(_) => Err(Malformed::Truncated {
            what,
            need: size_of::<T>(),
            got: bytes.len(),
        }),
    }
}
