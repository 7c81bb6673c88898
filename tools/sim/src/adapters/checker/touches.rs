//! A one-touch window takes one message, however many peers try (M9).
//! A second one is found by its bytes, whole or in part. Completions and deliveries are checked elsewhere.

use crate::adapters::record::{FRESH, Record, Slot, Touch, Use};

pub(super) fn check(record: &Record) -> Result<(), String> {
    for (at, window) in record.windows.iter().enumerate() {
        let writers = writers(record, at);
        if window.one_touch && writers.len() > 1 {
            return Err(format!(
                "one-touch window {at} was written by requests {writers:?}"
            ));
        }
    }
    Ok(())
}

/// Requests that left bytes in a window.
pub(super) fn writers(record: &Record, window: usize) -> Vec<usize> {
    let wrote = |slot: &Slot| {
        let Use::Target(op, _) = slot.usage else {
            return None;
        };
        let held = &record.regions[slot.region].image[slot.at..slot.at + slot.len];
        let through = record.ops[op].touches.contains(&Touch::Window(window));
        (through && held.iter().any(|byte| *byte != FRESH)).then_some(op)
    };
    record.slots.iter().filter_map(wrote).collect()
}
