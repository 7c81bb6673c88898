//! A shared receive queue raises its limit event once per arming, when a receive is taken and fewer than the limit are left.
//! No event is raised without an arming or twice, and none that was due is missing. An unreliable connection over packets may take a
//! receive, lose the rest of the message and return it, which its program cannot see: an event for that is allowed.

use crate::adapters::record::{QueuePair, Record};

pub(super) fn check(record: &Record) -> Result<(), String> {
    for (srq, limits) in record.limits.iter().enumerate() {
        let (armed, due, seen) = (limits.armed, limits.due, limits.seen);
        let may_return = |qp: &QueuePair| qp.srq == Some(srq) && qp.packets && !qp.reliable;
        let unseen = record.qps.iter().any(may_return);
        if (seen != due && !unseen) || seen < due || seen > armed {
            return Err(format!(
                "shared receive queue {srq}: armed {armed} times, {due} limit events were due, {seen} came"
            ));
        }
        if limits.left.0 != limits.left.1 && seen == due {
            let (known, said) = limits.left;
            return Err(format!(
                "shared receive queue {srq}: its limit is {known}, it says {said}"
            ));
        }
    }
    Ok(())
}
