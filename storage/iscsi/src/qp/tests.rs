//! Tests of the iSCSI queue pair (M12) against a scripted target: what is sent is parsed, what is received is split in every way. The
//! test fixture exposes everything that a consumer can observe, and all memory that could be written.

mod cancels;
mod checks;
mod digests;
mod ends;
mod failures;
mod hostile;
mod low_water;
mod pdus;
mod reads;
mod responses;
mod target;
mod writes;

use std::sync::Arc;

use verbena_mem::{Access, Buffer, Pd, Policy, Tpt};
use verbena_nic::qp::Limits;
use verbena_nic::{
    Cq, Event, Flags, MemoryCarrier, OnFailure, Outbox, QpState, ReceiveWr, Receiving,
};
use verbena_nic::{Sending, Sge, Status, UlpInit, Wc};
use verbena_storage_wire::iscsi::{Attribute, Bhs, Lun};
use verbena_storage_wire::scsi::{Cdb, DeviceType};

use super::Qp;
use crate::terms::Terms;
use crate::wr::{CommandId, CommandWr, Direction, PduWr};
use target::{Sent, Target};

/// The protection domain of all tests but those about domains.
pub(super) const PD: Pd = Pd(1);
/// Bytes of the commands' memory.
pub(super) const SIZE: usize = 96 << 10;
/// Initial content of that memory.
pub(super) const FILL: u8 = 0xa5;
/// Bytes of one receive.
pub(super) const SLOT: usize = 1024;
const SLOTS: usize = 128;

/// How bytes are split, in both directions.
#[derive(Debug, Clone, Copy)]
pub(super) enum Split {
    /// Not at all.
    Whole,
    /// One byte at a time.
    Single,
    /// At positions derived from this number.
    Cut(u32),
}

impl Split {
    pub(super) const ALL: [Split; 6] = [
        Split::Whole,
        Split::Single,
        Split::Cut(1),
        Split::Cut(2),
        Split::Cut(77),
        Split::Cut(1_000_003),
    ];

    /// Length of the next piece.
    fn next_len(&mut self) -> usize {
        match self {
            Split::Whole => usize::MAX,
            Split::Single => 1,
            Split::Cut(state) => {
                *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Mostly short ones, as headers are short.
                let bits = *state >> 28;
                1 + (*state >> 8) as usize % (2 << bits)
            }
        }
    }
}

/// Configuration of a test's queue pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) terms: Terms,
    pub(super) on_failure: OnFailure,
    pub(super) pd: Pd,
    pub(super) number: u32,
    pub(super) cq_size: usize,
    pub(super) access: Access,
    pub(super) split: Split,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            terms: Terms::DEFAULT,
            on_failure: OnFailure::Reactive,
            pd: PD,
            number: 7,
            cq_size: 1000,
            access: Access::ALL,
            split: Split::Whole,
        }
    }
}

/// A completed receive and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) id: u64,
    pub(super) status: Status,
    pub(super) command: Option<u32>,
    pub(super) bytes: Vec<u8>,
}

/// A queue pair in iSCSI mode, its memory, and a scripted target.
pub(super) struct Rig {
    pub(super) qp: Qp,
    pub(super) tpt: Arc<Tpt>,
    /// Memory of commands; filled with [`FILL`].
    pub(super) memory: Buffer,
    receives: Buffer,
    next_receive: u64,
    pub(super) out: Outbox,
    pub(super) target: Target,
    pub(super) split: Split,
    /// Bytes from the target that were not read yet.
    pub(super) inbox: Vec<u8>,
    /// Bytes sent that were not parsed yet.
    pub(super) wire: Vec<u8>,
}

impl Rig {
    pub(super) fn new(setup: Setup) -> Rig {
        let tpt = Arc::new(Tpt::new(1..1000, Policy::Verbs, 5));
        Rig::with_tpt(&tpt, setup)
    }

    pub(super) fn with_split(split: Split) -> Rig {
        Rig::new(Setup {
            split,
            ..Setup::default()
        })
    }

    /// On a shared table, after login, with a large command window.
    pub(super) fn with_tpt(tpt: &Arc<Tpt>, setup: Setup) -> Rig {
        let mut rig = Rig::unconnected(tpt, setup);
        assert!(rig.qp.attach());
        rig.receive(1);
        let login = rig.target.login();
        rig.deliver(&login);
        assert_eq!(rig.received().len(), 1);
        rig.qp.begin(setup.terms, &mut rig.out);
        rig.target.terms = setup.terms;
        rig
    }

    /// Before any connection.
    pub(super) fn unconnected(tpt: &Arc<Tpt>, setup: Setup) -> Rig {
        let memory = Buffer::new(tpt, SIZE, setup.pd, setup.access).unwrap();
        memory.write(0, &[FILL; SIZE]);
        let access = Access::LOCAL_WRITE;
        let receives = Buffer::new(tpt, SLOT * SLOTS, setup.pd, access).unwrap();
        let cq = |n| Arc::new(Cq::new(setup.number * 10 + n, setup.cq_size).unwrap());
        let ulp = UlpInit {
            number: setup.number,
            pd: setup.pd,
            send_cq: cq(0),
            recv_cq: cq(1),
            srq: None,
            tpt: tpt.clone(),
            limits: Limits {
                max_sge: 40,
                ..Limits::default()
            },
        };
        Rig {
            qp: Qp::new(ulp, setup.on_failure),
            tpt: tpt.clone(),
            memory,
            receives,
            next_receive: 0,
            out: Outbox::new(),
            target: Target::new(),
            split: setup.split,
            inbox: Vec::new(),
            wire: Vec::new(),
        }
    }

    pub(super) fn sge(&self, offset: usize, len: u32) -> Sge {
        Sge {
            addr: self.memory.at() + offset as u64,
            len,
            stag: self.memory.stag(),
        }
    }

    /// Posts receives, and reads what was held for lack of them.
    pub(super) fn receive(&mut self, count: usize) {
        for _ in 0..count {
            self.receive_of(SLOT as u32);
        }
        self.read();
    }

    /// Posts a receive of this length in its slot.
    pub(super) fn receive_of(&mut self, len: u32) {
        let id = self.next_receive;
        self.next_receive += 1;
        let at = self.receives.at() + id % SLOTS as u64 * SLOT as u64;
        let stag = self.receives.stag();
        let scatter = &[Sge {
            addr: at,
            len,
            stag,
        }];
        let wr = ReceiveWr { id, scatter };
        self.qp.post_receive(&wr, &mut self.out).unwrap();
    }

    pub(super) fn wr<'a>(id: u64, direction: Direction, data: &'a [Sge]) -> CommandWr<'a> {
        let cdb = match direction {
            Direction::None => Cdb::test_unit_ready(),
            Direction::Read => Cdb::read10(8, 32),
            Direction::Write => Cdb::write10(8, 32, false),
        };
        CommandWr {
            id,
            flags: Flags::SIGNALED,
            lun: Lun::new(1).unwrap(),
            device: DeviceType::Disk,
            cdb: cdb.bytes(),
            attribute: Attribute::Simple,
            direction,
            data,
        }
    }

    pub(super) fn post(&mut self, id: u64, direction: Direction, data: &[Sge]) -> CommandId {
        let wr = Rig::wr(id, direction, data);
        self.qp.post_command(&wr, &mut self.out).unwrap()
    }

    /// Posts a receive and a command and transmits. Returns the command's id and tag.
    pub(super) fn command(
        &mut self,
        id: u64,
        direction: Direction,
        data: &[Sge],
    ) -> (CommandId, u32) {
        self.receive(1);
        let name = self.post(id, direction, data);
        self.transmit();
        (name, self.target.last_itt)
    }

    pub(super) fn post_pdu(&mut self, id: u64, bhs: Bhs, data: &[u8]) {
        let flags = Flags::SIGNALED;
        let wr = PduWr {
            id,
            flags,
            bhs,
            data,
        };
        self.qp.post_pdu(&wr, &mut self.out).unwrap();
    }

    /// The target sends bytes; the queue pair reads and transmits.
    pub(super) fn deliver(&mut self, bytes: &[u8]) {
        self.feed(bytes);
        self.transmit();
    }

    /// The target sends bytes; the queue pair reads only.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        self.read();
    }

    /// Reads until nothing is left, or reading is held.
    pub(super) fn read(&mut self) -> Receiving {
        loop {
            let piece = self.split.next_len().min(self.inbox.len());
            let mut carrier = MemoryCarrier::with_input(&self.inbox[..piece]);
            let end = loop {
                match self.qp.receive(&mut carrier, &mut self.out) {
                    Receiving::Some(n) => assert!(n > 0),
                    end => break end,
                }
            };
            assert!(
                end != Receiving::WouldBlock || carrier.input.is_empty(),
                "more was there"
            );
            let read = piece - carrier.input.len();
            self.inbox.drain(..read);
            if end != Receiving::WouldBlock || self.inbox.is_empty() {
                return end;
            }
        }
    }

    /// Transmits all that may be sent.
    pub(super) fn transmit(&mut self) -> Sending {
        for _ in 0..1_000_000 {
            let mut carrier = MemoryCarrier::with_room(self.split.next_len());
            let end = self.qp.try_transmit(&mut carrier, &mut self.out).unwrap();
            self.wire.extend_from_slice(&carrier.output);
            if end != Sending::Blocked {
                let wire = core::mem::take(&mut self.wire);
                self.wire = self.target.receive(wire);
                return end;
            }
        }
        panic!("it sends without end");
    }

    /// Transmits at most `room` bytes, which stay in `wire`.
    pub(super) fn send_some(&mut self, room: usize) -> Sending {
        let mut carrier = MemoryCarrier::with_room(room);
        let end = self.qp.try_transmit(&mut carrier, &mut self.out).unwrap();
        self.wire.extend_from_slice(&carrier.output);
        end
    }

    /// PDUs that the target received since the last call.
    pub(super) fn take_pdus(&mut self) -> Vec<Sent> {
        core::mem::take(&mut self.target.received)
    }

    /// Completed receives.
    pub(super) fn received(&mut self) -> Vec<Received> {
        let of = |wc: Wc| {
            let at = wc.id as usize % SLOTS * SLOT;
            Received {
                id: wc.id,
                status: wc.status,
                command: wc.immediate,
                bytes: self.receives.read(at, wc.len as usize),
            }
        };
        poll(&self.qp.init().recv_cq).into_iter().map(of).collect()
    }

    /// Id and status of completed send requests.
    pub(super) fn sent(&self) -> Vec<(u64, Status)> {
        let wcs = poll(&self.qp.init().send_cq);
        wcs.iter().map(|wc| (wc.id, wc.status)).collect()
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        let events = self.out.events().to_vec();
        self.out = Outbox::new();
        events
    }

    /// All memory of commands.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.memory.read(0, SIZE)
    }

    /// No memory was written.
    #[track_caller]
    pub(super) fn assert_untouched(&self) {
        assert!(self.bytes().iter().all(|byte| *byte == FILL));
    }

    pub(super) fn state(&self) -> QpState {
        self.qp.state()
    }

    #[track_caller]
    pub(super) fn assert_ended(&self, cause: &str) {
        assert_eq!(self.state(), QpState::Err);
        assert_eq!(self.qp.state(), QpState::Err);
        let view = self.qp.view();
        let said = view.cause.unwrap_or_default();
        assert!(said.contains(cause), "{said:?} does not say {cause:?}");
        assert_eq!((view.sends, view.commands, view.receives), (0, 0, 0));
        // Only the data memory and the receives are registered.
        assert_eq!(self.tpt.len_of(self.qp.init().pd), 2);
    }
}

pub(super) fn poll(cq: &Cq) -> Vec<Wc> {
    let mut out = vec![Wc::default(); 2000];
    let n = cq.poll(&mut out);
    out.truncate(n);
    out
}

/// Bytes that depend on their position.
pub(super) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (((i + seed) * 31) >> 3) as u8).collect()
}
