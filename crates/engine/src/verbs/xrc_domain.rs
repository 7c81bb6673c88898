//! An XRC domain of the engine: its targets receive into the shared receive queues that their peers name.
//! Targets have no completion queue of their own; their connections are served with an empty one of the domain, or by threads that poll a
//! queue in which the shared receive queues complete. Targets and shared receive queues keep the domain alive.

use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::CqOptions;

use crate::core::Core;
use crate::error::Error;
use crate::poll::queue::CompletionQueue;
use crate::sys;

/// An XRC domain. Clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct XrcDomain(Arc<Domain>);

#[derive(Debug)]
struct Domain {
    core: Arc<Core>,
    domain: Arc<verbena_nic::XrcDomain>,
    pd: Pd,
    /// Nothing completes in it.
    queue: CompletionQueue,
}

impl XrcDomain {
    pub(crate) fn new(core: &Arc<Core>, pd: Pd) -> Result<XrcDomain, Error> {
        Ok(XrcDomain(Arc::new(Domain {
            core: core.clone(),
            domain: Arc::new(verbena_nic::XrcDomain::new(sys::random_u64()? as u32)),
            pd,
            queue: CompletionQueue::new(core, 1, None, CqOptions::default())?,
        })))
    }

    pub(crate) fn core(&self) -> &Core {
        &self.0.core
    }

    pub(crate) fn domain(&self) -> &Arc<verbena_nic::XrcDomain> {
        &self.0.domain
    }

    pub(crate) fn pd(&self) -> Pd {
        self.0.pd
    }

    pub(crate) fn queue(&self) -> &CompletionQueue {
        &self.0.queue
    }
}
