//! Counts of what happened in a run of adapters, by name, so that a long run shows that it covered every fault.
//! It counts what took place, not what was drawn.

use std::collections::BTreeMap;

use verbena_nic::{QpState, Status};

use super::record::{Fault, Over, Record};

/// The counts, without those that are zero.
pub(super) fn of(record: &Record) -> BTreeMap<&'static str, u64> {
    let ended = |status: Status| {
        let sent = record.qps.iter().flat_map(|q| &q.sent);
        sent.filter(|w| w.status == status).count()
    };
    let pairs = |fault: Fault| {
        let struck = record.pairs.iter().filter(|p| p.faults.contains(&fault));
        struck.count()
    };
    let over = |how: Over| record.qps.iter().filter(|q| q.over == Some(how)).count();
    let closings = |test: fn(&super::record::Closing) -> bool| {
        let closed = record.closings.iter().filter(|c| test(c));
        closed.count()
    };
    let hasty = record.qps.iter().filter(|q| q.hasty).flat_map(|q| &q.sent);
    let foreign = record.supplies.iter().filter(|s| s.foreign).count();
    let counts = [
        ("damaged pairs", pairs(Fault::Flipped)),
        ("GENERAL_ERR", ended(Status::GeneralErr)),
        ("emptied", over(Over::Emptied)),
        ("joined again", record.reused),
        ("closed idle", closings(|c| c.idle)),
        ("closed with sends", closings(|c| c.then == QpState::Err)),
        (
            "closed otherwise",
            closings(|c| !c.idle && c.then != QpState::Err),
        ),
        ("foreign receives", foreign),
        ("REM_ACCESS_ERR", ended(Status::RemAccessErr)),
        ("REM_INV_REQ_ERR", ended(Status::RemInvReqErr)),
        ("REM_OP_ERR", ended(Status::RemOpErr)),
        ("RNR_RETRY_EXC_ERR", ended(Status::RnrRetryExcErr)),
        (
            "of them at once",
            hasty.filter(|w| w.status == Status::RnrRetryExcErr).count(),
        ),
        ("limits armed", record.limits.iter().map(|l| l.armed).sum()),
        ("limit events", record.limits.iter().map(|l| l.seen).sum()),
        ("promises broken", record.stranded),
        ("drained", record.drained),
        ("moved", record.moved),
        ("stayed", record.stayed),
        ("refused by policy", record.unwelcome[0]),
        ("refused as disabled", record.unwelcome[1]),
        ("refused by domain", record.unwelcome[2]),
    ];
    let seen = counts.into_iter().filter(|(_, n)| *n > 0);
    seen.map(|(name, n)| (name, n as u64)).collect()
}
