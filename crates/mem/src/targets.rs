//! Where the next bytes of a stream go: granted memory first, then stages of the reader's own.
//! It promises that every span it names may be written for as long as it lives, since it holds the grants and borrows the stages;
//! that is why filling it needs no `unsafe`. It refuses to know what the bytes mean.

use core::marker::PhantomData;

use arrayvec::ArrayVec;

use crate::grant::Placement;
use crate::guarded::Unmapped;
use crate::span::{Span, Spans};

/// Most pieces of registered memory that one read goes to.
pub const MAX_PLACES: usize = 32;

/// Places for one read.
#[derive(Debug, Default)]
pub struct Targets<'a> {
    spans: Spans,
    places: ArrayVec<Placement<'a>, MAX_PLACES>,
    stages: PhantomData<&'a mut [u8]>,
}

impl<'a> Targets<'a> {
    /// No place yet. Inlined, so that it is made where it stays.
    #[inline(always)]
    pub const fn new() -> Targets<'a> {
        Targets {
            spans: Spans::new(),
            places: ArrayVec::new_const(),
            stages: PhantomData,
        }
    }

    /// Adds granted memory; returns how much of it fits. After a part nothing may follow.
    pub fn place(&mut self, place: Placement<'a>) -> usize {
        if self.places.is_full() {
            return 0;
        }
        let added = place.spans(&mut self.spans);
        self.places.push(place);
        added as usize
    }

    /// Adds a stage; false if there are too many places already.
    pub fn stage(&mut self, stage: &'a mut [u8]) -> bool {
        self.spans
            .push_apart(Span::new(stage.as_mut_ptr(), stage.len()))
    }

    /// Bytes that fit in all.
    pub fn bytes(&self) -> usize {
        self.spans.bytes()
    }

    /// The places, for a system call that writes them before this is dropped.
    pub fn spans(&self) -> &[Span] {
        self.spans.as_slice()
    }

    /// Copies `bytes` to the places, in order, as far as they fit; returns how many.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<usize, Unmapped> {
        self.fill_at(0, bytes)
    }

    /// The same behind the first `skip` bytes of the places.
    #[inline]
    pub fn fill_at(&mut self, skip: usize, bytes: &[u8]) -> Result<usize, Unmapped> {
        let (mut skip, mut rest) = (skip, bytes);
        for span in self.spans.as_slice() {
            let before = skip.min(span.len());
            skip -= before;
            let part = Span::new(span.as_ptr().wrapping_add(before), span.len() - before);
            let (now, later) = rest.split_at(part.len().min(rest.len()));
            // SAFETY: the span, of which this is the end, is granted to us or borrowed by us for 'a, and nobody else can
            // have a reference to either: registered memory gets none, and a borrowed stage has only ours.
            unsafe { part.copy_in(now)? };
            rest = later;
        }
        Ok(bytes.len() - rest.len())
    }
}

#[cfg(test)]
mod tests;
