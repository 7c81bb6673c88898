//! The memory for one read from a stream: granted memory, and stages that are borrowed.
//! Every span may be written as long as the `Targets` live, since they hold the grants and the borrows; so filling them needs no
//! `unsafe` of the caller.

use core::marker::PhantomData;

use arrayvec::ArrayVec;

use crate::grant::Placement;
use crate::guarded::Unmapped;
use crate::span::{Span, Spans};

/// Most grants in one read.
pub const MAX_PLACES: usize = 32;

/// Targets of one read.
#[derive(Debug, Default)]
pub struct Targets<'a> {
    spans: Spans,
    places: ArrayVec<Placement<'a>, MAX_PLACES>,
    stages: PhantomData<&'a mut [u8]>,
}

impl<'a> Targets<'a> {
    /// No target yet. Inlined to be built in place.
    #[inline(always)]
    pub const fn new() -> Targets<'a> {
        Targets {
            spans: Spans::new(),
            places: ArrayVec::new_const(),
            stages: PhantomData,
        }
    }

    /// Adds granted memory; returns how much of it fits. After a part nothing may be added.
    pub fn place(&mut self, place: Placement<'a>) -> usize {
        if self.places.is_full() {
            return 0;
        }
        let added = place.spans(&mut self.spans);
        self.places.push(place);
        added as usize
    }

    /// Adds a stage; false if there are too many targets already.
    pub fn stage(&mut self, stage: &'a mut [u8]) -> bool {
        self.spans
            .push_apart(Span::new(stage.as_mut_ptr(), stage.len()))
    }

    /// Bytes of all targets.
    pub fn bytes(&self) -> usize {
        self.spans.bytes()
    }

    /// The targets, for a system call that writes them before this is dropped.
    pub fn spans(&self) -> &[Span] {
        self.spans.as_slice()
    }

    /// Appends `len` bytes of the targets behind the first `skip` to `to`, or as many as there are. If it fails, a part may have been appended.
    pub fn append_at(&self, skip: usize, len: usize, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        for part in self.spans.range(skip, len) {
            // SAFETY: `part` lies in a span of a grant that `self` holds or of a stage that it borrows mutably for 'a; `to` is a vector
            // of the caller, mutably borrowed, and therefore neither.
            unsafe { part.append_to(to)? };
        }
        Ok(())
    }

    /// Copies `bytes` to the targets, in order, as far as they fit; returns how many.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<usize, Unmapped> {
        self.fill_at(0, bytes)
    }

    /// The same behind the first `skip` bytes of the targets.
    #[inline]
    pub fn fill_at(&mut self, skip: usize, bytes: &[u8]) -> Result<usize, Unmapped> {
        // SAFETY: `bytes` is borrowed until this returns. It does not overlap the targets: a stage is borrowed mutably, and no reference
        // is made to registered memory.
        unsafe { self.fill_from(skip, bytes.as_ptr(), bytes.len()) }
    }

    /// The same with `len` bytes at `from`, which another process may be writing.
    ///
    /// # Safety
    /// `from` is valid for reads of `len` bytes until this returns, and does not lie in the targets.
    #[inline]
    pub unsafe fn fill_from(
        &mut self,
        skip: usize,
        from: *const u8,
        len: usize,
    ) -> Result<usize, Unmapped> {
        let (mut skip, mut done) = (skip, 0);
        for span in self.spans.as_slice() {
            if done == len {
                break;
            }
            let before = skip.min(span.len());
            skip -= before;
            let part = Span::new(span.as_ptr().wrapping_add(before), span.len() - before);
            let now = part.len().min(len - done);
            // SAFETY: `part` is the end of a span of a grant that `self` holds or of a stage that it borrows mutably for 'a. No other
            // reference to either exists: none is made to registered memory, and the borrow of a stage is exclusive. The caller
            // guarantees that `len` bytes at `from` may be read.
            unsafe { part.copy_in(from.add(done), now)? };
            done += now;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests;
