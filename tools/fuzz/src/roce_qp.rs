//! A queue pair over RoCEv2 with a peer that behaves at first and then sends any packets: requests, responses, acknowledgements, with
//! sequence numbers and keys that are nearly right.
//! It must not panic or send without end, write memory that the peer has no right to, or complete a request more or less than once.

use core::time::Duration;
use std::sync::Arc;

use verbena_mem::{Access, Buffer, Pd, Policy, Tpt};
use verbena_nic::qp::{Limits, QpAccessFlags};
use verbena_nic::trace::ObserverCell;
use verbena_nic::wr::{Data, RemoteAddr};
use verbena_nic::{
    Cq, Flags, Outbox, PacketSender, Personality, Qp, QpInit, QpState, QpType, ReceiveWr,
    Registration, SendOp, SendWr, Sending, Sge, Status, Time, Transfer, Wc,
};
use verbena_roce::{Mtu, Settings};
use verbena_wire::roce::{AtomicEth, Bth, Operation, Packet, Psn, Qpn, Reth, Service, Tail};
use verbena_wire::{Stag, To};

use crate::source::{Source, bit};

const PD: Pd = Pd(1);
const FOREIGN: Pd = Pd(2);
const OWN_QPN: u32 = 5;
const PEER_QPN: u32 = 6;
/// Near the end of the number space, in both directions.
const OWN_PSN: u32 = 0xff_fff8;
const PEER_PSN: u32 = 0xff_fffc;
const MTU: Mtu = Mtu::B256;
const DEPTH: u8 = 3;
/// Bytes of each region.
const SIZE: usize = 4096;
/// Bytes of a receive, in a slot that is longer: the rest must stay as it was.
const RECEIVE: u32 = 600;
const SLOT: usize = 640;
const SLOTS: usize = 64;
/// Bytes of the sink of a read, in the same way.
const SINK: u32 = 600;
/// Packets that one packet or timeout may cause: the responses to all reads that are served, each with all bytes of a region, and everything
/// that was not acknowledged.
const MAX_BURST: usize = 2 * DEPTH as usize * (SIZE / 256) + 400;
const FILL: u8 = 0xee;
/// The bytes of memory that the peer may not read; the script cannot write as many of them side by side.
const SECRET: u8 = 0x55;

/// Takes packets, up to a limit that a queue pair must not reach.
#[derive(Default)]
struct Packets(Vec<Vec<u8>>);

impl PacketSender for Packets {
    fn put<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        assert!(self.0.len() < MAX_BURST, "sends without end");
        let mut packet = Vec::new();
        Some(write(&mut packet).map(|()| {
            assert_eq!(packet.len(), len);
            self.0.push(packet);
        }))
    }
}

struct World {
    qp: Qp,
    service: Service,
    tpt: Arc<Tpt>,
    /// The peer may do everything with it.
    open: Buffer,
    /// The peer may only read it.
    read_only: Buffer,
    /// Of another domain.
    foreign: Buffer,
    receives: Buffer,
    sinks: Buffer,
    cq: Arc<Cq>,
    out: Outbox,
    now: Time,
    /// PSN of the next request that the peer should send.
    next: u32,
    /// The peer's last packet.
    last: Vec<u8>,
    sends: u64,
    posted_receives: u64,
}

/// Runs one input: a byte of switches, then steps of a code and its operands.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let mut world = World::new(source.byte());
    world.begin();
    while !source.is_empty() {
        world.step(&mut source);
        world.transmit();
    }
    world.finish();
}

impl World {
    fn new(switches: u8) -> World {
        let (qp_type, service) = match bit(switches, 0) {
            false => (QpType::Rc, Service::Rc),
            true => (QpType::Uc, Service::Uc),
        };
        let tpt = Arc::new(Tpt::new(1..60, Policy::Verbs, 1));
        let buffer = |len, pd, access| {
            let buffer = Buffer::new(&tpt, len, pd, access).expect("memory");
            buffer.write(0, &vec![FILL; len]);
            buffer
        };
        let read_only = Access::LOCAL_READ | Access::REMOTE_READ;
        let (open, read_only) = (buffer(SIZE, PD, Access::ALL), buffer(SIZE, PD, read_only));
        let foreign = buffer(SIZE, FOREIGN, Access::ALL);
        foreign.write(0, &[SECRET; SIZE]);
        let receives = buffer(SLOT * SLOTS, PD, Access::LOCAL_WRITE);
        let sinks = buffer(SLOT * SLOTS, PD, Access::LOCAL_WRITE | Access::LOCAL_READ);
        let cq = Arc::new(Cq::new(1, 4000).expect("a queue"));
        let qp = Qp::new(QpInit {
            number: OWN_QPN,
            wc_qpn: OWN_QPN,
            pd: PD,
            personality: Personality::Roce,
            qp_type,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            xrcd: None,
            xrc_sends: 0,
            tpt: tpt.clone().into(),
            limits: Limits {
                sends: SLOTS,
                receives: SLOTS,
                ..Limits::default()
            },
            transfer: Transfer::default(),
            registration: Registration::default(),
            observer: ObserverCell::default(),
        });
        let settings = Settings {
            service,
            mtu: MTU,
            dest_qpn: Qpn::wrapping(PEER_QPN),
            send_psn: Psn::wrapping(OWN_PSN),
            receive_psn: Psn::wrapping(PEER_PSN),
            initiator_depth: DEPTH,
            responder_resources: DEPTH,
            timeout: Some(Duration::from_millis(8)),
            retry_count: 7,
            is_lossy: bit(switches, 1),
            rnr_retry: if bit(switches, 2) { 1 } else { 7 },
        };
        let mut out = Outbox::new();
        qp.modify(QpState::Init, &mut out).unwrap();
        assert!(qp.attach_roce(&settings, &mut out));
        World {
            qp,
            service,
            tpt,
            open,
            read_only,
            foreign,
            receives,
            sinks,
            cq,
            out,
            now: Time::ZERO,
            next: PEER_PSN,
            last: Vec::new(),
            sends: 0,
            posted_receives: 0,
        }
    }

    /// The peer's first requests are correct and are executed.
    fn begin(&mut self) {
        self.post_receive();
        let reth = Reth {
            va: To::new(self.open.at() + 8),
            rkey: self.open.stag(),
            len: 5,
        };
        let send = Operation::SendOnly(self.service, Tail::Plain);
        self.deliver(send, b"hello", 1);
        self.deliver(Operation::WriteOnly(self.service, reth, None), b"write", 1);
        assert_eq!(self.receives.read(0, 6), b"hello\xee");
        assert_eq!(self.open.read(8, 6), b"write\xee");
        if self.service == Service::Rc {
            self.deliver(Operation::ReadRequest(reth), b"", 1);
            let add = AtomicEth {
                va: To::new(self.open.at()),
                rkey: self.open.stag(),
                swap_or_add: 1,
                compare: 0,
            };
            self.deliver(Operation::FetchAdd(add), b"", 1);
            let sum = u64::from_ne_bytes([FILL; 8]).wrapping_add(1);
            assert_eq!(self.open.read(0, 8), sum.to_ne_bytes());
        }
        let sent = self.transmit();
        let expected = if self.service == Service::Rc { 3 } else { 0 };
        assert!(sent.len() >= expected, "{} answers", sent.len());
    }

    /// A request of the peer as it should be.
    fn deliver(&mut self, operation: Operation, payload: &[u8], psns: u32) {
        let packet = Packet {
            payload,
            ack_request: true,
            ..Packet::new(operation, Qpn::wrapping(OWN_QPN), Psn::wrapping(self.next))
        };
        self.next = self.next.wrapping_add(psns);
        self.qp.handle_packet(&packet, self.now, &mut self.out);
    }

    fn step(&mut self, source: &mut Source<'_>) {
        match source.byte() % 10 {
            0 => self.post_receive(),
            1 => self.post_request(source.byte()),
            2 => {
                if let Some(deadline) = self.qp.deadline() {
                    self.now = self.now.max(deadline);
                    self.qp.handle_timeout(self.now, &mut self.out);
                }
            }
            3 => {
                let switches = source.byte();
                let enabled = QpAccessFlags {
                    write: !bit(switches, 0),
                    read: !bit(switches, 1),
                    atomic: !bit(switches, 2),
                    flush: true,
                };
                self.qp.set_access_flags(enabled, &mut self.out);
            }
            4 => {
                let len = usize::from(source.byte());
                self.receive(source.slice(len).to_vec());
            }
            5 => self.receive(self.last.clone()),
            6 => {
                let to = match self.qp.state() {
                    QpState::Rts => QpState::Sqd,
                    _ => QpState::Rts,
                };
                // Not from all other states.
                let _ = self.qp.modify(to, &mut self.out);
            }
            _ => {
                let bytes = self.packet(source);
                self.receive(bytes);
            }
        }
    }

    /// A packet with the headers of its opcode, and memory of this side.
    fn packet(&mut self, source: &mut Source<'_>) -> Vec<u8> {
        let service = match self.service {
            Service::Rc => 0,
            Service::Uc => 0x20,
        };
        let opcode = source.byte() & 0x1f | service;
        let switches = source.byte();
        let own = OWN_PSN.wrapping_add(u32::from(source.byte() & 0x3f));
        let psn = match switches & 3 {
            0 => self
                .next
                .wrapping_add(u32::from(source.byte()))
                .wrapping_sub(8),
            1 => source.u32(),
            _ if opcode & 0x1f >= 0x0d && opcode & 0x1f <= 0x12 => own,
            _ => self.next,
        };
        if psn == self.next {
            self.next = self.next.wrapping_add(1);
        }
        let len = match source.byte() {
            0..64 => MTU.bytes() as usize,
            64..192 => 0,
            other => usize::from(other),
        };
        let bth = Bth {
            opcode,
            solicited: bit(switches, 2),
            migration: true,
            pad: (len.wrapping_neg() & 3) as u8,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            dest_qpn: Qpn::wrapping(OWN_QPN),
            ack_request: bit(switches, 3),
            psn: Psn::wrapping(psn),
        };
        let mut bytes = bth.emit().to_vec();
        let reth = |source: &mut Source<'_>| {
            let (stag, at) = self.memory(source.byte());
            let va = at.wrapping_add(u64::from(source.u16() % 4200));
            let long = source.byte();
            let len = u32::from(source.u16()) << (long % 13);
            (stag, To::new(va), len)
        };
        match opcode & 0x1f {
            0x06 | 0x0a | 0x0b | 0x0c => {
                let (rkey, va, mut wanted) = reth(source);
                if bit(switches, 4) {
                    wanted = len as u32;
                }
                let reth = Reth {
                    va,
                    rkey,
                    len: wanted,
                };
                bytes.extend(reth.emit());
            }
            0x13 | 0x14 => {
                let (rkey, va, _) = reth(source);
                let atomic = AtomicEth {
                    va,
                    rkey,
                    swap_or_add: source.u64(),
                    compare: source.u64(),
                };
                bytes.extend(atomic.emit());
            }
            0x0d | 0x0f | 0x10 | 0x11 | 0x12 => {
                let syndrome = if bit(switches, 5) { source.byte() } else { 31 };
                bytes.extend([syndrome, 0, 0, source.byte()]);
            }
            0x16 | 0x17 => bytes.extend(self.memory(source.byte()).0.get().to_be_bytes()),
            _ => {}
        }
        match opcode & 0x1f {
            0x03 | 0x05 | 0x09 | 0x0b => bytes.extend([1, 2, 3, 4]),
            0x12 => bytes.extend(source.array::<8>()),
            _ => {}
        }
        bytes.resize((bytes.len() + len).next_multiple_of(4), 0x77);
        bytes.extend([0; 4]);
        bytes
    }

    /// A key and its address.
    fn memory(&self, choice: u8) -> (Stag, u64) {
        let known = [
            &self.open,
            &self.read_only,
            &self.foreign,
            &self.receives,
            &self.sinks,
        ];
        match known.get(usize::from(choice % 8)) {
            Some(buffer) => (buffer.stag(), buffer.at()),
            None => (Stag::new(u32::from(choice) << 8), self.open.at()),
        }
    }

    /// Bytes of the peer, from the BTH to the ICRC.
    fn receive(&mut self, bytes: Vec<u8>) {
        if let Ok((packet, _)) = Packet::parse(&bytes) {
            self.qp.handle_packet(&packet, self.now, &mut self.out);
        }
        self.last = bytes;
    }

    fn post_receive(&mut self) {
        let slot = self.posted_receives as usize;
        if slot >= SLOTS {
            return;
        }
        let scatter = [sge(&self.receives, slot * SLOT, RECEIVE)];
        let wr = ReceiveWr {
            id: slot as u64,
            scatter: &scatter,
        };
        if self.qp.post_receive(&wr, &mut self.out).is_ok() {
            self.posted_receives += 1;
        }
    }

    fn post_request(&mut self, choice: u8) {
        let slot = self.sends as usize;
        if slot >= SLOTS {
            return;
        }
        let remote = RemoteAddr {
            stag: Stag::new(0x100),
            to: To::new(0x1000),
        };
        let (op, len) = match choice % 5 {
            0 => (
                SendOp::Send {
                    invalidate: None,
                    immediate: None,
                },
                SINK,
            ),
            1 => (
                SendOp::Write {
                    remote,
                    immediate: None,
                },
                SINK,
            ),
            2 | 3 if self.service == Service::Rc => (
                SendOp::Read {
                    remote,
                    local_invalidate: None,
                },
                SINK,
            ),
            _ if self.service == Service::Rc => (
                SendOp::FetchAdd {
                    remote,
                    add: 1,
                    mask: 0,
                },
                8,
            ),
            _ => return,
        };
        let data = [sge(&self.sinks, slot * SLOT, len)];
        let wr = SendWr {
            id: 1000 + slot as u64,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(&data),
        };
        if self.qp.post_send(&wr, &mut self.out).is_ok() {
            self.sends += 1;
        }
    }

    /// Takes everything that is to be sent; each packet is for the peer and no longer than the MTU allows.
    fn transmit(&mut self) -> Vec<Vec<u8>> {
        let mut sender = Packets::default();
        let sending = self
            .qp
            .transmit_packets(&mut sender, self.now, &mut self.out);
        assert_ne!(sending, Sending::Blocked);
        for bytes in &sender.0 {
            let whole = [bytes.as_slice(), &[0; 4]].concat();
            let (packet, _) = Packet::parse(&whole).expect("it parses");
            assert_eq!(packet.dest_qpn, Qpn::wrapping(PEER_QPN));
            assert!(packet.payload.len() <= MTU.bytes() as usize);
            let secret = packet.payload.windows(32).any(|run| run == [SECRET; 32]);
            assert!(!secret, "memory of another domain was sent");
        }
        self.out = Outbox::new();
        sender.0
    }

    /// Every request and every receive completed once, and nothing was written that the peer had no right to.
    fn finish(mut self) {
        self.qp.modify(QpState::Err, &mut self.out).unwrap();
        self.transmit();
        let mut wcs = vec![Wc::default(); 4000];
        let count = self.cq.poll(&mut wcs);
        wcs.truncate(count);
        let mut ids: Vec<u64> = wcs.iter().map(|wc| wc.id).collect();
        ids.sort_unstable();
        let sends = 1000..1000 + self.sends;
        let expected: Vec<u64> = (0..self.posted_receives).chain(sends).collect();
        assert_eq!(ids, expected);
        assert_eq!(self.qp.outstanding(), (0, 0));
        assert_eq!(self.read_only.read(0, SIZE), [FILL; SIZE]);
        assert_eq!(self.foreign.read(0, SIZE), [SECRET; SIZE]);
        for slot in 0..SLOTS {
            for (memory, len, used) in [
                (&self.receives, RECEIVE, self.posted_receives),
                (&self.sinks, SINK, self.sends),
            ] {
                let rest = if slot < used as usize {
                    len as usize
                } else {
                    0
                };
                let held = memory.read(slot * SLOT + rest, SLOT - rest);
                assert!(held.iter().all(|byte| *byte == FILL), "slot {slot}");
            }
        }
        let whole = |wc: &&Wc| wc.status == Status::Success && wc.id < 1000;
        assert!(wcs.iter().filter(whole).all(|wc| wc.len <= RECEIVE));
        drop(self.tpt);
    }
}

fn sge(memory: &Buffer, at: usize, len: u32) -> Sge {
    Sge {
        addr: memory.at() + at as u64,
        len,
        stag: memory.stag(),
    }
}
