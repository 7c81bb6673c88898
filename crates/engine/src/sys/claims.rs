//! Words that two processes share, to agree on who owns what (V1): whoever swaps a word owns what it stands for.
//! It promises that of all who take a word from the same value one succeeds, in whatever process, and that what the former owner
//! did before it let the word be taken is seen by the next. It refuses to know what the values mean.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{BorrowedFd, OwnedFd};

use verbena_mem::{Mapping, Unfit};

const WORD: usize = size_of::<AtomicU64>();

/// Why a word is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the fields are the numbers that each sentence prints"
)]
pub enum Missed {
    /// Somebody else was first.
    #[error("claim {at} is at {found}, not at {expected}: somebody else has it")]
    Taken {
        at: usize,
        expected: u64,
        found: u64,
    },
    /// There is no such word.
    #[error("claim {at} of {words}")]
    Outside { at: usize, words: usize },
}

/// The words, zero at first.
#[derive(Debug)]
pub struct Claims {
    memory: Mapping,
}

impl Claims {
    /// So many words of zero.
    pub fn new(words: usize) -> Result<Claims, Unfit> {
        // More than can be counted cannot be mapped either, and the system says so.
        let memory = Mapping::new(words.saturating_mul(WORD))?;
        Ok(Claims { memory })
    }

    /// The words that another process made: as many as its file has.
    pub fn adopt(fd: OwnedFd) -> Result<Claims, Unfit> {
        let memory = Mapping::adopt_all(fd)?;
        Ok(Claims { memory })
    }

    /// The file they lie in, for another process to adopt.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// Words.
    pub fn len(&self) -> usize {
        self.memory.len() / WORD
    }

    /// No words.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the word is now.
    pub fn load(&self, at: usize) -> Result<u64, Missed> {
        Ok(self.word(at)?.load(Ordering::Acquire))
    }

    /// Takes the word from one value to another, if it is still at the first.
    pub fn take(&self, at: usize, from: u64, to: u64) -> Result<(), Missed> {
        let swapped =
            self.word(at)?
                .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        match swapped {
            Ok(_) => Ok(()),
            Err(found) => Err(Missed::Taken {
                at,
                expected: from,
                found,
            }),
        }
    }

    fn word(&self, at: usize) -> Result<&AtomicU64, Missed> {
        let words = self.len();
        if at >= words {
            return Err(Missed::Outside { at, words });
        }
        // SAFETY: inside the mapping, which lives as long as we do and cannot become shorter, and aligned, since the mapping
        // begins a page. Whoever shares it uses it by atomics, as this does; one who writes otherwise can make values
        // strange, but not less than values.
        Ok(unsafe { AtomicU64::from_ptr(self.memory.start().as_ptr().cast::<u64>().add(at)) })
    }
}

#[cfg(test)]
mod tests;
