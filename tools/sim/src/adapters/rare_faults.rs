//! The rarer faults: queue pairs reset or closed and connected again, assigned shared receives lost, limits armed.
//! Each is recorded before it can have an effect, so that the checkers accept only what it explains.

use verbena_nic::{Event, QpState};

use super::probabilities::{
    ARM, CLOSE, FAIL_ASSIGNED, FORBIDDEN, FOREIGN_RECEIVE, RESET_QP, REUSE,
};
use super::record::{Closing, Fault, QpEnd};
use super::world::{World, Zone};

impl World {
    /// Rare events in addition to the step itself.
    pub(super) fn rare_faults(&mut self) {
        if self.extra_rng.chance(ARM) {
            self.arm();
        }
        if !self.has_rare_faults {
            return;
        }
        if self.extra_rng.chance(RESET_QP) {
            let qp = self.any_qp();
            self.reset_qp(qp);
        }
        if self.extra_rng.chance(CLOSE) {
            self.close();
        }
        if self.extra_rng.chance(FAIL_ASSIGNED) {
            self.fail_assigned();
        }
        if self.extra_rng.chance(FORBIDDEN) {
            self.request_forbidden();
        }
        if self.extra_rng.chance(FOREIGN_RECEIVE) {
            let qp = self.any_qp();
            self.supply_in(qp, Zone::Foreign);
        }
    }

    fn any_qp(&mut self) -> usize {
        self.extra_rng.below(self.ids.len() as u64) as usize
    }

    /// Whether the queue pair can still be used: its host is alive, and its use has not ended.
    pub(super) fn is_live(&self, qp: usize) -> bool {
        let dead = self.fabric.is_dead(self.hosts[self.record.qps[qp].host]);
        !dead && self.record.qps[qp].ended.is_none()
    }

    /// Its state, if it can still be used.
    pub(super) fn state(&self, qp: usize) -> Option<QpState> {
        let state = self.fabric.queue_pair(self.ids[qp]).state();
        self.is_live(qp).then_some(state)
    }

    /// Resets a queue pair, whatever it is doing; sometimes it is connected to another partner.
    fn reset_qp(&mut self, qp: usize) {
        let (pair, Some(state)) = (self.record.qps[qp].pair, self.state(qp)) else {
            return;
        };
        if !self.record.qps[qp].roce && state != QpState::Init {
            // iWARP: with a stream, it must be failed before it can be reset.
            self.record_fault(pair, Fault::Failed);
            self.fabric
                .modify(self.ids[qp], QpState::Err)
                .expect("any queue pair can fail");
        }
        // Completions until now belong to it; from here on there may be none.
        self.poll();
        // A shared receive that it was filling is returned, which would hide from the next observation that receives were taken.
        let filling = self.fabric.queue_pair(self.ids[qp]).outstanding().1;
        let back = self.record.qps[qp].srq.filter(|_| filling > 0);
        let before = back.map_or(0, |srq| self.srqs[srq].len());
        if let Some(srq) = back {
            self.observe(srq);
        }
        if self.fabric.modify(self.ids[qp], QpState::Reset).is_ok() {
            if let Some(srq) = back {
                self.posted(srq, before);
            }
            self.record_fault(pair, Fault::QpReset);
            self.end_use(qp, QpEnd::Reset);
        }
    }

    /// The use of a queue pair ends; it may be connected again.
    fn end_use(&mut self, qp: usize, how: QpEnd) {
        self.record.qps[qp].ended = Some(how);
        self.record.qps[qp].left = self.fabric.queue_pair(self.ids[qp]).outstanding();
        if self.extra_rng.chance(REUSE) {
            self.reconnect(qp);
        }
    }

    /// Closes a side that can close gracefully: when nothing is under way, or in the middle of traffic.
    fn close(&mut self) {
        let polite =
            |w: &World, q: usize| !w.record.qps[q].roce && w.state(q) == Some(QpState::Rts);
        let open: Vec<usize> = (0..self.ids.len()).filter(|q| polite(self, *q)).collect();
        if open.is_empty() {
            return;
        }
        let qp = self.extra_rng.pick(&open);
        let (peer, pair) = (self.record.qps[qp].peer, self.record.qps[qp].pair);
        let quiet = self.extra_rng.coin();
        if quiet {
            self.fabric.run();
            self.note_damage();
        }
        if !polite(self, qp) {
            return;
        }
        let sends = |w: &World, q: usize| w.fabric.queue_pair(w.ids[q]).outstanding().0;
        let outstanding = sends(self, qp);
        let healthy = |f: &Fault| *f == Fault::RnrLimited;
        let idle = quiet
            && outstanding + sends(self, peer) == 0
            && polite(self, peer)
            && self.record.pairs[pair].faults.iter().all(healthy);
        self.take_events();
        self.failure_events.clear();
        self.record_fault(pair, Fault::Closed);
        self.fabric
            .modify(self.ids[qp], QpState::Closing)
            .expect("from Rts");
        let state = |w: &World, q: usize| w.fabric.queue_pair(w.ids[q]).state();
        let then = state(self, qp);
        if idle {
            self.fabric.run();
        }
        self.take_events();
        let numbers = [qp, peer].map(|q| self.fabric.queue_pair(self.ids[q]).number());
        let complaints = self.failure_events.iter();
        self.record.closings.push(Closing {
            qp,
            outstanding,
            idle,
            state_after: then,
            final_states: [state(self, qp), state(self, peer)],
            failure_events: complaints.filter(|n| numbers.contains(n)).count(),
        });
        self.poll();
        for side in [qp, peer] {
            if idle && state(self, side) == QpState::Init {
                self.end_use(side, QpEnd::Closed);
            }
        }
    }

    /// Posts one shared receive, and at once fails a queue pair to which it may have been assigned.
    fn fail_assigned(&mut self) {
        let waits = |w: &World, q: usize| {
            let peer = w.ids[w.record.qps[q].peer];
            w.record.qps[q].srq.is_some()
                && w.state(q) == Some(QpState::Rts)
                && w.fabric.queue_pair(peer).outstanding().0 > 0
        };
        // All waiting queue pairs are in the queue when nothing is under way any more.
        self.fabric.run();
        let waiting: Vec<usize> = (0..self.ids.len()).filter(|q| waits(self, *q)).collect();
        if waiting.is_empty() {
            return;
        }
        let qp = self.extra_rng.pick(&waiting);
        self.supply_in(qp, Zone::Stable);
        self.record.stranded += 1;
        let pair = self.record.qps[qp].pair;
        match self.extra_rng.below(3) {
            0 => {
                self.record_fault(pair, Fault::Failed);
                self.fabric
                    .modify(self.ids[qp], QpState::Err)
                    .expect("any queue pair can fail");
            }
            1 => self.reset_qp(qp),
            _ => {
                self.record_fault(pair, Fault::Reset);
                self.fabric.reset(self.connections[pair]);
            }
        }
        // A later receive would hide that this one was lost; a draining queue pair keeps the one assigned to it.
        self.fabric.run();
        if (0..self.ids.len()).all(|q| self.state(q) != Some(QpState::Sqd)) {
            self.note_waiting();
        }
    }

    /// Arms a shared receive queue that is not armed.
    fn arm(&mut self) {
        let srq = self.extra_rng.below(self.srqs.len() as u64) as usize;
        self.observe(srq);
        if self.watches[srq].armed > 0 {
            return;
        }
        let limit = self.extra_rng.len(1, self.srqs[srq].depth());
        if self.srqs[srq].set_limit(limit) {
            self.watches[srq].armed = limit;
            self.record.limits[srq].armed += 1;
            self.log(format!("shared receive queue {srq}: armed at {limit}"));
        }
    }

    /// Observes how many receives a shared queue has. Between two observations either some were taken or one was posted, never both, so
    /// that the last number is the least.
    pub(super) fn observe(&mut self, srq: usize) {
        let (now, watch) = (self.srqs[srq].len(), &mut self.watches[srq]);
        if now < watch.last && now < watch.armed {
            watch.armed = 0;
            self.record.limits[srq].due += 1;
        }
        watch.last = now;
    }

    /// A receive was posted, or returned, to a shared queue that had `before`; a queue pair may have taken it by now.
    pub(super) fn posted(&mut self, srq: usize, before: usize) {
        self.watches[srq].last = before + 1;
        self.observe(srq);
    }

    /// Compares the limits expected with those of the shared queues.
    pub(super) fn settle_limits(&mut self) {
        self.take_events();
        for srq in 0..self.srqs.len() {
            self.observe(srq);
            self.record.limits[srq].left = (self.watches[srq].armed, self.srqs[srq].limit());
        }
    }

    /// Reads the events of all hosts.
    pub(super) fn take_events(&mut self) {
        for host in self.hosts.clone() {
            for (_, event) in self.fabric.events(host) {
                match event {
                    Event::SqDrained { qp } => {
                        self.record.drained += 1;
                        self.drained.push(qp);
                    }
                    Event::QpRequest { qp } | Event::QpAccess { qp } | Event::QpFatal { qp } => {
                        self.failure_events.push(qp);
                    }
                    Event::SrqLimit { srq } => {
                        let found = self.srqs.iter().position(|s| s.number() == srq);
                        if let Some(at) = found {
                            self.record.limits[at].seen += 1;
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Records which links have flipped bits so far.
    pub(super) fn note_damage(&mut self) {
        for pair in 0..self.connections.len() {
            let flips = self.fabric.flips(self.connections[pair]);
            let damage = flips.map(|(places, _)| places.len());
            if damage == [0, 0] {
                continue;
            }
            for (side, damage) in damage.into_iter().enumerate() {
                // What one side sent arrives at the other.
                self.record.qps[2 * pair + 1 - side].damage = damage;
            }
            if !self.record.pairs[pair].faults.contains(&Fault::Flipped) {
                self.record_fault(pair, Fault::Flipped);
            }
        }
    }

    /// Whether bytes that this queue pair sent were damaged: nothing it sends later may be accepted.
    pub(super) fn is_behind_damage(&self, qp: usize) -> bool {
        let flips = self.fabric.flips(self.connections[qp / 2]);
        !flips[qp % 2].0.is_empty()
    }

    /// When nothing is under way: a queue pair with a message to send whose peer has a receive was forgotten, and one without RNR
    /// retries must not wait.
    pub(super) fn note_waiting(&mut self) {
        self.note_damage();
        for qp in 0..self.ids.len() {
            let peer = self.record.qps[qp].peer;
            let receives = match self.record.qps[peer].srq {
                Some(srq) => self.srqs[srq].len().saturating_sub(self.stuck(srq)),
                None => self.fabric.queue_pair(self.ids[peer]).outstanding().1,
            };
            let sends = self.fabric.queue_pair(self.ids[qp]).outstanding().0;
            let open = [qp, peer]
                .iter()
                .all(|q| self.state(*q) == Some(QpState::Rts));
            // A damaged length may make the receiver wait for bytes that never arrive.
            let whole = !self.record.pairs[qp / 2].faults.contains(&Fault::Flipped);
            let waits = open && whole && sends > 0;
            self.record.qps[qp].forgotten |= waits && receives > 0;
            // If the RNR and the receive came in the same bytes, it did not wait.
            self.record.qps[qp].waited |= waits && self.record.qps[qp].no_rnr_retry;
        }
    }

    /// Queue pairs to which a shared receive may be assigned and which cannot take it, because damage makes them wait for bytes.
    fn stuck(&self, srq: usize) -> usize {
        let flipped = |pair: usize| self.record.pairs[pair].faults.contains(&Fault::Flipped);
        let sharing = self.record.qps.iter().filter(|q| q.srq == Some(srq));
        sharing.filter(|q| flipped(q.pair)).count()
    }
}
