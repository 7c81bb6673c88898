//! Atomics are executed once or not at all: each addition owns a bit of its counter, with a carry bit that reveals a second execution.
//! What succeeded was executed, and results are values that the word had. The order between different queue pairs is not checked.

use verbena_nic::Status;

use crate::adapters::record::{FRESH, Kind, Record, Use};

pub(super) fn check(record: &Record) -> Result<(), String> {
    for (slot, entry) in record.slots.iter().enumerate() {
        match entry.usage {
            Use::Counter => counter(record, slot)?,
            Use::Swap(op, from, to) => swap(record, slot, op, from, to)?,
            _ => {}
        }
    }
    Ok(())
}

fn word(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// The result of an atomic; `None` if its slot is fresh.
fn result(record: &Record, op: usize) -> Option<u64> {
    let mut slots = record.slots.iter();
    let slot = slots.position(|s| s.usage == Use::Result(op))?;
    let bytes = record.bytes_of(slot);
    (bytes != [FRESH; 8]).then(|| word(bytes)).flatten()
}

fn counter(record: &Record, slot: usize) -> Result<(), String> {
    let last = word(record.bytes_of(slot)).unwrap_or_default();
    let mut known = 0;
    let mut before: Vec<(usize, u64)> = Vec::new();
    for (op, entry) in record.ops.iter().enumerate() {
        let Kind::Add { counter, add } = entry.kind else {
            continue;
        };
        if counter != slot {
            continue;
        }
        known |= add;
        let (done, succeeded) = (last & add != 0, record.is_certain(op));
        if last & (add << 1) != 0 {
            return Err(format!("addition {op} was executed twice"));
        }
        if succeeded && !done {
            return Err(format!("addition {op} succeeded and was not executed"));
        }
        let owner = record.qps.get(entry.qp);
        if done && (entry.bad.is_some() || owner.is_none()) {
            return Err(format!("addition {op} was refused and executed"));
        }
        let original = result(record, op);
        if succeeded && original.is_none() {
            return Err(format!("addition {op} succeeded without a result"));
        }
        if let Some(original) = original {
            let earlier = before.iter().filter(|(qp, _)| *qp == entry.qp);
            let must = earlier.fold(0, |sum, (_, add)| sum | add);
            if original & add != 0 || original & !last != 0 || original & must != must {
                return Err(format!(
                    "addition {op} saw {original:#x}, the end is {last:#x}"
                ));
            }
        }
        if succeeded {
            before.push((entry.qp, add));
        }
    }
    if last & !known == 0 {
        return Ok(());
    }
    Err(format!("a counter holds {last:#x}, which no request added"))
}

fn swap(record: &Record, slot: usize, op: usize, from: u64, to: u64) -> Result<(), String> {
    let last = word(record.bytes_of(slot)).unwrap_or_default();
    let certain = record.is_certain(op);
    let original = result(record, op);
    if last != to && (certain || last != from) {
        return Err(format!("swap {op} left {last:#x}"));
    }
    if original.is_some_and(|o| o != from) || (certain && original.is_none()) {
        return Err(format!("swap {op} brought back {original:x?}"));
    }
    let posted = record.final_status(op).is_some() || record.qps.get(record.ops[op].qp).is_some();
    if record.ops[op].bad.is_some() && last != from {
        return Err(format!("swap {op} was refused and happened"));
    }
    if !posted && last != from {
        return Err(format!("swap {op} was never posted and happened"));
    }
    match record.final_status(op) {
        Some(Status::LocProtErr | Status::LocQpOpErr) if last != from => {
            Err(format!("swap {op} failed before it began and happened"))
        }
        _ => Ok(()),
    }
}
