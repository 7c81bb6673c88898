//! The side of a ring that reads records. Its position is its own: what is in the shared memory is a copy for the producer, never read back.
//! A record's header word, and the address and length of an external one, are loaded once, when the record is begun.

use core::fmt;

use verbena_mem::Targets;

use crate::error::{RingError, Violation};
use crate::layout::{ASLEEP, CLOSED, HEAD, WAITS};
use crate::memory::{Ordering, RingMemory, fence};
use crate::record::{EXTERNAL_LEN, Header, WORD, is_range};

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes were copied to the targets, at least one.
    Bytes(usize),
    /// Nothing was published, or the targets have no room.
    Empty,
    /// The next bytes of the stream are in the producer's process: to be fetched from there, and then [`Consumer::advance_external`].
    External {
        /// The address of the next one in that process. It may be any value: the peer wrote it.
        address: u64,
        /// How many, at least one.
        len: u64,
    },
    /// The producer has ended the stream, and everything before was read.
    End,
}

/// A record that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    /// None: the next header word is at the consumer's position.
    None,
    /// `left` bytes at the position `at`.
    Inline { at: u64, left: usize, end: u64 },
    /// `len` bytes at an address in the producer's process.
    External { address: u64, len: u64, end: u64 },
    /// The end of the stream.
    End,
}

/// The side that reads.
pub struct Consumer {
    memory: RingMemory,
    /// The position of the current record, or of the next one if there is none.
    head: u64,
    /// The position that is published.
    published: u64,
    /// The position at which a producer that waits for room was to be woken last: less than a quarter of the ring before `head`.
    told_at: u64,
    /// The producer was told a position, or that this side closed, since [`Consumer::needs_wakeup_for_room`] was called last.
    told: bool,
    current: Current,
    /// The peer broke the rules.
    violation: Option<Violation>,
}

impl RingMemory {
    /// The side that reads.
    pub fn into_consumer(self) -> Consumer {
        Consumer::new(self)
    }
}

impl Consumer {
    pub(crate) fn new(memory: RingMemory) -> Consumer {
        Consumer {
            memory,
            head: 0,
            published: 0,
            told_at: 0,
            told: false,
            current: Current::None,
            violation: None,
        }
    }

    /// Fills the targets with the next bytes of the stream, from one or several records.
    #[inline]
    pub fn read(&mut self, targets: &mut Targets<'_>) -> Result<Read, RingError> {
        let total = targets.bytes();
        let mut done = 0;
        while done < total {
            let found = match self.begin() {
                Ok(found) => found,
                // The next call returns the error.
                Err(_) if done > 0 => break,
                Err(violation) => return Err(violation.into()),
            };
            let Current::Inline { at, left, end } = found else {
                break;
            };
            let len = left.min(total - done);
            match self.memory.copy_out(at, targets, done, len) {
                Ok(()) => {}
                Err(_) if done > 0 => break,
                Err(unmapped) => return Err(unmapped.into()),
            }
            done += len;
            if len == left {
                self.finish(end);
            } else {
                let (at, left) = (at + len as u64, left - len);
                self.current = Current::Inline { at, left, end };
            }
        }
        if self.published != self.head {
            // Also between the quarters: if this process ends now, the producer knows what it has read.
            self.publish();
        }
        Ok(match self.current {
            _ if done > 0 => Read::Bytes(done),
            Current::External { address, len, .. } => Read::External { address, len },
            Current::End => Read::End,
            Current::None | Current::Inline { .. } => Read::Empty,
        })
    }

    /// The first `n` bytes that [`Read::External`] named have been fetched; no more than it named.
    pub fn advance_external(&mut self, n: u64) {
        if let Current::External { address, len, end } = self.current {
            debug_assert!(n <= len, "{n} of {len} bytes");
            let n = n.min(len);
            if n == len {
                self.finish(end);
            } else {
                let (address, len) = (address + n, len - n);
                self.current = Current::External { address, len, end };
            }
        }
    }

    /// There is nothing to read. One load where that is so.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let next = || self.memory.slot(self.head).load(Ordering::Acquire);
        self.current == Current::None && self.violation.is_none() && next() == 0
    }

    /// Announces that this side sleeps. If it returns true, the producer will wake it after its next record; if false, there is something to
    /// read by now, and nothing is announced.
    pub fn prepare_sleep(&mut self) -> bool {
        self.memory.word(ASLEEP).store(1, Ordering::Relaxed);
        // The producer publishes a record, and then looks at this word.
        fence(Ordering::SeqCst);
        let empty = self.is_empty();
        if !empty {
            self.cancel_sleep();
        }
        empty
    }

    /// Takes the announcement back; true if the producer has done so already, so that a wake-up is on its way.
    pub fn cancel_sleep(&mut self) -> bool {
        self.memory.word(ASLEEP).swap(0, Ordering::Relaxed) == 0
    }

    /// After records were read: the producer waited for room, and the caller must wake it. True once for each announcement.
    #[inline]
    pub fn needs_wakeup_for_room(&mut self) -> bool {
        if !self.told {
            return false;
        }
        self.told = false;
        // The position is published before the producer's word is read; the producer does both in the opposite order.
        fence(Ordering::SeqCst);
        let waits = self.memory.word(WAITS);
        waits.load(Ordering::Relaxed) != 0 && waits.swap(0, Ordering::Relaxed) != 0
    }

    /// Tells the producer that no further record is read. If it waits for room, it must be woken: [`Consumer::needs_wakeup_for_room`].
    pub fn close(&mut self) {
        self.memory.word(CLOSED).store(1, Ordering::Release);
        self.told = true;
    }

    /// The current record, or the next one if there is none.
    #[inline]
    fn begin(&mut self) -> Result<Current, Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        if self.current == Current::None {
            // Acquire: the record's bytes were written before.
            let word = self.memory.slot(self.head).load(Ordering::Acquire);
            if word != 0 {
                match self.parse(word) {
                    Ok(current) => self.current = current,
                    Err(violation) => {
                        self.violation = Some(violation);
                        return Err(violation);
                    }
                }
            }
        }
        Ok(self.current)
    }

    /// Checks the record at `head`, with this header word.
    #[inline]
    fn parse(&self, word: u64) -> Result<Current, Violation> {
        let at = self.head;
        Ok(match Header::parse(word, at, self.memory.capacity())? {
            Header::Inline(len) => Current::Inline {
                at: at + WORD,
                left: len as usize,
                end: at + WORD + u64::from(len).next_multiple_of(WORD),
            },
            Header::External => {
                let value = |offset| self.memory.slot(at + offset).load(Ordering::Relaxed);
                let (address, len) = (value(WORD), value(2 * WORD));
                if !is_range(address, len) {
                    return Err(Violation::Range { at, address, len });
                }
                let end = at + EXTERNAL_LEN;
                Current::External { address, len, end }
            }
            Header::End => Current::End,
        })
    }

    /// The current record, which ends at `end`, is read. A producer that waits is woken after each quarter of the ring.
    #[inline]
    fn finish(&mut self, end: u64) {
        self.current = Current::None;
        self.head = end;
        if end - self.told_at >= self.memory.capacity() as u64 / 4 {
            self.told_at = end;
            self.told = true;
            self.publish();
        }
    }

    #[inline]
    fn publish(&mut self) {
        self.published = self.head;
        // Release: everything before has been copied.
        self.memory.word(HEAD).store(self.head, Ordering::Release);
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("head", &self.head)
            .field("published", &self.published)
            .field("current", &self.current)
            .field("violation", &self.violation)
            .finish_non_exhaustive()
    }
}
