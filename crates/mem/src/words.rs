//! Memory that another process maps as well, as words that are read and written one by one: a block of events that one side writes and the other reads
//! while it is written. Every access is atomic and inside the memory, and nothing read here is trusted.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;

use rustix::mm::{Advice, madvise};

use crate::mapping::{Mapping, Pages};
use crate::refusal::SharedMemoryError;

/// Words of a line.
pub const LINE: usize = 8;

/// Words that this process writes.
#[derive(Debug)]
pub struct WordPages(Pages);

impl WordPages {
    /// The words of these pages.
    pub fn new(pages: Pages) -> WordPages {
        WordPages(pages)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len() / size_of::<u64>()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The line of eight words that begins at word `at`; none if that is no multiple of eight, or behind the end.
    #[inline]
    pub fn line(&self, at: usize) -> Option<&[AtomicU64; LINE]> {
        if !at.is_multiple_of(LINE) || at >= self.len() / LINE * LINE {
            return None;
        }
        // SAFETY: the line ends within the pages, which are mapped as long as `self` lives, and is aligned, since pages are. This process
        // accesses it by atomics only: `self` owns the pages.
        Some(unsafe { &*self.0.start().as_ptr().cast::<u64>().add(at).cast() })
    }

    /// Gives the memory back to the system: all words are zero, also in other processes.
    pub fn discard(&self) {
        if self.is_empty() {
            return;
        }
        // SAFETY: the range is that of the pages, which `self` owns; their bytes are only accessed by atomics, to which zeros are as good as any value.
        let discarded = unsafe {
            let start = self.0.start().as_ptr().cast();
            madvise(start, self.0.len(), Advice::LinuxRemove)
        };
        // The memory is kept until it is unmapped.
        let _ = discarded;
    }
}

/// Words of another process, which this one cannot write.
#[derive(Debug)]
pub struct ReadWords(WordPages);

impl ReadWords {
    /// Maps the first `len` bytes of a file of another process.
    pub fn adopt(fd: OwnedFd, len: usize) -> Result<ReadWords, SharedMemoryError> {
        Mapping::adopt_to_read(fd, len).map(|pages| ReadWords(WordPages(pages)))
    }

    /// The word at `at`, as it is now; 0 behind the end.
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        let line = self.0.line(at / LINE * LINE);
        let word = line.and_then(|line| line.get(at % LINE));
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// A copy of the line that begins at word `at`; zeros if there is none. Words may be from different times.
    #[inline]
    pub fn line(&self, at: usize) -> [u64; LINE] {
        let Some(line) = self.0.line(at) else {
            return [0; LINE];
        };
        core::array::from_fn(|at| line[at].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_sees_what_is_written() {
        let ours = Mapping::new(8192).unwrap();
        let fd = ours.fd().try_clone_to_owned().unwrap();
        let theirs = ReadWords::adopt(fd, 8192).unwrap();
        let ours = WordPages::new(ours.into_pages());
        assert_eq!(ours.len(), 1024);
        ours.line(1016).unwrap()[7].store(5, Ordering::Release);
        assert_eq!((theirs.load(1023), theirs.load(1024)), (5, 0));
        assert_eq!(theirs.line(1016)[7], 5);
        assert!(ours.line(1024).is_none() && ours.line(4).is_none());
        ours.discard();
        assert_eq!(theirs.load(1023), 0);
    }
}
