//! Checked access to registered memory: a [`Placement`] may write, a [`Gather`] may read.
//! Until a grant is dropped its entry stays valid, and calls that revoke the entry wait: it is held for one copy or one
//! non-blocking system call. The bytes are copied, never referenced; a copy fails with [`Unmapped`] if the program unmapped them.

use std::sync::Arc;

use crate::guarded::Unmapped;
use crate::slot;
use crate::span::{Span, Spans};

/// The bytes of one entry that a grant covers; the access has been checked.
#[derive(Debug)]
pub(crate) struct GrantedRange<'a> {
    pub(crate) grant: slot::Grant<'a>,
    /// Offset in the translation.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The entry is invalidated by the first message that ends in it (M9).
    pub(crate) one_touch: bool,
}

impl GrantedRange<'_> {
    /// The contiguous run at offset `from`, at most `len` bytes, to write if `WRITE`.
    fn run<const WRITE: bool>(&self, from: u64, len: u64) -> Span {
        let len = len.min(self.len.saturating_sub(from));
        let span = self.grant.entry(|entry| match WRITE {
            true => entry.att.run_mut(self.offset + from, len),
            false => entry.att.run(self.offset + from, len),
        });
        span.unwrap_or(Span::new(core::ptr::null_mut(), 0))
    }

    /// Adds all runs to `spans`, as many as fit; returns the bytes added.
    fn spans<const WRITE: bool>(&self, spans: &mut Spans) -> u64 {
        let before = spans.bytes();
        self.walk::<WRITE>(0, self.len, |span| spans.push(span));
        (spans.bytes() - before) as u64
    }

    /// Calls `each` with the offset and length of every part whose memory is also a part of `other`.
    ///
    /// Compared by address: memory that the program has mapped at two addresses is not recognized.
    fn for_each_overlap(&self, other: &GrantedRange<'_>, mut each: impl FnMut(u64, u64)) {
        let att = |window: &GrantedRange<'_>| window.grant.entry(|entry| entry.att.clone());
        let (Some(own), Some(theirs)) = (att(self), att(other)) else {
            return;
        };
        if Arc::ptr_eq(&own, &theirs) {
            // One region, or a window and its region: offsets in the same translation can be compared.
            let low = self.offset.max(other.offset);
            let high = (self.offset + self.len).min(other.offset + other.len);
            if low < high {
                each(low - self.offset, high - low);
            }
            return;
        }
        if !own.may_overlap(&theirs) {
            return;
        }
        let mut at = 0;
        self.walk::<false>(0, self.len, |run| {
            let (from, to) = (run.as_ptr().addr(), run.as_ptr().addr() + run.len());
            other.walk::<true>(0, other.len, |there| {
                let low = from.max(there.as_ptr().addr());
                let high = to.min(there.as_ptr().addr() + there.len());
                if low < high {
                    each(at + (low - from) as u64, (high - low) as u64);
                }
                true
            });
            at += run.len() as u64;
            true
        });
    }

    /// Calls `f` with each run of `len` bytes from `from` on, until it returns false.
    fn walk<const WRITE: bool>(&self, from: u64, len: u64, mut f: impl FnMut(Span) -> bool) {
        let (mut at, end) = (from, from.saturating_add(len).min(self.len));
        while at < end {
            let span = self.run::<WRITE>(at, end - at);
            if span.is_empty() || !f(span) {
                return;
            }
            at += span.len() as u64;
        }
    }
}

/// A grant to write.
#[derive(Debug)]
pub struct Placement<'a>(pub(crate) GrantedRange<'a>);

/// A grant to read.
#[derive(Debug)]
pub struct Gather<'a>(pub(crate) GrantedRange<'a>);

impl Placement<'_> {
    /// Bytes granted.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The entry is invalidated by the first message that ends in it (M9): before the last segment of such a message is placed, a
    /// read served or an atomic executed, the caller calls [`touch`](crate::Tpt::touch) or [`spend`](crate::Tpt::spend).
    pub fn is_one_touch(&self) -> bool {
        self.0.one_touch
    }

    /// Adds the granted bytes to `spans`, as many runs as fit; returns the bytes added.
    pub fn spans(&self, spans: &mut Spans) -> u64 {
        self.0.spans::<true>(spans)
    }

    /// Copies `bytes` to offset `at` of the grant; what does not fit is left out. Returns bytes copied.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<usize, Unmapped> {
        let (mut rest, mut copied) = (bytes, Ok(()));
        self.0.walk::<true>(at, bytes.len() as u64, |span| {
            let (now, later) = rest.split_at(span.len().min(rest.len()));
            // SAFETY: the span lies in the bytes that this grant may write, and `self` holds the grant during the call. `now` is a
            // Rust slice and therefore not registered memory, to which no references are made.
            copied = unsafe { span.copy_in(now.as_ptr(), now.len()) };
            rest = later;
            copied.is_ok()
        });
        copied?;
        Ok(bytes.len() - rest.len())
    }

    /// The aligned word at the start of the grant, for an atomic operation.
    pub(crate) fn word(&self) -> Option<*mut u64> {
        let span = self.0.run::<true>(0, 8);
        let word = span.as_ptr().cast::<u64>();
        (span.len() == 8 && word.is_aligned()).then_some(word)
    }
}

impl Gather<'_> {
    /// Bytes granted.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The entry is invalidated by the first message that ends in it (M9): before the last segment of such a message is placed, a
    /// read served or an atomic executed, the caller calls [`touch`](crate::Tpt::touch) or [`spend`](crate::Tpt::spend).
    pub fn is_one_touch(&self) -> bool {
        self.0.one_touch
    }

    /// Adds the granted bytes to `spans`, as many runs as fit; returns the bytes added.
    pub fn spans(&self, spans: &mut Spans) -> u64 {
        self.0.spans::<false>(spans)
    }

    /// Calls `each` with the offset and length of every part of the granted bytes that a write to `placement` would overwrite.
    pub fn overlaps(&self, placement: &Placement<'_>, each: impl FnMut(u64, u64)) {
        self.0.for_each_overlap(&placement.0, each);
    }

    /// Copies from offset `at` of the grant to `to`; returns bytes copied.
    pub fn read(&self, at: u64, to: &mut [u8]) -> Result<usize, Unmapped> {
        let (mut done, len, mut copied) = (0, to.len(), Ok(()));
        self.0.walk::<false>(at, len as u64, |span| {
            let n = span.len().min(len - done);
            // SAFETY: the span lies in the bytes that this grant may read, and `self` holds the grant during the call; `to` is a
            // Rust slice and therefore not registered memory.
            copied = unsafe { span.copy_out(&mut to[done..done + n]) };
            done += n;
            copied.is_ok()
        });
        copied?;
        Ok(done)
    }

    /// Appends `len` bytes from offset `at` of the grant to `to`; returns bytes appended. If it fails, a part may have been.
    pub fn append_to(&self, at: u64, len: usize, to: &mut Vec<u8>) -> Result<usize, Unmapped> {
        let (before, mut copied) = (to.len(), Ok(()));
        self.0.walk::<false>(at, len as u64, |span| {
            // SAFETY: the span lies in the bytes that this grant may read, and `self` holds the grant during the call; `to` is a
            // vector and therefore not registered memory.
            copied = unsafe { span.append_to(to) };
            copied.is_ok()
        });
        copied?;
        Ok(to.len() - before)
    }
}
