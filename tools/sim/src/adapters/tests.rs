//! Runs of adapters with every `cargo test`: the first seeds, and what they must cover.
//! Every kind of fault must occur. The long run is `verbena-sim --adapters`.

use std::collections::BTreeSet;

use super::record::{CellUse, Kind, Op, Touch};
use super::*;
use crate::packet_link::PacketCounts;

#[test]
fn first_adapter_seeds_pass() {
    let mut all = RunCounters::default();
    for seed in 0..100 {
        match run(seed) {
            Ok(tally) => all.add(&tally),
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(all.works > 1000 && all.messages > 500, "{all}");
    assert!(all.rnrs > 50 && all.resets > 3, "{all}");
}

#[test]
fn first_adapter_seeds_with_cells_pass() {
    let (mut reads, mut held) = (0, 0);
    for seed in 0..100 {
        let record = simulate_with_cells(seed).unwrap();
        if let Err(failure) = check_outcome(seed, Wire::Tcp, Ok(record.clone())) {
            panic!("{failure}");
        }
        let uses = record.cells.iter().flat_map(|cell| &cell.uses);
        reads += uses.filter(|u| matches!(u, CellUse::Read { .. })).count();
        held += usize::from(!record.cells.is_empty());
    }
    assert!(reads > 1000 && held > 50, "{reads} reads in {held} worlds");
}

#[test]
fn first_roce_seeds_pass() {
    let mut all = RunCounters::default();
    for seed in 0..100 {
        match run_roce(seed) {
            Ok(tally) => all.add(&tally),
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(all.works > 1000 && all.messages > 500, "{all}");
    assert!(all.rnrs > 50 && all.resets > 3, "{all}");
}

/// Every fault of a packet link, every MTU, and every end that RoCEv2 has for a request.
#[test]
fn roce_workloads_cover_every_kind_of_fault() {
    let (mut statuses, mut faults) = (BTreeSet::new(), BTreeSet::new());
    let mut packets = PacketCounts::default();
    let mut uses = 0;
    for seed in 0..400 {
        let record = simulate_roce(seed).unwrap();
        faults.extend(record.pairs.iter().flat_map(|p| p.faults.clone()));
        let sent = record.qps.iter().flat_map(|qp| &qp.sent);
        statuses.extend(sent.map(|w| w.status as u8));
        packets.add(&record.packets);
        uses += record
            .cells
            .iter()
            .map(|cell| cell.uses.len())
            .sum::<usize>();
        assert!(record.qps.iter().all(|qp| qp.packets && qp.damage == 0));
    }
    for status in [
        Status::Success,
        Status::WrFlushErr,
        Status::LocProtErr,
        Status::RemAccessErr,
        Status::RemOpErr,
        Status::RemInvReqErr,
        Status::RetryExcErr,
        Status::RnrRetryExcErr,
    ] {
        assert!(statuses.contains(&(status as u8)), "never seen: {status:?}");
    }
    // All but damaged bytes and graceful closes, which only byte streams have.
    assert_eq!(faults.len(), 8, "{faults:?}");
    let PacketCounts {
        sent,
        lost,
        repeated,
        reordered,
        damaged,
        marked,
    } = packets;
    let least = [lost, repeated, reordered, damaged, marked]
        .into_iter()
        .min();
    assert!(sent > 20_000 && least > Some(500), "{packets:?}");
    assert!(uses > 1000, "{uses}");
}

#[test]
fn adapter_seed_is_reproducible() {
    let summary = |record: Record| {
        // Addresses differ from run to run; what happens does not depend on them.
        let story = record.log.iter().filter(|l| !l.contains("post"));
        (story.cloned().collect::<Vec<_>>(), record.bytes, record.end)
    };
    for play in [simulate, simulate_roce] {
        for seed in [3, 17] {
            assert_eq!(summary(play(seed).unwrap()), summary(play(seed).unwrap()));
        }
    }
}

#[test]
fn workloads_cover_every_kind_of_fault() {
    let (mut statuses, mut faults) = (BTreeSet::new(), BTreeSet::new());
    let (mut windows, mut regions, mut invalidated) = (0, 0, 0);
    let mut touches = [0; 3];
    for seed in 0..400 {
        let record = simulate(seed).unwrap();
        faults.extend(record.pairs.iter().flat_map(|p| p.faults.clone()));
        for qp in &record.qps {
            statuses.extend(qp.sent.iter().map(|w| w.status as u8));
            let by_peer = qp.received.iter().filter(|w| w.invalidated.is_some());
            invalidated += by_peer.count();
        }
        windows += record
            .windows
            .iter()
            .filter(|w| w.revoked.is_some())
            .count();
        for (at, window) in record.windows.iter().enumerate() {
            let through = |o: &&Op| o.touches.contains(&Touch::Window(at));
            let uses = record.ops.iter().filter(through);
            let uses = uses
                .filter(|o| matches!(o.kind, Kind::Write { .. }))
                .count();
            if window.one_touch && uses > 0 {
                touches[uses.min(2)] += 1;
                touches[0] += usize::from(window.revoked.is_some());
            }
        }
        regions += record
            .regions
            .iter()
            .filter(|a| a.revoked.is_some())
            .count();
        let swaps = |k: &Kind| matches!(k, Kind::Swap);
        statuses.extend(record.ops.iter().any(|o| swaps(&o.kind)).then_some(0));
    }
    for status in [
        Status::Success,
        Status::WrFlushErr,
        Status::LocProtErr,
        Status::RemAccessErr,
        Status::RemOpErr,
        Status::RemInvReqErr,
        Status::RetryExcErr,
        Status::RnrRetryExcErr,
        Status::GeneralErr,
    ] {
        assert!(statuses.contains(&(status as u8)), "never seen: {status:?}");
    }
    assert_eq!(faults.len(), 9, "{faults:?}");
    assert!(windows > 20 && regions > 20 && invalidated > 5);
    // One-touch windows that were unbound by owners that had not noticed, touched once, touched again (M9).
    assert!(touches.iter().all(|count| *count > 2), "{touches:?}");
}

/// A frame whose memory was revoked cannot be finished, and the peer gets no Terminate; a queue pair that waits for damaged
/// bytes keeps the shared receive that was assigned to it. Neither is an error.
#[test]
fn unavoidable_outcomes_are_not_errors() {
    for seed in [157_125, 160_537] {
        run(seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
