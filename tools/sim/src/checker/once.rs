//! Exactly once: every posted work ends once, with the right status, and was executed once if that is success.
//! A request that was executed twice after an RNR is found by the values of atomics and by the receives. A success is valid only if
//! the other side has executed the work.

use super::Verdict;
use super::model::Model;
use crate::work::{Status, Work};
use crate::world::Transcript;

/// Checks the completions of both sides.
pub fn check(t: &Transcript) -> Verdict {
    let model = Model::of(t);
    for side in 0..2 {
        one(t, &model, side).map_err(|why| format!("side {side}: {why}"))?;
    }
    Ok(())
}

fn one(t: &Transcript, model: &Model, side: usize) -> Verdict {
    let done: Vec<Status> = t.completions(side).map(|(_, status)| status).collect();
    let posted = t.posted[side];
    if done.len() != posted && !t.stalled {
        return Err(format!("{} completions for {posted} works", done.len()));
    }
    if done.len() > posted {
        return Err(format!("{} completions for {posted} works", done.len()));
    }
    let works = &t.session.plan.sides[side].works;
    for (id, &status) in done.iter().enumerate() {
        truthful(t, &works[id].work, status).map_err(|why| format!("work {id}: {why}"))?;
        if let Status::Fetched(got) = status {
            let expected = model.originals[side].get(&(id as u64)).copied();
            if expected != Some(got) {
                return Err(format!(
                    "work {id} fetched {got:#x}, expected {expected:x?}"
                ));
            }
        }
        if t.is_healthy() && !status.is_success() {
            return Err(format!("work {id} ended {status:?} in a healthy run"));
        }
    }
    failures_last(&done)?;
    delivered(t, side)
}

/// The status fits the kind of work and what the peers agreed on.
fn truthful(t: &Transcript, work: &Work, status: Status) -> Verdict {
    let fine = match status {
        Status::Accepted => !t.abilities().extensions && !work.wants_response(),
        Status::Acked => match work {
            Work::Read { .. } => true,
            Work::Atomic { .. } => false,
            _ => t.abilities().extensions,
        },
        Status::Fetched(_) => matches!(work, Work::Atomic { .. }),
        Status::Unsupported => false,
        Status::RnrExceeded => t.abilities().extensions,
        Status::Refused(_) | Status::Flushed => true,
    };
    if fine {
        Ok(())
    } else {
        Err(format!("status {status:?} is impossible for this work"))
    }
}

/// Successes, then at most one error, then flushes.
fn failures_last(done: &[Status]) -> Verdict {
    let good = done.iter().take_while(|s| s.is_success()).count();
    let rest = done[good..].iter().skip(1);
    match rest.into_iter().find(|s| **s != Status::Flushed) {
        None => Ok(()),
        Some(status) => Err(format!("{status:?} behind work {good}, which failed")),
    }
}

/// What the requester knows to be executed was reported by the responder.
fn delivered(t: &Transcript, side: usize) -> Verdict {
    let works = &t.session.plan.sides[side].works;
    let sure = works[..t.executed(side)].iter();
    let sure = sure.filter(|p| p.work.wants_receive()).count();
    let received = t.received(1 - side).count();
    if received < sure {
        return Err(format!("{sure} messages executed, {received} delivered"));
    }
    Ok(())
}
