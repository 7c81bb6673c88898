//! Two sessions joined by a carrier in memory, with programs that track the owner of every element. It panics when an element is
//! accessed by the side that does not own it, a credit is overdrawn, or a packet arrives twice. It checks the outputs of the sessions,
//! not their state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use verbena_split_wire::push::{Operation, Pool, Status};
use verbena_wire::{Stag, To};

use crate::{Arrangement, Event, Output, Packet, Refused, Session, Settings};

mod carrier;
mod tests;

/// The state of an element, as the owner's program sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The peer may write to it.
    WithPeer,
    /// This packet of `len` bytes was written to it.
    Written { stamp: u64, len: u32 },
    /// The arrival was reported to the program.
    Held,
}

#[derive(Debug)]
struct Memory {
    pool: Pool,
    slots: Vec<Slot>,
    freed: bool,
}

/// Something in flight.
#[derive(Debug, Clone)]
enum Item {
    Message(Vec<u8>),
    /// A message with a packet in it.
    Data {
        packet: Packet,
        head: Vec<u8>,
        len: u32,
        stamp: u64,
    },
    Packet {
        len: u32,
        stamp: u64,
    },
    Write {
        packet: Packet,
        handle: Stag,
        at: To,
        len: u32,
        immediate: Option<u32>,
        stamp: u64,
    },
}

/// One side: session, program, and what is in flight to it.
pub(crate) struct Side {
    pub(crate) session: Session,
    memory: BTreeMap<u32, Memory>,
    /// Receive descriptors of the data channel (A).
    posted: VecDeque<(u32, u32)>,
    /// In flight to this side, per channel.
    control: VecDeque<Item>,
    data: VecDeque<Item>,
    /// Packets whose completion is to be reported to this side.
    acks: VecDeque<Packet>,
    /// Elements that the program holds.
    pub(crate) held: Vec<(u32, u32)>,
    stamps: BTreeMap<Packet, u64>,
    arrived: BTreeSet<u64>,
    pub(crate) lent: BTreeSet<u32>,
    pub(crate) freed: Vec<u32>,
    pub(crate) closed: Vec<u32>,
    pub(crate) answers: Vec<u64>,
    pub(crate) requested: u64,
    pub(crate) room_events: u64,
    /// The packet of the message that is being handled (C).
    current: Option<(u64, u32)>,
}

pub(crate) struct World {
    pub(crate) sides: [Side; 2],
    pub(crate) settings: Settings,
    sent: [BTreeSet<u64>; 2],
    next_stamp: u64,
    pub(crate) lost: BTreeSet<u64>,
    /// Loss is allowed, so that announcements overdraw the credit.
    pub(crate) lossy: bool,
}

impl World {
    pub(crate) fn new(settings: Settings) -> World {
        let side = || Side {
            session: Session::new(settings).unwrap(),
            memory: BTreeMap::new(),
            posted: VecDeque::new(),
            control: VecDeque::new(),
            data: VecDeque::new(),
            acks: VecDeque::new(),
            held: Vec::new(),
            stamps: BTreeMap::new(),
            arrived: BTreeSet::new(),
            lent: BTreeSet::new(),
            freed: Vec::new(),
            closed: Vec::new(),
            answers: Vec::new(),
            requested: 0,
            room_events: 0,
            current: None,
        };
        World {
            sides: [side(), side()],
            settings,
            sent: [BTreeSet::new(), BTreeSet::new()],
            next_stamp: 0,
            lost: BTreeSet::new(),
            lossy: false,
        }
    }

    /// A pool with a handle and an address derived from its number.
    pub(crate) fn pool(reference: u32, count: u32, size: u32) -> Pool {
        Pool {
            reference,
            count,
            size,
            handle: Stag::new(reference + 0x100),
            at: To::new(u64::from(reference) << 33),
            context: 7,
        }
    }

    pub(crate) fn advertise(&mut self, side: usize, pools: &[Pool]) -> Result<(), crate::Misuse> {
        self.sides[side].session.advertise(pools)?;
        for pool in pools {
            let memory = Memory {
                pool: *pool,
                slots: vec![Slot::WithPeer; pool.count as usize],
                freed: false,
            };
            self.sides[side].memory.insert(pool.reference, memory);
        }
        self.drain(side);
        Ok(())
    }

    pub(crate) fn send(&mut self, side: usize, len: u32) -> Result<Packet, Refused> {
        let packet = self.sides[side].session.send(len)?;
        self.next_stamp += 1;
        self.sent[side].insert(self.next_stamp);
        self.sides[side].stamps.insert(packet, self.next_stamp);
        self.drain(side);
        Ok(packet)
    }

    /// The program gives one of its elements back.
    pub(crate) fn give_back(&mut self, side: usize, which: usize) {
        let held = &mut self.sides[side].held;
        if held.is_empty() {
            return;
        }
        let at = which % held.len();
        let (pool, element) = held.swap_remove(at);
        let memory = self.sides[side].memory.get_mut(&pool).unwrap();
        assert_eq!(memory.slots[element as usize], Slot::Held);
        memory.slots[element as usize] = Slot::WithPeer;
        self.sides[side].session.give_back(pool, element).unwrap();
        self.drain(side);
    }

    /// Performs all outputs of a side.
    pub(crate) fn drain(&mut self, side: usize) {
        while let Some(output) = self.sides[side].session.poll() {
            self.perform(side, output);
            self.sides[side].session.invariants();
        }
        self.check_credits();
    }

    /// No more is in flight than there are descriptors.
    fn check_credits(&self) {
        for side in &self.sides {
            let frames = |i: &&Item| matches!(i, Item::Data { .. });
            let data = side.control.iter().filter(frames).count();
            let messages = side.control.len() - data;
            if !self.lossy {
                assert!(messages <= self.settings.messages as usize, "{messages}");
            }
            match self.settings.arrangement {
                Arrangement::Sends => assert!(side.data.len() <= side.posted.len()),
                Arrangement::Single => {
                    let slots = side.memory.values().filter(|m| !m.freed);
                    let free = slots
                        .flat_map(|m| &m.slots)
                        .filter(|s| **s == Slot::WithPeer);
                    assert!(data <= free.count());
                }
                Arrangement::Writes => {}
            }
        }
    }

    fn perform(&mut self, me: usize, output: Output) {
        let peer = 1 - me;
        let stamp = |world: &World, packet| world.sides[me].stamps[&packet];
        match output {
            Output::Send(bytes) => {
                assert!(bytes.len() <= self.settings.frame as usize);
                self.sides[peer].control.push_back(Item::Message(bytes));
            }
            Output::SendData { packet, head, len } => {
                let item = Item::Data {
                    packet,
                    head: head.to_vec(),
                    len,
                    stamp: stamp(self, packet),
                };
                self.sides[peer].control.push_back(item);
            }
            Output::SendPacket { packet, len } => {
                let stamp = stamp(self, packet);
                let item = Item::Packet { len, stamp };
                self.sides[peer].data.push_back(item);
                // Unacknowledged: complete when sent (P2).
                self.sides[me].acks.push_back(packet);
            }
            Output::Write {
                packet,
                handle,
                at,
                len,
                immediate,
            } => {
                let item = Item::Write {
                    packet,
                    handle,
                    at,
                    len,
                    immediate,
                    stamp: stamp(self, packet),
                };
                self.sides[peer].data.push_back(item);
            }
            Output::Post { pool, first, count } => {
                let elements = (first..first + count).map(|e| (pool, e));
                self.sides[me].posted.extend(elements);
            }
            Output::Store {
                pool,
                element,
                from,
                len,
            } => {
                assert_eq!(from, crate::output::SEND_DATA_HEAD);
                let (stamp, of) = self.sides[me].current.take().unwrap();
                assert_eq!(of, len);
                self.store(me, pool, element, stamp, len);
            }
            Output::Withdraw { pool } => self.sides[me].posted.retain(|(p, _)| *p != pool),
            Output::Event(event) => self.handle_event(me, event),
        }
    }

    fn handle_event(&mut self, me: usize, event: Event) {
        let side = &mut self.sides[me];
        match event {
            Event::Arrived { pool, element, len } => {
                let slot = &mut side.memory.get_mut(&pool).unwrap().slots[element as usize];
                let Slot::Written { stamp, len: stored } = *slot else {
                    panic!("indicated, but {slot:?}");
                };
                assert_eq!(stored, len);
                assert!(side.arrived.insert(stamp), "twice");
                *slot = Slot::Held;
                side.held.push((pool, element));
            }
            Event::Sent { packet } => assert!(side.stamps.remove(&packet).is_some()),
            Event::PoolLent(pool) => assert!(side.lent.insert(pool.reference)),
            Event::PoolClosed { pool } => {
                assert!(side.lent.remove(&pool));
                side.closed.push(pool);
            }
            Event::PoolFreed { pool } => {
                let memory = side.memory.get_mut(&pool).unwrap();
                assert!(!memory.freed);
                memory.freed = true;
                let unseen = |s: &&Slot| matches!(s, Slot::Written { .. });
                assert_eq!(memory.slots.iter().filter(unseen).count(), 0, "lost");
                side.freed.push(pool);
            }
            Event::PoolRequested { .. } => side.requested += 1,
            Event::RoomAvailable => side.room_events += 1,
            Event::Request { context, data, .. } => {
                side.session.reply(context, Status::Ok, &data).unwrap();
            }
            Event::Reply { context, .. } => side.answers.push(context),
            Event::Unsupported { .. } => panic!("not understood"),
        }
    }

    /// Puts a packet into an element, which must exist, belong to the peer, and be large enough.
    fn store(&mut self, me: usize, pool: u32, element: u32, stamp: u64, len: u32) {
        let memory = self.sides[me].memory.get_mut(&pool).unwrap();
        assert!(!memory.freed, "a flushed pool was touched");
        assert!(len <= memory.pool.size);
        let slot = &mut memory.slots[element as usize];
        assert_eq!(*slot, Slot::WithPeer, "not free");
        *slot = Slot::Written { stamp, len };
    }

    /// Delivers everything and checks that nothing is lost or duplicated and all is complete.
    pub(crate) fn finish(&mut self) {
        loop {
            self.settle();
            if self.sides.iter().all(|side| side.held.is_empty()) {
                break;
            }
            while !self.sides[0].held.is_empty() {
                self.give_back(0, 0);
            }
            while !self.sides[1].held.is_empty() {
                self.give_back(1, 0);
            }
        }
        for me in 0..2 {
            let expected: BTreeSet<u64> = self.sent[me].difference(&self.lost).copied().collect();
            assert_eq!(self.sides[1 - me].arrived, expected);
            assert!(self.sides[me].stamps.is_empty());
            assert_eq!(self.sides[me].session.inflight(), 0);
        }
    }

    pub(crate) fn request(&mut self, side: usize) -> Option<u64> {
        let context = self.sides[side].session.request(Operation::GetMac, b"data");
        self.drain(side);
        context.ok()
    }
}
