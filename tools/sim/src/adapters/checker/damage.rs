//! Nothing behind damaged bytes is accepted: no request posted after the damage arrives.
//! Checksums are verified before anything is placed, delivered or answered; memory is checked elsewhere. How the damaged side ends is
//! not checked: a damaged length may make it wait for bytes that never arrive.

use verbena_nic::Status;

use crate::adapters::record::{Kind, Record};

pub(super) fn check(record: &Record) -> Result<(), String> {
    for (id, op) in record
        .ops
        .iter()
        .enumerate()
        .filter(|(_, o)| o.behind_damage)
    {
        let Some(qp) = record.qps.get(op.qp) else {
            continue;
        };
        let answered = matches!(op.kind, Kind::Read { .. } | Kind::Add { .. } | Kind::Swap);
        let local = matches!(op.kind, Kind::Bind { .. } | Kind::Invalidate { .. });
        let confirmed = (qp.acked || answered) && !local;
        if confirmed && record.status(id) == Some(Status::Success) {
            return Err(format!(
                "request {id} of queue pair {} arrived behind damaged bytes",
                op.qp
            ));
        }
    }
    Ok(())
}
