//! The course of a run of adapters: programs act at random times while bytes are under way, then everything is completed.
//! Before the end every request can complete: receives are posted, drained queues are resumed. Nothing is checked here.

use core::time::Duration;

use verbena_nic::QpState;

use super::probabilities::{MIGRATE, MIGRATING};
use super::record::{Fault, Record, WindowRecord};
use super::world::World;
use crate::rng::Ratio;

/// Rounds of posting receives before requests that still wait count as stuck.
const LAST_ROUNDS: usize = 40;

impl World {
    pub(super) fn run(mut self) -> Record {
        self.populate();
        if self.rng.coin() {
            self.fabric.run();
        }
        self.starving = self.rng.chance(Ratio::per_mille(100));
        let steps = self.rng.len(20, 120);
        let faults = Ratio::per_mille(self.rng.pick(&[0, 0, 5, 20]));
        let moving = self.migration_rng.chance(MIGRATING);
        for _ in 0..steps {
            self.rare_faults();
            self.step(faults);
            self.maybe_use_cell();
            if moving && self.migration_rng.chance(MIGRATE) {
                self.migrate_one();
            }
            if self.rng.coin() {
                let span = self.rng.pick(&[0, 1, 10, 100, 1000]);
                let span = span * self.draw_slowness();
                self.fabric.run_for(Duration::from_micros(span));
            }
        }
        self.finish()
    }

    fn step(&mut self, faults: Ratio) {
        if self.rng.chance(faults) {
            return self.fault();
        }
        match self.rng.below(100) {
            0..55 => self.request(),
            55..75 => self.supply(),
            75..90 => self.poll(),
            90..94 => self.toggle_sqd(),
            94..97 => self.bind(),
            97..99 => self.unbind(),
            _ => self.stall(),
        }
    }

    fn fault(&mut self) {
        let pair = self.rng.below(self.record.pairs.len() as u64) as usize;
        match self.rng.below(15) {
            0..3 => {
                self.record_fault(pair, Fault::Reset);
                self.fabric.reset(self.connections[pair]);
            }
            3 => self.kill(),
            4..7 => {
                let qp = 2 * pair + self.rng.below(2) as usize;
                if self.record.qps[qp].ended.is_some() {
                    return;
                }
                self.record_fault(pair, Fault::Failed);
                if self.fabric.queue_pair(self.ids[qp]).state() == QpState::Init {
                    // It will reject its stream, which the peer sees as a reset.
                    self.record_fault(pair, Fault::Reset);
                }
                self.fabric
                    .modify(self.ids[qp], QpState::Err)
                    .expect("any queue pair can fail");
            }
            7..10 => self.revoke_region(),
            10 => self.pair(),
            _ => self.request_bad(),
        }
    }

    fn kill(&mut self) {
        let host = self.rng.below(self.hosts.len() as u64) as usize;
        for qp in 0..self.ids.len() {
            if self.record.qps[qp].host == host {
                self.record_fault(self.record.qps[qp].pair, Fault::Killed);
            }
        }
        self.fabric.kill(self.hosts[host]);
    }

    /// Moves a connection to another queue pair, or records that it could not; its program must not notice.
    fn migrate_one(&mut self) {
        let qp = self.migration_rng.below(self.ids.len() as u64) as usize;
        if !self.is_live(qp) {
            return;
        }
        let moved = self.fabric.migrate(self.ids[qp]);
        self.log(format!("qp {qp}: moves: {moved:?}"));
        match moved {
            Ok(()) => self.record.migrated += 1,
            Err(_) => self.record.migration_failures += 1,
        }
    }

    fn stall(&mut self) {
        let at = self.rng.below(self.connections.len() as u64) as usize;
        let span = Duration::from_micros(self.rng.range(10, 20_000));
        self.fabric.stall(self.connections[at], span);
    }

    /// RTS to SQD or back; RoCE only, for iWARP it would end the connection.
    fn toggle_sqd(&mut self) {
        let qp = self.rng.below(self.ids.len() as u64) as usize;
        if !self.record.qps[qp].roce || self.record.qps[qp].ended.is_some() {
            return;
        }
        let queue_pair = self.fabric.queue_pair(self.ids[qp]);
        let (number, to) = match queue_pair.state() {
            QpState::Rts => (queue_pair.number(), QpState::Sqd),
            QpState::Sqd => (queue_pair.number(), QpState::Rts),
            _ => return,
        };
        self.take_events();
        self.drained.retain(|n| *n != number);
        self.log(format!("qp {qp}: to {to:?}"));
        self.record.qps[qp].drains = to == QpState::Sqd;
        self.fabric
            .modify(self.ids[qp], to)
            .expect("its state allows it");
    }

    fn finish(mut self) -> Record {
        self.fabric.run();
        self.note_damage();
        self.check_drained();
        for qp in 0..self.ids.len() {
            if self.fabric.queue_pair(self.ids[qp]).state() == QpState::Sqd {
                self.fabric
                    .modify(self.ids[qp], QpState::Rts)
                    .expect("from Sqd");
            }
        }
        for _ in 0..LAST_ROUNDS {
            self.fabric.run();
            self.poll();
            self.note_waiting();
            if !self.supply_all() {
                break;
            }
        }
        self.settle_limits();
        self.note_overflows(Some(Fault::Overflow));
        self.log("the end: all queue pairs are failed");
        for qp in self.ids.clone() {
            self.fabric
                .modify(qp, QpState::Err)
                .expect("any queue pair can fail");
            self.poll();
        }
        self.fabric.run();
        self.poll();
        self.note_overflows(None);
        self.note_damage();
        self.finish_record()
    }

    /// When nothing is under way, a draining queue pair without faults has raised `SqDrained`.
    fn check_drained(&mut self) {
        self.take_events();
        for qp in 0..self.ids.len() {
            let queue_pair = self.fabric.queue_pair(self.ids[qp]);
            let silent =
                queue_pair.state() == QpState::Sqd && !self.drained.contains(&queue_pair.number());
            let healthy = self.record.pairs[self.record.qps[qp].pair]
                .faults
                .is_empty();
            // A request may still wait for a receive; then it is not drained.
            let waiting = queue_pair.outstanding().0 > 0;
            let over = self.record.qps[qp].ended.is_some();
            self.record.qps[qp].undrained = silent && healthy && !waiting && !over;
        }
    }

    fn note_overflows(&mut self, blame: Option<Fault>) {
        for qp in 0..self.ids.len() {
            let init = self.fabric.queue_pair(self.ids[qp]).init();
            let lossy = [&init.send_cq, &init.recv_cq].map(|cq| cq.has_overflowed());
            self.record.qps[qp].lossy = lossy;
            if let Some(fault) = blame
                && lossy != [false; 2]
            {
                self.record_fault(self.record.qps[qp].pair, fault);
            }
        }
    }

    fn finish_record(mut self) -> Record {
        for qp in 0..self.ids.len() {
            let queue_pair = self.fabric.queue_pair(self.ids[qp]);
            if self.record.qps[qp].ended.is_none() {
                self.record.qps[qp].left = queue_pair.outstanding();
            }
            self.record.rnrs += queue_pair.counters().rnr_sent;
        }
        self.record.shared_left = self.srqs.iter().map(|s| s.len()).collect();
        self.record.entries_left = self.deregister_all();
        for window in core::mem::take(&mut self.windows) {
            self.record.windows.push(WindowRecord {
                region: window.range.0,
                at: window.range.1,
                len: window.len,
                doubtful: window.doubtful,
                one_touch: window.one_touch,
                revoked: window.revoked,
            });
        }
        self.record.bytes = self.fabric.bytes();
        self.record.packets = self.fabric.packets();
        self.record.end = self.fabric.now();
        self.record
    }
}
