//! Independent checkers of a run of adapters: each checks one rule, from the [`Record`] alone.
//! An error names the request, queue pair or byte. Together they cover memory, completions, deliveries, order, atomics, receives,
//! damage, limits, closings and leaks.

mod atomics;
mod closings;
mod completions;
mod damage;
mod delivery;
mod leaks;
mod leftovers;
mod limits;
mod memory;
mod messages;
mod order;
mod receives;
mod touches;

use verbena_nic::Status;

use super::record::{Kind, Op, QpEnd, Queue, Record, Touch};

/// One rule.
pub type Rule = fn(&Record) -> Result<(), String>;

/// The checkers by name.
pub const ALL: [(&str, Rule); 11] = [
    ("completions", completions::check),
    ("receives", receives::check),
    ("delivery", delivery::check),
    ("atomics", atomics::check),
    ("memory", memory::check),
    ("order", order::check),
    ("touches", touches::check),
    ("damage", damage::check),
    ("limits", limits::check),
    ("closings", closings::check),
    ("leaks", leaks::check),
];

/// Runs every checker; returns the first error.
pub fn check(record: &Record) -> Result<(), String> {
    for (name, judge) in ALL {
        judge(record).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

impl Record {
    /// Whether memory that the request needs was revoked at some time, other than by itself.
    fn is_risky(&self, op: &Op) -> bool {
        op.bad.is_some() || op.touches.iter().any(|t| self.may_be_revoked(op, *t))
    }

    fn may_be_revoked(&self, op: &Op, touch: Touch) -> bool {
        let (Touch::Window(w) | Touch::Own(w)) = touch else {
            return self.is_doubtful(touch);
        };
        let uses = |o: &&Op| {
            let first = matches!(o.kind, Kind::Bind { .. });
            !first && (o.touches.contains(&Touch::Window(w)) || o.touches.contains(&Touch::Own(w)))
        };
        // A request that is the only user of a window cannot fail because of its end.
        let unbinds = matches!(op.kind, Kind::Bind { .. });
        self.is_doubtful(touch) && (unbinds || self.ops.iter().filter(uses).count() > 1)
    }

    /// Whether something happened to the pair that may end it: only then may requests fail.
    fn is_disturbed(&self, pair: usize) -> bool {
        !self.pairs[pair].faults.is_empty() || self.has_risk(pair)
    }

    /// Whether a request or a receive of the pair may be refused.
    fn has_risk(&self, pair: usize) -> bool {
        let here = |qp: usize| qp / 2 == pair;
        self.ops.iter().any(|o| here(o.qp) && self.is_risky(o))
            || [2 * pair, 2 * pair + 1]
                .into_iter()
                .any(|qp| self.has_risky_receive(qp))
    }

    /// Whether a receive that the queue pair may use was in memory that was revoked or foreign.
    fn has_risky_receive(&self, qp: usize) -> bool {
        self.supplies.iter().any(|s| {
            let mine = match s.queue {
                Queue::Own(owner) => owner == qp,
                Queue::Shared(srq) => self.qps[qp].srq == Some(srq),
            };
            mine && (s.foreign || self.is_doubtful(Touch::Local(self.slots[s.slot].region)))
        })
    }

    /// The status of a request; an unsignaled one without a completion succeeded. `None` if it was never posted or its status is unknown.
    fn final_status(&self, op: usize) -> Option<Status> {
        let entry = &self.ops[op];
        let qp = self.qps.get(entry.qp)?;
        match self.status(op) {
            // Of requests that a reset queue pair had not reported, only those before a success are known.
            None if qp.ended == Some(QpEnd::Reset) && !self.is_overtaken(op) => None,
            None if !entry.signaled && !qp.lossy[0] => Some(Status::Success),
            status => status,
        }
    }

    /// Whether a later request of the same queue pair has succeeded.
    fn is_overtaken(&self, op: usize) -> bool {
        let mut sent = self.qps[self.ops[op].qp].sent.iter();
        sent.any(|w| w.id > op as u64 && w.status == Status::Success)
    }

    /// Whether success of this request means that the peer has executed it.
    fn is_certain(&self, op: usize) -> bool {
        let Some(qp) = self.qps.get(self.ops[op].qp) else {
            return false;
        };
        let answered = matches!(
            self.ops[op].kind,
            Kind::Read { .. } | Kind::Add { .. } | Kind::Swap
        );
        let done = self.final_status(op) == Some(Status::Success);
        done && (answered || qp.acked || (qp.reliable && !self.is_disturbed(qp.pair)))
    }
}

#[cfg(test)]
mod tests;
