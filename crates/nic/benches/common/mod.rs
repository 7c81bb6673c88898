//! Shared by the benchmarks: two functions, queue pairs connected by a lossless link, and work between them.
//! Everything uses the public verbs, as an engine would, with nothing else in between.

use std::sync::Arc;

use verbena_mem::{Access, Buffer, Pd, Policy, Sources, Targets};
use verbena_nic::qp::{Limits, Qp, Registration, Transfer};
use verbena_nic::wr::{Data, RemoteAddr};
use verbena_nic::{
    Adapter, Carrier, Cq, Flags, Function, IoOutcome, NewQp, Outbox, PacketSender, Personality,
    QpState, QpType, ReceiveWr, SendOp, SendWr, Sge, Shares, Status, Wc,
};
use verbena_roce::Mtu;
use verbena_stream::startup::{Agreement, Rtr};
use verbena_stream::{RnrRetry, Role, Settings, Stream, Time};
use verbena_wire::To;
use verbena_wire::ext::{Caps, Features, RnrTimer};
use verbena_wire::mpa::startup::Revision;
use verbena_wire::number::{Psn, Qpn};
use verbena_wire::roce::{ICRC_LEN, Packet, Service};

/// Most bytes that one turn of the link carries.
const ROOM: usize = 1 << 20;

/// Buffer for received bytes that are not read directly into their memory.
const SCRATCH: usize = 256 << 10;

/// Packets that are handled together.
const RUN: usize = 8;

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
        qp.modify(QpState::Init, &mut self.out).unwrap();
        assert!(qp.attach(stream(role, crc), true, &mut self.out));
    }
}

impl Host {
    /// Attaches a queue pair to RoCEv2, with a path MTU that fits a jumbo frame.
    fn connect_roce(&mut self, qp: &Qp, peer: &Qp) {
        let settings = verbena_roce::Settings {
            service: Service::Rc,
            mtu: Mtu::B4096,
            dest_qpn: Qpn::wrapping(peer.number()),
            send_psn: Psn::wrapping(1),
            receive_psn: Psn::wrapping(1),
            initiator_depth: 16,
            responder_resources: 16,
            timeout: None,
            retry_count: 7,
            is_lossy: true,
            rnr_retry: 7,
        };
        qp.modify(QpState::Init, &mut self.out).unwrap();
        assert!(qp.attach_roce(&settings, &mut self.out));
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

/// A link of packets that loses none; its buffer is kept, as that of a burst is.
#[derive(Default)]
struct PacketWire {
    sent: Vec<u8>,
    /// Where each packet ends, with zeros for its ICRC.
    ends: Vec<usize>,
}

impl PacketSender for PacketWire {
    fn put<E>(
        &mut self,
        _: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let written = write(&mut self.sent);
        self.sent.extend_from_slice(&[0; ICRC_LEN]);
        self.ends.push(self.sent.len());
        Some(written)
    }
}

impl PacketWire {
    /// Carries what `from` sends; false if that is nothing.
    fn carry(&mut self, from: &Qp, from_out: &mut Outbox, to: &Qp, to_out: &mut Outbox) -> bool {
        self.sent.clear();
        self.ends.clear();
        from.transmit_packets(self, Time::ZERO, from_out);
        let mut packets = smallvec::SmallVec::<[Packet<'_>; RUN]>::new();
        let mut start = 0;
        for end in &self.ends {
            let (packet, _) = Packet::parse(&self.sent[start..*end]).expect("as it was written");
            packets.push(packet);
            if packets.len() == RUN {
                to.handle_packets(&packets, Time::ZERO, to_out);
                packets.clear();
            }
            start = *end;
        }
        to.handle_packets(&packets, Time::ZERO, to_out);
        !self.ends.is_empty()
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
    link: Link,
}

/// What carries their bytes.
enum Link {
    Stream(Wire),
    Packets(PacketWire),
}

impl ConnectedPair {
    pub(crate) fn new(crc: bool) -> ConnectedPair {
        ConnectedPair::over(Link::Stream(Wire::default()), |a, qp_a, b, qp_b| {
            a.connect(qp_a, Role::Initiator, crc);
            b.connect(qp_b, Role::Responder, crc);
        })
    }

    /// The same over RoCEv2.
    pub(crate) fn over_roce() -> ConnectedPair {
        let link = Link::Packets(PacketWire::default());
        ConnectedPair::over(link, |a, qp_a, b, qp_b| {
            a.connect_roce(qp_a, qp_b);
            b.connect_roce(qp_b, qp_a);
        })
    }

    fn over(link: Link, connect: impl FnOnce(&mut Host, &Qp, &mut Host, &Qp)) -> ConnectedPair {
        let (mut a, mut b) = (Host::new(), Host::new());
        let (qp_a, qp_b) = (a.qp(), b.qp());
        connect(&mut a, &qp_a, &mut b, &qp_b);
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
            link,
        };
        joined.run();
        joined
    }

    pub(crate) fn run(&mut self) {
        let (out_a, out_b) = (&mut self.a.out, &mut self.b.out);
        let (a, b) = (&self.qp_a, &self.qp_b);
        match &mut self.link {
            Link::Stream(wire) => run(wire, a, out_a, b, out_b),
            Link::Packets(wire) => {
                while wire.carry(a, out_a, b, out_b) | wire.carry(b, out_b, a, out_a) {}
            }
        }
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
