//! Two ports joined by hand, for the tests of this crate only. Tests use the public calls, and datagrams are carried one by one, so that
//! a test can lose or change any of them.

use std::sync::Arc;

use verbena_mem::{Access, Buffer, Pd, Policy, Tpt};
use verbena_nic::qp::Limits;
use verbena_nic::wr::{Data, Flags, ReceiveWr, RemoteAddr, Sge};
use verbena_nic::{Cq, Outbox, Status, Wc};
use verbena_split_wire::cell::{Cell, Cells, PacketSeq, PortAddress};
use verbena_stream::Time;
use verbena_wire::To;
use verbena_wire::number::Qpn;

use crate::{
    AddressSegment, ChannelKind, Config, ControlSegment, Counters, Descriptor, Error, Notice,
    Operation, Peer, Port, State, WqpInit,
};

pub(crate) const PD: Pd = Pd(1);
pub(crate) const LISTENER: Qpn = Qpn::wrapping(7);
/// Near the maximum, so that every test wraps.
pub(crate) const FIRST: PacketSeq = PacketSeq::new(u32::MAX - 1);
pub(crate) const ROOM: usize = 1400;

pub(crate) const fn kind(acknowledged: bool, connected: bool) -> ChannelKind {
    ChannelKind {
        acknowledged,
        connected,
    }
}

pub(crate) const KINDS: [ChannelKind; 4] = [
    kind(true, true),
    kind(false, true),
    kind(true, false),
    kind(false, false),
];

/// A port with one work queue pair, 20, and its memory.
pub(crate) struct Side {
    pub(crate) port: Port,
    pub(crate) tpt: Arc<Tpt>,
    pub(crate) memory: Buffer,
    pub(crate) sends: Arc<Cq>,
    pub(crate) receives: Arc<Cq>,
    pub(crate) out: Outbox,
    pub(crate) to: Peer,
    pub(crate) kind: ChannelKind,
}

pub(crate) const WQP: Qpn = Qpn::wrapping(20);

impl Side {
    fn new(number: u8, kind: ChannelKind, config: Config, entries: usize) -> Side {
        let tpt = Arc::new(Tpt::new(1..100, Policy::Verbs, u64::from(number)));
        let memory = Buffer::new(&tpt, 1 << 16, PD, Access::ALL).unwrap();
        let cq = |n| Arc::new(Cq::new(n, entries).unwrap());
        let mut side = Side {
            port: Port::new(address(number), config).unwrap(),
            tpt,
            memory,
            sends: cq(0),
            receives: cq(1),
            out: Outbox::new(),
            to: peer(3 - number),
            kind,
        };
        let init = side.init(WQP);
        side.port.create(init).unwrap();
        side
    }

    pub(crate) fn init(&self, number: Qpn) -> WqpInit {
        WqpInit {
            number,
            kind: self.kind,
            pd: PD,
            send_cq: self.sends.clone(),
            recv_cq: self.receives.clone(),
            tpt: self.tpt.clone(),
            limits: Limits::default(),
            first: FIRST,
        }
    }

    pub(crate) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.memory.at() + offset,
            len,
            stag: self.memory.stag(),
        }
    }

    pub(crate) fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr {
            stag: self.memory.stag(),
            to: To::new(self.memory.at() + offset),
        }
    }

    pub(crate) fn receive(&mut self, id: u64, offset: u64, len: u32) {
        let scatter = &[self.sge(offset, len)];
        let wr = ReceiveWr { id, scatter };
        self.port.post_receive(WQP, &wr).unwrap();
        self.port.ring_receive(WQP, &mut self.out).unwrap();
    }

    /// Posts a packet and rings.
    pub(crate) fn send(
        &mut self,
        id: u64,
        remote: Option<RemoteAddr>,
        immediate: Option<u32>,
        data: Data<'_>,
    ) -> Result<(), Error> {
        let descriptor = self.descriptor(id, remote, immediate, data);
        self.port.post_send(WQP, &descriptor)?;
        self.port.ring_send(WQP, &mut self.out)
    }

    pub(crate) fn descriptor<'a>(
        &self,
        id: u64,
        remote: Option<RemoteAddr>,
        immediate: Option<u32>,
        data: Data<'a>,
    ) -> Descriptor<'a> {
        let destination = (!self.kind.connected).then_some(self.to);
        Descriptor {
            control: ControlSegment {
                id,
                operation: remote.map_or(Operation::Send, |_| Operation::Write),
                immediate,
                flags: Flags::SIGNALED,
            },
            address: Some(AddressSegment {
                remote,
                destination,
            }),
            data,
        }
    }

    /// The next datagram.
    pub(crate) fn transmit(&mut self, now: Time) -> Option<Vec<u8>> {
        let mut datagram = Vec::new();
        let to = self
            .port
            .poll_transmit(ROOM, now, &mut datagram, &mut self.out)?;
        assert_eq!(to, self.to.port);
        Some(datagram)
    }

    /// Number and status of each completion of the send queue.
    pub(crate) fn sent(&self) -> Vec<(u64, Status)> {
        let wcs = poll(&self.sends);
        wcs.iter().map(|wc| (wc.id, wc.status)).collect()
    }

    pub(crate) fn received(&self) -> Vec<Wc> {
        poll(&self.receives)
    }

    pub(crate) fn counters(&self) -> Counters {
        self.port.view(WQP).unwrap().counters
    }

    pub(crate) fn state(&self) -> State {
        self.port.view(WQP).unwrap().state
    }

    pub(crate) fn notices(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.port.poll_notice()).collect()
    }
}

pub(crate) fn address(number: u8) -> PortAddress {
    PortAddress([2, 0, 0, 0, 0, number])
}

pub(crate) fn peer(number: u8) -> Peer {
    Peer {
        port: address(number),
        wqp: WQP,
    }
}

pub(crate) fn poll(cq: &Cq) -> Vec<Wc> {
    let mut wcs = vec![Wc::default(); 100];
    let count = cq.poll(&mut wcs);
    wcs.truncate(count);
    wcs
}

/// Two ports.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) now: Time,
}

impl Pair {
    /// A pair that is not connected.
    pub(crate) fn unconnected(kind: ChannelKind, config: Config) -> Pair {
        Pair {
            a: Side::new(1, kind, config, 100),
            b: Side::new(2, kind, config, 100),
            now: Time::ZERO,
        }
    }

    /// A pair that is ready to send, connected if the kind is.
    pub(crate) fn new(kind: ChannelKind) -> Pair {
        Pair::with(kind, Config::default())
    }

    pub(crate) fn with(kind: ChannelKind, config: Config) -> Pair {
        let mut pair = Pair::unconnected(kind, config);
        pair.connect();
        pair
    }

    /// Connects, if the kind is connected.
    pub(crate) fn connect(&mut self) {
        if !self.a.kind.connected {
            return;
        }
        let acknowledged = self.a.kind.acknowledged;
        // Fails if it listens already.
        let _ = self.b.port.listen(LISTENER, acknowledged);
        self.request_connection();
        self.carry();
        let ticket = match &self.b.notices()[..] {
            [Notice::Request { ticket, .. }] => *ticket,
            other => panic!("{other:?}"),
        };
        self.b.port.accept(ticket, WQP, FIRST, b"yes").unwrap();
        self.carry();
        let connected = self.a.notices();
        assert!(matches!(connected[..], [Notice::Connected { .. }]));
        assert_eq!(
            (self.a.state(), self.b.state()),
            (State::Connected, State::Connected)
        );
    }

    pub(crate) fn request_connection(&mut self) {
        let to = Peer {
            wqp: LISTENER,
            ..peer(2)
        };
        self.a.port.connect(WQP, to, FIRST, b"hello").unwrap();
    }

    /// Carries all datagrams in both directions until there are none.
    pub(crate) fn carry(&mut self) {
        self.carry_filtered(|_, _| true);
    }

    /// The same without cells for which `keep` is false; its first argument is true for cells from `a`.
    pub(crate) fn carry_filtered(&mut self, mut keep: impl FnMut(bool, &Cell<'_>) -> bool) {
        for _ in 0..1000 {
            let mut quiet = true;
            for from_a in [true, false] {
                let (from, to) = if from_a {
                    (&mut self.a, &mut self.b)
                } else {
                    (&mut self.b, &mut self.a)
                };
                while let Some(datagram) = from.transmit(self.now) {
                    quiet = false;
                    let mut kept = Vec::new();
                    for cell in Cells::new(&datagram).map(Result::unwrap) {
                        if keep(from_a, &cell) {
                            cell.emit(&mut kept);
                        }
                    }
                    to.port.handle_cells(&kept, self.now, &mut to.out);
                }
            }
            if quiet {
                return;
            }
        }
        panic!("they never fall silent");
    }

    /// Advances the time to the next deadline of either port; false if there is none.
    pub(crate) fn wait(&mut self) -> bool {
        let deadlines = [self.a.port.deadline(), self.b.port.deadline()];
        let Some(next) = deadlines.into_iter().flatten().min() else {
            return false;
        };
        self.now = next.max(self.now);
        self.a.port.handle_timeout(self.now, &mut self.a.out);
        self.b.port.handle_timeout(self.now, &mut self.b.out);
        true
    }
}
