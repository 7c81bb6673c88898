//! A shared receive queue: posting to it resumes a connection that waits for a receive, on the posting thread.
//! It cannot be destroyed while a queue pair uses it.

use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::qp::{PostError, PostRecvError};
use verbena_nic::{Outbox, QpState, ReceiveWr, Srq, SrqInfo};
use verbena_sync::atomic::{AtomicBool, Ordering};

use crate::core::Core;
use crate::error::Error;

/// A shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    core: Arc<Core>,
    srq: Arc<Srq>,
    /// Its number may have been reused by now.
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

    /// A destroyed queue is not looked up by number, which may have been reused.
    fn check(&self) -> Result<(), Error> {
        self.core.check()?;
        let destroyed = self.destroyed.load(Ordering::Acquire);
        (!destroyed).then_some(()).ok_or(Error::Closed)
    }

    /// Its attributes and fill level.
    pub fn query(&self) -> Result<SrqInfo, Error> {
        self.check()?;
        Ok(self.core.function.query_srq(self.number())?)
    }

    /// Posts receives. On error: how many were posted before the one that failed, and its error.
    pub fn post(&self, wrs: &[ReceiveWr<'_>]) -> Result<(), PostRecvError> {
        if !self.core.is_alive() {
            return Err(PostRecvError {
                posted: 0,
                source: PostError::State(QpState::Reset),
            });
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
                Err(error) => Some(PostRecvError {
                    posted: at,
                    source: error.into(),
                }),
            });
        self.core.deliver(&mut out);
        refused.map_or(Ok(()), Err)
    }

    /// Raises an event once when fewer receives than this remain; 0 disarms it.
    pub fn set_limit(&self, limit: usize) -> Result<(), Error> {
        self.check()?;
        Ok(self.core.function.modify_srq(self.number(), limit)?)
    }

    /// Destroys it now, if no queue pair uses it. Posted receives are discarded.
    pub fn destroy(&self) -> Result<(), Error> {
        self.check()?;
        self.core.function.destroy_srq(self.number())?;
        self.destroyed.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        if self.core.is_alive() && !self.destroyed.load(Ordering::Acquire) {
            // Holders of queue pairs on it keep it as long as those exist.
            let destroyed = self.core.function.destroy_srq(self.number());
            debug_assert!(destroyed.is_ok(), "a queue in use is held");
        }
    }
}
