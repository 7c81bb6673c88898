//! A RoCEv2 peer that breaks the rules: wrong lengths, sequence numbers, opcodes, keys and answers.
//! Nothing is placed that it has no right to, what it gets back is bounded by what it sends, and what it may not end goes on.

use core::time::Duration;

use verbena_mem::{Access, Buffer, Pd};
use verbena_roce::{Mtu, Settings};
use verbena_stream::Time;
use verbena_wire::ext::RnrTimer;
use verbena_wire::roce::{
    Aeth, AtomicEth, Nak, Operation, Packet, Psn, Qpn, Reth, Service, Syndrome, Tail,
};
use verbena_wire::{Stag, To};

use crate::qp::{PacketSender, QpAccessFlags, Transfer};
use crate::state::{QpState, QpType};
use crate::testing::{PD, Pair, SEND, SIZE, Setup, Side, read, write};
use crate::wc::Status;
use crate::wr::SendOp;

/// PSNs near the end of the number space, in both directions.
const PEER_PSN: u32 = 0xff_fffa;
const OWN_PSN: u32 = 0xff_fffc;
const PEER_QPN: u32 = 0x77;
const MTU: usize = 256;
const DEPTH: u8 = 2;
const FILL: u8 = 0xee;
/// Bytes of IP and UDP headers and of the ICRC, which every packet has besides.
const AROUND: usize = 20 + 8 + 4;

/// A queue pair whose peer is the test.
struct Victim {
    side: Side,
    service: Service,
    now: Time,
}

/// A packet that it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    operation: Operation,
    psn: Psn,
    /// Bytes of the whole packet.
    bytes: usize,
    payload: usize,
}

#[derive(Default)]
struct Packets(Vec<Vec<u8>>);

impl PacketSender for Packets {
    fn put<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let mut packet = Vec::new();
        Some(write(&mut packet).map(|()| {
            assert_eq!(packet.len(), len);
            self.0.push(packet);
        }))
    }
}

fn psn(at: u32) -> Psn {
    Psn::wrapping(PEER_PSN.wrapping_add(at))
}

/// A PSN of the victim's own requests.
fn own(at: u32) -> Psn {
    Psn::wrapping(OWN_PSN.wrapping_add(at))
}

impl Victim {
    fn new(qp_type: QpType) -> Victim {
        Victim::with(Setup {
            qp_type,
            ..Setup::default()
        })
    }

    fn with(setup: Setup) -> Victim {
        let qp_type = setup.qp_type;
        let mut side = Pair::unconnected(setup).b;
        let service = match qp_type {
            QpType::Uc => Service::Uc,
            _ => Service::Rc,
        };
        let settings = Settings {
            service,
            mtu: Mtu::B256,
            dest_qpn: Qpn::wrapping(PEER_QPN),
            send_psn: own(0),
            receive_psn: psn(0),
            initiator_depth: DEPTH,
            responder_resources: DEPTH,
            timeout: Some(Duration::from_millis(67)),
            retry_count: 7,
            is_lossy: true,
            rnr_retry: Settings::RNR_FOREVER,
        };
        side.qp.modify(QpState::Init, &mut side.out).unwrap();
        assert!(side.qp.attach_roce(&settings, &mut side.out));
        side.memory.write(0, &[FILL; SIZE]);
        Victim {
            side,
            service,
            now: Time::ZERO,
        }
    }

    fn rc() -> Victim {
        Victim::new(QpType::Rc)
    }

    /// The peer sends a packet.
    fn deliver(&mut self, psn: Psn, operation: Operation, payload: &[u8]) {
        let number = self.side.qp.number();
        let packet = Packet {
            payload,
            ack_request: true,
            ..Packet::new(operation, Qpn::wrapping(number), psn)
        };
        let out = &mut self.side.out;
        self.side.qp.handle_packet(&packet, self.now, out);
    }

    /// What the victim sends now.
    fn answers(&mut self) -> Vec<Answer> {
        let mut sender = Packets::default();
        let out = &mut self.side.out;
        self.side.qp.transmit_packets(&mut sender, self.now, out);
        let answer = |bytes: &Vec<u8>| {
            let whole = [bytes.as_slice(), &[0; 4]].concat();
            let (packet, _) = Packet::parse(&whole).unwrap();
            assert_eq!(packet.dest_qpn, Qpn::wrapping(PEER_QPN));
            Answer {
                operation: packet.operation,
                psn: packet.psn,
                bytes: bytes.len(),
                payload: packet.payload.len(),
            }
        };
        sender.0.iter().map(answer).collect()
    }

    /// Time passes, and the peer is silent.
    fn advance_to(&mut self, end: Time) {
        while let Some(next) = self.side.qp.deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.side.qp.handle_timeout(self.now, &mut self.side.out);
        }
        self.now = end;
    }

    /// The syndromes of what it sends now.
    fn syndromes(&mut self) -> Vec<(Psn, Syndrome)> {
        let with = |a: &Answer| Some((a.psn, a.operation.aeth()?.syndrome));
        self.answers().iter().filter_map(with).collect()
    }

    /// A receive of 1000 bytes at the end of the memory.
    fn receive(&mut self, id: u64) {
        let scatter = [self.side.sge(7000, 1000)];
        self.side.receive(id, &scatter);
    }

    fn reth(&self, offset: u64, len: u32) -> Reth {
        let remote = self.side.remote(offset);
        Reth {
            va: remote.to,
            rkey: remote.stag,
            len,
        }
    }

    fn add(&self, offset: u64) -> Operation {
        let remote = self.side.remote(offset);
        Operation::FetchAdd(AtomicEth {
            va: remote.to,
            rkey: remote.stag,
            swap_or_add: 1,
            compare: 0,
        })
    }

    /// Nothing was written, and the connection has failed with this NAK.
    fn expect_refused(&mut self, at: u32, nak: Nak, case: &str) {
        let syndromes = self.syndromes();
        assert_eq!(
            syndromes.last(),
            Some(&(psn(at), Syndrome::Nak(nak))),
            "{case}"
        );
        self.expect_untouched(case);
        assert_eq!(self.side.qp.state(), QpState::Err, "{case}");
        // It is silent from then on.
        self.deliver(psn(at), Operation::SendOnly(self.service, Tail::Plain), b"");
        assert_eq!(self.answers(), [], "{case}");
    }

    fn expect_untouched(&self, case: &str) {
        let held = self.side.memory.read(0, SIZE);
        assert!(held.iter().all(|byte| *byte == FILL), "{case}");
    }
}

const WHOLE: [u8; MTU] = [7; MTU];
const SEND_FIRST: Operation = Operation::SendFirst(Service::Rc);
const SEND_MIDDLE: Operation = Operation::SendMiddle(Service::Rc);
const SEND_LAST: Operation = Operation::SendLast(Service::Rc, Tail::Plain);
const SEND_ONLY: Operation = Operation::SendOnly(Service::Rc, Tail::Plain);
const WRITE_MIDDLE: Operation = Operation::WriteMiddle(Service::Rc);
const WRITE_LAST: Operation = Operation::WriteLast(Service::Rc, None);

fn write_first(reth: Reth) -> Operation {
    Operation::WriteFirst(Service::Rc, reth)
}

fn write_only(reth: Reth) -> Operation {
    Operation::WriteOnly(Service::Rc, reth, None)
}

fn acknowledge(syndrome: Syndrome) -> Operation {
    Operation::Acknowledge(Aeth { syndrome, msn: 1 })
}

#[test]
fn packet_of_wrong_length_is_refused() {
    let reth = |victim: &Victim, len| victim.reth(0, len);
    let long = [7; MTU + 1];
    type Case = (&'static str, fn(Reth) -> Operation, usize);
    let cases: [Case; 7] = [
        ("short send first", |_| SEND_FIRST, MTU - 1),
        ("long send first", |_| SEND_FIRST, MTU + 1),
        ("long send only", |_| SEND_ONLY, MTU + 1),
        ("short write first", write_first, MTU - 1),
        ("long write first", write_first, MTU + 1),
        ("read with payload", Operation::ReadRequest, 1),
        ("empty write first", write_first, 0),
    ];
    for (case, operation, len) in cases {
        let mut victim = Victim::rc();
        victim.receive(1);
        let operation = operation(reth(&victim, 1000));
        victim.deliver(psn(0), operation, &long[..len]);
        victim.expect_refused(0, Nak::InvalidRequest, case);
    }
}

#[test]
fn payload_beyond_the_dma_length_is_refused() {
    for (case, len, last) in [
        ("write only too long", 3, None),
        ("write only too short", 200, None),
        ("write first of all", MTU as u32, Some(WRITE_LAST)),
    ] {
        let mut victim = Victim::rc();
        let reth = victim.reth(0, len);
        match last {
            None => victim.deliver(psn(0), write_only(reth), b"four"),
            Some(_) => victim.deliver(psn(0), write_first(reth), &WHOLE),
        }
        victim.expect_refused(0, Nak::InvalidRequest, case);
    }
    // Of several packets, those that fit are placed, and nothing beyond the length that the first announced.
    for (case, operation, payload) in [
        ("middle reaches the end", WRITE_MIDDLE, &WHOLE[..]),
        ("last beyond the end", WRITE_LAST, &WHOLE[..45]),
        ("last before the end", WRITE_LAST, &WHOLE[..43]),
    ] {
        let mut victim = Victim::rc();
        let first = write_first(victim.reth(0, MTU as u32 + 44));
        victim.deliver(psn(0), first, &WHOLE);
        victim.deliver(psn(1), operation, payload);
        let nak = Syndrome::Nak(Nak::InvalidRequest);
        assert_eq!(victim.syndromes().last(), Some(&(psn(1), nak)), "{case}");
        let held = victim.side.memory.read(MTU, SIZE - MTU);
        assert!(held.iter().all(|byte| *byte == FILL), "{case}");
        assert_eq!(victim.side.qp.state(), QpState::Err, "{case}");
    }
}

#[test]
fn send_longer_than_its_receive_is_refused() {
    let mut victim = Victim::rc();
    victim.receive(1);
    victim.deliver(psn(0), SEND_FIRST, &WHOLE);
    for at in 1..4 {
        victim.deliver(psn(at), SEND_MIDDLE, &WHOLE);
    }
    let syndromes = victim.syndromes();
    let nak = Syndrome::Nak(Nak::InvalidRequest);
    assert_eq!(syndromes.last(), Some(&(psn(3), nak)));
    let received: Vec<_> = victim.side.received().iter().map(|w| w.status).collect();
    assert_eq!(received, [Status::LocLenErr]);
    let held = victim.side.memory.read(8000, SIZE - 8000);
    assert!(held.iter().all(|byte| *byte == FILL));
}

#[test]
fn far_psn_is_reported_once_and_not_executed() {
    let mut victim = Victim::rc();
    victim.receive(1);
    let reth = victim.reth(0, 5);
    for ahead in [1, 2, 1000, 1 << 22, (1 << 23) - 1] {
        victim.deliver(psn(ahead), write_only(reth), b"write");
    }
    let gap = (psn(0), Syndrome::Nak(Nak::PsnSequence));
    assert_eq!(victim.syndromes(), [gap]);
    // Behind: counts as repeated, and the last packet that was executed is acknowledged once.
    for behind in [1, 5, 1000, 1 << 22, (1 << 23) - 1] {
        victim.deliver(psn(0_u32.wrapping_sub(behind)), write_only(reth), b"write");
    }
    let last = (psn(u32::MAX), Syndrome::ACK);
    assert_eq!(victim.syndromes(), [last]);
    victim.expect_untouched("far PSNs");
    victim.deliver(psn(0), write_only(reth), b"write");
    assert_eq!(victim.syndromes(), [(psn(0), Syndrome::ACK)]);
    assert_eq!(victim.side.memory.read(0, 5), b"write");
}

#[test]
fn unsolicited_acknowledgement_completes_nothing() {
    let every = [
        Syndrome::ACK,
        Syndrome::Ack { credits: 0 },
        Syndrome::RnrNak(RnrTimer::DEFAULT),
        Syndrome::Nak(Nak::PsnSequence),
        Syndrome::Nak(Nak::InvalidRequest),
        Syndrome::Nak(Nak::RemoteAccess),
        Syndrome::Nak(Nak::RemoteOperational),
    ];
    let mut victim = Victim::rc();
    for syndrome in every {
        // Nothing was sent.
        for at in [0, 1, u32::MAX, 1 << 22] {
            victim.deliver(own(at), acknowledge(syndrome), b"");
        }
    }
    let remote = victim.side.remote(0);
    let gather = [victim.side.sge(0, 600)];
    victim.side.post(1, write(remote), &gather);
    assert_eq!(victim.answers().len(), 3);
    for syndrome in every {
        // Behind what was sent, and before it.
        for at in [3, 4, u32::MAX, 1 << 22, 1 << 23] {
            victim.deliver(own(at), acknowledge(syndrome), b"");
        }
    }
    assert_eq!(victim.side.qp.state(), QpState::Rts);
    assert_eq!(victim.side.statuses(), []);
    assert_eq!(victim.answers(), []);
    victim.deliver(own(2), acknowledge(Syndrome::ACK), b"");
    assert_eq!(victim.side.statuses(), [(1, Status::Success)]);
}

/// Responses of an operation that was not requested, or of another length, change nothing; the right one is placed afterwards.
#[test]
fn wrong_read_response_is_not_placed() {
    let ack = Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    };
    let only = Operation::ReadResponseOnly(ack);
    let first = Operation::ReadResponseFirst(ack);
    let last = Operation::ReadResponseLast(ack);
    let long = [7; 2 * MTU];
    let mut victim = Victim::rc();
    for operation in [only, first, last, Operation::ReadResponseMiddle] {
        victim.deliver(own(0), operation, &WHOLE);
    }
    victim.expect_untouched("no read");
    let remote = victim.side.remote(0);
    let sink = [victim.side.sge(100, 300)];
    victim.side.post(1, read(remote), &sink);
    victim.answers();
    let wrong = [
        (only, &long[..300]),
        (only, &WHOLE[..]),
        (first, &long[..MTU + 1]),
        (first, &WHOLE[..MTU - 1]),
        (first, &long[..]),
        (last, &WHOLE[..44]),
        (Operation::AtomicAcknowledge(ack, 5), &[]),
    ];
    for (operation, payload) in wrong {
        victim.deliver(own(0), operation, payload);
        victim.expect_untouched(operation.name());
    }
    victim.deliver(own(2), only, b"x");
    victim.deliver(own(0), first, &WHOLE);
    for (operation, payload) in [(last, &WHOLE[..45]), (last, &WHOLE[..43]), (first, &WHOLE)] {
        victim.deliver(own(1), operation, payload);
    }
    let held = victim.side.memory.read(100 + MTU, 100);
    assert!(held.iter().all(|byte| *byte == FILL));
    assert_eq!(victim.side.statuses(), []);
    victim.deliver(own(1), last, &WHOLE[..44]);
    assert_eq!(victim.side.statuses(), [(1, Status::Success)]);
    let held = victim.side.memory.read(0, SIZE);
    let placed = held.iter().filter(|byte| **byte != FILL).count();
    assert_eq!((placed, held[99], held[400]), (300, FILL, FILL));
}

#[test]
fn opcodes_out_of_sequence_are_refused() {
    let mut victim = Victim::rc();
    let reth = victim.reth(0, 600);
    let alone = [
        SEND_MIDDLE,
        SEND_LAST,
        WRITE_MIDDLE,
        WRITE_LAST,
        Operation::WriteLast(Service::Rc, Some([0; 4])),
    ];
    for operation in alone {
        victim = Victim::rc();
        victim.receive(1);
        victim.deliver(psn(0), operation, &WHOLE);
        victim.expect_refused(0, Nak::InvalidRequest, operation.name());
    }
    let inside = [
        SEND_FIRST,
        SEND_ONLY,
        WRITE_MIDDLE,
        WRITE_LAST,
        write_first(reth),
        write_only(reth),
        Operation::ReadRequest(reth),
        victim.add(0),
    ];
    for operation in inside {
        victim = Victim::rc();
        victim.receive(1);
        victim.deliver(psn(0), SEND_FIRST, &WHOLE);
        victim.answers();
        let payload: &[u8] = match operation {
            Operation::ReadRequest(_) | Operation::FetchAdd(_) => b"",
            _ => &WHOLE,
        };
        victim.deliver(psn(1), operation, payload);
        let nak = Syndrome::Nak(Nak::InvalidRequest);
        let syndromes = victim.syndromes();
        assert_eq!(
            syndromes.last(),
            Some(&(psn(1), nak)),
            "{}",
            operation.name()
        );
        // Only the first packet of the message was placed.
        let held = victim.side.memory.read(0, 7000);
        assert!(
            held.iter().all(|byte| *byte == FILL),
            "{}",
            operation.name()
        );
        assert_eq!(victim.side.qp.state(), QpState::Err);
        let ended: Vec<_> = victim.side.received().iter().map(|w| w.id).collect();
        assert_eq!(ended, [1], "the receive is flushed once");
    }
}

/// Memory that exists but may not be used so, and memory that does not exist.
#[test]
fn access_without_rights_is_refused() {
    let read_only = Access::LOCAL_READ | Access::REMOTE_READ;
    let write_only_access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let buffers = |victim: &Victim| {
        let buffer = |pd, access| Buffer::new(&victim.side.tpt, 4096, pd, access).unwrap();
        [
            buffer(Pd(PD.0 + 1), Access::ALL),
            buffer(PD, read_only),
            buffer(PD, write_only_access),
        ]
    };
    let of = |buffer: &Buffer, offset: u64, len| Reth {
        va: To::new(buffer.at().wrapping_add(offset)),
        rkey: buffer.stag(),
        len,
    };
    let atomic = |reth: Reth| {
        Operation::FetchAdd(AtomicEth {
            va: reth.va,
            rkey: reth.rkey,
            swap_or_add: 1,
            compare: 0,
        })
    };
    let write_whole = |reth: Reth| match reth.len {
        len if len as usize > MTU => write_first(reth),
        _ => write_only(reth),
    };
    type Kind<'a> = &'a dyn Fn(Reth) -> Operation;
    let cases: [(&str, usize, u64, u32, Kind<'_>); 11] = [
        ("write to another domain", 0, 0, 256, &write_whole),
        ("read of another domain", 0, 0, 256, &Operation::ReadRequest),
        ("atomic in another domain", 0, 0, 8, &atomic),
        ("write to read-only memory", 1, 0, 256, &write_whole),
        ("atomic in read-only memory", 1, 0, 8, &atomic),
        (
            "read of write-only memory",
            2,
            0,
            256,
            &Operation::ReadRequest,
        ),
        ("write beyond the end", 2, 4000, 256, &write_whole),
        (
            "write whose later packets are beyond",
            2,
            0,
            5000,
            &write_whole,
        ),
        ("write before the start", 2, u64::MAX, 256, &write_whole),
        ("read beyond the end", 1, 4000, 256, &Operation::ReadRequest),
        ("read of far more", 1, 0, 1 << 30, &Operation::ReadRequest),
    ];
    for (case, at, offset, len, kind) in cases {
        let mut victim = Victim::rc();
        let buffers = buffers(&victim);
        for buffer in &buffers {
            buffer.write(0, &[FILL; 4096]);
        }
        let operation = kind(of(&buffers[at], offset, len));
        let payload: &[u8] = match operation {
            Operation::WriteOnly(..) | Operation::WriteFirst(..) => &WHOLE,
            _ => b"",
        };
        victim.deliver(psn(0), operation, payload);
        victim.expect_refused(0, Nak::RemoteAccess, case);
        for buffer in &buffers {
            assert_eq!(buffer.read(0, 4096), [FILL; 4096], "{case}");
        }
    }
    let mut victim = Victim::rc();
    let mut unknown = victim.reth(0, 256);
    unknown.rkey = Stag::new(unknown.rkey.get() ^ 0x8000_0000);
    victim.deliver(psn(0), write_only(unknown), &WHOLE);
    victim.expect_refused(0, Nak::RemoteAccess, "unknown key");
}

#[test]
fn disabled_operations_are_refused() {
    let none = QpAccessFlags {
        write: false,
        read: false,
        atomic: false,
        flush: false,
    };
    for case in 0..3 {
        let mut victim = Victim::rc();
        victim.side.qp.set_access_flags(none, &mut victim.side.out);
        let reth = victim.reth(0, 256);
        let (operation, payload): (_, &[u8]) = match case {
            0 => (write_only(reth), &WHOLE),
            1 => (Operation::ReadRequest(reth), b""),
            _ => (victim.add(0), b""),
        };
        victim.deliver(psn(0), operation, payload);
        victim.expect_refused(0, Nak::InvalidRequest, operation.name());
    }
}

/// Memory that is deregistered between two packets of a message.
#[test]
fn revoked_memory_takes_no_further_packet() {
    let mut victim = Victim::rc();
    let start = To::new(victim.side.memory.at());
    let tpt = victim.side.tpt.clone();
    let stag = tpt.register_shared(victim.side.memory.stag(), start, PD, Access::ALL);
    let rkey = stag.unwrap();
    let reth = Reth {
        rkey,
        ..victim.reth(0, 600)
    };
    victim.deliver(psn(0), write_first(reth), &WHOLE);
    tpt.deregister(rkey).unwrap();
    victim.deliver(psn(1), WRITE_MIDDLE, &WHOLE);
    let nak = Syndrome::Nak(Nak::RemoteAccess);
    assert_eq!(victim.syndromes().last(), Some(&(psn(1), nak)));
    let held = victim.side.memory.read(MTU, SIZE - MTU);
    assert!(held.iter().all(|byte| *byte == FILL));
}

/// The memory of a read is deregistered before its response is sent: none of it leaves.
#[test]
fn revoked_memory_is_not_sent() {
    let mut victim = Victim::rc();
    let start = To::new(victim.side.memory.at());
    let tpt = victim.side.tpt.clone();
    let stag = tpt.register_shared(victim.side.memory.stag(), start, PD, Access::ALL);
    let reth = Reth {
        rkey: stag.unwrap(),
        ..victim.reth(0, 600)
    };
    victim.deliver(psn(0), Operation::ReadRequest(reth), b"");
    tpt.deregister(reth.rkey).unwrap();
    let answers = victim.answers();
    assert!(
        answers.iter().all(|answer| answer.payload == 0),
        "{answers:?}"
    );
    let last = answers.last().and_then(|a| a.operation.aeth().copied());
    let nak = Syndrome::Nak(Nak::RemoteAccess);
    assert_eq!(last.map(|aeth| aeth.syndrome), Some(nak));
}

#[test]
fn misaligned_atomic_is_refused() {
    for offset in 1..8 {
        let mut victim = Victim::rc();
        let operation = victim.add(offset);
        victim.deliver(psn(0), operation, b"");
        victim.expect_refused(0, Nak::InvalidRequest, "misaligned");
    }
}

#[test]
fn too_many_reads_at_once_are_refused() {
    let mut victim = Victim::rc();
    let read = Operation::ReadRequest(victim.reth(0, 8));
    for at in 0..=u32::from(DEPTH) {
        victim.deliver(psn(at), read, b"");
    }
    victim.expect_refused(DEPTH.into(), Nak::InvalidRequest, "too many reads");
}

/// Repetitions of requests that are answered without data: no more packets come back than were sent, and none is longer than its
/// request by more than the acknowledgement header.
#[test]
fn repeated_requests_are_not_amplified() {
    let mut victim = Victim::rc();
    victim.receive(1);
    let reth = victim.reth(0, 5);
    let requests: [(Operation, &[u8]); 3] = [
        (SEND_ONLY, b"hello"),
        (write_only(reth), b"write"),
        (victim.add(8), b""),
    ];
    for (at, (operation, payload)) in (0..).zip(requests) {
        victim.deliver(psn(at), operation, payload);
    }
    victim.answers();
    let (mut bytes_in, mut bytes_out) = (0, 0);
    for (at, (operation, payload)) in (0..).zip(requests) {
        for _ in 0..1000 {
            let mut bytes = Vec::new();
            let packet = Packet {
                payload,
                ..Packet::new(operation, Qpn::wrapping(1), psn(at))
            };
            packet.emit(&mut bytes);
            bytes_in += bytes.len() + AROUND;
            victim.deliver(psn(at), operation, payload);
            let answers = victim.answers();
            assert!(answers.len() <= 1, "{answers:?}");
            bytes_out += answers.iter().map(|a| a.bytes + AROUND).sum::<usize>();
        }
    }
    assert!(bytes_out <= bytes_in, "{bytes_in} in, {bytes_out} out");
    // Many that arrive together are answered once.
    for _ in 0..1000 {
        victim.deliver(psn(0), SEND_ONLY, b"hello");
    }
    assert_eq!(victim.answers().len(), 1);
    assert_eq!(victim.side.received().len(), 1);
    // The word began as eight bytes of `FILL`.
    let sum = u64::from_ne_bytes([FILL; 8]).wrapping_add(1);
    assert_eq!(victim.side.memory.read(8, 8), sum.to_ne_bytes());
}

#[test]
fn repeated_reads_queue_one_response() {
    let mut victim = Victim::rc();
    let read = Operation::ReadRequest(victim.reth(0, 4096));
    victim.deliver(psn(0), read, b"");
    victim.answers();
    for _ in 0..1000 {
        victim.deliver(psn(0), read, b"");
    }
    assert_eq!(victim.answers().len(), 4096 / MTU);
    // Another address, a longer one, or another key is not the same read.
    for reth in [
        victim.reth(8, 4096),
        victim.reth(0, 4097),
        Reth {
            rkey: Stag::new(1),
            ..victim.reth(0, 4096)
        },
    ] {
        victim.deliver(psn(0), Operation::ReadRequest(reth), b"");
        assert_eq!(victim.answers(), [], "{reth}");
    }
    assert_eq!(victim.side.qp.state(), QpState::Rts);
}

/// A peer that always asks for repetition gets it as often as the retries allow.
#[test]
fn repeated_naks_use_up_the_retries() {
    let mut victim = Victim::rc();
    let remote = victim.side.remote(0);
    let gather = [victim.side.sge(0, 600)];
    victim.side.post(1, write(remote), &gather);
    let mut sent = victim.answers().len();
    for _ in 0..1000 {
        let nak = acknowledge(Syndrome::Nak(Nak::PsnSequence));
        victim.deliver(own(0), nak, b"");
        sent += victim.answers().len();
    }
    assert_eq!(sent, 3 * 8);
    assert_eq!(victim.side.statuses(), [(1, Status::RetryExcErr)]);
}

#[test]
fn congestion_notifications_do_not_stop_requests() {
    let mut victim = Victim::rc();
    for _ in 0..10_000 {
        let cnp = Operation::CongestionNotification;
        victim.deliver(psn(0), cnp, &Packet::CNP_PAYLOAD);
    }
    let remote = victim.side.remote(0);
    let gather = [victim.side.sge(0, 600)];
    victim.side.post(1, write(remote), &gather);
    assert_eq!(victim.answers().len(), 3);
    victim.deliver(own(2), acknowledge(Syndrome::ACK), b"");
    assert_eq!(victim.side.statuses(), [(1, Status::Success)]);
}

/// A Send with Invalidate of a key that may not be invalidated by the peer, such as that of a region.
#[test]
fn region_is_not_invalidated_by_the_peer() {
    let mut victim = Victim::rc();
    victim.receive(1);
    let tail = Tail::Invalidate(victim.side.memory.stag());
    victim.deliver(psn(0), Operation::SendOnly(Service::Rc, tail), b"x");
    let syndromes = victim.syndromes();
    assert!(
        matches!(syndromes.last(), Some((_, Syndrome::Nak(_)))),
        "{syndromes:?}"
    );
    let received = victim.side.received();
    assert!(received.iter().all(|w| w.status != Status::Success));
    // It can still be shared, so it is valid.
    let start = To::new(victim.side.memory.at());
    let of = victim.side.memory.stag();
    let shared = victim.side.tpt.register_shared(of, start, PD, Access::ALL);
    assert!(shared.is_ok());
}

/// An unreliable connection answers nothing, drops what is wrong, and goes on.
#[test]
fn unreliable_refusals_are_silent() {
    let mut victim = Victim::new(QpType::Uc);
    let uc = Service::Uc;
    let reth = victim.reth(0, 5);
    let foreign = Buffer::new(&victim.side.tpt, 4096, Pd(PD.0 + 1), Access::ALL).unwrap();
    let outside = Reth {
        va: To::new(foreign.at()),
        rkey: foreign.stag(),
        len: 5,
    };
    let wrong: [(Operation, &[u8]); 9] = [
        // No receive is posted.
        (Operation::SendOnly(uc, Tail::Plain), b"hello"),
        (Operation::SendMiddle(uc), &WHOLE),
        (Operation::SendLast(uc, Tail::Plain), b"x"),
        (Operation::WriteMiddle(uc), &WHOLE),
        (Operation::WriteOnly(uc, reth, None), b"longer"),
        (Operation::WriteOnly(uc, outside, None), b"write"),
        // Of the other service.
        (write_only(reth), b"write"),
        (Operation::ReadRequest(reth), b""),
        (victim.add(0), b""),
    ];
    for at in 0..100 {
        let (operation, payload) = wrong[at as usize % wrong.len()];
        victim.deliver(psn(at), operation, payload);
        assert_eq!(victim.answers(), [], "{}", operation.name());
    }
    victim.expect_untouched("refused");
    assert_eq!(foreign.read(0, 5), [0; 5]);
    victim.receive(1);
    victim.deliver(psn(100), Operation::SendOnly(uc, Tail::Plain), b"hello");
    victim.deliver(psn(101), Operation::WriteOnly(uc, reth, None), b"write");
    assert_eq!(victim.side.memory.read(7000, 5), b"hello");
    assert_eq!(victim.side.memory.read(0, 5), b"write");
    assert_eq!(victim.side.received().len(), 1);
    assert_eq!(victim.side.qp.state(), QpState::Rts);
}

/// A peer that tries keys on an unreliable connection, which tells it nothing, is given up.
#[test]
fn unreliable_refusals_are_limited() {
    let mut victim = Victim::new(QpType::Uc);
    for at in 0..1000 {
        let reth = Reth {
            rkey: Stag::new(at << 8),
            ..victim.reth(0, 5)
        };
        victim.deliver(
            psn(at),
            Operation::WriteOnly(Service::Uc, reth, None),
            b"write",
        );
        assert_eq!(victim.answers(), []);
    }
    victim.expect_untouched("refused");
    assert_eq!(victim.side.qp.state(), QpState::Err);
    let cause = victim.side.qp.cause().unwrap_or_default();
    assert!(cause.contains("memory refused 16 messages"), "{cause}");
}

/// A message of an unreliable connection that breaks off: its receive is used by the next one.
#[test]
fn interrupted_unreliable_message_frees_its_receive() {
    let mut victim = Victim::new(QpType::Uc);
    victim.receive(1);
    let uc = Service::Uc;
    victim.deliver(psn(0), Operation::SendFirst(uc), &WHOLE);
    victim.deliver(psn(2), Operation::SendLast(uc, Tail::Plain), b"end");
    assert_eq!(victim.side.received().len(), 0);
    victim.deliver(psn(3), Operation::SendOnly(uc, Tail::Plain), b"whole");
    let received = victim.side.received();
    let ended: Vec<_> = received.iter().map(|w| (w.id, w.status, w.len)).collect();
    assert_eq!(ended, [(1, Status::Success, 5)]);
    assert_eq!(victim.side.memory.read(7000, 5), b"whole");
}

/// A message that begins and does not go on, in a receive of a shared queue. The reliable connection fails, and the receive completes where it
/// was taken; packets of an unreliable one may be lost, so its receive goes back to the queue.
#[test]
fn silence_within_a_message_frees_its_shared_receive() {
    let wait = Duration::from_secs(10);
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut victim = Victim::with(Setup {
            qp_type,
            shared: true,
            transfer: Transfer {
                shared_receive_wait: wait,
                ..Transfer::default()
            },
            ..Setup::default()
        });
        victim.receive(1);
        let first = Operation::SendFirst(victim.service);
        victim.deliver(psn(0), first, &WHOLE);
        victim.answers();
        let srq = victim.side.srq.clone().unwrap();
        assert_eq!(srq.len(), 0, "taken");
        victim.advance_to(Time::ZERO + wait.mul_f32(0.9));
        assert_eq!((victim.side.qp.state(), srq.len()), (QpState::Rts, 0));
        victim.advance_to(Time::ZERO + wait.mul_f32(1.3));
        let received = victim.side.received();
        let ended: Vec<_> = received.iter().map(|wc| (wc.id, wc.status)).collect();
        if qp_type == QpType::Rc {
            assert_eq!(victim.side.qp.state(), QpState::Err);
            let cause = victim.side.qp.cause().unwrap();
            assert!(cause.contains("did not go on"), "{cause}");
            assert_eq!(ended, [(1, Status::WrFlushErr)]);
        } else {
            assert_eq!(victim.side.qp.state(), QpState::Rts);
            assert_eq!((ended, srq.len()), (vec![], 1));
        }
    }
}

/// Acknowledgements of requests that an unreliable connection never waits for.
#[test]
fn unreliable_requester_ignores_answers() {
    let mut victim = Victim::new(QpType::Uc);
    let gather = [victim.side.sge(0, 600)];
    let op: SendOp = SEND;
    victim.side.post(1, op, &gather);
    assert_eq!(victim.answers().len(), 3);
    for syndrome in [
        Syndrome::Nak(Nak::PsnSequence),
        Syndrome::Nak(Nak::RemoteAccess),
    ] {
        victim.deliver(own(0), acknowledge(syndrome), b"");
    }
    assert_eq!(victim.answers(), []);
    assert_eq!(victim.side.statuses(), [(1, Status::Success)]);
    assert_eq!(victim.side.qp.state(), QpState::Rts);
}
