//! A port with a work queue pair of each channel kind, fed by a peer whose cells have valid addresses and checksums and arbitrary other fields.
//! The port must not panic, transmit without end, write memory outside its protection domain, or complete more requests than were posted.
//! What a conforming peer receives is checked by the tests of the crate.

use std::sync::Arc;

use verbena_cells::{ChannelKind, Config, Notice, Peer, Port, WqpInit};
use verbena_mem::{Access, Buffer, Pd, Policy, Tpt};
use verbena_nic::qp::Limits;
use verbena_nic::wr::{Data, Flags, ReceiveWr, Sge};
use verbena_nic::{Cq, Outbox, Wc};
use verbena_split_wire::cell::{PacketSeq, PortAddress};
use verbena_stream::Time;
use verbena_wire::number::Qpn;

use crate::cell::sealed;
use crate::source::Source;

const LOCAL: PortAddress = PortAddress([2, 0, 0, 0, 0, 1]);
const REMOTE: PortAddress = PortAddress([2, 0, 0, 0, 0, 2]);
const PD: Pd = Pd(1);
/// Bytes of the memory that requests name, and of a buffer in another protection domain that must stay zero.
const GRANTED: usize = 256;
const LISTENER: u32 = 9;

struct World {
    port: Port,
    out: Outbox,
    now: Time,
    memory: Buffer,
    guard: Buffer,
    cq: Arc<Cq>,
    posted: usize,
    completed: usize,
}

/// Runs one input: chunks of a byte of switches, a length byte and a cell of at least 32 bytes, whose addresses and checksums are set.
pub fn target(data: &[u8]) {
    let mut world = World::new();
    let mut source = Source::new(data);
    while !source.is_empty() {
        let (turn, len) = (source.byte(), usize::from(source.byte()));
        let mut cell = source.slice(len.max(32)).to_vec();
        if let Some(header) = cell.get_mut(..24) {
            header[4..10].copy_from_slice(&LOCAL.0);
            header[10..16].copy_from_slice(&REMOTE.0);
            // To one of the four work queue pairs (0 to 3), a listener (8, 9) or an unused number; from one of four.
            let (to, from) = (header[19] % 10, header[23] % 4);
            header[16..20].copy_from_slice(&[0, 0, 0, to]);
            header[20..24].copy_from_slice(&[0, 0, 0, from]);
        }
        world.feed(&sealed(&cell), turn);
    }
    world.judge();
}

impl World {
    fn new() -> World {
        let tpt = Arc::new(Tpt::new(1..50, Policy::Verbs, 1));
        let memory = Buffer::new(&tpt, GRANTED, PD, Access::ALL).expect("memory");
        let guard = Buffer::new(&tpt, GRANTED, Pd(2), Access::ALL).expect("memory");
        let cq = Arc::new(Cq::new(1, 10_000).expect("a queue"));
        let mut port = Port::new(LOCAL, Config::default()).expect("a port");
        for number in 0..4 {
            let init = WqpInit {
                number: Qpn::wrapping(number),
                kind: ChannelKind {
                    acknowledged: number & 1 != 0,
                    connected: number & 2 != 0,
                },
                pd: PD,
                send_cq: cq.clone(),
                recv_cq: cq.clone(),
                tpt: tpt.clone(),
                limits: Limits::default(),
                first: PacketSeq::default(),
            };
            port.create(init).expect("a work queue pair");
        }
        port.listen(Qpn::wrapping(LISTENER), true)
            .expect("a listener");
        port.listen(Qpn::wrapping(LISTENER - 1), false)
            .expect("a listener");
        let mut world = World {
            port,
            out: Outbox::new(),
            now: Time::ZERO,
            memory,
            guard,
            cq,
            posted: 0,
            completed: 0,
        };
        let to = Peer {
            port: REMOTE,
            wqp: Qpn::wrapping(LISTENER),
        };
        let asks = world
            .port
            .connect(Qpn::wrapping(2), to, PacketSeq::default(), b"");
        asks.expect("idle");
        world
    }

    fn feed(&mut self, bytes: &[u8], turn: u8) {
        self.port.handle_cells(bytes, self.now, &mut self.out);
        while let Some(notice) = self.port.poll_notice() {
            if let Notice::Request { ticket, .. } = notice {
                let accepted =
                    self.port
                        .accept(ticket, Qpn::wrapping(3), PacketSeq::default(), b"");
                if accepted.is_err() {
                    let _ = self.port.reject(ticket, &[]);
                }
            }
        }
        let number = Qpn::wrapping(u32::from(turn & 3));
        if turn & 4 != 0 {
            let scatter = &[Sge {
                addr: self.memory.at(),
                len: 64,
                stag: self.memory.stag(),
            }];
            let receive = ReceiveWr { id: 1, scatter };
            let posted = self.port.post_receive(number, &receive);
            self.posted += usize::from(posted.is_ok());
            let _ = self.port.ring_receive(number, &mut self.out);
        }
        if turn & 8 != 0 {
            let destination = Some(Peer {
                port: REMOTE,
                wqp: Qpn::wrapping(1),
            });
            let descriptor = verbena_cells::Descriptor {
                control: verbena_cells::ControlSegment {
                    id: 2,
                    operation: verbena_cells::Operation::Send,
                    immediate: None,
                    flags: Flags::SIGNALED,
                },
                address: (turn & 2 == 0).then_some(verbena_cells::AddressSegment {
                    remote: None,
                    destination,
                }),
                data: Data::Inline(b"fuzz"),
            };
            let posted = self.port.post_send(number, &descriptor);
            self.posted += usize::from(posted.is_ok());
            let _ = self.port.ring_send(number, &mut self.out);
        }
        if turn & 16 != 0
            && let Some(deadline) = self.port.deadline()
        {
            self.now = deadline.max(self.now);
            self.port.handle_timeout(self.now, &mut self.out);
        }
        if turn & 32 != 0 {
            let _ = self.port.reset(number);
        }
        let mut datagram = Vec::new();
        let mut count = 0;
        while self
            .port
            .poll_transmit(1400, self.now, &mut datagram, &mut self.out)
            .is_some()
        {
            count += 1;
            assert!(count < 10_000, "it transmits without end");
        }
        self.out = Outbox::new();
    }

    fn judge(&mut self) {
        let mut wcs = [Wc::default(); 64];
        loop {
            let count = self.cq.poll(&mut wcs);
            self.completed += count;
            if count == 0 {
                break;
            }
        }
        assert!(
            self.completed <= self.posted,
            "more completed than was posted"
        );
        let guard = self.guard.read(0, GRANTED);
        assert!(guard.iter().all(|byte| *byte == 0), "the guard was touched");
    }
}
