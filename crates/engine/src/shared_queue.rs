//! A shared receive queue with hands: what is posted reaches the connection it was promised to, on the thread that posted it.
//! It promises that a connection that waits for a receive goes on at once, and that a queue in use stays.
//! It refuses to know the queue pairs that take from it; they name it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbena_mem::Pd;
use verbena_nic::qp::PostError;
use verbena_nic::{Outbox, QpState, ReceiveWr, Srq, SrqInfo};

use crate::core::Core;
use crate::error::Error;

/// A shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    core: Arc<Core>,
    srq: Arc<Srq>,
    /// Its number may be another's by now.
    destroyed: AtomicBool,
}

impl SharedReceiveQueue {
    pub(crate) fn new(
        core: &Arc<Core>,
        pd: Pd,
        receives: usize,
        pieces: usize,
    ) -> Result<SharedReceiveQueue, Error> {
        Ok(SharedReceiveQueue {
            core: core.clone(),
            srq: core.function.create_srq(pd, receives, pieces)?,
            destroyed: AtomicBool::new(false),
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.srq.number()
    }

    /// What was destroyed has no name any more: its number may be another's.
    fn check(&self) -> Result<(), Error> {
        self.core.check()?;
        let destroyed = self.destroyed.load(Ordering::Acquire);
        (!destroyed).then_some(()).ok_or(Error::Closed)
    }

    /// What it is and holds.
    pub fn query(&self) -> Result<SrqInfo, Error> {
        self.check()?;
        Ok(self.core.function.query_srq(self.number())?)
    }

    /// Posts receives; the number of those that were posted before one was refused, and why.
    pub fn post(&self, wrs: &[ReceiveWr<'_>]) -> Result<(), (usize, PostError)> {
        if !self.core.lives() {
            return Err((0, PostError::State(QpState::Reset)));
        }
        let mut out = Outbox::new();
        let refused = wrs
            .iter()
            .enumerate()
            .find_map(|(at, wr)| match self.srq.post(wr) {
                Ok(woken) => {
                    woken.into_iter().for_each(|qp| out.wake(qp));
                    None
                }
                Err(error) => Some((at, error.into())),
            });
        self.core.deliver(&mut out);
        refused.map_or(Ok(()), Err)
    }

    /// Raises an event, once, when fewer receives than this wait; 0 takes that back.
    pub fn set_limit(&self, limit: usize) -> Result<(), Error> {
        self.check()?;
        Ok(self.core.function.modify_srq(self.number(), limit)?)
    }

    /// Destroys it now, if no queue pair takes from it. Receives that wait are gone.
    pub fn destroy(&self) -> Result<(), Error> {
        self.check()?;
        self.core.function.destroy_srq(self.number())?;
        self.destroyed.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        if self.core.lives() && !self.destroyed.load(Ordering::Acquire) {
            // Whoever makes queue pairs on it keeps it as long as they live.
            let destroyed = self.core.function.destroy_srq(self.number());
            debug_assert!(destroyed.is_ok(), "a queue in use is held");
        }
    }
}
