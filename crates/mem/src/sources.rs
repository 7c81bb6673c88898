//! The bytes of one write to a stream: headers and trailers that are borrowed, and payload in granted memory between them.
//! Every span may be read as long as the `Sources` live, since they hold the grants and the borrows; so copying from them needs no
//! `unsafe` of the caller.

use core::marker::PhantomData;

use arrayvec::ArrayVec;

use crate::grant::Gather;
use crate::guarded::Unmapped;
use crate::span::{Span, Spans};

/// Most grants in one write.
pub const MAX_GATHERS: usize = 32;

/// Sources for one write.
#[derive(Debug, Default)]
pub struct Sources<'a> {
    spans: Spans,
    gathers: ArrayVec<Gather<'a>, MAX_GATHERS>,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> Sources<'a> {
    /// No source yet. Inlined to be built in place.
    #[inline(always)]
    pub const fn new() -> Sources<'a> {
        Sources {
            spans: Spans::new(),
            gathers: ArrayVec::new_const(),
            borrowed: PhantomData,
        }
    }

    /// Adds granted memory; returns how much of it fits. After a part nothing may be added.
    pub fn gather(&mut self, gather: Gather<'a>) -> usize {
        if self.gathers.is_full() {
            return 0;
        }
        let added = gather.spans(&mut self.spans);
        self.gathers.push(gather);
        added as usize
    }

    /// Adds borrowed bytes; false if there are too many sources already.
    pub fn borrow_bytes(&mut self, bytes: &'a [u8]) -> bool {
        self.spans
            .push_apart(Span::new(bytes.as_ptr().cast_mut(), bytes.len()))
    }

    /// Bytes of all sources.
    pub fn bytes(&self) -> usize {
        self.spans.bytes()
    }

    /// The sources, for a system call that reads them before this is dropped. They must not be written.
    pub fn spans(&self) -> &[Span] {
        self.spans.as_slice()
    }

    /// Appends the first `most` bytes to `to`; returns how many. If it fails, a part may have been appended.
    pub fn copy_to(&self, to: &mut Vec<u8>, most: usize) -> Result<usize, Unmapped> {
        let before = to.len();
        for span in self.spans.as_slice() {
            let left = most - (to.len() - before);
            let part = Span::new(span.as_ptr(), span.len().min(left));
            // SAFETY: `part` lies in a span of a grant that `self` holds or of a slice that it borrows for 'a; `to` is a vector of the
            // caller, mutably borrowed, and therefore neither.
            unsafe { part.append_to(to)? };
        }
        Ok(to.len() - before)
    }

    /// Appends `len` bytes behind the first `skip` to `to`, or as many as there are. If it fails, a part may have been appended.
    pub fn append_at(&self, skip: usize, len: usize, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        for part in self.spans.range(skip, len) {
            // SAFETY: `part` lies in a span of a grant that `self` holds or of a slice that it borrows for 'a; `to` is a vector of the
            // caller, mutably borrowed, and therefore neither.
            unsafe { part.append_to(to)? };
        }
        Ok(())
    }

    /// Copies `len` bytes behind the first `skip` to `to`, or as many as there are; returns how many. If it fails, a part may have been copied.
    ///
    /// # Safety
    /// `to` is valid for writes of `len` bytes until this returns, no reference to them exists, and they do not lie in the sources. Another
    /// process may access them meanwhile.
    #[inline]
    pub unsafe fn copy_at(&self, skip: usize, to: *mut u8, len: usize) -> Result<usize, Unmapped> {
        let (mut skip, mut done) = (skip, 0);
        for span in self.spans.as_slice() {
            if done == len {
                break;
            }
            let before = skip.min(span.len());
            skip -= before;
            let now = (span.len() - before).min(len - done);
            let from = span.as_ptr().wrapping_add(before);
            // SAFETY: the `now` bytes at `from` lie in a span of a grant that `self` holds or of a slice that it borrows for 'a; the
            // caller guarantees that `len` bytes at `to` may be written and are not part of them.
            unsafe { Span::new(from, now).copy_to(to.add(done))? };
            done += now;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests;
