//! The memory that a queue pair may access: the table of its function, and those of the functions that it was moved from (V1).
//! A connection that was moved reaches what it reached before, by the same STags and with the same checks, and nothing else of those
//! functions. Entries that are pending in a former function count as invalid: the code that completes them would not wake this queue pair.

use std::sync::{Arc, Weak};

use verbena_mem::{
    Arrival, Bind, Entry, Misuse, Pd, Policy, Refusal, Seq, Ticket, TouchAhead, Tpt, Verdict,
};
use verbena_mem::{Gather, MemAccess, Placement, Spend};
use verbena_wire::Stag;

use crate::function::users::Use;

/// Functions that a queue pair was moved from and still reaches. If it is moved more often, it forgets a stay in whose domain
/// it was again later; windows that were bound to it in that stay cannot be reached then.
pub(crate) const MAX_FORMER_FUNCTIONS: usize = 8;

/// A former function of a connection.
#[derive(Debug, Clone)]
pub(crate) struct FormerFunction {
    tpt: Arc<Tpt>,
    /// Its domain there, and the use of it: the holder of the queue pair's table row also holds this use, and drops both together.
    pd: Pd,
    domain: Weak<Use>,
    /// Its queue pair number there: windows may be bound to it.
    qp: u32,
}

impl FormerFunction {
    pub(crate) fn new(tpt: &Arc<Tpt>, pd: Pd, domain: &Arc<Use>, qp: u32) -> FormerFunction {
        FormerFunction {
            tpt: tpt.clone(),
            pd,
            domain: Arc::downgrade(domain),
            qp,
        }
    }

    /// The use of its domain, as long as the queue pair is in a table.
    pub(crate) fn domain(&self) -> Option<Arc<Use>> {
        self.domain.upgrade()
    }

    fn is_same_domain(&self, other: &FormerFunction) -> bool {
        Arc::ptr_eq(&self.tpt, &other.tpt) && self.pd == other.pd
    }

    fn may_contain(&self, stag: Stag) -> bool {
        self.tpt.range().contains(&stag.index())
    }
}

/// The tables that a queue pair may access.
#[derive(Debug, Clone)]
pub struct MemoryScope {
    current: Arc<Tpt>,
    /// What peers may name in the queue pair's domain (M7).
    policy: Policy,
    /// Former functions, the latest last; usually none.
    former: Arc<[FormerFunction]>,
}

impl From<Arc<Tpt>> for MemoryScope {
    fn from(here: Arc<Tpt>) -> MemoryScope {
        let past = Arc::new([]);
        MemoryScope {
            policy: here.policy(),
            current: here,
            former: past,
        }
    }
}

impl MemoryScope {
    /// For a queue pair of this domain that was moved from `past`.
    pub(crate) fn new(here: &Arc<Tpt>, pd: Pd, past: Vec<FormerFunction>) -> MemoryScope {
        MemoryScope {
            current: here.clone(),
            policy: here.policy_of(pd),
            former: past.into(),
        }
    }

    /// The former functions including this one, for the next move; `None` if there are too many.
    pub(crate) fn former_after_move(&self, stay: FormerFunction) -> Option<Vec<FormerFunction>> {
        let mut past = self.former.to_vec();
        past.push(stay);
        if past.len() > MAX_FORMER_FUNCTIONS {
            let again = |at: &usize| {
                past[at + 1..]
                    .iter()
                    .any(|later| later.is_same_domain(&past[*at]))
            };
            let forgotten = (0..past.len()).find(again)?;
            past.remove(forgotten);
        }
        Some(past)
    }

    /// Asks the present table and, if that fails, the former ones.
    #[inline(always)]
    fn lookup<'a, R, E>(
        &'a self,
        stag: Stag,
        ask: impl Fn(&'a Arc<Tpt>, Option<&FormerFunction>) -> Result<R, E>,
        hide: impl Fn(E) -> E,
    ) -> Result<R, E> {
        if self.former.is_empty() {
            // The usual case, with a single lookup.
            return ask(&self.current, None);
        }
        let mut refusal = match ask(&self.current, None) {
            Err(refusal) => refusal,
            granted => return granted,
        };
        for stay in self
            .former
            .iter()
            .rev()
            .filter(|stay| stay.may_contain(stag))
        {
            match ask(&stay.tpt, Some(stay)) {
                Err(there) => refusal = hide(there),
                granted => return granted,
            }
        }
        Err(refusal)
    }

    #[inline(always)]
    fn lookup_access<'a, R>(
        &'a self,
        reach: &MemAccess,
        ask: impl Fn(&'a Arc<Tpt>, &MemAccess) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        self.lookup(
            reach.stag,
            |tpt, stay| match stay {
                None => ask(tpt, reach),
                Some(&FormerFunction { pd, qp, .. }) => ask(tpt, &MemAccess { pd, qp, ..*reach }),
            },
            hide_pending,
        )
    }

    /// As [`Tpt::place_local`].
    #[inline(always)]
    pub fn place_local(&self, reach: &MemAccess) -> Result<Placement<'_>, Refusal> {
        self.lookup_access(reach, |tpt, reach| tpt.place_local(reach))
    }

    /// As [`Tpt::gather_local`].
    #[inline(always)]
    pub fn gather_local(&self, reach: &MemAccess) -> Result<Gather<'_>, Refusal> {
        self.lookup_access(reach, |tpt, reach| tpt.gather_local(reach))
    }

    /// As [`Tpt::place_remote`].
    #[inline(always)]
    pub fn place_remote(&self, reach: &MemAccess) -> Result<Placement<'_>, Refusal> {
        self.lookup_access(reach, |tpt, reach| tpt.place_remote(reach))
    }

    /// As [`Tpt::place_remote_entry`].
    pub fn place_remote_entry(&self, reach: &MemAccess) -> Result<Placement<'_>, Refusal> {
        self.lookup_access(reach, |tpt, reach| tpt.place_remote_entry(reach))
    }

    /// As [`Tpt::gather_remote`].
    #[inline(always)]
    pub fn gather_remote(&self, reach: &MemAccess) -> Result<Gather<'_>, Refusal> {
        self.lookup_access(reach, |tpt, reach| tpt.gather_remote(reach))
    }

    /// As [`Tpt::touch`].
    pub fn touch(&self, reach: &MemAccess, arrival: &Arrival) -> Result<Verdict<'_>, Refusal> {
        self.lookup_access(reach, |tpt, reach| tpt.touch(reach, arrival))
    }

    /// As [`Tpt::touched_ahead`], of the table that has the entry.
    pub fn touched_ahead(&self, stag: Stag, end: Seq) -> Option<TouchAhead> {
        let former = self.former.iter().map(|stay| &stay.tpt);
        core::iter::once(&self.current)
            .chain(former)
            .find_map(|tpt| tpt.touched_ahead(stag, end))
    }

    /// As [`Tpt::spend`].
    pub fn spend(&self, reach: &MemAccess) -> Result<Spend, Refusal> {
        self.lookup_access(reach, Tpt::spend)
    }

    /// As [`Tpt::invalidate_local`].
    pub fn invalidate_local(&self, stag: Stag, pd: Pd) -> Result<(), Refusal> {
        let ask = |tpt: &Arc<Tpt>, stay: Option<&FormerFunction>| {
            tpt.invalidate_local(stag, stay.map_or(pd, |stay| stay.pd))
        };
        self.lookup(stag, ask, hide_pending)
    }

    /// As [`Tpt::invalidate_remote`].
    pub fn invalidate_remote(&self, stag: Stag, pd: Pd, qp: u32) -> Result<(), Refusal> {
        let ask = |tpt: &Arc<Tpt>, stay: Option<&FormerFunction>| {
            let (pd, qp) = stay.map_or((pd, qp), |stay| (stay.pd, stay.qp));
            tpt.invalidate_remote(stag, pd, qp)
        };
        self.lookup(stag, ask, hide_pending)
    }

    /// As [`Tpt::bind`].
    pub fn bind(&self, bind: &Bind) -> Result<Stag, Misuse> {
        let ask = |tpt: &Arc<Tpt>, stay: Option<&FormerFunction>| match stay {
            None => tpt.bind(bind),
            Some(&FormerFunction { pd, qp, .. }) => tpt.bind(&Bind { pd, qp, ..*bind }),
        };
        self.lookup(bind.window, ask, |misuse| misuse)
    }

    /// As [`Tpt::execute`].
    pub fn execute(&self, ticket: Ticket, pd: Pd) -> Result<(), Misuse> {
        let ask = |tpt: &Arc<Tpt>, stay: Option<&FormerFunction>| {
            tpt.execute(ticket, stay.map_or(pd, |stay| stay.pd))
        };
        self.lookup(ticket.stag(), ask, |misuse| misuse)
    }

    /// As [`Tpt::has_pending`].
    pub fn has_pending(&self) -> bool {
        self.current.has_pending()
    }

    /// As [`Tpt::wait`].
    pub fn wait(&self, stag: Stag, qp: u32) -> bool {
        self.current.wait(stag, qp)
    }

    /// A copy of the entry, if it is valid in this function.
    pub fn find_entry(&self, stag: Stag) -> Option<Entry> {
        self.current.find_entry(stag)
    }

    /// What peers may name in the queue pair's domain (M7).
    pub fn policy(&self) -> Policy {
        self.policy
    }
}

/// An entry that is pending in a former function is reported as invalid.
fn hide_pending(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Pending { stag } => Refusal::Stag { stag },
        refusal => refusal,
    }
}

#[cfg(test)]
mod tests;
