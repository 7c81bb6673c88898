//! Requests of an adapter world's programs that must be refused, each for one reason.
//! They promise to be wrong in that one way only, and to be written down with the status that the reason demands.
//! It refuses to post them where an unreliable connection would swallow the refusal.

use verbena_nic::wr::Remote;
use verbena_nic::{SendOp, Status};
use verbena_wire::{Stag, To};

use super::drive::World;
use super::memory::Zone;
use super::record::{Fault, Kind, Touch, Use};
use super::request::{Draft, LONGEST, RECEIVE};

impl World {
    /// A request that the peer, or we ourselves, must refuse.
    pub(super) fn request_bad(&mut self) {
        let sender = self.a_sender();
        let Some(qp) = sender.filter(|qp| self.record.qps[*qp].reliable) else {
            return;
        };
        let draft = match self.rng.below(8) {
            0..2 => self.too_long(qp),
            2..4 if self.takes_7306(qp) => self.unaligned(qp),
            _ => self.out_of_reach(qp),
        };
        self.blame(self.record.qps[qp].pair, Fault::Bad);
        self.post(qp, draft);
    }

    /// A write to memory, or from memory, that is not there or not open.
    fn out_of_reach(&mut self, qp: usize) -> Draft {
        let mut draft = self.write(qp);
        let peer = self.record.qps[self.record.qps[qp].peer].host;
        let (SendOp::Write { mut remote, .. }, Some(data)) = (draft.op, &mut draft.data) else {
            return draft;
        };
        draft.bad = Some(Status::RemAccessErr);
        draft.kind = Kind::Write {
            len: data.len as usize,
            immediate: false,
        };
        match self.rng.below(5) {
            0 => remote.to = To::new(remote.to.get().wrapping_sub(1 << 30)),
            1 => remote.to = To::new(u64::MAX - 2),
            2 => remote.stag = Stag::new(remote.stag.get() ^ 0x8000_0000),
            3 => {
                let room = self.room(peer, Zone::ReadOnly, LONGEST);
                remote = self.remote(room);
            }
            _ => {
                draft.bad = Some(Status::LocProtErr);
                data.at += 1 << 30;
            }
        }
        draft.op = SendOp::Write {
            remote,
            immediate: None,
        };
        draft
    }

    /// A message that no receive of these programs can hold.
    fn too_long(&mut self, qp: usize) -> Draft {
        let len = self.rng.len(RECEIVE + 1, RECEIVE + 1000);
        let payload = self.payload(len);
        let (data, touch) = self.source(qp, &payload);
        Draft {
            kind: Kind::Send {
                payload,
                immediate: false,
                invalidates: None,
            },
            op: SendOp::Send {
                invalidate: None,
                immediate: None,
            },
            data: Some(data),
            bad: Some(Status::RemInvReqErr),
            touches: vec![touch],
        }
    }

    /// An atomic that is not on a word (M15).
    fn unaligned(&mut self, qp: usize) -> Draft {
        let (host, op) = (self.record.qps[qp].host, self.next_op());
        let peer = self.record.qps[self.record.qps[qp].peer].host;
        let result = self.room(host, Zone::Stable, 8);
        self.slot(result, 8, Use::Result(op));
        let word = self.room(peer, Zone::Stable, 16);
        let bytes = self.payload(16);
        self.slot(word, 16, Use::Fixed(bytes));
        let Remote { stag, to } = self.remote(word);
        let to = To::new(to.get() + self.rng.range(1, 7));
        Draft {
            kind: Kind::Swap,
            op: SendOp::FetchAdd {
                remote: Remote { stag, to },
                add: 1,
                mask: 0,
            },
            data: Some(self.piece(result, 8)),
            bad: Some(Status::RemInvReqErr),
            touches: vec![Touch::Local(result.0), Touch::Remote(word.0)],
        }
    }
}
