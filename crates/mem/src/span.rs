//! A raw run of bytes in registered memory, and a short list of them.
//! A span promises nothing about what the bytes are: others may change them at any time, so it is copied from and to, never borrowed.
//! It refuses to become a slice.

use core::sync::atomic::{Ordering, fence};

use arrayvec::ArrayVec;

use crate::guarded::{self, Unmapped};

/// A run of bytes that others may read and write meanwhile; laid out like the system's `struct iovec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Span {
    start: *mut u8,
    len: usize,
}

// SAFETY: a span is an address and a number. Whoever copies through it must hold a grant, which is what makes the
// access sound on any thread.
unsafe impl Send for Span {}
// SAFETY: as above; a shared span offers no more than a copied one.
unsafe impl Sync for Span {}

impl Span {
    /// Names `len` bytes at `start`. Naming is harmless; copying is what needs a grant.
    pub const fn new(start: *mut u8, len: usize) -> Span {
        Span { start, len }
    }

    /// The first byte.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// No bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `from` to the front of the span. Its last word, up to eight bytes that share their alignment, is written once
    /// and behind all others: a program that waits for the last byte may use the memory as soon as it has seen it, while
    /// the C library's copying may write bytes twice.
    ///
    /// # Safety
    /// The caller holds a grant to write this span, and `from` does not lie in it.
    pub(crate) unsafe fn copy_in(&self, from: &[u8]) -> Result<(), Unmapped> {
        debug_assert!(from.len() <= self.len);
        let Some(most) = from.len().checked_sub(1) else {
            return Ok(());
        };
        let in_word = (self.start.addr() + most) % size_of::<u64>();
        let body = most.saturating_sub(in_word);
        let (before, last) = from.split_at(body);
        // SAFETY: the grant keeps the bytes registered, and no reference to them exists: the program may race with this copy, which
        // concerns only the values of bytes.
        unsafe {
            guarded::copy(self.start, before.as_ptr(), body)?;
            fence(Ordering::Release);
            write_word(self.start.add(body), last)
        }
    }

    /// Copies the front of the span to `to`.
    ///
    /// # Safety
    /// The caller holds a grant to read this span, and `to` does not lie in it.
    pub(crate) unsafe fn copy_out(&self, to: &mut [u8]) -> Result<(), Unmapped> {
        debug_assert!(to.len() <= self.len);
        // SAFETY: the grant keeps the bytes registered; see `copy_in` for races.
        unsafe { guarded::copy(to.as_mut_ptr(), self.start, to.len()) }
    }

    /// Appends a copy of the span to `to`, or nothing.
    ///
    /// # Safety
    /// The caller holds a grant to read this span, and `to` does not lie in it.
    pub(crate) unsafe fn append_to(&self, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        to.reserve(self.len);
        // SAFETY: the grant keeps the bytes registered; the vector has room for as many bytes behind its end, and they
        // are written before its length says so.
        unsafe {
            let end = to.as_mut_ptr().add(to.len());
            guarded::copy(end, self.start, self.len)?;
            to.set_len(to.len() + self.len);
        }
        Ok(())
    }
}

/// Writes up to eight bytes of one aligned word, each once: as one word if they are one, or as halves of it.
///
/// # Safety
/// There is room for them, and nobody has a reference to it.
unsafe fn write_word(to: *mut u8, bytes: &[u8]) -> Result<(), Unmapped> {
    let is_aligned = |len: usize| to.addr().is_multiple_of(len);
    // SAFETY: the caller's word, and the alignment was looked at.
    unsafe {
        if let Ok(word) = bytes.try_into()
            && is_aligned(8)
        {
            guarded::store_64(to.cast(), u64::from_ne_bytes(word))
        } else if let Ok(word) = bytes.try_into()
            && is_aligned(4)
        {
            guarded::store_32(to.cast(), u32::from_ne_bytes(word))
        } else {
            let mut each = bytes.iter().enumerate();
            each.try_for_each(|(at, byte)| guarded::store_8(to.add(at), *byte))
        }
    }
}

/// Most spans that one system call is given.
pub const MAX_SPANS: usize = 64;

/// A bounded list of spans, in order.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    spans: ArrayVec<Span, MAX_SPANS>,
    bytes: usize,
    /// Nothing may be joined with the last span.
    apart: bool,
}

impl Spans {
    /// No spans. Inlined, so that it is made where it stays: it is a kilobyte, of which nothing but a count is written.
    #[inline(always)]
    pub const fn new() -> Spans {
        Spans {
            spans: ArrayVec::new_const(),
            bytes: 0,
            apart: false,
        }
    }

    /// Adds a span of registered memory, joined with the one before if they touch; false if the list is full.
    pub fn push(&mut self, span: Span) -> bool {
        let apart = self.apart;
        let touches = |last: &&mut Span| !apart && last.start.wrapping_add(last.len) == span.start;
        if let Some(last) = self.spans.last_mut().filter(touches) {
            last.len += span.len;
            self.bytes += span.len;
            return true;
        }
        self.add(span, false)
    }

    /// Adds a span of borrowed bytes; false if the list is full. It is joined with nothing, even if it touches: a borrow
    /// gives no right to what lies beside it.
    pub(crate) fn push_apart(&mut self, span: Span) -> bool {
        self.add(span, true)
    }

    fn add(&mut self, span: Span, apart: bool) -> bool {
        if span.is_empty() {
            return true;
        }
        if self.spans.try_push(span).is_err() {
            return false;
        }
        self.apart = apart;
        self.bytes += span.len;
        true
    }

    /// No further span fits unless it touches the last one.
    pub fn is_full(&self) -> bool {
        self.spans.is_full()
    }

    /// The spans.
    pub fn as_slice(&self) -> &[Span] {
        &self.spans
    }

    /// Bytes in all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.apart = false;
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests;
