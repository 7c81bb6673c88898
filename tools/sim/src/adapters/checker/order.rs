//! Requests of a queue pair take effect in posting order: a read returns what the requests before it left and nothing of a later
//! one, and nothing behind a refused request takes effect. Only reliable connections are checked.

use verbena_nic::Status;

use super::messages;
use crate::adapters::record::{Cell, CellUse, FRESH, Kind, Record, Use};

pub(super) fn check(record: &Record) -> Result<(), String> {
    for (at, cell) in record.cells.iter().enumerate() {
        reads(record, cell).map_err(|why| format!("cell {at}: {why}"))?;
        end(record, cell).map_err(|why| format!("cell {at}: {why}"))?;
    }
    for (op, entry) in record.ops.iter().enumerate() {
        let reliable = record.qps.get(entry.qp).is_some_and(|qp| qp.reliable);
        if entry.bad.is_some() && reliable {
            after_refused(record, op)
                .map_err(|why| format!("request {op} was refused, and {why}"))?;
        }
    }
    Ok(())
}

fn is_posted(record: &Record, op: usize) -> bool {
    record.qps.get(record.ops[op].qp).is_some()
}

/// Every read that succeeded returned what the writes posted before it had left.
fn reads(record: &Record, cell: &Cell) -> Result<(), String> {
    let mut held = cell.first.clone();
    for usage in &cell.uses {
        match usage {
            CellUse::Write { op, at, bytes } if is_posted(record, *op) => {
                held[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
            CellUse::Read { op, at, slot } if record.is_certain(*op) => {
                let seen = record.bytes_of(*slot);
                let expected = &held[*at..*at + seen.len()];
                let differs = (0..seen.len()).find(|i| seen[*i] != expected[*i]);
                if let Some(i) = differs {
                    let author = describe_writer(cell, *at + i, seen[i], *op);
                    return Err(format!(
                        "read {op} returned byte {i} of {author}, not of the last write before it"
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The request that may have written a byte that a read should not have returned.
fn describe_writer(cell: &Cell, at: usize, byte: u8, reader: usize) -> String {
    let wrote = cell.uses.iter().rev().find_map(|usage| match usage {
        CellUse::Write {
            op,
            at: from,
            bytes,
        } => {
            let found = at.checked_sub(*from).and_then(|i| bytes.get(i));
            (found == Some(&byte)).then_some(*op)
        }
        CellUse::Read { .. } => None,
    });
    match wrote {
        Some(op) if op > reader => format!("later write {op}"),
        Some(op) => format!("write {op}"),
        None => "no write".to_owned(),
    }
}

/// At the end the cell holds what its writes left; after a fault, any of their bytes.
fn end(record: &Record, cell: &Cell) -> Result<(), String> {
    let (held, disturbed) = (
        record.bytes_of(cell.slot),
        record.is_disturbed(record.qps[cell.qp].pair),
    );
    let mut last = cell.first.clone();
    let mut possible: Vec<Vec<u8>> = cell.first.iter().map(|b| vec![*b]).collect();
    for usage in &cell.uses {
        let CellUse::Write { op, at, bytes } = usage else {
            continue;
        };
        if !is_posted(record, *op) {
            continue;
        }
        last[*at..*at + bytes.len()].copy_from_slice(bytes);
        for (i, byte) in bytes.iter().enumerate() {
            possible[*at + i].push(*byte);
        }
    }
    let wrong = (0..held.len()).find(|i| match disturbed {
        true => !possible[*i].contains(&held[*i]),
        false => held[*i] != last[*i],
    });
    match wrong {
        Some(i) => Err(format!("byte {i} is not what its writes leave")),
        None => Ok(()),
    }
}

/// No request behind a refused one had an effect.
fn after_refused(record: &Record, refused: usize) -> Result<(), String> {
    let qp = record.ops[refused].qp;
    for (op, entry) in record.ops_of(qp).filter(|(op, _)| *op > refused) {
        let executed = match &entry.kind {
            Kind::Write { .. } => {
                let target = |usage: &Use| matches!(usage, Use::Target(by, _) if *by == op);
                let slot = record.slots.iter().position(|s| target(&s.usage));
                slot.is_some_and(|s| record.bytes_of(s).iter().any(|b| *b != FRESH))
            }
            Kind::Add { counter, add } => {
                let word = record.bytes_of(*counter).try_into();
                word.is_ok_and(|word| u64::from_ne_bytes(word) & add != 0)
            }
            _ => false,
        };
        if executed {
            return Err(format!("request {op} behind it took effect"));
        }
    }
    let peer = record.qps[qp].peer;
    let before = messages::messages(record, peer);
    let before = before.iter().filter(|m| m.op < refused).count();
    let received = record.qps[peer].received.iter();
    let delivered = received.filter(|wc| wc.status == Status::Success).count();
    if delivered > before {
        return Err(format!(
            "{delivered} messages were delivered, with {before} before it"
        ));
    }
    Ok(())
}
