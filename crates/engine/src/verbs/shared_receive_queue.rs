//! A shared receive queue: posting to it resumes a connection that waits for a receive, on the posting thread.
//! It cannot be destroyed while a queue pair uses it. One of an XRC domain can: a target that is receiving into it fails.

use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::qp::{PostError, PostRecvError};
use verbena_nic::{Outbox, QpState, ReceiveWr, Srq, SrqInfo};
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_wire::Srqn;

use crate::core::Core;
use crate::error::Error;
use crate::poll::queue::CompletionQueue;
use crate::sys;
use crate::verbs::queue_pair::XrcDomain;

/// What a shared receive queue of an XRC domain needs as long as it lives.
#[derive(Debug)]
pub(crate) struct XrcParts {
    pub(crate) domain: XrcDomain,
    pub(crate) cq: CompletionQueue,
}

/// A shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    core: Arc<Core>,
    srq: Arc<Srq>,
    /// Its number may have been reused by now.
    destroyed: AtomicBool,
    xrc: Option<XrcParts>,
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
            xrc: None,
        })
    }

    /// One of an XRC domain, which completes in a queue of its own.
    pub(crate) fn in_domain(
        core: &Arc<Core>,
        parts: XrcParts,
        pd: Pd,
        receives: usize,
        pieces: usize,
    ) -> Result<SharedReceiveQueue, Error> {
        core.check_own(parts.domain.core())?;
        core.check_own(parts.cq.0.core())?;
        let (domain, cq) = (parts.domain.domain(), parts.cq.number());
        let function = &core.function;
        let srq = function.create_xrc_srq(domain, (pd, cq), receives, pieces)?;
        // Threads that poll the queue serve the targets.
        parts.cq.0.add_send_group(&parts.domain.queue().0.group);
        Ok(SharedReceiveQueue {
            core: core.clone(),
            srq,
            destroyed: AtomicBool::new(false),
            xrc: Some(parts),
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.srq.number()
    }

    /// The number by which requests name it, if it is one of an XRC domain.
    pub fn xrc_number(&self) -> Option<Srqn> {
        let domain = self.xrc.as_ref()?.domain.domain();
        Some(domain.number_of(self.number()))
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
        let refused = wrs.iter().enumerate().find_map(|(posted, wr)| {
            if let Some(errno) = self.refusal_by_fault() {
                let source = PostError::Injected(errno);
                return Some(PostRecvError { posted, source });
            }
            match self.srq.post(wr) {
                Ok(woken) => {
                    woken.into_iter().for_each(|qp| out.wake(qp));
                    None
                }
                Err(error) => Some(PostRecvError {
                    posted,
                    source: error.into(),
                }),
            }
        });
        self.core.deliver(&mut out);
        refused.map_or(Ok(()), Err)
    }

    /// The error number with which a fault refuses a receive; no other fault happens to one of a shared queue.
    fn refusal_by_fault(&self) -> Option<i32> {
        if !self.core.lifecycle.has_faults() {
            return None;
        }
        self.core.faults.on_receive(None, sys::now()).refuse
    }

    /// Raises an event once when fewer receives than this remain; 0 disarms it.
    pub fn set_limit(&self, limit: usize) -> Result<(), Error> {
        self.check()?;
        Ok(self.core.function.modify_srq(self.number(), limit)?)
    }

    /// Destroys it now, if no queue pair uses it. Posted receives are discarded.
    pub fn destroy(&self) -> Result<(), Error> {
        self.check()?;
        self.end()?;
        self.destroyed.store(true, Ordering::Release);
        Ok(())
    }

    fn end(&self) -> Result<(), Error> {
        let mut out = Outbox::new();
        let destroyed = self.core.function.destroy_srq(self.number(), &mut out);
        self.core.deliver(&mut out);
        Ok(destroyed?)
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        if self.core.is_alive() && !self.destroyed.load(Ordering::Acquire) {
            // Holders of queue pairs on it keep it as long as those exist.
            let destroyed = self.end();
            debug_assert!(destroyed.is_ok(), "a queue in use is held");
        }
    }
}
