//! Shared by the benchmarks: two functions, queue pairs connected by a lossless link, and work between them.
//! Everything uses the public verbs, as an engine would, with nothing else in between.

use std::sync::Arc;

use verbena_mem::{Access, Buffer, Pd, Policy, Sources, Targets};
use verbena_nic::qp::{Limits, Qp, Registration, Transfer};
use verbena_nic::wr::{Data, RemoteAddr};
use verbena_nic::{
    Adapter, Carrier, Cq, Flags, Function, IoOutcome, NewQp, Outbox, Personality, QpState, QpType,
    ReceiveWr, SendOp, SendWr, Sge, Shares, Status, Wc,
};
use verbena_stream::startup::{Agreement, Rtr};
use verbena_stream::{RnrRetry, Role, Settings, Stream, Time};
use verbena_wire::To;
use verbena_wire::ext::{Caps, Features, RnrTimer};
use verbena_wire::mpa::startup::Revision;

/// Most bytes that one turn of the link carries.
const ROOM: usize = 1 << 20;

/// Buffer for received bytes that are not read directly into their memory.
const SCRATCH: usize = 256 << 10;

/// A function with a domain and a completion queue.
pub(crate) struct Host {
    pub(crate) function: Arc<Function>,
    pub(crate) pd: Pd,
    pub(crate) cq: Arc<Cq>,
    pub(crate) out: Outbox,
}

impl Host {
    pub(crate) fn new() -> Host {
        let adapter = Adapter::new(Shares::default(), Policy::Verbs, 7).expect("it fits");
        let function = adapter.function(0).expect("there from the start");
        let pd = function.allocate_pd().expect("the first");
        let cq = function.create_cq(1000).expect("the first");
        Host {
            function,
            pd,
            cq,
            out: Outbox::new(),
        }
    }

    pub(crate) fn qp(&self) -> Arc<Qp> {
        let new = NewQp {
            wc_qpn: None,
            pd: self.pd,
            personality: Personality::Roce,
            qp_type: QpType::Rc,
            send_cq: self.cq.number(),
            recv_cq: self.cq.number(),
            srq: None,
            limits: Limits::default(),
            transfer: Transfer::default(),
            registration: Registration::default(),
        };
        self.function.create_qp(new).expect("within the limits")
    }

    pub(crate) fn connect(&mut self, qp: &Qp, role: Role, crc: bool) {
        qp.modify(QpState::Init, &mut self.out);
        assert!(qp.attach(stream(role, crc), true, &mut self.out));
    }
}

fn stream(role: Role, crc: bool) -> Stream {
    let agreement = Agreement {
        role,
        revision: Revision::Two,
        crc,
        markers_tx: false,
        markers_rx: false,
        ird: 16,
        ord: 16,
        rtr: Rtr::Caps,
        extensions: true,
        private_data: Vec::new(),
    };
    let settings = Settings {
        max_ulpdu: u16::MAX,
        rfc7306: true,
        rnr_retry: RnrRetry::Forever,
        drop_overlong: false,
        caps: Caps {
            version: Caps::VERSION,
            max_ulpdu: u16::MAX,
            features: Features::READ_V2 | Features::SEND_IMM,
            personality: Personality::Roce,
            qp_type: QpType::Rc,
            min_rnr_timer: RnrTimer::DEFAULT,
            ird: 16,
            nonce: 1,
            same_host: None,
            path: None,
        },
    };
    Stream::new(&agreement, settings)
}

/// A link that is never full; its buffers are kept, as a socket's are.
#[derive(Default)]
pub(crate) struct Wire {
    sent: Vec<u8>,
    read: usize,
    scratch: Vec<u8>,
}

impl Carrier for Wire {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        let n = targets.fill(&self.sent[self.read..]).unwrap();
        self.read += n;
        moved(n)
    }

    fn write(&mut self, sources: &Sources<'_>) -> IoOutcome {
        moved(sources.copy_to(&mut self.sent, ROOM).unwrap())
    }
}

fn moved(n: usize) -> IoOutcome {
    match n {
        0 => IoOutcome::WouldBlock,
        n => IoOutcome::Bytes(n),
    }
}

impl Wire {
    /// Carries what `from` sends; false if that is nothing.
    fn carry(&mut self, from: &Qp, from_out: &mut Outbox, to: &Qp, to_out: &mut Outbox) -> bool {
        (self.read, _) = (0, self.sent.clear());
        from.transmit(self, Time::ZERO, from_out);
        if self.sent.is_empty() {
            return false;
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.resize(SCRATCH, 0);
        while self.read < self.sent.len() {
            to.receive(self, &mut scratch, Time::ZERO, to_out);
        }
        self.scratch = scratch;
        true
    }
}

/// Carries bytes both ways until neither side sends.
pub(crate) fn run(wire: &mut Wire, a: &Qp, out_a: &mut Outbox, b: &Qp, out_b: &mut Outbox) {
    while wire.carry(a, out_a, b, out_b) | wire.carry(b, out_b, a, out_a) {}
}

/// Two connected queue pairs with memory, on adapters of their own.
pub(crate) struct ConnectedPair {
    pub(crate) a: Host,
    pub(crate) b: Host,
    pub(crate) qp_a: Arc<Qp>,
    pub(crate) qp_b: Arc<Qp>,
    pub(crate) memory_a: Buffer,
    pub(crate) memory_b: Buffer,
    wire: Wire,
}

impl ConnectedPair {
    pub(crate) fn new(crc: bool) -> ConnectedPair {
        let (mut a, mut b) = (Host::new(), Host::new());
        let (qp_a, qp_b) = (a.qp(), b.qp());
        a.connect(&qp_a, Role::Initiator, crc);
        b.connect(&qp_b, Role::Responder, crc);
        let memory = |host: &Host| {
            let buffer = host.function.register_buffer(host.pd, 1 << 17, Access::ALL);
            buffer.expect("memory is there")
        };
        let mut joined = ConnectedPair {
            memory_a: memory(&a),
            memory_b: memory(&b),
            a,
            b,
            qp_a,
            qp_b,
            wire: Wire::default(),
        };
        joined.run();
        joined
    }

    pub(crate) fn run(&mut self) {
        let (a, b) = (&mut self.a.out, &mut self.b.out);
        run(&mut self.wire, &self.qp_a, a, &self.qp_b, b);
    }

    /// The peer's memory as addressed by requests.
    pub(crate) fn remote(&self) -> RemoteAddr {
        RemoteAddr {
            stag: self.memory_b.stag(),
            to: To::new(self.memory_b.at()),
        }
    }

    /// One request from post to completion, both sides; a Send consumes a receive.
    #[inline(never)]
    pub(crate) fn run_once(&mut self, op: SendOp, len: u32) {
        let ours = [Sge {
            addr: self.memory_a.at(),
            len,
            stag: self.memory_a.stag(),
        }];
        let theirs = [Sge {
            addr: self.memory_b.at(),
            len,
            stag: self.memory_b.stag(),
        }];
        let mut wc = [Wc::default()];
        let consumes = matches!(op, SendOp::Send { .. });
        if consumes {
            let wr = ReceiveWr {
                id: 1,
                scatter: &theirs,
            };
            let posted = self.qp_b.post_receive(&wr, &mut self.b.out);
            posted.expect("the queue has room");
        }
        let wr = SendWr {
            id: 2,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(&ours),
        };
        let posted = self.qp_a.post_send(&wr, &mut self.a.out);
        posted.expect("the queue has room");
        self.run();
        assert_eq!(self.a.cq.poll(&mut wc), 1);
        assert_eq!(wc[0].status, Status::Success);
        assert_eq!(self.b.cq.poll(&mut wc), usize::from(consumes));
    }
}
