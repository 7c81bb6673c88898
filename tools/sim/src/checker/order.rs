//! Delivery and completion in order: the k-th message consumes the k-th receive and has the contents that were sent.
//! Every field of every report is compared with the plan. Memory is not checked here.

use verbena_wire::rdmap::Opcode;

use super::Verdict;
use crate::plan::Posting;
use crate::work::{Received, Work};
use crate::world::Transcript;

/// Checks the order of deliveries and completions on both sides.
pub fn check(t: &Transcript) -> Verdict {
    for side in 0..2 {
        deliveries(t, side).map_err(|why| format!("side {side}: {why}"))?;
        let ids = t.completions(side).map(|(id, _)| id);
        for (expected, id) in ids.enumerate() {
            if id != expected as u64 {
                return Err(format!(
                    "side {side}: work {id} completed as number {expected}"
                ));
            }
        }
    }
    Ok(())
}

fn deliveries(t: &Transcript, side: usize) -> Verdict {
    let other = 1 - side;
    let works = &t.session.plan.sides[other].works[..t.posted[other]];
    let sends = works.iter().enumerate();
    let mut sends = sends.filter(|(_, p)| p.work.wants_receive());
    for (k, got) in t.received(side).enumerate() {
        let (id, posting) = sends
            .next()
            .ok_or_else(|| format!("delivery {k} was never posted: {got:?}"))?;
        let before = works[..id].last();
        let expected = expected(k as u64, posting, before);
        if *got != expected {
            return Err(format!("delivery {k} is {got:?}, posted was {expected:?}"));
        }
    }
    Ok(())
}

/// What the receiver of a message must report.
fn expected(receive: u64, posting: &Posting, before: Option<&Posting>) -> Received {
    match &posting.work {
        Work::Send {
            payload,
            solicited,
            invalidate,
            immediate,
        } => Received {
            receive,
            opcode: match (immediate, solicited, invalidate) {
                (Some(_), ..) => Opcode::SendImm {
                    solicited: *solicited,
                    invalidate: invalidate.is_some(),
                },
                (None, false, None) => Opcode::Send,
                (None, false, Some(_)) => Opcode::SendInv,
                (None, true, None) => Opcode::SendSe,
                (None, true, Some(_)) => Opcode::SendSeInv,
            },
            len: payload.len() as u32,
            immediate: *immediate,
            invalidated: *invalidate,
            write_len: None,
        },
        Work::Write {
            payload, immediate, ..
        } => Received {
            receive,
            opcode: Opcode::Immediate,
            len: 0,
            immediate: *immediate,
            invalidated: None,
            write_len: write_len(payload, before),
        },
        Work::Read { .. } | Work::Atomic { .. } => unreachable!("they consume no receive"),
    }
}

/// docs/extensions.md: the length of the Write directly before the Immediate, from whichever request it is.
fn write_len(payload: &[u8], before: Option<&Posting>) -> Option<u32> {
    if !payload.is_empty() {
        return Some(payload.len() as u32);
    }
    match before.map(|p| &p.work) {
        Some(Work::Write {
            payload,
            immediate: None,
            ..
        }) => Some(payload.len() as u32),
        _ => None,
    }
}
