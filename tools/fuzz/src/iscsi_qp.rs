//! An iSCSI queue pair (M12) between a consumer that posts and a target that sends arbitrary PDUs with valid digests.
//! It must not panic, send without end, write memory beside a command's own, or complete a request more or less than once.
//! What a conforming target receives is checked by the tests of the crate.

use std::sync::Arc;

use verbena_iscsi::{CommandId, CommandWr, Direction, PduWr, Qp, Terms};
use verbena_mem::{Access, Buffer, Pd, Policy, Tpt};
use verbena_nic::qp::Limits;
use verbena_nic::{
    Cq, Flags, MemoryCarrier, OnFailure, Outbox, ReceiveWr, Receiving, Sending, Sge,
};
use verbena_nic::{UlpInit, Wc};
use verbena_storage_wire::iscsi::{
    Attribute, BHS_LEN, Bhs, FromInitiator, Lengths, Lun, digest, pad,
};
use verbena_storage_wire::scsi::{Cdb, DeviceType};

use crate::source::{Source, bit};

const PD: Pd = Pd(1);
/// Each command uses the middle of a zone; the edges belong to no command and must stay unchanged.
const ZONE: usize = 1024;
const ZONES: usize = 16;
const EDGE: usize = 256;
const ROOM: usize = ZONE - 2 * EDGE;
/// Bytes of a receive, in a slot that is longer: the rest must stay zero.
const RECEIVE: u32 = 200;
const SLOT: usize = 256;
const SLOTS: usize = 64;
const MAX_POSTED: u64 = 600;

struct World {
    qp: Qp,
    terms: Terms,
    tpt: Arc<Tpt>,
    memory: Buffer,
    receives: Buffer,
    cq: Arc<Cq>,
    out: Outbox,
    inbox: Vec<u8>,
    wire: Vec<u8>,
    /// Task tags that were sent.
    tags: Vec<u32>,
    /// Commands that may still be outstanding.
    commands: Vec<CommandId>,
    /// Zones that read commands may write.
    open: [bool; ZONES],
    stat_sn: u32,
    sends: u64,
    posted_receives: u64,
}

/// Runs one input: a byte of terms, then steps of a code and its operands.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let mut world = World::new(source.byte());
    while !source.is_empty() {
        world.step(&mut source);
        world.transmit();
    }
    world.finish();
}

fn filling(at: usize) -> u8 {
    ((at * 7) >> 2) as u8
}

impl World {
    fn new(switches: u8) -> World {
        let tpt = Arc::new(Tpt::new(1..60, Policy::Verbs, 1));
        let memory = Buffer::new(&tpt, ZONE * ZONES, PD, Access::ALL).expect("memory");
        let bytes: Vec<u8> = (0..ZONE * ZONES).map(filling).collect();
        memory.write(0, &bytes);
        let access = Access::LOCAL_WRITE;
        let receives = Buffer::new(&tpt, SLOT * SLOTS, PD, access).expect("memory");
        let cq = Arc::new(Cq::new(1, 4000).expect("a queue"));
        let ulp = UlpInit {
            number: 3,
            pd: PD,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            tpt: tpt.clone(),
            limits: Limits {
                sends: 24,
                receives: SLOTS,
                ..Limits::default()
            },
        };
        let on_failure = if bit(switches, 7) {
            OnFailure::Anticipatory
        } else {
            OnFailure::Reactive
        };
        let terms = Terms {
            header_digest: bit(switches, 0),
            data_digest: bit(switches, 1),
            immediate_data: bit(switches, 2),
            initial_r2t: bit(switches, 3),
            max_send: if bit(switches, 4) { 90 } else { 8192 },
            first_burst: if bit(switches, 5) { 200 } else { 65_536 },
            max_burst: if bit(switches, 6) { 300 } else { 262_144 },
            max_r2t: 1 + u16::from(switches & 1),
            max_recv: 1000,
        };
        let qp = Qp::new(ulp, on_failure);
        let mut out = Outbox::new();
        assert!(qp.attach());
        qp.begin(terms, &mut out);
        World {
            qp,
            terms,
            tpt,
            memory,
            receives,
            cq,
            out,
            inbox: Vec::new(),
            wire: Vec::new(),
            tags: vec![0, u32::MAX],
            commands: Vec::new(),
            open: [false; ZONES],
            stat_sn: 5,
            sends: 0,
            posted_receives: 0,
        }
    }

    fn step(&mut self, source: &mut Source<'_>) {
        match source.byte() % 8 {
            0 => self.post(source),
            1 => {
                let count = source.byte() % 8;
                (0..=count).for_each(|_| self.post_receive());
            }
            2 => self.post_pdu(source.byte()),
            3 => self.cancel_last(),
            4 => {
                let len = usize::from(source.byte());
                let bytes = source.slice(len).to_vec();
                self.feed(&bytes);
            }
            _ => {
                let pdu = self.pdu(source);
                self.feed(&pdu);
            }
        }
    }

    /// Restarts the send queue, and cancels the command that was posted last, if it is outstanding.
    fn cancel_last(&mut self) {
        let _ = self.qp.restart_sends();
        if let Some(name) = self.commands.pop() {
            let there = self.qp.command_state(name).is_some();
            assert_eq!(self.qp.cancel(name, &mut self.out), there);
            assert_eq!(self.qp.command_state(name), None);
        }
    }

    fn post(&mut self, source: &mut Source<'_>) {
        let (how, len) = (source.byte(), usize::from(source.u16()) % (ROOM + 1));
        let zone = usize::from(how) % ZONES;
        let (direction, cdb) = match how >> 6 {
            0 => (Direction::None, Cdb::test_unit_ready()),
            1 if !self.open[zone] => (Direction::Write, Cdb::write10(0, 1, false)),
            _ => (Direction::Read, Cdb::read10(0, 1)),
        };
        let at = self.memory.at() + (zone * ZONE + EDGE) as u64;
        let stag = self.memory.stag();
        let first = (len / 3) as u32;
        let piece = |from: u32, len: u32| Sge {
            addr: at + u64::from(from),
            len,
            stag,
        };
        let pieces = [piece(0, first), piece(first, len as u32 - first)];
        let data = match direction {
            Direction::None => &[][..],
            _ => &pieces,
        };
        let wr = CommandWr {
            id: self.sends,
            flags: Flags::SIGNALED,
            lun: Lun::from_bytes([0; 8]),
            device: DeviceType::Disk,
            cdb: cdb.bytes(),
            attribute: Attribute::Simple,
            direction,
            data,
        };
        if self.sends < MAX_POSTED
            && let Ok(name) = self.qp.post_command(&wr, &mut self.out)
        {
            self.sends += 1;
            self.commands.push(name);
            self.open[zone] |= direction == Direction::Read;
        }
    }

    fn post_receive(&mut self) {
        let id = 1 << 32 | self.posted_receives;
        let slot = self.posted_receives % SLOTS as u64;
        let scatter = &[Sge {
            addr: self.receives.at() + slot * SLOT as u64,
            len: RECEIVE,
            stag: self.receives.stag(),
        }];
        let wr = ReceiveWr { id, scatter };
        let may = self.posted_receives < MAX_POSTED;
        if may && self.qp.post_receive(&wr, &mut self.out).is_ok() {
            self.posted_receives += 1;
        }
        self.read();
    }

    fn post_pdu(&mut self, how: u8) {
        let mut bhs = [0; BHS_LEN];
        bhs[0] = how & 0x40;
        bhs[1] = 0x80;
        bhs[16..24].copy_from_slice(&[0xff; 8]);
        let wr = PduWr {
            id: self.sends,
            flags: Flags::SIGNALED,
            bhs,
            data: &[how; 70][..usize::from(how & 63)],
        };
        if self.sends < MAX_POSTED && self.qp.post_pdu(&wr, &mut self.out).is_ok() {
            self.sends += 1;
        }
    }

    /// A PDU of a target: any header, with a task tag that was sent, the next StatSN, and valid digests.
    fn pdu(&mut self, source: &mut Source<'_>) -> Vec<u8> {
        let (kind, tag, len) = (source.byte(), source.byte(), u32::from(source.byte()) * 3);
        let mut bhs: Bhs = [0; BHS_LEN];
        let opcodes = [0x25, 0x25, 0x31, 0x31, 0x21, 0x21, 0x20, 0x3f];
        bhs[0] = opcodes[usize::from(kind & 7)];
        bhs[1] = match kind >> 3 & 3 {
            0 => 0,
            1 => 0x80,
            _ => 0x81,
        };
        let itt = self.tags[self.tags.len() - 1 - usize::from(tag) % self.tags.len()];
        bhs[16..20].copy_from_slice(&itt.to_be_bytes());
        bhs[24..28].copy_from_slice(&self.stat_sn.to_be_bytes());
        bhs[28..36].copy_from_slice(&[0, 0, 0, 1, 0, 0, 3, 0]);
        let data_len = match bhs[0] {
            0x31 => {
                bhs[44..48].copy_from_slice(&len.to_be_bytes());
                0
            }
            _ => len as usize,
        };
        bhs[5..8].copy_from_slice(&(data_len as u32).to_be_bytes()[1..]);
        if bit(kind, 5) {
            // The buffer offset.
            bhs[42..44].copy_from_slice(&source.array::<2>());
        }
        if bit(kind, 6) {
            let (at, change) = (usize::from(source.byte()) % BHS_LEN, source.byte());
            bhs[at] ^= change;
        }
        let counts = matches!(bhs[0], 0x21 | 0x3f) || (bhs[0] == 0x25 && bhs[1] & 1 != 0);
        if counts && !bit(kind, 7) {
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
        let mut bytes = bhs.to_vec();
        if self.terms.header_digest {
            bytes.extend(digest(&bhs));
        }
        let mut data = vec![kind; data_len];
        data.resize(data_len.next_multiple_of(4), 0);
        bytes.extend(&data);
        if self.terms.data_digest && data_len > 0 {
            bytes.extend(digest(&data));
        }
        bytes
    }

    fn feed(&mut self, bytes: &[u8]) {
        if self.inbox.len() < 1 << 16 {
            self.inbox.extend_from_slice(bytes);
        }
        self.read();
    }

    fn read(&mut self) {
        let mut carrier = MemoryCarrier::with_input(&self.inbox);
        let end = loop {
            match self.qp.receive(&mut carrier, &mut self.out) {
                Receiving::Some(n) => assert!(n > 0, "it reads nothing without end"),
                end => break end,
            }
        };
        match end {
            Receiving::WouldBlock => {
                assert!(carrier.input.is_empty(), "it leaves what it could read");
            }
            Receiving::Held => assert_eq!(self.qp.view().receives, 0, "it has receives"),
            Receiving::Some(_) | Receiving::Ended => {}
        }
        let read = self.inbox.len() - carrier.input.len();
        self.inbox.drain(..read);
    }

    /// Transmits, and checks the PDUs as a target would.
    fn transmit(&mut self) {
        for turn in 0.. {
            assert!(turn < 1000, "it sends without end");
            let mut carrier = MemoryCarrier::with_room(777);
            let end = self.qp.try_transmit(&mut carrier, &mut self.out);
            self.wire.extend(carrier.output);
            if end != Some(Sending::Blocked) {
                break;
            }
        }
        let (heads, datas) = (self.terms.header_digest, self.terms.data_digest);
        while let Some(bhs) = self.wire.first_chunk::<BHS_LEN>().copied() {
            let lengths = Lengths::of(&bhs);
            let total = lengths.total(heads, datas);
            if self.wire.len() < total {
                break;
            }
            let pdu: Vec<u8> = self.wire.drain(..total).collect();
            let start = BHS_LEN + if heads { 4 } else { 0 };
            let end = start + lengths.data as usize;
            let padded = end + pad(lengths.data) as usize;
            if heads {
                assert_eq!(pdu[BHS_LEN..start], digest(&bhs));
            }
            if datas && lengths.data > 0 {
                assert_eq!(pdu[padded..], digest(&pdu[start..padded]));
            }
            self.handle_pdu(&bhs, &pdu[start..end]);
        }
    }

    fn handle_pdu(&mut self, bhs: &Bhs, data: &[u8]) {
        match FromInitiator::parse(bhs).expect("what we send can be read") {
            FromInitiator::ScsiCommand(pdu) => {
                if self.tags.len() > 64 {
                    self.tags.remove(2);
                }
                self.tags.push(pdu.itt);
                assert!(!pdu.write || data.len() <= self.terms.first_burst as usize);
            }
            FromInitiator::DataOut(pdu) => {
                assert!(data.len() <= self.terms.max_send as usize);
                let end = pdu.offset as usize + data.len();
                assert!(end <= ROOM, "data of a command is inside its buffer");
                let zone = |zone: usize| {
                    let from = zone * ZONE + EDGE + pdu.offset as usize;
                    let own = (from..from + data.len()).map(filling);
                    // A read may have written this zone since; the data of the write cannot be compared then.
                    self.open[zone] || own.eq(data.iter().copied())
                };
                assert!((0..ZONES).any(zone), "the data belongs to no buffer");
            }
            _ => {}
        }
    }

    fn finish(mut self) {
        self.qp.handle_closed("the target closed it", &mut self.out);
        let bytes = self.memory.read(0, ZONE * ZONES);
        for (at, byte) in bytes.iter().enumerate() {
            let inside = (EDGE..EDGE + ROOM).contains(&(at % ZONE));
            let may = inside && self.open[at / ZONE];
            assert!(may || *byte == filling(at), "byte {at} was changed");
        }
        for slot in 0..SLOTS {
            let rest = SLOT - RECEIVE as usize;
            let guard = self.receives.read((slot + 1) * SLOT - rest, rest);
            assert!(guard.iter().all(|byte| *byte == 0), "beyond a receive");
        }
        let mut wcs = vec![Wc::default(); 4000];
        let n = self.cq.poll(&mut wcs);
        let mut ids: Vec<u64> = wcs[..n].iter().map(|wc| wc.id).collect();
        ids.sort_unstable();
        let receives = (0..self.posted_receives).map(|id| 1 << 32 | id);
        let all: Vec<u64> = (0..self.sends).chain(receives).collect();
        assert_eq!(ids, all, "everything completes once");
        assert_eq!(self.tpt.len(), 2, "no entry is left");
        let view = self.qp.view();
        assert_eq!((view.sends, view.commands, view.receives), (0, 0, 0));
    }
}
