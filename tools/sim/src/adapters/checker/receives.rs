//! Every receive is consumed or flushed once: those of a queue pair in posting order, shared ones by any queue pair of the queue.
//! None is lost and none completes twice, whatever happened to the queue pairs. What arrived is checked elsewhere.

use std::collections::BTreeSet;

use verbena_nic::{Status, WcOp};

use crate::adapters::record::{Kind, Op, QpEnd, Queue, Record, Supply, Touch};

pub(super) fn check(record: &Record) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (qp, queue_pair) in record.qps.iter().enumerate() {
        let mut last = None;
        for wc in &queue_pair.received {
            let Some(supply) = record.supplies.get(wc.id as usize) else {
                return Err(format!(
                    "queue pair {qp}: receive {} was never posted",
                    wc.id
                ));
            };
            if !seen.insert(wc.id) {
                return Err(format!("receive {} completed twice", wc.id));
            }
            let own = match supply.queue {
                Queue::Own(owner) => owner == qp && last < Some(wc.id),
                Queue::Shared(srq) => queue_pair.srq == Some(srq),
            };
            if !own {
                let (id, queue) = (wc.id, supply.queue);
                return Err(format!(
                    "queue pair {qp}: receive {id} of {queue:?} is not its own, or not next"
                ));
            }
            last = Some(wc.id);
            let area = record.slots[supply.slot].region;
            let allowed = match wc.status {
                // Immediate data alone accesses no memory.
                Status::Success => !supply.foreign || wc.op == WcOp::ReceiveWriteImm,
                Status::WrFlushErr => true,
                Status::LocProtErr => supply.foreign || record.is_doubtful(Touch::Local(area)),
                Status::LocLenErr => was_sent_too_much(record, queue_pair.peer),
                _ => false,
            };
            if !allowed {
                return Err(format!("receive {} ended in {:?}", wc.id, wc.status));
            }
        }
    }
    missing(record, &seen)?;
    shared(record)
}

fn was_sent_too_much(record: &Record, sender: usize) -> bool {
    let too_long = |op: &Op| matches!(op.kind, Kind::Send { .. }) && op.bad.is_some();
    record.ops_of(sender).any(|(_, op)| too_long(op))
}

/// All receives of a queue pair end; it was failed at the end.
fn missing(record: &Record, seen: &BTreeSet<u64>) -> Result<(), String> {
    for (id, supply) in record.supplies.iter().enumerate() {
        if let Queue::Own(qp) = supply.queue
            && !record.qps[qp].lossy[1]
            && record.qps[qp].ended != Some(QpEnd::Reset)
            && !seen.contains(&(id as u64))
        {
            return Err(format!("queue pair {qp}: receive {id} never ended"));
        }
    }
    Ok(())
}

/// Every receive posted to a shared queue was taken or is still there.
fn shared(record: &Record) -> Result<(), String> {
    for (srq, left) in record.shared_left.iter().enumerate() {
        let here = |s: &&Supply| s.queue == Queue::Shared(srq);
        let posted = record.supplies.iter().filter(here).count();
        let users = record.qps.iter().filter(|q| q.srq == Some(srq));
        let (mut ended, mut lossy) = (0, false);
        for qp in users {
            ended += qp.received.len();
            lossy |= qp.lossy[1];
        }
        if ended + left != posted && !(lossy && ended + left < posted) {
            return Err(format!(
                "shared receive queue {srq}: {posted} posted, {ended} ended, {left} left"
            ));
        }
    }
    Ok(())
}
