//! Nothing is left: after a run without faults no work, read, byte or receive is unfinished, and both sides closed gracefully.
//! After a fault the end is clean: a stall occurs only where a flipped length field explains it, and a flipped bit is always
//! detected.

use verbena_stream::Violation;
use verbena_wire::mpa::fpdu::{LENGTH_LEN, Layout, Phase};
use verbena_wire::mpa::marker::Marker;

use super::Verdict;
use crate::actor::Leftovers;
use crate::work::{Report, Status};
use crate::world::Transcript;

/// Checks how the session ended.
pub fn check(t: &Transcript) -> Verdict {
    if t.is_healthy() {
        return healthy(t);
    }
    if t.stalled && !(0..2).any(|k| length_hit(t, k)) {
        return Err("stalled, and no length field was damaged".into());
    }
    let flipped = t.flipped.iter().any(|f| !f.is_empty());
    // A frame cut by the end of the stream is a detection, too: its damaged length announced more.
    let noticed = |r: &Report| is_alarm(r) || *r == Report::Closed(false);
    let noticed = t.reports.iter().flatten().any(noticed);
    if flipped && !t.stalled && !noticed && !t.reset {
        return Err("a bit was flipped and neither side reported it".into());
    }
    if t.session.plan.has_bad() && !flipped && !t.reset {
        refused(t)?;
    }
    for side in 0..2 {
        // A stall leaves unfinished work by definition.
        if !t.stalled && t.leftovers[side].works > 0 {
            return Err(format!("side {side}: {:?}", t.leftovers[side]));
        }
    }
    Ok(())
}

fn healthy(t: &Transcript) -> Verdict {
    if t.stalled {
        return Err(format!("stalled: {:?}", t.leftovers));
    }
    for side in 0..2 {
        if let Some(alarm) = t.reports[side].iter().find(|r| is_alarm(r)) {
            return Err(format!("side {side} reports {alarm:?}"));
        }
        if t.leftovers[side] != Leftovers::default() {
            return Err(format!("side {side} leaves {:?}", t.leftovers[side]));
        }
        let closed = t.reports[side].last() == Some(&Report::Closed(true));
        if !closed {
            return Err(format!("side {side} did not close gracefully"));
        }
        let (posted, planned) = (t.posted[side], t.session.plan.sides[side].works.len());
        if posted != planned {
            return Err(format!("side {side} posted {posted} of {planned} works"));
        }
        if t.received(side).count() != t.session.plan.deliveries_to(side) {
            return Err(format!("side {side} is missing deliveries"));
        }
    }
    Ok(())
}

fn is_alarm(report: &Report) -> bool {
    matches!(
        report,
        Report::Violation(_) | Report::Terminated(_) | Report::NotEstablished(_)
    )
}

/// Work that must be refused was: the responder reports the violation, the requester its status.
fn refused(t: &Transcript) -> Verdict {
    for side in 0..2 {
        let works = &t.session.plan.sides[side].works[..t.posted[side]];
        let Some(bad) = works.iter().position(|p| p.bad) else {
            continue;
        };
        if !t.abilities().established {
            continue;
        }
        let victim = &t.reports[1 - side];
        let access = |r: &Report| matches!(r, Report::Violation(Violation::Access { .. }));
        if !victim.iter().any(access) {
            return Err(format!("side {side} work {bad} was not refused"));
        }
        let is_terminate = |r: &Report| matches!(r, Report::Terminated(_));
        if !t.reports[side].iter().any(is_terminate) {
            return Err(format!(
                "side {side} received no Terminate for its refused work"
            ));
        }
        let culprit = t.completions(side).find(|(_, s)| !s.is_success());
        // docs/connections.md: a read before it gets the status only where the responder had a request of its own cut.
        let may_be_blamed = |id: usize| id == bad || (id < bad && works[id].work.wants_response());
        let named = matches!(culprit, Some((id, Status::Refused(_))) if may_be_blamed(id as usize));
        if t.abilities().extensions && !named {
            return Err(format!("side {side} work {bad} ended as {culprit:?}"));
        }
    }
    Ok(())
}

/// Whether a flipped bit of this direction is in the length field of an FPDU, as the frames were sent.
fn length_hit(t: &Transcript, side: usize) -> bool {
    let tape = &t.wire_bytes[side];
    let markers = t.session.profiles[1 - side].terms.markers;
    let mut phase = markers.then_some(Phase::START);
    let mut at = startup_len(tape);
    while let Some(layout) = frame_at(tape, at, phase) {
        let field = at + layout.locate(0);
        let hit = |&p: &u64| (field..field + LENGTH_LEN).contains(&(p as usize));
        if t.flipped[side].iter().any(hit) {
            return true;
        }
        at += layout.size();
        phase = layout.next_phase();
    }
    false
}

fn frame_at(tape: &[u8], at: usize, phase: Option<Phase>) -> Option<Layout> {
    let lead = if phase == Some(Phase::START) {
        Marker::LEN
    } else {
        0
    };
    let field = tape.get(at + lead..at + lead + LENGTH_LEN)?;
    let len = u16::from_be_bytes(field.try_into().ok()?);
    Some(Layout::new(len, phase))
}

/// Length of the startup frame, from its header (RFC 5044 §7.1.1).
fn startup_len(tape: &[u8]) -> usize {
    let field = tape
        .get(18..20)
        .map(|f| usize::from(f[0]) << 8 | usize::from(f[1]));
    20 + field.unwrap_or(0)
}
