//! The side of a ring that writes records. Its position is its own; of the consumer it knows the position that it loaded last, and
//! loads it again only when that leaves too little room.

use core::fmt;

use verbena_mem::Sources;

use crate::error::{RingError, Violation};
use crate::layout::{ASLEEP, CLOSED, HEAD, WAITS};
use crate::memory::{Ordering, RingMemory, fence};
use crate::record::{EXTERNAL_LEN, Header, MAX_INLINE, WORD, is_range};

/// The side that writes.
pub struct Producer {
    memory: RingMemory,
    /// The end of the last record: the position of the next.
    tail: u64,
    /// The consumer's position as loaded last: at most `tail`, and `tail - head` is less than the capacity.
    head: u64,
    /// The stream was ended.
    ended: bool,
    /// The peer broke the rules.
    violation: Option<Violation>,
}

impl RingMemory {
    /// The side that writes. The memory is in its initial state, all zero.
    pub fn into_producer(self) -> Producer {
        Producer::new(self)
    }
}

impl Producer {
    pub(crate) fn new(memory: RingMemory) -> Producer {
        Producer {
            memory,
            tail: 0,
            head: 0,
            ended: false,
            violation: None,
        }
    }

    /// Writes as many bytes of the sources as there is room for, and publishes them; returns how many. None is written only if there is no room.
    #[inline]
    pub fn write(&mut self, sources: &Sources<'_>) -> Result<usize, RingError> {
        self.check()?;
        let total = sources.bytes();
        let mut done = 0;
        while done < total {
            let want = (total - done).min(MAX_INLINE);
            let room = match self.room_for(want as u64) {
                Ok(room) => room,
                // The next call returns the error.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            let len = want.min(room as usize);
            if len == 0 {
                break;
            }
            let to = self.tail + WORD;
            match self.memory.copy_in(to, sources, done, len) {
                Ok(()) => {}
                Err(_) if done > 0 => break,
                Err(unmapped) => return Err(unmapped.into()),
            }
            let padded = (len as u64).next_multiple_of(WORD);
            self.publish(Header::Inline(len as u32), WORD + padded);
            done += len;
        }
        Ok(done)
    }

    /// Writes a record that says where the next `len` bytes of the stream are in this process; false if there is no room. They must not
    /// change before the consumer has fetched them, which it tells by other means.
    pub fn write_external(&mut self, address: u64, len: u64) -> Result<bool, RingError> {
        self.check()?;
        if !is_range(address, len) {
            return Err(RingError::InvalidRange { address, len });
        }
        if self.room_for(EXTERNAL_LEN - WORD)? < EXTERNAL_LEN - WORD {
            return Ok(false);
        }
        let value = |at| self.memory.slot(self.tail + at);
        value(WORD).store(address, Ordering::Relaxed);
        value(2 * WORD).store(len, Ordering::Relaxed);
        self.publish(Header::External, EXTERNAL_LEN);
        Ok(true)
    }

    /// Ends the stream behind the last record: nothing is written any more. There is always room for that.
    pub fn close(&mut self) {
        if !self.ended && self.violation.is_none() {
            self.ended = true;
            // In the word that is kept zero behind the last record.
            let end = self.memory.slot(self.tail);
            end.store(Header::End.emit(), Ordering::Release);
        }
    }

    /// After records were written: the consumer slept, and the caller must wake it. True once for each announcement.
    #[inline]
    pub fn needs_wakeup(&mut self) -> bool {
        // The record is published before its consumer's word is read; the consumer does both in the opposite order.
        fence(Ordering::SeqCst);
        let asleep = self.memory.word(ASLEEP);
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }

    /// There is room for a record of any kind.
    pub fn has_room(&mut self) -> Result<bool, RingError> {
        self.check()?;
        Ok(self.room_for(EXTERNAL_LEN - WORD)? >= EXTERNAL_LEN - WORD)
    }

    /// Announces that this side waits for room. If it returns true, the consumer will wake it; if false, there is room by now, or the ring is
    /// broken or closed, and nothing is announced.
    pub fn prepare_wait(&mut self) -> bool {
        let waits = self.memory.word(WAITS);
        waits.store(1, Ordering::Relaxed);
        // The consumer publishes its position, and then looks at this word.
        fence(Ordering::SeqCst);
        let full = self.has_room() == Ok(false);
        if !full {
            self.cancel_wait();
        }
        full
    }

    /// Takes the announcement back; true if the consumer has done so already, so that a wake-up is on its way.
    pub fn cancel_wait(&mut self) -> bool {
        self.memory.word(WAITS).swap(0, Ordering::Relaxed) == 0
    }

    /// Bytes of the ring that the consumer had not read when it published its position last: at least as many as those of the stream.
    pub fn unread(&mut self) -> u64 {
        // A position that is out of range is not believed.
        let _ = self.load_head();
        self.tail - self.head
    }

    /// The consumer reads no further record.
    pub fn is_peer_closed(&self) -> bool {
        self.memory.word(CLOSED).load(Ordering::Acquire) != 0
    }

    /// The stream continues, and the peer has not broken the rules.
    #[inline]
    fn check(&self) -> Result<(), RingError> {
        match self.violation {
            Some(violation) => Err(violation.into()),
            None if self.ended => Err(RingError::Closed),
            None => Ok(()),
        }
    }

    /// Bytes that one more record can have behind its header word; the consumer's position is loaded if those known of are less than `want`.
    #[inline]
    fn room_for(&mut self, want: u64) -> Result<u64, RingError> {
        let room = self.room();
        if room >= want {
            return Ok(room);
        }
        self.load_head()?;
        let room = self.room();
        // Looked at only here: a consumer that has closed frees nothing, so that this is reached.
        if room < want && self.is_peer_closed() {
            return Err(RingError::Closed);
        }
        Ok(room)
    }

    /// What the position loaded last leaves for a record, apart from its header word and the word behind it.
    #[inline]
    fn room(&self) -> u64 {
        let free = self.memory.capacity() as u64 - (self.tail - self.head);
        free.saturating_sub(2 * WORD)
    }

    #[cold]
    fn load_head(&mut self) -> Result<(), RingError> {
        // Acquire: the consumer has read what lies before, and it may be overwritten.
        let head = self.memory.word(HEAD).load(Ordering::Acquire);
        let (from, to) = (self.head, self.tail);
        let violation = if !(from..=to).contains(&head) {
            Violation::HeadOutOfRange { head, from, to }
        } else if !head.is_multiple_of(WORD) {
            Violation::HeadNotAligned { head }
        } else {
            self.head = head;
            return Ok(());
        };
        self.violation = Some(violation);
        Err(violation.into())
    }

    /// Publishes the record of `len` bytes at the end, whose bytes are written.
    #[inline]
    fn publish(&mut self, header: Header, len: u64) {
        let next = self.tail + len;
        // First, so that the consumer of this record finds no older bytes in place of the next header word.
        self.memory.slot(next).store(0, Ordering::Relaxed);
        let word = self.memory.slot(self.tail);
        word.store(header.emit(), Ordering::Release);
        self.tail = next;
        debug_assert!(self.tail - self.head < self.memory.capacity() as u64);
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("tail", &self.tail)
            .field("head", &self.head)
            .field("violation", &self.violation)
            .finish_non_exhaustive()
    }
}
