//! A queue pair over a carrier with sequence numbers (M9, M10), and a peer whose frames arrive in any order: ahead of gaps, repeated, cut, damaged,
//! and as frames that no peer should send.
//! It must not panic or send without end, write memory that the peer has no right to, or complete a receive more or less than once; and it takes no
//! more of a segment than there is.

use std::sync::Arc;

use verbena_mem::{Access, Buffer, Pd, Policy, Tpt};
use verbena_nic::qp::{Limits, Segment};
use verbena_nic::trace::ObserverCell;
use verbena_nic::{
    Cq, MemoryCarrier, Outbox, Personality, Qp, QpInit, QpState, QpType, ReceiveWr, Registration,
    Sge, Time, Transfer, Wc,
};
use verbena_stream::startup::Rtr;
use verbena_stream::{Agreement, Alignment, RnrRetry, Role, Settings, Stream};
use verbena_wire::ddp::{Header, Tagged, Untagged};
use verbena_wire::ext::{self, Caps, Features, RnrTimer};
use verbena_wire::mpa::startup::Revision;
use verbena_wire::mpa::{Phase, emit_fpdu};
use verbena_wire::rdmap::{Opcode, ReadRequest};
use verbena_wire::{Mo, Msn, Qn, Stag, To};

use crate::source::{Source, bit};

const PD: Pd = Pd(1);
const FOREIGN: Pd = Pd(2);
/// Bytes of each region.
const SIZE: usize = 4096;
/// Bytes of a receive, in a slot that is longer: the rest must stay as it was.
const RECEIVE: u32 = 200;
const SLOT: usize = 256;
const SLOTS: usize = 32;
const FILL: u8 = 0xee;
const SECRET: u8 = 0x55;
const MAX_FRAMES: usize = 48;
const MAX_STEPS: usize = 400;
/// Bytes behind the left edge that the carrier accepts.
const WINDOW: u32 = 1 << 16;
/// Bytes that are sent between two steps, at most: the answers to all reads that wait.
const MAX_ANSWER: usize = 1 << 20;

/// A frame of the peer and its place in the stream.
struct Frame {
    position: u64,
    bytes: Vec<u8>,
}

/// The frames of a peer, in the order of the stream.
struct Script {
    phase: Option<Phase>,
    crc: bool,
    frames: Vec<Frame>,
    end: u64,
    /// The next message of queues 0 and 1, and the offset in it.
    queues: [(u32, u32); 2],
}

impl Script {
    fn frame(&mut self, ulpdu: &[u8]) {
        let mut bytes = Vec::new();
        self.phase = emit_fpdu(ulpdu, self.phase, self.crc, &mut bytes);
        let position = self.end;
        self.end += bytes.len() as u64;
        self.frames.push(Frame { position, bytes });
    }

    fn untagged(&mut self, opcode: Opcode, last: bool, ulp: u32, body: &[u8]) {
        let qn = opcode.qn().unwrap_or(Qn::SEND);
        let (msn, mo) = &mut self.queues[qn.get() as usize % 2];
        let header = Untagged {
            last,
            opcode,
            ulp,
            qn,
            msn: Msn::new(*msn),
            mo: Mo::new(*mo),
        };
        (*msn, *mo) = match last {
            true => (msn.wrapping_add(1), 0),
            false => (*msn, mo.wrapping_add(body.len() as u32)),
        };
        let mut ulpdu = Header::from(header).emit().to_vec();
        ulpdu.extend(body);
        self.frame(&ulpdu);
    }
}

struct World {
    qp: Qp,
    tpt: Arc<Tpt>,
    /// The peer may do everything with it.
    open: Buffer,
    /// The peer may only read it.
    read_only: Buffer,
    /// Of another domain.
    foreign: Buffer,
    receives: Buffer,
    cq: Arc<Cq>,
    out: Outbox,
    /// Ranges of the stream that were taken.
    arrived: Vec<(u64, u64)>,
    processed: u64,
    posted: u64,
}

/// Runs one input: switches, the frames, then steps of a code and its operands.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let switches = source.byte();
    let mut world = World::new(switches);
    let script = world.script(switches, &mut source);
    for _ in 0..MAX_STEPS {
        if source.is_empty() {
            break;
        }
        world.step(&script, switches, &mut source);
        world.transmit();
    }
    world.finish();
}

impl World {
    fn new(switches: u8) -> World {
        let tpt = Arc::new(Tpt::new(1..60, Policy::Verbs, 1));
        let buffer = |len, pd, access, fill| {
            let buffer = Buffer::new(&tpt, len, pd, access).expect("memory");
            buffer.write(0, &vec![fill; len]);
            buffer
        };
        let reads = Access::LOCAL_READ | Access::REMOTE_READ;
        let cq = Arc::new(Cq::new(1, 1000).expect("a queue"));
        let qp = Qp::new(QpInit {
            number: 5,
            wc_qpn: 5,
            pd: PD,
            personality: Personality::Iwarp,
            qp_type: QpType::Rc,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            xrcd: None,
            xrc_sends: 0,
            tpt: tpt.clone().into(),
            limits: Limits {
                receives: SLOTS,
                ..Limits::default()
            },
            transfer: Transfer::default(),
            registration: Registration::default(),
            observer: ObserverCell::default(),
        });
        let mut out = Outbox::new();
        qp.modify(QpState::Init, &mut out).expect("from Reset");
        assert!(qp.attach(stream(switches), true, &mut out));
        World {
            qp,
            open: buffer(SIZE, PD, Access::ALL, FILL),
            read_only: buffer(SIZE, PD, reads, FILL),
            foreign: buffer(SIZE, FOREIGN, Access::ALL, SECRET),
            receives: buffer(SLOT * SLOTS, PD, Access::LOCAL_WRITE, FILL),
            tpt,
            cq,
            out,
            arrived: Vec::new(),
            processed: 0,
            posted: 0,
        }
    }

    fn script(&self, switches: u8, source: &mut Source<'_>) -> Script {
        let mut script = Script {
            phase: bit(switches, 1).then_some(Phase::START),
            crc: bit(switches, 0),
            frames: Vec::new(),
            end: 0,
            queues: [(1, 0); 2],
        };
        let count = usize::from(source.byte()) % MAX_FRAMES;
        for _ in 0..count {
            let [kind, len] = source.array();
            let (last, len) = (!bit(kind, 3), usize::from(len));
            let body = vec![len as u8; len];
            match kind & 7 {
                0 | 1 => script.untagged(Opcode::Send, last, 0, &body),
                2 => {
                    let (stag, _) = self.memory(source.byte());
                    script.untagged(Opcode::SendInv, last, stag.get(), &body);
                }
                3 => {
                    let (source_stag, at) = self.memory(source.byte());
                    let request = ReadRequest {
                        sink_stag: Stag::new(7),
                        sink_to: To::new(0),
                        size: u32::from(source.u16()) % (SIZE as u32 + 99),
                        source_stag,
                        source_to: To::new(at),
                    };
                    script.untagged(Opcode::ReadRequest, true, 0, &request.emit());
                }
                4 | 5 => {
                    let (stag, at) = self.memory(source.byte());
                    let to = at.wrapping_add(u64::from(source.u16()) % (SIZE as u64 + 99));
                    let header = Tagged {
                        last,
                        opcode: Opcode::Write,
                        stag,
                        to: To::new(to),
                    };
                    let mut ulpdu = Header::from(header).emit().to_vec();
                    ulpdu.extend(body);
                    script.frame(&ulpdu);
                }
                6 => {
                    // A number that is repeated, or ahead.
                    let (msn, _) = &mut script.queues[usize::from(kind >> 4 & 1)];
                    *msn = msn.wrapping_add(u32::from(len as u8 & 7)).wrapping_sub(2);
                }
                _ => {
                    let ulpdu = source.slice(len);
                    script.frame(ulpdu);
                }
            }
        }
        script
    }

    /// A key and its address.
    fn memory(&self, choice: u8) -> (Stag, u64) {
        let known = [&self.open, &self.read_only, &self.foreign, &self.receives];
        match known.get(usize::from(choice % 8)) {
            Some(buffer) => (buffer.stag(), buffer.at()),
            None => (self.open.stag(), self.open.at()),
        }
    }

    fn step(&mut self, script: &Script, switches: u8, source: &mut Source<'_>) {
        let [code, which] = source.array();
        if code < 32 {
            return self.post_receive();
        }
        let Some(at) = usize::from(which).checked_rem(script.frames.len()) else {
            return;
        };
        let frame = &script.frames[at];
        let (mut position, mut bytes) = (frame.position, frame.bytes.clone());
        if bit(code, 0)
            && let Some(next) = script.frames.get(at + 1)
        {
            bytes.extend(&next.bytes);
        }
        if code & 6 == 6 {
            let cut = usize::from(source.byte()) % bytes.len();
            bytes.drain(..cut);
            position += cut as u64;
        }
        if code & 24 == 24 {
            let len = usize::from(source.byte()) % (bytes.len() + 1);
            bytes.truncate(len);
        }
        if code > 240 && !bytes.is_empty() {
            let damaged = usize::from(source.byte()) % bytes.len();
            bytes[damaged] ^= 1 << (code & 7);
        }
        self.arrive(position, &bytes, bit(switches, 2));
    }

    fn arrive(&mut self, position: u64, bytes: &[u8], aligned: bool) {
        let end = position + bytes.len() as u64;
        self.arrived.push((position, end));
        let in_order = self.in_order();
        let segment = Segment {
            position,
            bytes,
            in_order,
            window: WINDOW,
            alignment: if aligned {
                Alignment::Frames
            } else {
                Alignment::Unknown
            },
        };
        let taken = self.qp.receive_segment(&segment, Time::ZERO, &mut self.out);
        assert!(taken.taken <= bytes.len(), "{taken:?}");
        let processed = taken.processed;
        assert!(
            self.processed <= processed,
            "{processed} after {}",
            self.processed
        );
        self.processed = processed;
        self.arrived.pop();
        if taken.taken > 0 {
            self.arrived.push((position, position + taken.taken as u64));
        }
        if self.qp.state() == QpState::Rts {
            assert!(
                processed <= self.in_order(),
                "what has not arrived is processed"
            );
        }
    }

    fn in_order(&self) -> u64 {
        let mut at = 0;
        while let Some((_, to)) = self.arrived.iter().find(|(a, b)| *a <= at && at < *b) {
            at = *to;
        }
        at
    }

    fn post_receive(&mut self) {
        let slot = self.posted as usize;
        if slot >= SLOTS {
            return;
        }
        let scatter = [Sge {
            addr: self.receives.at() + (slot * SLOT) as u64,
            len: RECEIVE,
            stag: self.receives.stag(),
        }];
        let wr = ReceiveWr {
            id: slot as u64,
            scatter: &scatter,
        };
        if self.qp.post_receive(&wr, &mut self.out).is_ok() {
            self.posted += 1;
        }
        // A message may have waited for it.
        self.arrive(self.processed, &[], false);
    }

    fn transmit(&mut self) {
        let mut carrier = MemoryCarrier::with_room(MAX_ANSWER);
        self.qp.transmit(&mut carrier, Time::ZERO, &mut self.out);
        assert!(carrier.output.len() < MAX_ANSWER, "sends without end");
        let secret = carrier.output.windows(300).any(|run| run == [SECRET; 300]);
        assert!(!secret, "memory of another domain was sent");
        self.out = Outbox::new();
    }

    /// Every receive completed once, and nothing was written that the peer had no right to.
    fn finish(mut self) {
        // The queue pair may have failed.
        let _ = self.qp.modify(QpState::Err, &mut self.out);
        self.transmit();
        let mut wcs = vec![Wc::default(); 1000];
        let count = self.cq.poll(&mut wcs);
        let mut ids: Vec<u64> = wcs[..count].iter().map(|wc| wc.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..self.posted).collect::<Vec<u64>>());
        assert_eq!(self.read_only.read(0, SIZE), [FILL; SIZE]);
        assert_eq!(self.foreign.read(0, SIZE), [SECRET; SIZE]);
        for slot in 0..SLOTS {
            let used = if slot < self.posted as usize {
                RECEIVE as usize
            } else {
                0
            };
            let rest = self.receives.read(slot * SLOT + used, SLOT - used);
            assert!(rest.iter().all(|byte| *byte == FILL), "slot {slot}");
        }
        drop(self.tpt);
    }
}

fn stream(switches: u8) -> Stream {
    let agreement = Agreement {
        role: Role::Responder,
        revision: Revision::Two,
        crc: bit(switches, 0),
        markers_tx: false,
        markers_rx: bit(switches, 1),
        ird: 4,
        ord: 4,
        rtr: Rtr::None,
        extensions: false,
        private_data: Vec::new(),
    };
    let settings = Settings {
        max_ulpdu: 1000,
        rfc7306: true,
        rnr_retry: RnrRetry::Forever,
        drop_overlong: false,
        caps: Caps {
            version: 1,
            max_ulpdu: 65535,
            features: Features::from_bits(0),
            personality: ext::Personality::Iwarp,
            qp_type: ext::QpType::Rc,
            min_rnr_timer: RnrTimer::DEFAULT,
            ird: 4,
            nonce: 1,
            same_host: None,
            path: None,
        },
    };
    Stream::new(&agreement, settings)
}
