//! Each checker is run on a valid record and on a falsified one.
//! The error must be found by the checker whose rule it breaks.

use verbena_nic::Wc;

use super::*;
use crate::adapters::record::{CellUse, FRESH, Fault, Use};
use crate::adapters::{simulate, simulate_roce, simulate_with_cells};

/// Falsifies a record; false if that is not possible with this one.
type Damage = fn(&mut Record) -> bool;

/// Falsifies the records of the first seeds where possible; the checker must report each.
fn finds(judge: &str, damage: Damage) {
    finds_in(simulate, judge, damage);
}

fn finds_in(play: fn(u64) -> Result<Record, String>, judge: &str, damage: Damage) {
    let law = ALL.into_iter().find(|(name, _)| *name == judge).unwrap().1;
    let mut found = 0;
    for seed in 0..150 {
        let mut record = play(seed).unwrap();
        assert_eq!(law(&record), Ok(()), "seed {seed}");
        if damage(&mut record) {
            assert!(law(&record).is_err(), "{judge} missed it in seed {seed}");
            found += 1;
        }
    }
    assert!(found > 2, "no seed can be damaged so");
}

fn healthy(record: &Record) -> impl Iterator<Item = usize> {
    let healthy = |qp: &usize| !record.is_disturbed(qp / 2) && record.qps[*qp].lossy == [false; 2];
    (0..record.qps.len())
        .filter(healthy)
        .collect::<Vec<_>>()
        .into_iter()
}

fn with_sent(record: &Record, least: usize) -> Option<usize> {
    healthy(record).find(|qp| record.qps[*qp].sent.len() >= least)
}

#[test]
fn lost_completion_is_found() {
    finds("completions", |record| {
        let Some(qp) = with_sent(record, 1) else {
            return false;
        };
        record.qps[qp].sent.pop();
        true
    });
}

#[test]
fn doubled_completion_is_found() {
    finds("completions", |record| {
        let Some(qp) = with_sent(record, 1) else {
            return false;
        };
        let wc: Wc = record.qps[qp].sent[0];
        record.qps[qp].sent.insert(0, wc);
        true
    });
}

#[test]
fn completions_out_of_order_are_found() {
    finds("completions", |record| {
        let Some(qp) = with_sent(record, 2) else {
            return false;
        };
        record.qps[qp].sent.swap(0, 1);
        true
    });
}

#[test]
fn error_status_on_a_healthy_connection_is_found() {
    for status in [
        Status::WrFlushErr,
        Status::RetryExcErr,
        Status::RemAccessErr,
        Status::RnrRetryExcErr,
        Status::LocProtErr,
        Status::RemOpErr,
        Status::GeneralErr,
    ] {
        let law = ALL[0].1;
        let mut found = 0;
        for seed in 0..40 {
            let mut record = simulate(seed).unwrap();
            if let Some(qp) = with_sent(&record, 1) {
                if let Some(wc) = record.qps[qp].sent.last_mut() {
                    wc.status = status;
                }
                assert!(law(&record).is_err(), "{status:?} in seed {seed}");
                found += 1;
            }
        }
        assert!(found > 2);
    }
}

#[test]
fn success_of_a_refused_request_is_found() {
    finds("completions", |record| {
        let acked = |qp: usize| record.qps[qp].acked;
        let sent = record.qps.iter().enumerate();
        let first = sent
            .filter(|(qp, _)| acked(*qp))
            .find_map(|(_, q)| q.sent.iter().find(|w| w.status == Status::Success));
        let Some(id) = first.map(|w| w.id as usize) else {
            return false;
        };
        record.ops[id].bad = Some(Status::RemAccessErr);
        true
    });
}

#[test]
fn packet_sends_without_completion_are_found() {
    finds_in(simulate_roce, "completions", |record| {
        let Some(qp) = with_sent(record, 1) else {
            return false;
        };
        record.qps[qp].sent.pop();
        true
    });
}

/// A request over a cut link fails by its retries, not by the end of the run.
#[test]
fn request_stuck_over_a_cut_link_is_found() {
    finds_in(simulate_roce, "completions", |record| {
        let failed = |wc: &&mut Wc| wc.status == Status::RetryExcErr;
        let only_cut = |record: &Record, pair: usize| {
            record.pairs[pair].faults.iter().eq([&Fault::Reset]) && !record.has_risk(pair)
        };
        let cut: Vec<bool> = (0..record.pairs.len())
            .map(|p| only_cut(record, p))
            .collect();
        let sent = record.qps.iter_mut().filter(|qp| cut[qp.pair]);
        let Some(wc) = sent.flat_map(|qp| &mut qp.sent).find(failed) else {
            return false;
        };
        wc.status = Status::WrFlushErr;
        true
    });
}

#[test]
fn retries_used_up_on_a_bad_link_are_found() {
    finds_in(simulate_roce, "completions", |record| {
        let reliable = |qp: &usize| record.qps[*qp].reliable && !record.qps[*qp].sent.is_empty();
        let Some(qp) = healthy(record).find(reliable) else {
            return false;
        };
        if let Some(wc) = record.qps[qp].sent.last_mut() {
            wc.status = Status::RetryExcErr;
        }
        true
    });
}

#[test]
fn message_repeated_by_a_packet_link_is_found() {
    finds_in(simulate_roce, "delivery", |record| {
        let Some((qp, at)) = delivered(record) else {
            return false;
        };
        let wc = record.qps[qp].received[at];
        record.qps[qp].received.insert(at, wc);
        true
    });
}

#[test]
fn missing_drain_event_is_found() {
    finds("completions", |record| {
        record.qps[0].undrained = true;
        true
    });
}

#[test]
fn lost_or_doubled_receive_completion_is_found() {
    finds("receives", |record| {
        let Some(qp) = healthy(record).find(|qp| !record.qps[*qp].received.is_empty()) else {
            return false;
        };
        record.qps[qp].received.pop();
        // Lost completions of another queue pair of the shared queue would excuse it.
        !record.qps.iter().any(|q| q.lossy[1])
    });
    finds("receives", |record| {
        let Some(qp) = healthy(record).find(|qp| !record.qps[*qp].received.is_empty()) else {
            return false;
        };
        let wc = record.qps[qp].received[0];
        record.qps[qp].received.push(wc);
        true
    });
}

#[test]
fn lost_shared_receive_is_found() {
    finds("receives", |record| {
        let Some(left) = record.shared_left.iter_mut().find(|n| **n > 0) else {
            return false;
        };
        *left += 1;
        true
    });
}

fn delivered(record: &Record) -> Option<(usize, usize)> {
    let good = |w: &Wc| w.status == Status::Success;
    healthy(record)
        .filter(|qp| record.qps[*qp].reliable)
        .find_map(|qp| Some((qp, record.qps[qp].received.iter().position(good)?)))
}

#[test]
fn message_delivered_twice_is_found() {
    finds("delivery", |record| {
        let Some((qp, at)) = delivered(record) else {
            return false;
        };
        let wc = record.qps[qp].received[at];
        record.qps[qp].received.insert(at, wc);
        true
    });
}

#[test]
fn undelivered_successful_message_is_found() {
    finds("delivery", |record| {
        let Some((qp, at)) = delivered(record) else {
            return false;
        };
        record.qps[qp].received.remove(at);
        true
    });
}

#[test]
fn damaged_message_is_found() {
    finds("delivery", |record| {
        let Some((qp, at)) = delivered(record) else {
            return false;
        };
        let supply = record.qps[qp].received[at].id as usize;
        let slot = record.supplies[supply].slot;
        let (area, at) = (record.slots[slot].region, record.slots[slot].at);
        record.regions[area].image[at] ^= 1;
        true
    });
}

/// Bytes that no message left, behind a message, in the memory of its receive.
#[test]
fn foreign_bytes_behind_a_message_are_found() {
    finds("delivery", |record| {
        let Some((qp, at)) = delivered(record) else {
            return false;
        };
        let wc = record.qps[qp].received[at];
        let slot = record.supplies[wc.id as usize].slot;
        let (area, last) = (
            record.slots[slot].region,
            record.slots[slot].at + record.slots[slot].len - 1,
        );
        record.regions[area].image[last] = !FRESH;
        true
    });
}

/// Parts of two messages, each behind a later and shorter one, then fresh bytes; and nothing else.
#[test]
fn leftovers_explain_only_earlier_messages() {
    let left: [&[u8]; 2] = [b"abcdefgh", b"ABCDEFGH"];
    for (held, good) in [
        (&b"xy\xEE\xEE\xEE\xEE"[..], true),
        (b"xycd\xEE\xEE", true),
        (b"xyCDef", true),
        (b"xyCDe\xEE", true),
        (b"xycdeX", false),
        (b"xyab\xEE\xEE", false),
        (b"xy\xEE\xEEef", false),
    ] {
        assert_eq!(leftovers::explain(held, 2, &left), good, "{held:?}");
        assert_eq!(
            leftovers::explain(held, 2, &[]),
            held[2..] == [FRESH; 4],
            "{held:?}"
        );
    }
}

fn poke(record: &mut Record, slot: usize, word: u64) {
    let (area, at) = (record.slots[slot].region, record.slots[slot].at);
    record.regions[area].image[at..at + 8].copy_from_slice(&word.to_ne_bytes());
}

#[test]
fn wrong_fetch_add_totals_are_found() {
    let certain = |record: &Record| {
        (0..record.ops.len()).find_map(|op| match record.ops[op].kind {
            Kind::Add { counter, add } if record.is_certain(op) => Some((counter, add)),
            _ => None,
        })
    };
    let law = ALL[3].1;
    let mut found = 0;
    for seed in 0..150 {
        let record = simulate(seed).unwrap();
        let Some((counter, add)) = certain(&record) else {
            continue;
        };
        let bytes = record.bytes_of(counter).try_into().unwrap();
        let value = u64::from_ne_bytes(bytes);
        for wrong in [value + add, value & !add, value | 1 << 63] {
            let mut damaged = record.clone();
            poke(&mut damaged, counter, wrong);
            assert!(law(&damaged).is_err(), "{value:#x} became {wrong:#x}");
        }
        found += 1;
    }
    assert!(found > 2);
}

#[test]
fn wrong_compare_swap_result_is_found() {
    finds("atomics", |record| {
        let swap = |u: &Use| matches!(u, Use::Swap(..));
        let Some(slot) = record.slots.iter().position(|s| swap(&s.usage)) else {
            return false;
        };
        poke(record, slot, 42);
        true
    });
}

#[test]
fn writes_to_protected_bytes_are_found() {
    finds("memory", |record| {
        record.regions[0].image[0] = !FRESH;
        true
    });
    finds("memory", |record| {
        let fixed = |u: &Use| matches!(u, Use::Fixed(_));
        let Some(slot) = record.slots.iter().find(|s| fixed(&s.usage)) else {
            return false;
        };
        record.regions[slot.region].image[slot.at] ^= 1;
        true
    });
}

#[test]
fn missing_successful_write_is_found() {
    finds("memory", |record| {
        let slots = record.slots.iter();
        let target = slots.into_iter().find(|s| match s.usage {
            Use::Target(op, _) => record.is_certain(op),
            _ => false,
        });
        let Some((area, at)) = target.map(|s| (s.region, s.at)) else {
            return false;
        };
        record.regions[area].image[at] = FRESH;
        true
    });
}

#[test]
fn changes_to_revoked_memory_are_found() {
    finds("memory", |record| {
        let Some(area) = record.regions.iter_mut().find(|a| a.revoked.is_some()) else {
            return false;
        };
        area.image.swap(0, 8);
        area.image[8] ^= 1;
        true
    });
    finds("memory", |record| {
        let windows = record.windows.iter_mut();
        let Some(bytes) = windows.filter_map(|w| w.revoked.as_mut()).next() else {
            return false;
        };
        bytes[399] ^= 1;
        true
    });
}

#[test]
fn leaks_are_found() {
    finds("leaks", |record| {
        record.qps[0].left.1 = 1;
        true
    });
    finds("leaks", |record| {
        record.entries_left[0] = 1;
        true
    });
    finds("leaks", |record| {
        record.strays = 1;
        true
    });
}

#[test]
fn completion_after_queue_pair_end_is_found() {
    finds("completions", |record| {
        let over = |q: &&mut crate::adapters::record::QueuePair| q.ended.is_some();
        let Some(qp) = record.qps.iter_mut().find(over) else {
            return false;
        };
        qp.late_completions = 1;
        true
    });
}

#[test]
fn unassigned_receive_with_a_waiter_is_found() {
    finds("completions", |record| {
        record.qps[0].forgotten = true;
        true
    });
}

#[test]
fn forbidden_rnr_wait_is_found() {
    finds("completions", |record| {
        record.qps[0].waited = true;
        true
    });
}

#[test]
fn checksum_error_without_damage_is_found() {
    finds("completions", |record| {
        let Some(qp) = with_sent(record, 1) else {
            return false;
        };
        for wc in &mut record.qps[qp].sent {
            wc.status = Status::GeneralErr;
        }
        true
    });
}

#[test]
fn success_behind_damage_is_found() {
    finds("damage", |record| {
        let acked = |qp: &usize| record.qps[*qp].acked && !record.qps[*qp].sent.is_empty();
        let found = healthy(record).find(acked).and_then(|qp| {
            let wrote = |w: &&Wc| matches!(record.ops[w.id as usize].kind, Kind::Write { .. });
            record.qps[qp].sent.iter().find(wrote)
        });
        let Some(id) = found.map(|w| w.id as usize) else {
            return false;
        };
        record.ops[id].behind_damage = true;
        true
    });
}

#[test]
fn message_behind_damage_is_found() {
    finds("delivery", |record| {
        let got = |qp: &usize| record.qps[*qp].reliable && !record.qps[*qp].received.is_empty();
        let Some(qp) = healthy(record).find(got) else {
            return false;
        };
        let peer = record.qps[qp].peer;
        let any = record.qps[qp].received.iter();
        if !any.map(|w| w.status).any(|s| s == Status::Success) {
            return false;
        }
        for op in record.ops.iter_mut().filter(|o| o.qp == peer) {
            op.behind_damage = true;
        }
        true
    });
}

#[test]
fn surplus_and_missing_limit_events_are_found() {
    finds("limits", |record| {
        record.limits[0].seen += 1;
        true
    });
    finds("limits", |record| {
        let due = |l: &&mut crate::adapters::record::Limits| l.seen > 0;
        let Some(limits) = record.limits.iter_mut().find(due) else {
            return false;
        };
        limits.seen -= 1;
        true
    });
}

#[test]
fn error_event_on_an_idle_close_is_found() {
    finds("closings", |record| {
        let Some(closing) = record.closings.iter_mut().find(|c| c.idle) else {
            return false;
        };
        closing.failure_events = 1;
        true
    });
}

#[test]
fn executed_but_refused_swap_is_found() {
    finds("atomics", |record| {
        let swapped = (0..record.slots.len()).find_map(|slot| match record.slots[slot].usage {
            Use::Swap(op, from, _) if record.bytes_of(slot) != from.to_ne_bytes() => Some(op),
            _ => None,
        });
        let Some(op) = swapped else {
            return false;
        };
        record.ops[op].bad = Some(Status::RemInvReqErr);
        true
    });
}

#[test]
fn second_write_through_one_touch_window_is_found() {
    finds("touches", |record| {
        let twice = |w: &usize| touches::writers(record, *w).len() > 1;
        let Some(window) = (0..record.windows.len()).find(twice) else {
            return false;
        };
        assert!(!record.windows[window].one_touch);
        record.windows[window].one_touch = true;
        true
    });
}

/// A read of a cell that succeeded, with a later write.
fn overtaken(record: &Record) -> Option<(usize, usize, u8)> {
    for cell in &record.cells {
        for (i, usage) in cell.uses.iter().enumerate() {
            let CellUse::Read { op, at, slot } = usage else {
                continue;
            };
            let before = record.bytes_of(*slot)[0];
            let behind = cell.uses[i..].iter().find_map(|later| match later {
                CellUse::Write {
                    at: from, bytes, ..
                } => at.checked_sub(*from).and_then(|k| bytes.get(k)).copied(),
                CellUse::Read { .. } => None,
            });
            if let Some(byte) = behind.filter(|byte| *byte != before && record.is_certain(*op)) {
                let slot = &record.slots[*slot];
                return Some((slot.region, slot.at, byte));
            }
        }
    }
    None
}

#[test]
fn read_of_a_later_write_is_found() {
    finds_in(simulate_with_cells, "order", |record| {
        let Some((area, at, byte)) = overtaken(record) else {
            return false;
        };
        record.regions[area].image[at] = byte;
        true
    });
}

#[test]
fn write_behind_a_refused_request_is_found() {
    finds_in(simulate_with_cells, "order", |record| {
        let refused = |op: usize| {
            let before = record.ops_of(record.ops[op].qp).filter(|(o, _)| *o < op);
            let bad = before.map(|(_, o)| o.bad).any(|bad| bad.is_some());
            bad && record.qps[record.ops[op].qp].reliable
        };
        let target = record.slots.iter().find_map(|slot| match slot.usage {
            Use::Target(op, _) if record.qps.get(record.ops[op].qp).is_some() => {
                let writes = matches!(record.ops[op].kind, Kind::Write { .. });
                (writes && refused(op)).then_some((slot.region, slot.at))
            }
            _ => None,
        });
        let Some((area, at)) = target else {
            return false;
        };
        record.regions[area].image[at] = !FRESH;
        true
    });
}

#[test]
fn message_behind_a_refused_request_is_found() {
    finds_in(simulate_with_cells, "order", |record| {
        let sends_behind = |refused: usize, qp: usize| {
            let mut behind = record.ops_of(qp).filter(|(op, _)| *op > refused);
            behind.any(|(_, op)| matches!(op.kind, Kind::Send { .. }))
        };
        let refused = record.ops.iter().enumerate().find(|(at, op)| {
            let reliable = record.qps.get(op.qp).is_some_and(|qp| qp.reliable);
            op.bad.is_some() && reliable && sends_behind(*at, op.qp)
        });
        let Some(peer) = refused.map(|(_, op)| record.qps[op.qp].peer) else {
            return false;
        };
        let delivered = Wc {
            status: Status::Success,
            ..Wc::default()
        };
        let sent = super::messages::messages(record, peer).len();
        record.qps[peer].received = vec![delivered; sent];
        true
    });
}
