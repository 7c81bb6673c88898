//! Valid requests of every kind.
//! Each is recorded with the memory it may access before it is posted.

use verbena_nic::qp::QpAccessFlags;
use verbena_nic::wr::{Data, RemoteAddr};
use verbena_nic::{Flags, QpState, SendOp, SendWr, Sge, Status};

use super::record::{Kind, Op, Touch, Use};
use super::world::{World, Zone};
use crate::rng::Ratio;

/// Bits of a counter used by one addition: its own and one for a carry.
const BITS_PER_ADD: u32 = 2;
/// Most bytes of inline data.
const INLINE: usize = 256;
/// Most bytes of a message.
pub(super) const LONGEST: usize = 3000;
/// Capacity of every receive.
pub(super) const RECEIVE: usize = LONGEST;

/// A request to be posted.
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) op: SendOp,
    pub(super) data: Option<Sge>,
    pub(super) bad: Option<Status>,
    pub(super) touches: Vec<Touch>,
}

impl World {
    /// Posts a valid request on a queue pair that accepts one.
    pub(super) fn request(&mut self) {
        let Some(qp) = self.pick_sender() else {
            return;
        };
        let can = self.allowed(qp);
        let draft = match self.rng.below(100) {
            0..35 => self.send(qp),
            35..60 if can.write => self.write(qp),
            60..80 if self.record.qps[qp].reliable && can.read => self.read(qp),
            80..95 if self.record.qps[qp].reliable && self.supports_rfc7306(qp) && can.atomic => {
                self.atomic(qp)
            }
            _ => self.write_through_window(qp),
        };
        self.post(qp, draft);
    }

    pub(super) fn pick_sender(&mut self) -> Option<usize> {
        let qp = self.rng.below(self.ids.len() as u64) as usize;
        let takes = match self.state(qp)? {
            QpState::Rts | QpState::Sqd => true,
            QpState::Err => self.rng.chance(Ratio::per_mille(200)),
            _ => false,
        };
        takes.then_some(qp)
    }

    /// What the peer allows this queue pair to do with its regions.
    pub(super) fn allowed(&self, qp: usize) -> QpAccessFlags {
        let peer = self.record.qps[qp].peer;
        let open = !self.windows_only[self.record.qps[peer].host];
        let QpAccessFlags {
            write,
            read,
            atomic,
            flush,
        } = self.enabled[peer];
        QpAccessFlags {
            write: write && open,
            // The sink of a classic read is named to the peer: on a windows-only host a region is not allowed (M7).
            read: read && open && !self.windows_only[self.record.qps[qp].host],
            atomic: atomic && open,
            flush: flush && open,
        }
    }

    pub(super) fn supports_rfc7306(&self, qp: usize) -> bool {
        self.rfc7306[self.record.qps[qp].pair]
    }

    fn zone(&mut self) -> Zone {
        if self.rng.chance(Ratio::per_mille(200)) {
            Zone::Transient
        } else {
            Zone::Stable
        }
    }

    /// Source memory with these bytes.
    pub(super) fn source(&mut self, qp: usize, bytes: &[u8]) -> (Sge, Touch) {
        let (host, zone) = (self.record.qps[qp].host, self.zone());
        let room = self.reserve(host, zone, bytes.len());
        self.slot(room, bytes.len(), Use::Fixed(bytes.to_vec()));
        (self.sge(room, bytes.len()), Touch::Local(room.0))
    }

    pub(super) fn next_op(&self) -> usize {
        self.record.ops.len()
    }

    fn send(&mut self, qp: usize) -> Draft {
        let len = self.len();
        let payload = self.payload(len);
        let immediate = self.supports_rfc7306(qp) && self.rng.coin();
        let (data, touch) = self.source(qp, &payload);
        let mut touches = vec![touch];
        let mut stag = None;
        let invalidates = self.window_to_invalidate(self.record.qps[qp].peer);
        // Of RoCEv2, only reliable connections have a Send with Invalidate, and then without immediate data.
        let reliable = self.record.qps[qp].reliable;
        let invalidates = invalidates.filter(|_| reliable || !self.has_packets());
        let immediate = immediate && !(self.has_packets() && invalidates.is_some());
        if let Some(window) = invalidates {
            stag = Some(self.windows[window].stag);
            self.windows[window].doubtful = true;
            touches.push(Touch::Window(window));
        }
        Draft {
            op: SendOp::Send {
                invalidate: stag,
                immediate: immediate.then_some(self.next_op() as u32),
            },
            kind: Kind::Send {
                payload,
                immediate,
                invalidates,
            },
            data: Some(data),
            bad: None,
            touches,
        }
    }

    pub(super) fn write(&mut self, qp: usize) -> Draft {
        let len = self.len();
        let payload = self.payload(len);
        let (data, touch) = self.source(qp, &payload);
        let (peer, zone) = (self.record.qps[self.record.qps[qp].peer].host, self.zone());
        let room = self.reserve(peer, zone, len);
        let op = self.next_op();
        self.slot(room, len, Use::Target(op, payload));
        let immediate = self.supports_rfc7306(qp) && self.rng.chance(Ratio::per_mille(300));
        Draft {
            op: SendOp::Write {
                remote: self.remote(room),
                immediate: immediate.then_some(op as u32),
            },
            kind: Kind::Write { len, immediate },
            data: Some(data),
            bad: None,
            touches: vec![touch, Touch::Remote(room.0)],
        }
    }

    fn write_through_window(&mut self, qp: usize) -> Draft {
        if !self.enabled[self.record.qps[qp].peer].write {
            return self.send(qp);
        }
        let Some((window, to, room, len)) = self.window_range(qp) else {
            return match self.allowed(qp).write {
                true => self.write(qp),
                false => self.send(qp),
            };
        };
        let payload = self.payload(len);
        let (data, touch) = self.source(qp, &payload);
        let op = self.next_op();
        self.slot(room, len, Use::Target(op, payload));
        let remote = RemoteAddr {
            stag: self.windows[window].stag,
            to,
        };
        Draft {
            op: SendOp::Write {
                remote,
                immediate: None,
            },
            kind: Kind::Write {
                len,
                immediate: false,
            },
            data: Some(data),
            bad: None,
            touches: vec![touch, Touch::Window(window)],
        }
    }

    pub(super) fn read(&mut self, qp: usize) -> Draft {
        let len = self.len();
        let bytes = self.payload(len);
        let peer = self.record.qps[self.record.qps[qp].peer].host;
        let zone = match self.rng.below(10) {
            0..2 => Zone::Transient,
            2..4 => Zone::ReadOnly,
            _ => Zone::Stable,
        };
        let from = self.reserve(peer, zone, len);
        self.slot(from, len, Use::Fixed(bytes.clone()));
        let (host, zone) = (self.record.qps[qp].host, self.zone());
        let sink = self.reserve(host, zone, len);
        let op = self.next_op();
        self.slot(sink, len, Use::Target(op, bytes));
        let mut touches = vec![Touch::Local(sink.0), Touch::Remote(from.0)];
        let invalidates = self.window_to_invalidate(qp);
        if let Some(window) = invalidates {
            self.windows[window].doubtful = true;
            touches.push(Touch::Own(window));
        }
        Draft {
            op: SendOp::Read {
                remote: self.remote(from),
                local_invalidate: invalidates.map(|w| self.windows[w].stag),
            },
            kind: Kind::Read { invalidates },
            data: Some(self.sge(sink, len)),
            bad: None,
            touches,
        }
    }

    pub(super) fn atomic(&mut self, qp: usize) -> Draft {
        let (host, op) = (self.record.qps[qp].host, self.next_op());
        let peer = self.record.qps[self.record.qps[qp].peer].host;
        let result = self.reserve(host, Zone::Stable, 8);
        self.slot(result, 8, Use::Result(op));
        let data = Some(self.sge(result, 8));
        if self.rng.chance(Ratio::per_mille(300)) {
            let (from, to) = (self.rng.draw(), self.rng.draw());
            let word = self.reserve(peer, Zone::Stable, 8);
            self.slot(word, 8, Use::Swap(op, from, to));
            let op = SendOp::CmpSwap {
                remote: self.remote(word),
                compare: from,
                compare_mask: u64::MAX,
                swap: to,
                swap_mask: u64::MAX,
            };
            let touches = vec![Touch::Local(result.0), Touch::Remote(word.0)];
            return Draft {
                kind: Kind::Swap,
                op,
                data,
                bad: None,
                touches,
            };
        }
        let (counter, word, add) = self.counter(peer);
        Draft {
            kind: Kind::Add { counter, add },
            op: SendOp::FetchAdd {
                remote: self.remote(word),
                add,
                mask: 0,
            },
            data,
            bad: None,
            touches: vec![Touch::Local(result.0), Touch::Remote(word.0)],
        }
    }

    /// A counter of a host, shared by all its peers, and a bit that no other request adds.
    fn counter(&mut self, host: usize) -> (usize, (usize, usize), u64) {
        let has_bit = |c: &&(usize, (usize, usize), u32)| c.0 == host && c.2 + BITS_PER_ADD <= 64;
        let found = self.counters.iter().find(has_bit).map(|c| c.1);
        let word = found.unwrap_or_else(|| {
            let room = self.reserve(host, Zone::Stable, 8);
            self.slot(room, 8, Use::Counter);
            self.counters.push((host, room, 0));
            room
        });
        let mut bit = 0;
        for counter in self.counters.iter_mut().filter(|c| c.1 == word) {
            bit = counter.2;
            counter.2 += BITS_PER_ADD;
        }
        let slots = self.record.slots.iter();
        let slot = slots.into_iter().position(|s| (s.region, s.at) == word);
        (slot.unwrap_or_default(), word, 1 << bit)
    }

    fn len(&mut self) -> usize {
        match self.rng.below(4) {
            0 => self.rng.len(1, 16),
            1..3 => self.rng.len(17, 400),
            _ => self.rng.len(401, LONGEST),
        }
    }

    /// Posts a request, with the receives that a peer without RNR needs for it.
    pub(super) fn post(&mut self, qp: usize, draft: Draft) {
        let Draft {
            kind,
            op,
            data,
            bad,
            mut touches,
        } = draft;
        let mut flags = Flags::NONE;
        let number = self.next_op();
        let signaled = self.rng.chance(Ratio::per_mille(700));
        let fence = self.rng.chance(Ratio::per_mille(100)) || self.needs_fence(qp, number);
        for (flag, set) in [
            (Flags::SIGNALED, signaled),
            (Flags::FENCE, fence),
            (Flags::LOCAL_FENCE, self.rng.chance(Ratio::per_mille(50))),
            (Flags::SOLICITED, self.rng.chance(Ratio::per_mille(100))),
        ] {
            flags = if set { flags | flag } else { flags };
        }
        let inline = self.inline(&op, bad, data, &mut touches);
        let entry = Op {
            qp,
            kind,
            signaled,
            bad,
            touches,
            behind_damage: self.is_behind_damage(qp),
        };
        self.provide(qp, &entry);
        let pieces: Vec<Sge> = data.into_iter().collect();
        let wr = SendWr {
            id: number as u64,
            op,
            flags,
            data: match &inline {
                Some(bytes) => Data::Inline(bytes),
                None => Data::Gather(&pieces),
            },
        };
        self.log(format!("qp {qp}: post {number} {:?}", wr.op));
        // A request that fails here was never posted: it keeps its number, and must have no effect.
        let mut entry = entry;
        if self.fabric.post_send(self.ids[qp], &wr).is_err() {
            entry.qp = usize::MAX;
        }
        self.record.ops.push(entry);
    }

    /// Sometimes makes a short message inline (V4): then its memory may be revoked at once.
    fn inline(
        &mut self,
        op: &SendOp,
        bad: Option<Status>,
        data: Option<Sge>,
        touches: &mut Vec<Touch>,
    ) -> Option<Vec<u8>> {
        let data = data.filter(|d| d.len as usize <= INLINE)?;
        let chosen = op.takes_inline() && bad.is_none() && self.rng.chance(Ratio::per_mille(300));
        let Some(Touch::Local(area)) = touches.first().copied().filter(|_| chosen) else {
            return None;
        };
        touches.remove(0);
        let buffer = &self.regions[area].buffer;
        let offset = data.addr - buffer.at();
        Some(buffer.read(offset as usize, data.len as usize))
    }

    /// Posts a request that needs no data and no peer.
    pub(super) fn post_local(&mut self, qp: usize, kind: Kind, op: SendOp, touches: Vec<Touch>) {
        let draft = Draft {
            kind,
            op,
            data: None,
            bad: None,
            touches,
        };
        self.post(qp, draft);
    }
}
