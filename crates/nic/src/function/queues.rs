//! Completion queues and shared receive queues of a function: create, query, change, destroy.
//! A queue that a queue pair uses cannot be destroyed, and a posted receive wakes the queue pair that it is reserved for.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_mem::Pd;

use super::Function;
use super::attributes::check_limit;
use super::users::{Use, Users};
use crate::cq::{Cq, CqOptions};
use crate::error::Error;
use crate::srq::Srq;
use crate::xrc::{XrcDomain, XrcSrq};

/// A completion queue and the number of its users.
#[derive(Debug)]
pub(super) struct CqRow {
    pub(super) cq: Arc<Cq>,
    pub(super) users: Arc<Users>,
}

/// A shared receive queue, the number of its users, and its use of its domain.
#[derive(Debug)]
pub(super) struct SrqRow {
    pub(super) srq: Arc<Srq>,
    pub(super) users: Arc<Users>,
    /// For a queue that requests to XRC targets name.
    pub(super) xrc: Option<XrcUses>,
    _pd: Use,
}

/// The domain of an XRC shared receive queue, and its use of its completion queue.
#[derive(Debug)]
pub(super) struct XrcUses {
    domain: Arc<XrcDomain>,
    _cq: Use,
}

/// Result of a query of a completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqInfo {
    /// Entries that fit.
    pub entries: usize,
    /// Entries that wait.
    pub waiting: usize,
    /// Entries were lost.
    pub overflowed: bool,
    /// Queue pairs that complete here, control queue pairs among them.
    pub users: u32,
}

/// Result of a query of a shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SrqInfo {
    /// Its domain.
    pub pd: Pd,
    /// Most receives that may wait.
    pub receives: usize,
    /// Most scatter elements of one receive.
    pub max_sge: usize,
    /// Receives that wait.
    pub waiting: usize,
    /// The limit event is raised below this many receives; 0 if it is not armed.
    pub limit: usize,
    /// Queue pairs that take from it.
    pub users: u32,
}

impl Function {
    /// A completion queue for `entries` entries.
    pub fn create_cq(&self, entries: usize) -> Result<Arc<Cq>, Error> {
        self.make_cq(entries, None, CqOptions::default())
    }

    /// The same with options.
    pub fn create_cq_with(&self, entries: usize, options: CqOptions) -> Result<Arc<Cq>, Error> {
        self.make_cq(entries, None, options)
    }

    /// A completion queue, with the reserved number if one is given.
    pub(super) fn make_cq(
        &self,
        entries: usize,
        promised: Option<u32>,
        options: CqOptions,
    ) -> Result<Arc<Cq>, Error> {
        let make = |number| {
            Ok(CqRow {
                cq: Arc::new(Cq::with_observer(number, entries, options, &self.observer)?),
                users: Arc::default(),
            })
        };
        match promised {
            None => self.cqs.add(make, |row| row.cq.clone()),
            Some(number) => self.cqs.fill(number, make, |row| row.cq.clone()),
        }
    }

    /// The completion queue with this number.
    pub fn cq(&self, number: u32) -> Result<Arc<Cq>, Error> {
        self.cqs.with(number, |row| row.cq.clone())
    }

    /// Attributes of a completion queue.
    pub fn query_cq(&self, number: u32) -> Result<CqInfo, Error> {
        self.cqs.with(number, |row| CqInfo {
            entries: row.cq.capacity(),
            waiting: row.cq.len(),
            overflowed: row.cq.has_overflowed(),
            users: row.users.count(),
        })
    }

    /// The numbers of all completion queues.
    pub fn cq_numbers(&self) -> Vec<u32> {
        self.cqs.collect(|row| Some(row.cq.number()))
    }

    /// The numbers of all shared receive queues.
    pub fn srq_numbers(&self) -> Vec<u32> {
        self.srqs.collect(|row| Some(row.srq.number()))
    }

    /// Changes the size of a completion queue; entries that wait stay.
    pub fn resize_cq(&self, number: u32, entries: usize) -> Result<(), Error> {
        Ok(self.cq(number)?.resize(entries)?)
    }

    /// Destroys a completion queue that no queue pair completes in.
    pub fn destroy_cq(&self, number: u32) -> Result<(), Error> {
        self.cqs.remove(number, |row| row.users.count()).map(drop)
    }

    /// A shared receive queue for `receives` receives of at most `pieces` scatter elements.
    pub fn create_srq(&self, pd: Pd, receives: usize, pieces: usize) -> Result<Arc<Srq>, Error> {
        self.attributes.check_srq(receives, pieces)?;
        let used = self.use_pd(pd)?;
        let make = |number| {
            Ok(SrqRow {
                srq: Arc::new(Srq::new(number, pd, receives, pieces).with_observer(&self.observer)),
                users: Arc::default(),
                xrc: None,
                _pd: used,
            })
        };
        self.srqs.add(make, |row| row.srq.clone())
    }

    /// The same for requests that name it by number at a target of this XRC domain; its receives complete in `cq`.
    pub fn create_xrc_srq(
        &self,
        domain: &Arc<XrcDomain>,
        (pd, cq): (Pd, u32),
        receives: usize,
        pieces: usize,
    ) -> Result<Arc<Srq>, Error> {
        self.attributes.check_srq(receives, pieces)?;
        let used = self.use_pd(pd)?;
        let (cq, cq_use) = self.use_cq(cq)?;
        let make = |number| {
            Ok(SrqRow {
                srq: Arc::new(Srq::new(number, pd, receives, pieces).with_observer(&self.observer)),
                users: Arc::default(),
                xrc: Some(XrcUses {
                    domain: domain.clone(),
                    _cq: cq_use,
                }),
                _pd: used,
            })
        };
        let srq = self.srqs.add(make, |row| row.srq.clone())?;
        if !domain.add(XrcSrq::new(srq.clone(), cq, self.memory_scope(pd))) {
            let _ = self.srqs.remove(srq.number(), |row| row.users.count());
            return Err(Error::Xrc(
                "the XRC domain has no free number for a shared receive queue",
            ));
        }
        Ok(srq)
    }

    /// The shared receive queue with this number.
    pub fn srq(&self, number: u32) -> Result<Arc<Srq>, Error> {
        self.srqs.with(number, |row| row.srq.clone())
    }

    /// Arms the limit event of a shared receive queue, or disarms it with 0.
    pub fn modify_srq(&self, number: u32, limit: usize) -> Result<(), Error> {
        let srq = self.srq(number)?;
        if srq.set_limit(limit) {
            return Ok(());
        }
        check_limit("limit of shared receives", limit, srq.depth())
    }

    /// Attributes of a shared receive queue.
    pub fn query_srq(&self, number: u32) -> Result<SrqInfo, Error> {
        self.srqs.with(number, |row| SrqInfo {
            pd: row.srq.pd(),
            receives: row.srq.depth(),
            max_sge: row.srq.max_sge(),
            waiting: row.srq.len(),
            limit: row.srq.limit(),
            users: row.users.count(),
        })
    }

    /// Posts a receive; a queue pair that waits for one is woken.
    ///
    /// The queue pair is called after the shared queue's lock is released: the lock order is connection, then queue.
    #[cfg(test)]
    pub(crate) fn post_srq_receive(
        &self,
        number: u32,
        wr: &crate::wr::ReceiveWr<'_>,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        if let Some(qp) = self.srq(number)?.post(wr)? {
            out.wake(qp);
        }
        self.settle(out);
        Ok(())
    }

    /// Destroys a shared receive queue that no queue pair uses; waiting receives are removed.
    ///
    /// One of an XRC domain is destroyed in any case, and nothing completes in its completion queue after that: a target that is receiving a message
    /// into it fails, which the outbox tells its connection.
    pub fn destroy_srq(&self, number: u32, out: &mut Outbox) -> Result<(), Error> {
        let xrc = |row: &SrqRow| row.xrc.as_ref().map(|uses| uses.domain.clone());
        if let Some(domain) = self.srqs.with(number, xrc)? {
            let named = domain.number_of(number);
            domain.remove(named, out);
            for target in self.targets_of(&domain) {
                target.forget_srq(named, out);
            }
        }
        self.srqs.remove(number, |row| row.users.count()).map(drop)
    }
}
