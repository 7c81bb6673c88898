//! Records: a header word of eight bytes, then the bytes of the record, then up to seven unused ones. Records begin at multiples of eight
//! bytes, so that a header word never wraps around; the bytes behind it may.
//!
//! | header word | record |
//! | --- | --- |
//! | 0 | none yet |
//! | 1 in the upper 8 bits, a length in the lower 32 | that many bytes of the stream |
//! | 2 in the upper 8 bits | the next bytes of the stream are in the producer's process: a word with their address and one with their number |
//! | 3 in the upper 8 bits | the end of the stream; no word follows |
//!
//! All words are in the byte order of the processor: both sides run on the same one.

use crate::error::Violation;

/// Bytes of a word, to which records are aligned.
pub const WORD: u64 = 8;
/// Bytes of a record with an address.
pub const EXTERNAL_LEN: u64 = 3 * WORD;
/// Most bytes of the stream in one record. A longer write becomes several, so that the consumer copies one while the next is written.
pub const MAX_INLINE: usize = 8192;

const KIND_SHIFT: u32 = 56;
const KIND_INLINE: u64 = 1;
const KIND_EXTERNAL: u64 = 2;
const KIND_END: u64 = 3;

/// What a header word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// So many bytes follow, at least one.
    Inline(u32),
    /// An address and a length follow.
    External,
    /// The end of the stream.
    End,
}

impl Header {
    /// The word, never 0.
    pub const fn emit(self) -> u64 {
        match self {
            Header::Inline(len) => KIND_INLINE << KIND_SHIFT | len as u64,
            Header::External => KIND_EXTERNAL << KIND_SHIFT,
            Header::End => KIND_END << KIND_SHIFT,
        }
    }

    /// Checks the nonzero header word of the record at `at`, in a ring of `capacity` bytes.
    pub const fn parse(word: u64, at: u64, capacity: usize) -> Result<Header, Violation> {
        const EXTERNAL: u64 = Header::External.emit();
        const END: u64 = Header::End.emit();
        match word {
            EXTERNAL => return Ok(Header::External),
            END => return Ok(Header::End),
            _ => {}
        }
        let len = word as u32;
        if word != Header::Inline(len).emit() {
            return Err(Violation::UnknownHeader { at, word });
        }
        let most = most_inline(capacity);
        if len == 0 || len as u64 > most {
            let len = len as u64;
            return Err(Violation::Length { at, len, most });
        }
        Ok(Header::Inline(len))
    }
}

/// Most bytes of one record in a ring of `capacity` bytes: all but its header word and the one behind it.
pub const fn most_inline(capacity: usize) -> u64 {
    capacity as u64 - 2 * WORD
}

/// `len` bytes at `address` are a range of addresses, and not an empty one.
pub const fn is_range(address: u64, len: u64) -> bool {
    len != 0 && len <= isize::MAX as u64 && address.checked_add(len).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_parse_as_they_were_emitted() {
        for header in [
            Header::Inline(1),
            Header::Inline(48),
            Header::External,
            Header::End,
        ] {
            assert_ne!(header.emit(), 0);
            assert_eq!(Header::parse(header.emit(), 8, 64), Ok(header));
        }
    }

    #[test]
    fn other_header_words_are_violations() {
        let unknown = [1, 1 << 40, 4 << 56, 0xff << 56, 2 << 56 | 16, 3 << 56 | 1];
        for word in unknown.into_iter().chain([1 << 56 | 1 << 32 | 8, 1 << 55]) {
            let expected = Violation::UnknownHeader { at: 16, word };
            assert_eq!(Header::parse(word, 16, 64), Err(expected));
        }
        for len in [0, 49, u64::from(u32::MAX)] {
            let (at, most) = (24, 48);
            let word = 1 << 56 | len;
            let expected = Violation::Length { at, len, most };
            assert_eq!(Header::parse(word, 24, 64), Err(expected));
        }
    }

    #[test]
    fn ranges_do_not_wrap_around() {
        assert!(is_range(0, 1) && is_range(u64::MAX - 1, 1));
        assert!(!is_range(5, 0) && !is_range(u64::MAX, 1) && !is_range(0, 1 << 63));
    }
}
