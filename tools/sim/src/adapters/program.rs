//! The other actions of the programs: poll, post receives, bind and unbind windows.
//! Every completion is recorded, and the bytes of a window are recorded as soon as its end is known.

use verbena_mem::{Access, Bind, Pd, WindowType};
use verbena_nic::{QpState, ReceiveWr, SendOp, Status, Wc, WcOp};
use verbena_wire::{Stag, To};

use super::probabilities::{ONE_TOUCH, TOUCH_AGAIN};
use super::record::{Fault, Kind, Op, Queue, Supply, Touch, Use};
use super::request::RECEIVE;
use super::world::{Window, World, Zone};
use crate::rng::Ratio;

/// Bytes of a window.
const WINDOW: usize = 400;
const PD: Pd = Pd(1);

impl World {
    /// Polls all completions of all living hosts.
    pub(super) fn poll(&mut self) {
        for qp in 0..self.ids.len() {
            for wc in self.fabric.sent(self.ids[qp]) {
                self.handle_completion(&wc);
            }
            for wc in self.fabric.received(self.ids[qp]) {
                self.handle_completion(&wc);
            }
        }
    }

    fn handle_completion(&mut self, wc: &Wc) {
        let number = |qp: &usize| self.fabric.queue_pair(self.ids[*qp]).number();
        // If a queue pair was reused, its last use is meant.
        let Some(qp) = (0..self.ids.len()).rev().find(|qp| number(qp) == wc.qpn) else {
            self.record.strays += 1;
            return;
        };
        self.log(format!("qp {qp}: {:?} {} {:?}", wc.op, wc.id, wc.status));
        self.record.qps[qp].late_completions += usize::from(self.record.qps[qp].ended.is_some());
        if matches!(wc.op, WcOp::Receive | WcOp::ReceiveWriteImm) {
            self.record.qps[qp].received.push(*wc);
            let gone = wc.invalidated.filter(|_| wc.status == Status::Success);
            let window = gone.and_then(|stag| {
                let host = self.record.qps[qp].host;
                let mut windows = self.windows.iter();
                windows.position(|w| w.stag == stag && w.host == host)
            });
            if let Some(window) = window {
                self.snapshot(window);
            }
            return;
        }
        self.record.qps[qp].sent.push(*wc);
        if wc.status != Status::Success {
            return;
        }
        match self.record.ops.get(wc.id as usize).map(|op| &op.kind) {
            Some(Kind::Bind { window }) if !self.windows[*window].known => {
                let window = *window;
                self.windows[window].known = true;
            }
            Some(
                Kind::Bind { window }
                | Kind::Invalidate { window }
                | Kind::Read {
                    invalidates: Some(window),
                },
            ) => self.snapshot(*window),
            _ => {}
        }
    }

    fn snapshot(&mut self, window: usize) {
        let w = &self.windows[window];
        let bytes = self.regions[w.range.0].buffer.read(w.range.1, w.len);
        self.windows[window].revoked = Some(bytes);
    }

    /// Posts some receives at a random queue pair.
    pub(super) fn supply(&mut self) {
        let qp = self.rng.below(self.ids.len() as u64) as usize;
        for _ in 0..self.rng.len(1, 3) {
            self.supply_one(qp);
        }
    }

    fn supply_one(&mut self, qp: usize) -> bool {
        if !self.is_live(qp) {
            return false;
        }
        let zone = if self.rng.chance(Ratio::per_mille(50)) {
            Zone::Transient
        } else {
            Zone::Stable
        };
        self.supply_in(qp, zone)
    }

    /// Posts one receive in memory of this kind; false if the queue does not accept it.
    pub(super) fn supply_in(&mut self, qp: usize, zone: Zone) -> bool {
        if !self.is_live(qp) {
            return false;
        }
        let (host, srq) = (self.record.qps[qp].host, self.record.qps[qp].srq);
        let room = self.reserve(host, zone, RECEIVE);
        let number = self.record.supplies.len();
        let scatter = [
            self.sge(room, 40),
            self.sge((room.0, room.1 + 40), RECEIVE - 40),
        ];
        let wr = ReceiveWr {
            id: number as u64,
            scatter: &scatter,
        };
        let before = srq.map_or(0, |srq| self.srqs[srq].len());
        let posted = match srq {
            Some(srq) => {
                self.observe(srq);
                self.fabric.post_shared(&self.srqs[srq].clone(), &wr)
            }
            None => self.fabric.post_receive(self.ids[qp], &wr),
        };
        if posted.is_err() {
            return false;
        }
        if let Some(srq) = srq {
            self.posted(srq, before);
        }
        let slot = self.slot(room, RECEIVE, Use::Receive(number));
        let queue = srq.map_or(Queue::Own(qp), Queue::Shared);
        self.log(format!("qp {qp}: receive {number} to {queue:?}"));
        let foreign = zone == Zone::Foreign;
        self.record.supplies.push(Supply {
            queue,
            slot,
            foreign,
        });
        true
    }

    /// Posts receives for everything that may still wait for one; false when nothing waits.
    pub(super) fn supply_all(&mut self) -> bool {
        let mut waits = false;
        for qp in 0..self.ids.len() {
            let outstanding = self.fabric.queue_pair(self.ids[qp]).outstanding().0;
            let alive = self.state(qp) == Some(QpState::Rts);
            if outstanding == 0 || !alive {
                continue;
            }
            waits = true;
            for _ in 0..outstanding.min(3) {
                self.supply_one(self.record.qps[qp].peer);
            }
        }
        waits
    }

    /// Posts the receives that a peer without RNR needs before the message arrives.
    pub(super) fn provide(&mut self, qp: usize, op: &Op) {
        let peer = self.record.qps[qp].peer;
        // A sender that completes on acceptance cannot send again, so it is not asked to wait.
        let both = self.record.qps[peer].roce && self.record.qps[qp].roce;
        let patient = both && self.record.qps[qp].extended;
        let needs = op.wants_receive() && !patient && self.record.qps[peer].srq.is_none();
        if needs && self.starving && self.rng.chance(Ratio::per_mille(200)) {
            return self.record_fault(self.record.qps[qp].pair, Fault::Bad);
        }
        if needs {
            let messages = match op.kind {
                Kind::Send {
                    immediate: true, ..
                } => 2,
                _ => 1,
            };
            for _ in 0..messages {
                self.supply_one(peer);
            }
        }
    }

    /// Binds a new window by a request.
    pub(super) fn bind(&mut self) {
        let Some(qp) = self.pick_binder() else {
            return;
        };
        let host = self.record.qps[qp].host;
        let ty = self
            .rng
            .pick(&[WindowType::One, WindowType::TwoA, WindowType::TwoB]);
        let tpt = self.fabric.tpt(self.hosts[host]).clone();
        let Ok(fresh) = tpt.allocate_window(ty, PD) else {
            return;
        };
        let room = self.reserve(host, Zone::Windowed, WINDOW);
        let zero_based = ty != WindowType::One && self.rng.coin();
        let key = self.rng.draw() as u8;
        let one_touch = self.touch_rng.chance(ONE_TOUCH);
        let bind = Bind {
            window: fresh,
            region: self.regions[room.0].buffer.stag(),
            addr: self.regions[room.0].buffer.at() + room.1 as u64,
            len: WINDOW as u64,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            pd: PD,
            qp: self.fabric.queue_pair(self.ids[qp]).number(),
            key,
            zero_based,
            one_touch,
        };
        let key = match ty {
            WindowType::One => fresh.key().wrapping_add(1),
            _ => key,
        };
        let window = self.windows.len();
        self.windows.push(Window {
            host,
            qp,
            stag: Stag::from_parts(fresh.index(), key).unwrap_or(fresh),
            ty,
            range: room,
            len: WINDOW,
            zero_based,
            next: 0,
            known: false,
            doubtful: false,
            one_touch,
            revoked: None,
        });
        let touches = vec![Touch::Own(window)];
        self.post_local(qp, Kind::Bind { window }, SendOp::Bind(bind), touches);
    }

    fn pick_binder(&mut self) -> Option<usize> {
        let qp = self.rng.below(self.ids.len() as u64) as usize;
        (self.state(qp) == Some(QpState::Rts)).then_some(qp)
    }

    /// Unbinds a window by a request of its own side, even if it is in use.
    pub(super) fn unbind(&mut self) {
        let known: Vec<usize> = (0..self.windows.len())
            .filter(|w| self.windows[*w].known && !self.windows[*w].doubtful)
            .collect();
        if known.is_empty() {
            return;
        }
        let window = self.rng.pick(&known);
        let w = &self.windows[window];
        let (qp, stag) = (w.qp, w.stag);
        if self.state(qp) != Some(QpState::Rts) {
            return;
        }
        let (kind, op) = if w.ty == WindowType::One {
            let bind = Bind {
                window: stag,
                region: self.regions[w.range.0].buffer.stag(),
                addr: 0,
                len: 0,
                access: Access::NONE,
                pd: PD,
                qp: self.fabric.queue_pair(self.ids[qp]).number(),
                key: 0,
                zero_based: false,
                one_touch: false,
            };
            (Kind::Bind { window }, SendOp::Bind(bind))
        } else {
            (Kind::Invalidate { window }, SendOp::LocalInvalidate(stag))
        };
        self.windows[window].doubtful = true;
        self.post_local(qp, kind, op, vec![Touch::Own(window)]);
    }

    /// A window bound by a queue pair that a request may invalidate.
    pub(super) fn window_to_invalidate(&mut self, qp: usize) -> Option<usize> {
        let fits = |w: &Window| w.qp == qp && w.known && !w.doubtful && w.ty.can_be_invalidated();
        let found = self.windows.iter().position(fits)?;
        self.rng.chance(Ratio::per_mille(300)).then_some(found)
    }

    /// An unused range in a window of the peer, and its address for the peer.
    pub(super) fn window_range(&mut self, qp: usize) -> Option<(usize, To, (usize, usize), usize)> {
        let peer = self.record.qps[qp].peer;
        let len = self.rng.len(1, 80);
        // A correct program uses a one-touch window once; some use it again (M9).
        let again = self.touch_rng.chance(TOUCH_AGAIN);
        // A window that is being unbound may still be written: the race is intended.
        let fits = |w: &Window| {
            let fresh = !w.one_touch || w.next == 0 || again;
            w.qp == peer && w.known && fresh && w.revoked.is_none() && w.next + len <= w.len
        };
        let at = self.windows.iter().rposition(fits)?;
        let w = &mut self.windows[at];
        w.doubtful |= w.one_touch && w.next > 0;
        let offset = w.next;
        w.next += len;
        let start = if w.zero_based {
            0
        } else {
            self.regions[w.range.0].buffer.at() + w.range.1 as u64
        };
        let to = To::new(start + offset as u64);
        Some((at, to, (w.range.0, w.range.1 + offset), len))
    }
}
