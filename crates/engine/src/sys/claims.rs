//! An array of atomic words that two processes share, to agree on ownership (V1): the process that swaps a word owns what it stands for.
//! Of all attempts to change a word from the same value one succeeds, in any process, and it sees all writes that the former owner made
//! before (AcqRel). The values have no meaning here.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{BorrowedFd, OwnedFd};

use verbena_mem::{Mapping, SharedMemoryError};

const WORD: usize = size_of::<AtomicU64>();

/// Why a word was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the fields are the numbers that each sentence prints"
)]
pub enum ClaimError {
    /// Another owner was first.
    #[error("claim {at} has value {found}, not {expected}: another owner has taken it")]
    Taken {
        at: usize,
        expected: u64,
        found: u64,
    },
    /// The index is out of range.
    #[error("claim {at} is out of range: there are {words}")]
    OutOfRange { at: usize, words: usize },
}

/// The words, initially zero.
#[derive(Debug)]
pub struct Claims {
    memory: Mapping,
}

impl Claims {
    /// Makes this many words of zero.
    pub fn new(words: usize) -> Result<Claims, SharedMemoryError> {
        // On overflow the mapping fails with the system's error.
        let memory = Mapping::new(words.saturating_mul(WORD))?;
        Ok(Claims { memory })
    }

    /// Maps the words that another process made; their number follows from the file size.
    pub fn adopt(fd: OwnedFd) -> Result<Claims, SharedMemoryError> {
        let memory = Mapping::adopt_all(fd)?;
        Ok(Claims { memory })
    }

    /// The file they are in, for another process to adopt.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// The number of words.
    pub fn len(&self) -> usize {
        self.memory.len() / WORD
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The current value of a word.
    pub fn load(&self, at: usize) -> Result<u64, ClaimError> {
        Ok(self.word(at)?.load(Ordering::Acquire))
    }

    /// Changes a word from one value to another, if it still has the first.
    pub fn take(&self, at: usize, from: u64, to: u64) -> Result<(), ClaimError> {
        let swapped =
            self.word(at)?
                .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        match swapped {
            Ok(_) => Ok(()),
            Err(found) => Err(ClaimError::Taken {
                at,
                expected: from,
                found,
            }),
        }
    }

    fn word(&self, at: usize) -> Result<&AtomicU64, ClaimError> {
        let words = self.len();
        if at >= words {
            return Err(ClaimError::OutOfRange { at, words });
        }
        // SAFETY: `at` was checked, so the word is inside the mapping, which lives as long as `self` and cannot shrink; it is aligned, since
        // the mapping begins at a page. The other process uses atomics, too; one that does not can only make the values wrong.
        Ok(unsafe { AtomicU64::from_ptr(self.memory.start().as_ptr().cast::<u64>().add(at)) })
    }
}

#[cfg(test)]
mod tests;
