//! The outstanding requests of one loop on one disk. After [`settle`](Inflight::settle) none is outstanding, so that the disk can be used
//! for something else. Ids are assigned by the loop.

use crate::blocks::{Blocks, Done, Request};
use crate::error::Error;

/// A disk and the number of requests outstanding on it.
pub(crate) struct Inflight<'b, B: Blocks> {
    pub(crate) blocks: &'b mut B,
    outstanding: usize,
    done: Vec<Done>,
}

impl<'b, B: Blocks> Inflight<'b, B> {
    pub(crate) fn new(blocks: &'b mut B) -> Inflight<'b, B> {
        Inflight {
            blocks,
            outstanding: 0,
            done: Vec::new(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    pub(crate) fn has_room(&self) -> bool {
        self.outstanding < self.blocks.depth().max(1)
    }

    /// Submits a request. `false` if the disk is full, which happens when its depth has shrunk; to be retried later.
    pub(crate) fn submit(&mut self, id: u64, request: Request) -> Result<bool, Error> {
        match self.blocks.submit(id, request) {
            Ok(()) => {
                self.outstanding += 1;
                Ok(true)
            }
            // With none outstanding, waiting would not help.
            Err(Error::Full { .. }) if self.outstanding > 0 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Requests completed since the last call. On an error nothing is outstanding any more.
    pub(crate) fn reap(&mut self) -> Result<std::vec::Drain<'_, Done>, Error> {
        let polled = self.blocks.poll(&mut self.done);
        polled.inspect_err(|_| self.outstanding = 0)?;
        self.outstanding = self.outstanding.saturating_sub(self.done.len());
        Ok(self.done.drain(..))
    }

    /// Sleeps until something may have completed.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        let waited = self.blocks.wait(&[], None);
        waited.inspect_err(|_| self.outstanding = 0)
    }

    /// Waits for all outstanding requests and ignores their results.
    pub(crate) fn settle(&mut self) {
        while !self.is_idle() {
            match self.reap().map(|done| done.len()) {
                Ok(0) if self.wait().is_ok() => {}
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Submits one request and waits for its result.
    pub(crate) fn run_one(
        &mut self,
        request: Request,
        what: &'static str,
        at: u64,
    ) -> Result<(), Error> {
        self.settle();
        self.submit(0, request)?;
        loop {
            if let Some(done) = self.reap()?.next() {
                let failed = |failure| Error::Failed { what, at, failure };
                return done.result.map_err(failed);
            }
            self.wait()?;
        }
    }
}

impl<B: Blocks> Drop for Inflight<'_, B> {
    fn drop(&mut self) {
        self.settle();
    }
}
