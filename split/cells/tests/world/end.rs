//! One end of a channel: its planned packets, its completions, and the checker of what it received.

use std::sync::Arc;

use verbena_cells::{
    AddressSegment, ChannelKind, ControlSegment, Descriptor, Operation, Peer, Port, WqpInit,
};
use verbena_mem::{Access, Buffer, Pd, Tpt};
use verbena_nic::qp::Limits;
use verbena_nic::wr::{Data, Flags, ReceiveWr, RemoteAddr, Sge};
use verbena_nic::{Cq, Outbox, Status, Wc, WcOp};
use verbena_split_wire::cell::PacketSeq;
use verbena_wire::To;
use verbena_wire::number::Qpn;

use crate::rng::{Rng, mix};

/// Packets of each end.
pub(crate) const TOTAL: usize = 12;
/// Size of a packet's slot in every buffer.
pub(crate) const SLOT: usize = 2048;
/// A receive has two segments, with a gap between them and one behind, which must stay zero.
const FIRST: (usize, usize) = (0, 700);
const SECOND: (usize, usize) = (720, 1300);
pub(crate) const PD: Pd = Pd(1);

/// A planned packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) write: bool,
    pub(crate) immediate: bool,
    pub(crate) len: usize,
}

impl Item {
    /// It completes a receive of the peer.
    pub(crate) fn is_visible(&self) -> bool {
        !self.write || self.immediate
    }
}

/// One end.
pub(crate) struct End {
    pub(crate) index: usize,
    pub(crate) node: usize,
    pub(crate) number: Qpn,
    pub(crate) kind: ChannelKind,
    pub(crate) plan: Vec<Item>,
    pub(crate) posted: usize,
    pub(crate) done: Vec<Status>,
    pub(crate) delivered: Vec<usize>,
    pub(crate) connected: bool,
    pub(crate) ended: bool,
    source: Buffer,
    pub(crate) target: Buffer,
    inbox: Buffer,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    /// Receives that are not posted again yet.
    pub(crate) unposted: Vec<u64>,
}

/// The content of packet `item` of end `end`, which depends on both.
fn content(end: usize, item: usize, len: usize) -> Vec<u8> {
    let word = |at: u64| mix((end as u64) << 40 | (item as u64) << 20 | at).to_le_bytes();
    let mut bytes: Vec<u8> = (0..len.div_ceil(8) as u64).flat_map(word).collect();
    bytes.truncate(len);
    for (to, from) in bytes.iter_mut().zip((item as u32).to_be_bytes()) {
        *to = from;
    }
    bytes
}

impl End {
    pub(crate) fn new(
        (me, node, kind): (usize, usize, ChannelKind),
        longest: usize,
        (port, tpt): (&mut Port, &Arc<Tpt>),
        rng: &mut Rng,
    ) -> End {
        let number = Qpn::wrapping(100 + me as u32);
        let plan: Vec<Item> = (0..TOTAL)
            .map(|_| Item {
                write: rng.chance(500),
                immediate: rng.chance(600),
                len: 4 + rng.below(longest as u64 - 3) as usize,
            })
            .collect();
        let buffer = |access| Buffer::new(tpt, TOTAL * SLOT, PD, access).unwrap();
        let source = buffer(Access::LOCAL_READ);
        for (item, planned) in plan.iter().enumerate() {
            assert!(source.write(item * SLOT, &content(me, item, planned.len)));
        }
        let cq = |n| Arc::new(Cq::new(n, 200).unwrap());
        let end = End {
            index: me,
            node,
            number,
            kind,
            plan,
            posted: 0,
            done: Vec::new(),
            delivered: Vec::new(),
            connected: !kind.connected,
            ended: false,
            source,
            target: buffer(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            inbox: buffer(Access::LOCAL_WRITE),
            send_cq: cq(2 * me as u32),
            recv_cq: cq(2 * me as u32 + 1),
            unposted: Vec::new(),
        };
        port.create(WqpInit {
            number,
            kind,
            pd: PD,
            send_cq: end.send_cq.clone(),
            recv_cq: end.recv_cq.clone(),
            tpt: tpt.clone(),
            limits: Limits::default(),
            first: PacketSeq::new(rng.next() as u32),
        })
        .unwrap();
        let receives = if kind.acknowledged { 3 } else { TOTAL };
        for id in 0..receives {
            end.receive(id as u64, port);
        }
        end
    }

    pub(crate) fn receive(&self, id: u64, port: &mut Port) {
        let at = self.inbox.at() + id * SLOT as u64;
        let piece = |(from, len): (usize, usize)| Sge {
            addr: at + from as u64,
            len: len as u32,
            stag: self.inbox.stag(),
        };
        let scatter = &[piece(FIRST), piece(SECOND)];
        let receive = ReceiveWr { id, scatter };
        port.post_receive(self.number, &receive).unwrap();
        let rung = port.ring_receive(self.number, &mut Outbox::new());
        rung.unwrap();
    }

    /// Posts the next packet.
    pub(crate) fn post(&mut self, to: &Destination, port: &mut Port, rng: &mut Rng) {
        let (item, planned) = (self.posted, self.plan[self.posted]);
        let at = self.source.at() + (item * SLOT) as u64;
        let cut = rng.below(planned.len as u64 + 1) as u32;
        let piece = |from: u32, len: u32| Sge {
            addr: at + u64::from(from),
            len,
            stag: self.source.stag(),
        };
        let len = planned.len as u32;
        let pieces = [piece(0, cut), piece(cut, len - cut)];
        let remote = planned.write.then(|| RemoteAddr {
            stag: to.stag,
            to: To::new(to.at + (item * SLOT) as u64),
        });
        let destination = (!self.kind.connected).then_some(to.peer);
        let descriptor = Descriptor {
            control: ControlSegment {
                id: item as u64,
                operation: if planned.write {
                    Operation::Write
                } else {
                    Operation::Send
                },
                immediate: planned.immediate.then_some(item as u32),
                flags: Flags::SIGNALED,
            },
            address: Some(AddressSegment {
                remote,
                destination,
            }),
            data: Data::Gather(&pieces),
        };
        port.post_send(self.number, &descriptor).unwrap();
        port.ring_send(self.number, &mut Outbox::new()).unwrap();
        self.posted += 1;
    }

    /// Checks the completion of a send: in order, each once.
    pub(crate) fn sent(&mut self, wc: &Wc) {
        assert_eq!(wc.id as usize, self.done.len(), "sends complete in order");
        let before = self.done.last().copied().unwrap_or(Status::Success);
        if self.kind.connected && before != Status::Success {
            assert_ne!(wc.status, Status::Success, "success behind a failure");
        }
        self.done.push(wc.status);
    }

    /// Checks a receive that completed with a packet of `from`.
    pub(crate) fn received(&mut self, wc: &Wc, from: &End) {
        let pieces = |id: u64, len: usize| {
            let at = id as usize * SLOT;
            let first = len.min(FIRST.1);
            let mut bytes = self.inbox.read(at, first);
            bytes.extend(self.inbox.read(at + SECOND.0, len - first));
            bytes
        };
        let item = match wc.op {
            WcOp::Receive => {
                let bytes = pieces(wc.id, wc.len as usize);
                let item = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
                assert!(!from.plan[item].write);
                assert_eq!(
                    bytes,
                    content(from.index, item, from.plan[item].len),
                    "{item}"
                );
                assert_eq!(
                    wc.immediate,
                    from.plan[item].immediate.then_some(item as u32)
                );
                item
            }
            WcOp::ReceiveWriteImm => {
                let item = wc.immediate.unwrap() as usize;
                assert_eq!(wc.len as usize, from.plan[item].len);
                self.written(item, from);
                item
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(wc.src_qp, from.number.get());
        if self.kind.connected {
            let after = self.delivered.last();
            assert!(after.is_none_or(|last| *last < item), "out of order");
        } else if self.kind.acknowledged {
            assert!(!self.delivered.contains(&item), "twice");
        }
        if self.kind.connected && self.kind.acknowledged {
            // Everything before it has arrived, too, with or without a completion.
            let before = from.plan[..item].iter().enumerate();
            let seen = before.clone().filter(|(_, planned)| planned.is_visible());
            assert_eq!(self.delivered.len(), seen.count(), "a packet is missing");
            for (silent, _) in before.filter(|(_, planned)| !planned.is_visible()) {
                self.written(silent, from);
            }
        }
        self.delivered.push(item);
    }

    fn written(&self, item: usize, from: &End) {
        let planned = from.plan[item];
        let bytes = self.target.read(item * SLOT, planned.len);
        assert_eq!(
            bytes,
            content(from.index, item, planned.len),
            "write {item}"
        );
    }

    /// Checks that nothing was written outside of what was granted.
    pub(crate) fn check_untouched(&self, from: &End) {
        for slot in 0..TOTAL {
            let at = slot * SLOT;
            let gap = FIRST.1..SECOND.0;
            let gaps = [
                self.inbox.read(at + gap.start, gap.len()),
                self.inbox
                    .read(at + SECOND.0 + SECOND.1, SLOT - SECOND.0 - SECOND.1),
            ];
            let planned = from.plan[slot];
            let meant = if planned.write { planned.len } else { 0 };
            let beside = self.target.read(at + meant, SLOT - meant);
            let zero = |bytes: &Vec<u8>| bytes.iter().all(|byte| *byte == 0);
            assert!(gaps.iter().all(zero), "a receive was overrun");
            assert!(zero(&beside), "memory beside a write was touched");
        }
        for (item, planned) in self.plan.iter().enumerate() {
            let source = self.source.read(item * SLOT, planned.len);
            assert_eq!(source, content(self.index, item, planned.len));
        }
    }
}

/// The destination of an end's packets.
pub(crate) struct Destination {
    pub(crate) peer: Peer,
    pub(crate) stag: verbena_wire::Stag,
    pub(crate) at: u64,
}
