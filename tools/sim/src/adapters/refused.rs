//! Requests that must be refused, each for one reason.
//! They are wrong in that one way only, and are recorded with the status that the reason demands. They are posted on reliable
//! connections only, since an unreliable one does not report the refusal.

use verbena_nic::qp::QpAccessFlags;
use verbena_nic::wr::RemoteAddr;
use verbena_nic::{SendOp, Status};
use verbena_wire::{Stag, To};

use super::record::{Fault, Kind, Touch, Use};
use super::request::{Draft, LONGEST, RECEIVE};
use super::world::{World, Zone};

impl World {
    /// Posts a request that the peer, or this side, must refuse.
    pub(super) fn request_bad(&mut self) {
        let sender = self.pick_sender();
        let Some(qp) = sender.filter(|qp| self.record.qps[*qp].reliable) else {
            return;
        };
        let can = self.allowed(qp);
        // A request that is refused for two reasons would prove neither.
        let draft = match self.rng.below(8) {
            0..2 => self.too_long(qp),
            2..4 if self.supports_rfc7306(qp) && can.atomic => self.unaligned(qp),
            _ if can.write => self.inaccessible_write(qp),
            _ => self.too_long(qp),
        };
        self.record_fault(self.record.qps[qp].pair, Fault::Bad);
        self.post(qp, draft);
    }

    /// Posts a request that would be valid elsewhere: the peer's policy, its queue pair or a domain forbids it.
    pub(super) fn request_forbidden(&mut self) {
        let sender = self.pick_sender();
        let Some(qp) = sender.filter(|qp| self.record.qps[*qp].reliable) else {
            return;
        };
        let peer = self.record.qps[qp].peer;
        let QpAccessFlags {
            write,
            read,
            atomic,
            ..
        } = self.enabled[peer];
        let windows_only = self.windows_only[self.record.qps[peer].host];
        let draft = if !write {
            Some((self.write(qp), Status::RemInvReqErr))
        } else if !read && !self.windows_only[self.record.qps[qp].host] {
            Some((self.read(qp), Status::RemInvReqErr))
        } else if !atomic && self.supports_rfc7306(qp) {
            Some((self.atomic(qp), Status::RemInvReqErr))
        } else if windows_only {
            let draft = match self.extra_rng.below(3) {
                0 if !self.windows_only[self.record.qps[qp].host] => self.read(qp),
                1 if self.supports_rfc7306(qp) => self.atomic(qp),
                _ => self.write(qp),
            };
            Some((draft, Status::RemAccessErr))
        } else {
            None
        };
        let mut draft = match draft {
            Some((draft, status)) => Draft {
                bad: Some(status),
                ..draft
            },
            None => self.foreign_write(qp),
        };
        let reason = match (draft.bad, windows_only) {
            (Some(Status::RemInvReqErr), _) => 1,
            (Some(Status::RemAccessErr), true) => 0,
            _ => 2,
        };
        self.record.forbidden[reason] += 1;
        // The immediate data of a refused write is never sent; it would only need a receive.
        if let (SendOp::Write { remote, .. }, Kind::Write { len, .. }) = (draft.op, &draft.kind) {
            let (len, immediate) = (*len, false);
            draft.kind = Kind::Write { len, immediate };
            draft.op = SendOp::Write {
                remote,
                immediate: None,
            };
        }
        self.record_fault(self.record.qps[qp].pair, Fault::Bad);
        self.post(qp, draft);
    }

    /// A write from memory of another domain, or to it.
    fn foreign_write(&mut self, qp: usize) -> Draft {
        let mut draft = self.write(qp);
        let (SendOp::Write { remote, .. }, Some(data)) = (&mut draft.op, &mut draft.data) else {
            return draft;
        };
        if self.extra_rng.coin() {
            let host = self.record.qps[qp].host;
            let room = self.reserve(host, Zone::Foreign, LONGEST);
            *data = self.sge(room, data.len as usize);
            draft.bad = Some(Status::LocProtErr);
        } else {
            let host = self.record.qps[self.record.qps[qp].peer].host;
            let room = self.reserve(host, Zone::Foreign, LONGEST);
            *remote = self.remote(room);
            draft.bad = Some(Status::RemAccessErr);
        }
        draft
    }

    /// A write to or from memory that does not exist or does not allow it.
    fn inaccessible_write(&mut self, qp: usize) -> Draft {
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
                let room = self.reserve(peer, Zone::ReadOnly, LONGEST);
                remote = self.remote(room);
            }
            _ => {
                draft.bad = Some(Status::LocProtErr);
                data.addr += 1 << 30;
            }
        }
        draft.op = SendOp::Write {
            remote,
            immediate: None,
        };
        draft
    }

    /// A message that is too long for any receive of these programs.
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

    /// An atomic on an unaligned address (M15).
    fn unaligned(&mut self, qp: usize) -> Draft {
        let (host, op) = (self.record.qps[qp].host, self.next_op());
        let peer = self.record.qps[self.record.qps[qp].peer].host;
        let result = self.reserve(host, Zone::Stable, 8);
        self.slot(result, 8, Use::Result(op));
        let word = self.reserve(peer, Zone::Stable, 16);
        let bytes = self.payload(16);
        self.slot(word, 16, Use::Fixed(bytes));
        let RemoteAddr { stag, to } = self.remote(word);
        let to = To::new(to.get() + self.rng.range(1, 7));
        Draft {
            kind: Kind::Swap,
            op: SendOp::FetchAdd {
                remote: RemoteAddr { stag, to },
                add: 1,
                mask: 0,
            },
            data: Some(self.sge(result, 8)),
            bad: Some(Status::RemInvReqErr),
            touches: vec![Touch::Local(result.0), Touch::Remote(word.0)],
        }
    }
}
