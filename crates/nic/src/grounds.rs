//! The memory that a queue pair may access: the table of its function, and those of the functions that it was moved from (V1).
//! A connection that was moved reaches what it reached before, by the same STags and with the same checks, and nothing else of those
//! functions. Entries that are pending in a former function count as invalid: the code that completes them would not wake this queue pair.

use std::sync::{Arc, Weak};

use verbena_mem::{Arrival, Bind, Misuse, Pd, Policy, Refusal, Ticket, Tpt, Verdict};
use verbena_mem::{Gather, Placement, Reach, Spend};
use verbena_wire::Stag;

use crate::function::Use;

/// Functions that a queue pair was moved from and still reaches. If it is moved more often, it forgets a stay in whose domain
/// it was again later; windows that were bound to it in that stay cannot be reached then.
pub(crate) const MAX_STAYS: usize = 8;

/// A former function of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Stay {
    tpt: Arc<Tpt>,
    /// Its domain there, and the use of it: the holder of the queue pair's table row also holds this use, and drops both together.
    pd: Pd,
    domain: Weak<Use>,
    /// Its queue pair number there: windows may be bound to it.
    qp: u32,
}

impl Stay {
    pub(crate) fn new(tpt: &Arc<Tpt>, pd: Pd, domain: &Arc<Use>, qp: u32) -> Stay {
        Stay {
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

    fn is_where(&self, other: &Stay) -> bool {
        Arc::ptr_eq(&self.tpt, &other.tpt) && self.pd == other.pd
    }

    fn may_know(&self, stag: Stag) -> bool {
        self.tpt.range().contains(&stag.index())
    }
}

/// The tables that a queue pair may access.
#[derive(Debug, Clone)]
pub struct Grounds {
    here: Arc<Tpt>,
    /// Former functions, the latest last; usually none.
    past: Arc<[Stay]>,
}

impl From<Arc<Tpt>> for Grounds {
    fn from(here: Arc<Tpt>) -> Grounds {
        let past = Arc::new([]);
        Grounds { here, past }
    }
}

impl Grounds {
    /// For a queue pair that was moved from `past`.
    pub(crate) fn after(here: &Arc<Tpt>, past: Vec<Stay>) -> Grounds {
        Grounds {
            here: here.clone(),
            past: past.into(),
        }
    }

    /// The former functions including this one, for the next move; `None` if there are too many.
    pub(crate) fn leaving(&self, stay: Stay) -> Option<Vec<Stay>> {
        let mut past = self.past.to_vec();
        past.push(stay);
        if past.len() > MAX_STAYS {
            let again = |at: &usize| {
                past[at + 1..]
                    .iter()
                    .any(|later| later.is_where(&past[*at]))
            };
            let forgotten = (0..past.len()).find(again)?;
            past.remove(forgotten);
        }
        Some(past)
    }

    /// Asks the present table and, if that fails, the former ones.
    #[inline(always)]
    fn seek<'a, R, E>(
        &'a self,
        stag: Stag,
        ask: impl Fn(&'a Arc<Tpt>, Option<&Stay>) -> Result<R, E>,
        hide: impl Fn(E) -> E,
    ) -> Result<R, E> {
        if self.past.is_empty() {
            // The usual case, with a single lookup.
            return ask(&self.here, None);
        }
        let mut refusal = match ask(&self.here, None) {
            Err(refusal) => refusal,
            granted => return granted,
        };
        for stay in self.past.iter().rev().filter(|stay| stay.may_know(stag)) {
            match ask(&stay.tpt, Some(stay)) {
                Err(there) => refusal = hide(there),
                granted => return granted,
            }
        }
        Err(refusal)
    }

    #[inline(always)]
    fn reach<'a, R>(
        &'a self,
        reach: &Reach,
        ask: impl Fn(&'a Arc<Tpt>, &Reach) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        self.seek(
            reach.stag,
            |tpt, stay| match stay {
                None => ask(tpt, reach),
                Some(&Stay { pd, qp, .. }) => ask(tpt, &Reach { pd, qp, ..*reach }),
            },
            hide_pending,
        )
    }

    /// As [`Tpt::place_local`].
    #[inline(always)]
    pub fn place_local(&self, reach: &Reach) -> Result<Placement<'_>, Refusal> {
        self.reach(reach, |tpt, reach| tpt.place_local(reach))
    }

    /// As [`Tpt::gather_local`].
    #[inline(always)]
    pub fn gather_local(&self, reach: &Reach) -> Result<Gather<'_>, Refusal> {
        self.reach(reach, |tpt, reach| tpt.gather_local(reach))
    }

    /// As [`Tpt::place_remote`].
    #[inline(always)]
    pub fn place_remote(&self, reach: &Reach) -> Result<Placement<'_>, Refusal> {
        self.reach(reach, |tpt, reach| tpt.place_remote(reach))
    }

    /// As [`Tpt::gather_remote`].
    #[inline(always)]
    pub fn gather_remote(&self, reach: &Reach) -> Result<Gather<'_>, Refusal> {
        self.reach(reach, |tpt, reach| tpt.gather_remote(reach))
    }

    /// As [`Tpt::touch`].
    pub fn touch(&self, reach: &Reach, arrival: &Arrival) -> Result<Verdict<'_>, Refusal> {
        self.reach(reach, |tpt, reach| tpt.touch(reach, arrival))
    }

    /// As [`Tpt::spend`].
    pub fn spend(&self, reach: &Reach) -> Result<Spend, Refusal> {
        self.reach(reach, Tpt::spend)
    }

    /// As [`Tpt::invalidate_local`].
    pub fn invalidate_local(&self, stag: Stag, pd: Pd) -> Result<(), Refusal> {
        let ask = |tpt: &Arc<Tpt>, stay: Option<&Stay>| {
            tpt.invalidate_local(stag, stay.map_or(pd, |stay| stay.pd))
        };
        self.seek(stag, ask, hide_pending)
    }

    /// As [`Tpt::invalidate_remote`].
    pub fn invalidate_remote(&self, stag: Stag, pd: Pd, qp: u32) -> Result<(), Refusal> {
        let ask = |tpt: &Arc<Tpt>, stay: Option<&Stay>| {
            let (pd, qp) = stay.map_or((pd, qp), |stay| (stay.pd, stay.qp));
            tpt.invalidate_remote(stag, pd, qp)
        };
        self.seek(stag, ask, hide_pending)
    }

    /// As [`Tpt::bind`].
    pub fn bind(&self, bind: &Bind) -> Result<Stag, Misuse> {
        let ask = |tpt: &Arc<Tpt>, stay: Option<&Stay>| match stay {
            None => tpt.bind(bind),
            Some(&Stay { pd, qp, .. }) => tpt.bind(&Bind { pd, qp, ..*bind }),
        };
        self.seek(bind.window, ask, |misuse| misuse)
    }

    /// As [`Tpt::execute`].
    pub fn execute(&self, ticket: Ticket, pd: Pd) -> Result<(), Misuse> {
        let ask = |tpt: &Arc<Tpt>, stay: Option<&Stay>| {
            tpt.execute(ticket, stay.map_or(pd, |stay| stay.pd))
        };
        self.seek(ticket.stag(), ask, |misuse| misuse)
    }

    /// As [`Tpt::has_pending`].
    pub fn has_pending(&self) -> bool {
        self.here.has_pending()
    }

    /// As [`Tpt::wait`].
    pub fn wait(&self, stag: Stag, qp: u32) -> bool {
        self.here.wait(stag, qp)
    }

    /// As [`Tpt::policy`].
    pub fn policy(&self) -> Policy {
        self.here.policy()
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
