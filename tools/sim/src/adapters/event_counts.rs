//! Counts of what happened in a run of adapters, by name, so that a long run shows that it covered every fault.
//! It counts what took place, not what was drawn.

use std::collections::BTreeMap;

use verbena_nic::{QpState, Status};

use super::record::{Fault, QpEnd, Record};

/// The counts, without those that are zero.
pub(super) fn count(record: &Record) -> BTreeMap<&'static str, u64> {
    let ended = |status: Status| {
        let sent = record.qps.iter().flat_map(|q| &q.sent);
        sent.filter(|w| w.status == status).count()
    };
    let pairs = |fault: Fault| {
        let struck = record.pairs.iter().filter(|p| p.faults.contains(&fault));
        struck.count()
    };
    let over = |how: QpEnd| record.qps.iter().filter(|q| q.ended == Some(how)).count();
    let closings = |test: fn(&super::record::Closing) -> bool| {
        let closed = record.closings.iter().filter(|c| test(c));
        closed.count()
    };
    let hasty = record
        .qps
        .iter()
        .filter(|q| q.no_rnr_retry)
        .flat_map(|q| &q.sent);
    let foreign = record.supplies.iter().filter(|s| s.foreign).count();
    let counts = [
        ("damaged pairs", pairs(Fault::Flipped)),
        ("GENERAL_ERR", ended(Status::GeneralErr)),
        ("queue pairs reset", over(QpEnd::Reset)),
        ("reused queue pairs", record.reused),
        ("closed idle", closings(|c| c.idle)),
        (
            "closed with sends",
            closings(|c| c.state_after == QpState::Err),
        ),
        (
            "closed otherwise",
            closings(|c| !c.idle && c.state_after != QpState::Err),
        ),
        ("foreign receives", foreign),
        ("REM_ACCESS_ERR", ended(Status::RemAccessErr)),
        ("REM_INV_REQ_ERR", ended(Status::RemInvReqErr)),
        ("REM_OP_ERR", ended(Status::RemOpErr)),
        ("RETRY_EXC_ERR", ended(Status::RetryExcErr)),
        ("RNR_RETRY_EXC_ERR", ended(Status::RnrRetryExcErr)),
        (
            "of them without retry",
            hasty.filter(|w| w.status == Status::RnrRetryExcErr).count(),
        ),
        ("limits armed", record.limits.iter().map(|l| l.armed).sum()),
        ("limit events", record.limits.iter().map(|l| l.seen).sum()),
        ("stranded shared receives", record.stranded),
        ("drained", record.drained),
        ("migrated", record.migrated),
        ("failed migrations", record.migration_failures),
        ("refused by policy", record.forbidden[0]),
        ("refused as disabled", record.forbidden[1]),
        ("refused by domain", record.forbidden[2]),
    ];
    let packets = [
        ("packets", record.packets.sent),
        ("packets lost", record.packets.lost),
        ("packets repeated", record.packets.repeated),
        ("packets reordered", record.packets.reordered),
        ("packets damaged", record.packets.damaged),
        ("packets marked", record.packets.marked),
    ];
    let counts = counts.into_iter().map(|(name, n)| (name, n as u64));
    let seen = counts.chain(packets).filter(|(_, n)| *n > 0);
    seen.collect()
}
