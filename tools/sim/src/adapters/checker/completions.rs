//! Every request ends once, in posting order, with a status that its circumstances allow (the error table of docs/connections.md).
//! On a pair without faults every request succeeds. Memory is not checked here.

use verbena_nic::Status;

use crate::adapters::record::{Fault, Kind, Op, QpEnd, Record, Touch};

pub(super) fn check(record: &Record) -> Result<(), String> {
    for qp in 0..record.qps.len() {
        order(record, qp)?;
        cut_links(record, qp)?;
        for wc in &record.qps[qp].sent {
            let op = &record.ops[wc.id as usize];
            if !may_end(record, wc.id as usize, wc.status) {
                let (id, status, kind) = (wc.id, wc.status, name(&op.kind));
                let faults = &record.pairs[record.qps[qp].pair].faults;
                return Err(format!(
                    "request {id} ({kind}) of queue pair {qp} ended in {status:?}, with {faults:?}"
                ));
            }
        }
        if record.qps[qp].undrained {
            return Err(format!("queue pair {qp} is drained and did not say so"));
        }
        if record.qps[qp].late_completions > 0 {
            let (late, over) = (record.qps[qp].late_completions, record.qps[qp].ended);
            return Err(format!(
                "queue pair {qp}: {late} completions after its end, {over:?}"
            ));
        }
        if record.qps[qp].forgotten {
            return Err(format!(
                "queue pair {qp} waits for a receive, and its peer has one that was not announced"
            ));
        }
        if record.qps[qp].waited {
            return Err(format!(
                "queue pair {qp} may not wait for a receiver, and did"
            ));
        }
    }
    Ok(())
}

/// Over links that were cut, and with no other fault, the first request that fails has used up its retries. Not if it waits because the
/// queue pair drains: that may fail before, for a shared receive that the peer began to fill.
fn cut_links(record: &Record, qp: usize) -> Result<(), String> {
    let queue_pair = &record.qps[qp];
    let faults = &record.pairs[queue_pair.pair].faults;
    let only_cut = faults.iter().eq([&Fault::Reset]) && !record.has_risk(queue_pair.pair);
    let waits = queue_pair.drains && queue_pair.srq.is_some();
    if !queue_pair.packets || !queue_pair.reliable || !only_cut || waits {
        return Ok(());
    }
    let mut failed = queue_pair
        .sent
        .iter()
        .filter(|wc| wc.status != Status::Success);
    match failed.next() {
        Some(wc) if wc.status != Status::RetryExcErr => Err(format!(
            "queue pair {qp}: request {} over a cut link ended in {:?}",
            wc.id, wc.status
        )),
        _ => Ok(()),
    }
}

fn name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Send { .. } => "send",
        Kind::Write { .. } => "write",
        Kind::Read { .. } => "read",
        Kind::Add { .. } => "add",
        Kind::Swap => "swap",
        Kind::Bind { .. } => "bind",
        Kind::Invalidate { .. } => "invalidate",
    }
}

/// One completion per signaled or failed request, in posting order.
fn order(record: &Record, qp: usize) -> Result<(), String> {
    let mut posted = record.ops_of(qp).peekable();
    let mut failed = false;
    let lossy = record.qps[qp].lossy[0];
    for wc in &record.qps[qp].sent {
        loop {
            let Some((id, op)) = posted.next() else {
                let id = wc.id;
                return Err(format!(
                    "queue pair {qp}: completion of {id} out of order, twice, or of nothing"
                ));
            };
            if id as u64 == wc.id {
                break;
            }
            silent(qp, id, op, failed, lossy)?;
        }
        let local = matches!(
            record.ops[wc.id as usize].kind,
            Kind::Bind { .. } | Kind::Invalidate { .. }
        );
        if failed && wc.status == Status::Success && !local {
            let id = wc.id;
            return Err(format!(
                "queue pair {qp}: request {id} succeeded after a failure"
            ));
        }
        failed |= wc.status != Status::Success;
    }
    // Unfinished requests of a reset queue pair have no completion.
    let gone = record.qps[qp].ended == Some(QpEnd::Reset);
    for (id, op) in posted.filter(|_| !gone) {
        silent(qp, id, op, failed, lossy)?;
    }
    Ok(())
}

/// A request without completion was unsignaled and succeeded; a local one may do so ahead of its turn.
fn silent(qp: usize, id: usize, op: &Op, failed: bool, lossy: bool) -> Result<(), String> {
    let local = matches!(op.kind, Kind::Bind { .. } | Kind::Invalidate { .. });
    if lossy || (!op.signaled && (!failed || local)) {
        return Ok(());
    }
    let kind = name(&op.kind);
    Err(format!(
        "queue pair {qp}: request {id} ({kind}) never ended"
    ))
}

fn may_end(record: &Record, id: usize, status: Status) -> bool {
    let op = &record.ops[id];
    let qp = &record.qps[op.qp];
    let faults = &record.pairs[qp.pair].faults;
    let disturbed = record.is_disturbed(qp.pair);
    // The stream ended without a Terminate: it was reset, the peer closed it or was failed by its program, or damage hides
    // the last bytes of the peer.
    let broken = [Fault::Reset, Fault::Killed, Fault::Closed, Fault::Failed]
        .iter()
        .any(|f| faults.contains(f))
        || record.qps[qp.peer].ended == Some(QpEnd::Reset)
        || is_cut_short(record, op)
        || qp.damage > 0;
    match status {
        // Where the peer does not acknowledge execution, even a refused request completed when it was accepted.
        Status::Success => op.bad.is_none() || (!qp.acked && op.bad != Some(Status::LocProtErr)),
        Status::WrFlushErr => disturbed,
        // Over packets a peer that fails is silent.
        Status::RetryExcErr => (broken || qp.packets && disturbed) && qp.roce && qp.reliable,
        Status::RnrRetryExcErr => (qp.rnr_limited || qp.no_rnr_retry) && op.wants_receive(),
        // Only a checksum error gives this status.
        Status::GeneralErr => record.qps[qp.peer].damage > 0,
        Status::LocProtErr => op.bad == Some(status) || own_memory_revoked(record, op),
        Status::MwBindErr => matches!(op.kind, Kind::Bind { .. }) && own_memory_revoked(record, op),
        // The peer's Terminate is about this request if the peer acknowledges; otherwise it applies to the first one that
        // was not executed, whichever caused it.
        Status::RemAccessErr | Status::RemInvReqErr => {
            let blamed = |(_, o): (usize, &Op)| peer_refuses(record, o, status);
            peer_refuses(record, op, status)
                || (!qp.acked && record.ops_of(op.qp).any(blamed))
                || (may_lose_its_answer(record, op) && record.ops_of(op.qp).any(blamed))
        }
        // An address range beyond the last offset cannot be requested.
        Status::LocQpOpErr => op.bad.is_some(),
        // The peer's side failed by itself.
        Status::RemOpErr => disturbed,
        _ => false,
    }
}

/// A peer that is in the middle of a request of its own cannot answer before it ends the stream (docs/connections.md):
/// the status of a later request is then reported for the one that waits for its answer.
fn may_lose_its_answer(record: &Record, op: &Op) -> bool {
    let answered = matches!(op.kind, Kind::Read { .. } | Kind::Add { .. } | Kind::Swap);
    let peer = record.qps[op.qp].peer;
    answered && record.ops_of(peer).next().is_some()
}

/// The peer may have lost the memory of a frame that it had begun, of a request of its own or of a response: such a
/// frame cannot be finished, and nothing can follow it.
fn is_cut_short(record: &Record, op: &Op) -> bool {
    let peer = record.qps[op.qp].peer;
    let read = |o: &Op| matches!(o.kind, Kind::Read { .. });
    let lost = |o: &Op| peer_refuses(record, o, Status::RemAccessErr);
    let asked = record.ops_of(op.qp).any(|(_, o)| read(o) && lost(o));
    asked
        || record
            .ops_of(peer)
            .any(|(_, o)| own_memory_revoked(record, o))
}

fn own_memory_revoked(record: &Record, op: &Op) -> bool {
    let own = |t: &&Touch| matches!(t, Touch::Local(_) | Touch::Own(_));
    op.touches
        .iter()
        .filter(own)
        .any(|t| record.is_doubtful(*t))
}

fn peer_refuses(record: &Record, op: &Op, status: Status) -> bool {
    let theirs = |t: &&Touch| matches!(t, Touch::Remote(_) | Touch::Window(_));
    let taken = op
        .touches
        .iter()
        .filter(theirs)
        .any(|t| record.is_doubtful(*t));
    op.bad == Some(status) || (status == Status::RemAccessErr && taken)
}
