//! Every byte of every region is explained: written by its program, by the one request that owns its slot, or fresh.
//! Revoked memory does not change after its owner knew. Words that atomics change are checked in [`super::atomics`], cells in
//! [`super::order`].

use verbena_nic::Status;

use super::leftovers;
use crate::adapters::record::{FRESH, Kind, Queue, Record, Slot, Use};

pub(super) fn check(record: &Record) -> Result<(), String> {
    for slot in &record.slots {
        inside(record, slot)?;
    }
    for (area, entry) in record.regions.iter().enumerate() {
        outside(record, area)?;
        if entry.revoked.as_ref().is_some_and(|r| *r != entry.image) {
            return Err(format!("region {area} changed after it was deregistered"));
        }
    }
    for (at, window) in record.windows.iter().enumerate() {
        let now = &record.regions[window.region].image[window.at..window.at + window.len];
        if window.revoked.as_ref().is_some_and(|then| then != now) {
            return Err(format!("window {at} was written after it was invalidated"));
        }
    }
    Ok(())
}

/// Bytes that belong to no slot are fresh.
fn outside(record: &Record, area: usize) -> Result<(), String> {
    let image = &record.regions[area].image;
    let mut free = vec![true; image.len()];
    for slot in record.slots.iter().filter(|s| s.region == area) {
        free[slot.at..slot.at + slot.len].fill(false);
    }
    let touched = (0..image.len()).find(|at| free[*at] && image[*at] != FRESH);
    match touched {
        Some(at) => Err(format!(
            "byte {at} of region {area} is unused and was written"
        )),
        None => Ok(()),
    }
}

fn inside(record: &Record, slot: &Slot) -> Result<(), String> {
    let held = &record.regions[slot.region].image[slot.at..slot.at + slot.len];
    let place = |at: usize| format!("byte {} of region {}", slot.at + at, slot.region);
    match &slot.usage {
        Use::Fixed(bytes) => match differs(held, bytes) {
            Some(at) => Err(format!(
                "{} changed, and no request may write it",
                place(at)
            )),
            None => Ok(()),
        },
        Use::Target(op, bytes) => target(record, *op, held, bytes, place),
        Use::Receive(supply) => receive(record, *supply, held, place),
        Use::Counter | Use::Result(_) | Use::Swap(..) | Use::Cell | Use::Seen(_) => Ok(()),
    }
}

fn differs(held: &[u8], bytes: &[u8]) -> Option<usize> {
    (0..held.len()).find(|at| held[*at] != bytes[*at])
}

fn target(
    record: &Record,
    op: usize,
    held: &[u8],
    bytes: &[u8],
    place: impl Fn(usize) -> String,
) -> Result<(), String> {
    let entry = &record.ops[op];
    let posted = record.qps.get(entry.qp).is_some();
    let odd = (0..held.len()).find(|at| held[*at] != FRESH && held[*at] != bytes[*at]);
    if let Some(at) = odd {
        return Err(format!("{} holds what request {op} never wrote", place(at)));
    }
    if entry.bad.is_some() || !posted {
        return match held.iter().position(|b| *b != FRESH) {
            Some(at) => Err(format!("{} was written by refused request {op}", place(at))),
            None => Ok(()),
        };
    }
    match differs(held, bytes) {
        Some(at) if record.is_certain(op) => Err(format!(
            "{} is missing from request {op}, which succeeded",
            place(at)
        )),
        _ => Ok(()),
    }
}

/// A receive without a message holds at most the beginning of one that was for its queue and, if the queue
/// is shared, behind it what other queue pairs left.
fn receive(
    record: &Record,
    supply: usize,
    held: &[u8],
    place: impl Fn(usize) -> String,
) -> Result<(), String> {
    let ended = record.qps.iter().flat_map(|q| &q.received);
    let filled = ended
        .filter(|w| w.id == supply as u64)
        .any(|w| w.status == Status::Success);
    if filled || held.iter().all(|b| *b == FRESH) {
        return Ok(());
    }
    if record.supplies[supply].foreign {
        return Err(format!(
            "{}: receive {supply} is of another domain and was written",
            place(0)
        ));
    }
    let queue = record.supplies[supply].queue;
    let meant = |qp: usize| match queue {
        Queue::Own(owner) => record.qps[qp].peer == owner,
        Queue::Shared(srq) => record.qps[record.qps[qp].peer].srq == Some(srq),
    };
    let left = leftovers::of(record, queue);
    let explained = record.ops.iter().any(|op| match &op.kind {
        Kind::Send { payload, .. } => {
            let begun = leftovers::common(held, payload, 0);
            record.qps.get(op.qp).is_some()
                && meant(op.qp)
                && leftovers::explain(held, begun, &left)
        }
        _ => false,
    });
    if explained {
        return Ok(());
    }
    Err(format!(
        "{}: receive {supply} holds bytes that were not sent",
        place(0)
    ))
}
