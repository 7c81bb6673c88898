//! A raw run of bytes in registered memory, and a short list of them.
//! A span promises nothing about what the bytes are: others may change them at any time, so it is copied from and to, never borrowed.
//! It refuses to become a slice.

use arrayvec::ArrayVec;

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

    /// Copies `from` to the front of the span.
    ///
    /// # Safety
    /// The caller holds a grant to write this span, and `from` does not lie in it.
    pub(crate) unsafe fn copy_in(&self, from: &[u8]) {
        debug_assert!(from.len() <= self.len);
        // SAFETY: the grant keeps the memory mapped and writable; the program may race with us, which is its right
        // and concerns only the values of bytes, since no reference to them exists.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), self.start, from.len()) }
    }

    /// Copies the front of the span to `to`.
    ///
    /// # Safety
    /// The caller holds a grant to read this span, and `to` does not lie in it.
    pub(crate) unsafe fn copy_out(&self, to: &mut [u8]) {
        debug_assert!(to.len() <= self.len);
        // SAFETY: the grant keeps the memory mapped; see `copy_in` for races.
        unsafe { core::ptr::copy_nonoverlapping(self.start, to.as_mut_ptr(), to.len()) }
    }

    /// Appends a copy of the span to `to`.
    ///
    /// # Safety
    /// The caller holds a grant to read this span, and `to` does not lie in it.
    pub(crate) unsafe fn append_to(&self, to: &mut Vec<u8>) {
        to.reserve(self.len);
        // SAFETY: the grant keeps the memory mapped; the vector has room for as many bytes behind its end, and they
        // are written before its length says so.
        unsafe {
            let end = to.as_mut_ptr().add(to.len());
            core::ptr::copy_nonoverlapping(self.start, end, self.len);
            to.set_len(to.len() + self.len);
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
    /// No spans.
    pub fn new() -> Spans {
        Spans::default()
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
