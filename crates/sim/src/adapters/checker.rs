//! Independent judges of an adapter world: each knows one law and only the [`Record`].
//! They promise to object with a sentence that names the request, queue pair or byte; together they cover memory, completions,
//! deliveries, order, atomics, receives, damage, limits, closings and leaks. They refuse to know how adapters work.

mod atomics;
mod closings;
mod completions;
mod damage;
mod delivery;
mod leaks;
mod leftovers;
mod limits;
mod memory;
mod order;
mod receives;
mod touches;

use verbena_nic::Status;

use super::record::{Kind, Op, Over, Queue, Record, Touch};

/// One law.
pub type Law = fn(&Record) -> Result<(), String>;

/// The judges by name.
pub const ALL: [(&str, Law); 11] = [
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

/// Lets every judge look; the first objection counts.
pub fn check(record: &Record) -> Result<(), String> {
    for (name, judge) in ALL {
        judge(record).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

impl Record {
    /// Memory that the request needs was taken away by somebody else at some time.
    fn is_risky(&self, op: &Op) -> bool {
        op.bad.is_some() || op.touches.iter().any(|t| self.is_taken(op, *t))
    }

    fn is_taken(&self, op: &Op, touch: Touch) -> bool {
        let (Touch::Window(w) | Touch::Own(w)) = touch else {
            return self.is_doubtful(touch);
        };
        let uses = |o: &&Op| {
            let first = matches!(o.kind, Kind::Bind { .. });
            !first && (o.touches.contains(&Touch::Window(w)) || o.touches.contains(&Touch::Own(w)))
        };
        // Whoever is alone with a window cannot be surprised by its end.
        let unbinds = matches!(op.kind, Kind::Bind { .. });
        self.is_doubtful(touch) && (unbinds || self.ops.iter().filter(uses).count() > 1)
    }

    /// Something happened to the pair that may end it: only then may anything fail.
    fn is_disturbed(&self, pair: usize) -> bool {
        let here = |qp: usize| qp / 2 == pair;
        !self.pairs[pair].faults.is_empty()
            || self.ops.iter().any(|o| here(o.qp) && self.is_risky(o))
            || [2 * pair, 2 * pair + 1]
                .into_iter()
                .any(|qp| self.has_risky_receive(qp))
    }

    /// A receive that the queue pair may use was in memory that was taken away.
    fn has_risky_receive(&self, qp: usize) -> bool {
        self.supplies.iter().any(|s| {
            let mine = match s.queue {
                Queue::Own(owner) => owner == qp,
                Queue::Shared(srq) => self.qps[qp].srq == Some(srq),
            };
            mine && (s.foreign || self.is_doubtful(Touch::Local(self.slots[s.slot].area)))
        })
    }

    /// How a request ended; silence of an unsignalled one is success. `None` if it was never posted or its end was lost.
    fn end_of(&self, op: usize) -> Option<Status> {
        let entry = &self.ops[op];
        let qp = self.qps.get(entry.qp)?;
        match self.status(op) {
            // Of what an emptied queue pair had not reported, only what stands before a success is known.
            None if qp.over == Some(Over::Emptied) && !self.is_overtaken(op) => None,
            None if !entry.signaled && !qp.lossy[0] => Some(Status::Success),
            status => status,
        }
    }

    /// A later request of the same queue pair has succeeded.
    fn is_overtaken(&self, op: usize) -> bool {
        let mut sent = self.qps[self.ops[op].qp].sent.iter();
        sent.any(|w| w.id > op as u64 && w.status == Status::Success)
    }

    /// Success of this request means that the peer has carried it out.
    fn is_certain(&self, op: usize) -> bool {
        let Some(qp) = self.qps.get(self.ops[op].qp) else {
            return false;
        };
        let answered = matches!(
            self.ops[op].kind,
            Kind::Read { .. } | Kind::Add { .. } | Kind::Swap
        );
        let done = self.end_of(op) == Some(Status::Success);
        done && (answered || qp.acked || (qp.reliable && !self.is_disturbed(qp.pair)))
    }
}

#[cfg(test)]
mod tests;
