//! An address and a length in registered memory, and a bounded list of such spans.
//! Other threads and peers may change the bytes at any time, so they are copied from and to by address: no slice or reference is made of them.

use core::sync::atomic::{Ordering, fence};

use arrayvec::ArrayVec;

use crate::guarded::{self, Unmapped};

/// A run of bytes that other threads may read and write concurrently; laid out like `struct iovec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Span {
    start: *mut u8,
    len: usize,
}

// SAFETY: a span is an address and a length and gives no access by itself. The copying functions are `unsafe`: their
// callers hold a grant, which is valid on any thread.
unsafe impl Send for Span {}
// SAFETY: threads that share a span can only copy its address and length; both are never changed through a shared reference.
unsafe impl Sync for Span {}

impl Span {
    /// `len` bytes at `start`, unchecked; only copying needs a grant.
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

    /// Copies `from` to the front of the span. The bytes in the aligned eight-byte word of the last byte are written once and
    /// after all others: a program that polls the last byte may use the memory as soon as it has changed. The copy of the other
    /// bytes may write some of them twice.
    ///
    /// # Safety
    /// The caller holds a grant to write this span, `from` is valid for reads of `len` bytes and does not lie in the span, and `len` is at
    /// most its length. Other threads and processes may write the bytes at `from` meanwhile; then it is unspecified which values are copied.
    #[inline]
    pub(crate) unsafe fn copy_in(&self, from: *const u8, len: usize) -> Result<(), Unmapped> {
        debug_assert!(len <= self.len);
        let Some(most) = len.checked_sub(1) else {
            return Ok(());
        };
        let in_word = (self.start.addr() + most) % size_of::<u64>();
        let body = most.saturating_sub(in_word);
        // SAFETY: the caller's grant keeps the bytes registered during the call; no reference to them exists, since none is ever
        // made to registered memory. The program may access them concurrently, which affects only the values that it reads. The last
        // `len - body` bytes lie in one aligned word.
        unsafe {
            guarded::copy(self.start, from, body)?;
            fence(Ordering::Release);
            guarded::copy_word(self.start.add(body), from.add(body), len - body)
        }
    }

    /// Copies the front of the span to `to`.
    ///
    /// # Safety
    /// The caller holds a grant to read this span, and `to` does not lie in it.
    pub(crate) unsafe fn copy_out(&self, to: &mut [u8]) -> Result<(), Unmapped> {
        debug_assert!(to.len() <= self.len);
        // SAFETY: the caller's grant keeps the bytes registered during the call, and `to` is a separate slice of at most their length.
        unsafe { guarded::copy(to.as_mut_ptr(), self.start, to.len()) }
    }

    /// Copies all of the span to `to`.
    ///
    /// # Safety
    /// The caller holds a grant to read this span, and `to` is valid for writes of its length and does not lie in it.
    #[inline]
    pub(crate) unsafe fn copy_to(&self, to: *mut u8) -> Result<(), Unmapped> {
        // SAFETY: the caller's grant keeps the bytes registered during the call, and `to` has room for `self.len` bytes elsewhere.
        unsafe { guarded::copy(to, self.start, self.len) }
    }

    /// Appends a copy of the span to `to`, or nothing.
    ///
    /// # Safety
    /// The caller holds a grant to read this span, and `to` does not lie in it.
    pub(crate) unsafe fn append_to(&self, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        to.reserve(self.len);
        // SAFETY: the caller's grant keeps the bytes registered during the call; `reserve` made room for `self.len` bytes behind
        // the vector's end, and its length is set after they are written.
        unsafe {
            let end = to.as_mut_ptr().add(to.len());
            guarded::copy(end, self.start, self.len)?;
            to.set_len(to.len() + self.len);
        }
        Ok(())
    }
}

/// Most spans in one system call.
pub const MAX_SPANS: usize = 64;

/// A bounded list of spans, in order.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    spans: ArrayVec<Span, MAX_SPANS>,
    bytes: usize,
    /// The next span must not be joined with the last one.
    apart: bool,
}

impl Spans {
    /// No spans. Inlined to be built in place: it is a kilobyte, of which only the length is written.
    #[inline(always)]
    pub const fn new() -> Spans {
        Spans {
            spans: ArrayVec::new_const(),
            bytes: 0,
            apart: false,
        }
    }

    /// Adds a span of registered memory, joined with the one before if they are adjacent; false if the list is full.
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

    /// Adds a span of borrowed bytes; false if the list is full. It is joined with no other span, even an adjacent one: the
    /// borrow covers no other bytes.
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

    /// No further span fits unless it is adjacent to the last one.
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

    /// The parts of the spans that have the `len` bytes behind the first `skip`, or as many as there are.
    pub(crate) fn range(&self, skip: usize, len: usize) -> impl Iterator<Item = Span> {
        let (mut skip, mut left) = (skip, len);
        self.spans.iter().map(move |span| {
            let before = skip.min(span.len);
            skip -= before;
            let now = (span.len - before).min(left);
            left -= now;
            Span::new(span.start.wrapping_add(before), now)
        })
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.apart = false;
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests;
