//! Two queue pairs connected by a lossless link, for the tests of this crate.
//! Everything is done by the public verbs; the test moves the bytes, so that it can stop them anywhere. Compiled for tests only.

use std::sync::Arc;

use verbena_events::event::{Event, Outbox};
use verbena_mem::{Access, Buffer, Pd, Policy, Tpt};
use verbena_stream::startup::{Agreement, Rtr};
use verbena_stream::{RnrRetry, Role, Settings, Stream, Time};
use verbena_wire::To;
use verbena_wire::ext::{Caps, Features, RnrTimer};
use verbena_wire::mpa::startup::Revision;

use crate::carrier::MemoryCarrier;
use crate::cq::Cq;
use crate::function::NewQp;
use crate::qp::{Limits, Qp, QpInit, Receiving, Registration, Transfer};
use crate::srq::Srq;
use crate::state::{Personality, QpState, QpType};
use crate::trace::ObserverCell;
use crate::wc::{Status, Wc};
use crate::wr::{Data, Flags, ReceiveWr, RemoteAddr, SendOp, SendWr, Sge};
use crate::xrc::XrcDomain;

/// The connection that a test needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) personality: Personality,
    pub(crate) qp_type: QpType,
    pub(crate) extensions: bool,
    pub(crate) rfc7306: bool,
    pub(crate) features: Features,
    /// Both sides see the same addresses.
    pub(crate) direct: bool,
    pub(crate) rnr_retry: RnrRetry,
    pub(crate) shared: bool,
    pub(crate) policy: Policy,
    pub(crate) cq_size: usize,
    pub(crate) crc: bool,
    pub(crate) markers: bool,
    pub(crate) transfer: Transfer,
    pub(crate) registration: Registration,
    /// Reads that a side may have outstanding; each side serves four.
    pub(crate) ord: u16,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            personality: Personality::Roce,
            qp_type: QpType::Rc,
            extensions: true,
            rfc7306: true,
            features: Features::READ_V2
                | Features::SEND_IMM
                | Features::CLOSING_ACK
                | Features::MEMORY_PLACEMENT,
            direct: true,
            rnr_retry: RnrRetry::Forever,
            shared: false,
            policy: Policy::Verbs,
            cq_size: 100,
            crc: true,
            markers: false,
            transfer: Transfer::default(),
            registration: Registration::default(),
            ord: 4,
        }
    }
}

pub(crate) struct Side {
    pub(crate) qp: Qp,
    pub(crate) tpt: Arc<Tpt>,
    pub(crate) memory: Buffer,
    pub(crate) srq: Option<Arc<Srq>>,
    pub(crate) out: Outbox,
    /// Bytes that arrived while it was not reading.
    inbox: Vec<u8>,
}

pub(crate) const PD: Pd = Pd(1);
/// An XRC queue pair posts no requests but those that name a queue.
const NO_QUEUES: Limits = Limits {
    sends: 0,
    receives: 0,
    max_sge: 16,
    inline: 256,
};
pub(crate) const SIZE: usize = 8192;

impl Side {
    fn new(number: u32, setup: Setup) -> Side {
        let tpt = Arc::new(Tpt::new(1..5000, setup.policy, u64::from(number)));
        Side::on(tpt, number, setup)
    }

    /// A side that shares its table with others.
    fn on(tpt: Arc<Tpt>, number: u32, setup: Setup) -> Side {
        Side::in_domain(tpt, number, setup, None)
    }

    /// A target of an XRC domain, if there is one.
    fn in_domain(tpt: Arc<Tpt>, number: u32, setup: Setup, xrcd: Option<Arc<XrcDomain>>) -> Side {
        let defaults = Limits::default();
        let (limits, xrc_sends) = match setup.qp_type {
            QpType::Rc | QpType::Uc => (defaults, 0),
            QpType::XrcSend => (NO_QUEUES, defaults.sends),
            QpType::XrcRecv => (NO_QUEUES, 0),
        };
        let memory = Buffer::new(&tpt, SIZE, PD, Access::ALL).unwrap();
        let srq = setup.shared.then(|| Arc::new(Srq::new(9, PD, 100, 4)));
        let qp = Qp::new(QpInit {
            number,
            wc_qpn: number,
            pd: PD,
            personality: setup.personality,
            qp_type: setup.qp_type,
            send_cq: Arc::new(Cq::new(number * 10, setup.cq_size).unwrap()),
            recv_cq: Arc::new(Cq::new(number * 10 + 1, setup.cq_size).unwrap()),
            srq: srq.clone(),
            xrcd,
            xrc_sends,
            tpt: tpt.clone().into(),
            limits,
            transfer: setup.transfer,
            registration: setup.registration,
            observer: ObserverCell::default(),
        });
        Side {
            qp,
            tpt,
            memory,
            srq,
            out: Outbox::new(),
            inbox: Vec::new(),
        }
    }

    /// Bytes arrive: read now if the queue pair reads, later otherwise.
    fn receive_bytes(&mut self, bytes: &[u8], now: Time) {
        self.inbox.extend_from_slice(bytes);
        let read = feed(&self.qp, &self.inbox, now, &mut self.out);
        self.inbox.drain(..read);
    }

    pub(crate) fn attach(&mut self, role: Role, setup: Setup) {
        let out = &mut self.out;
        self.qp.modify(QpState::Init, out).unwrap();
        let stream = stream(role, setup);
        assert!(self.qp.attach(stream, setup.rfc7306, &mut self.out));
    }

    /// A part of this side's memory.
    pub(crate) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.memory.at() + offset,
            len,
            stag: self.memory.stag(),
        }
    }

    /// This side's memory as the peer addresses it.
    pub(crate) fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr {
            stag: self.memory.stag(),
            to: To::new(self.memory.at() + offset),
        }
    }

    pub(crate) fn post(&mut self, id: u64, op: SendOp, sges: &[Sge]) {
        self.post_flagged(id, op, sges, Flags::SIGNALED);
    }

    pub(crate) fn post_flagged(&mut self, id: u64, op: SendOp, sges: &[Sge], flags: Flags) {
        let data = Data::Gather(sges);
        let wr = SendWr {
            id,
            op,
            flags,
            data,
        };
        self.qp.post_send(&wr, &mut self.out).unwrap();
    }

    pub(crate) fn receive(&mut self, id: u64, scatter: &[Sge]) {
        let wr = ReceiveWr { id, scatter };
        match &self.srq {
            Some(srq) => {
                if srq.post(&wr).unwrap().is_some() {
                    self.qp.receive_ready(&mut self.out);
                }
            }
            None => self.qp.post_receive(&wr, &mut self.out).unwrap(),
        }
    }

    pub(crate) fn sent(&self) -> Vec<Wc> {
        poll(&self.qp.init().send_cq)
    }

    pub(crate) fn received(&self) -> Vec<Wc> {
        poll(&self.qp.init().recv_cq)
    }

    /// Id and status of each completion of the send queue.
    pub(crate) fn statuses(&self) -> Vec<(u64, Status)> {
        self.sent().iter().map(|w| (w.id, w.status)).collect()
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        let events = self.out.events().to_vec();
        self.out = Outbox::new();
        events
    }
}

/// A stream with the terms of `setup`.
pub(crate) fn stream(role: Role, setup: Setup) -> Stream {
    let agreement = Agreement {
        role,
        revision: Revision::Two,
        crc: setup.crc,
        markers_tx: setup.markers,
        markers_rx: setup.markers,
        ird: 4,
        ord: setup.ord,
        rtr: if setup.extensions {
            Rtr::Caps
        } else {
            Rtr::None
        },
        extensions: setup.extensions,
        private_data: Vec::new(),
    };
    let settings = Settings {
        max_ulpdu: 1000,
        rfc7306: setup.rfc7306,
        rnr_retry: setup.rnr_retry,
        drop_overlong: setup.qp_type == QpType::Uc,
        caps: Caps {
            version: 1,
            max_ulpdu: 65535,
            features: setup.features,
            personality: setup.personality,
            qp_type: setup.qp_type,
            min_rnr_timer: RnrTimer::DEFAULT,
            ird: 4,
            nonce: 1,
            same_host: None,
            path: setup.direct.then_some(1),
        },
    };
    Stream::new(&agreement, settings)
}

pub(crate) fn poll(cq: &Cq) -> Vec<Wc> {
    let mut out = vec![Wc::default(); 200];
    let n = cq.poll(&mut out);
    out.truncate(n);
    out
}

/// A plain Send.
pub(crate) const SEND: SendOp = SendOp::Send {
    invalidate: None,
    immediate: None,
};

/// A write without immediate data.
pub(crate) fn write(remote: RemoteAddr) -> SendOp {
    let immediate = None;
    SendOp::Write { remote, immediate }
}

/// A read that invalidates nothing.
pub(crate) fn read(remote: RemoteAddr) -> SendOp {
    let local_invalidate = None;
    SendOp::Read {
        remote,
        local_invalidate,
    }
}

/// Every run of at least 100 bytes is transferred directly.
pub(crate) fn direct() -> Setup {
    Setup {
        crc: false,
        transfer: Transfer {
            direct_min: 100,
            ..Transfer::default()
        },
        ..Setup::default()
    }
}

/// Two sides and the link between them.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) now: Time,
}

impl Pair {
    /// Two queue pairs in `Reset`.
    pub(crate) fn unconnected(setup: Setup) -> Pair {
        Pair {
            a: Side::new(1, setup),
            b: Side::new(2, setup),
            now: Time::ZERO,
        }
    }

    pub(crate) fn new(setup: Setup) -> Pair {
        Pair::connected(Pair::unconnected(setup), [setup; 2])
    }

    /// An XRC initiator, and a target of this domain.
    pub(crate) fn xrc(setup: Setup, domain: &Arc<XrcDomain>) -> Pair {
        let setups = [QpType::XrcSend, QpType::XrcRecv].map(|qp_type| Setup { qp_type, ..setup });
        let tpt = Arc::new(Tpt::new(1..5000, setup.policy, 2));
        let unconnected = Pair {
            a: Side::new(1, setups[0]),
            b: Side::in_domain(tpt, 2, setups[1], Some(domain.clone())),
            now: Time::ZERO,
        };
        Pair::connected(unconnected, setups)
    }

    /// Two queue pairs of which the second, with this number, shares its table with others.
    pub(crate) fn sharing(setup: Setup, tpt: &Arc<Tpt>, number: u32) -> Pair {
        let unconnected = Pair {
            b: Side::on(tpt.clone(), number, setup),
            ..Pair::unconnected(setup)
        };
        Pair::connected(unconnected, [setup; 2])
    }

    pub(crate) fn connected(mut pair: Pair, setups: [Setup; 2]) -> Pair {
        pair.a.attach(Role::Initiator, setups[0]);
        pair.b.attach(Role::Responder, setups[1]);
        if !setups[0].extensions {
            // A standard responder sends nothing until the initiator's first message.
            let remote = pair.b.remote(0);
            let immediate = None;
            pair.a
                .post_flagged(0, SendOp::Write { remote, immediate }, &[], Flags::NONE);
        }
        pair.run();
        pair.a.events();
        pair.b.events();
        pair
    }

    pub(crate) fn roce() -> Pair {
        Pair::new(Setup::default())
    }

    /// Moves bytes both ways until neither side sends; then delivers the end of file of a side that wants to close.
    pub(crate) fn run(&mut self) {
        loop {
            let moved = carry(&mut self.a, &mut self.b, self.now)
                + carry(&mut self.b, &mut self.a, self.now);
            if moved == 0 {
                break;
            }
        }
        if self.a.qp.wants_close() {
            self.b.qp.handle_eof(false, &mut self.b.out);
        }
        if self.b.qp.wants_close() {
            self.a.qp.handle_eof(false, &mut self.a.out);
        }
    }

    /// Advances the time to the next deadline of either side.
    pub(crate) fn wait(&mut self) {
        let deadline = self
            .a
            .qp
            .deadline()
            .into_iter()
            .chain(self.b.qp.deadline())
            .min();
        self.now = deadline.expect("a timer is set");
        self.a.qp.handle_timeout(self.now, &mut self.a.out);
        self.b.qp.handle_timeout(self.now, &mut self.b.out);
        self.run();
    }
}

fn carry(from: &mut Side, to: &mut Side, now: Time) -> usize {
    let bytes = transmit(&from.qp, 777, now, &mut from.out);
    let waited = to.inbox.len();
    to.receive_bytes(&bytes, now);
    bytes.len() + waited.saturating_sub(to.inbox.len())
}

/// The bytes that a queue pair sends into `room` bytes.
pub(crate) fn transmit(qp: &Qp, room: usize, now: Time, out: &mut Outbox) -> Vec<u8> {
    let mut io = MemoryCarrier::with_room(room);
    qp.transmit(&mut io, now, out);
    io.output
}

/// Lets a queue pair read; returns how much it read.
pub(crate) fn feed(qp: &Qp, bytes: &[u8], now: Time, out: &mut Outbox) -> usize {
    let mut io = MemoryCarrier::with_input(bytes);
    let mut scratch = [0; 600];
    while let Receiving::Some(_) = qp.receive(&mut io, &mut scratch, now, out).receiving {}
    bytes.len() - io.input.len()
}

/// A queue pair that completes everything in one queue.
pub(crate) fn new_qp(pd: Pd, cq: u32) -> NewQp {
    NewQp {
        wc_qpn: None,
        pd,
        personality: Personality::Roce,
        qp_type: QpType::Rc,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        limits: Limits::default(),
        transfer: Transfer::default(),
        registration: Registration::default(),
    }
}
