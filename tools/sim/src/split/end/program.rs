//! The program at an end: it lends pools, sends packets, makes requests, gives elements back, takes pools back, and detects silence.
//! It keeps the rules of sessions, so that whatever they refuse is an error. In the quiet phase it begins nothing more.

use core::time::Duration;
use std::collections::BTreeMap;

use verbena_push::output::SEND_DATA_HEAD;
use verbena_push::{Arrangement, Event, Refused};
use verbena_split_wire::push::{Operation, Status};
use verbena_stream::Time;

use super::super::accounting::SHORTEST;
use super::super::memory::Memory;
use super::{ELEMENTS, EMPTY, End, EndContext, POOLS, SIZE, SLOT_SIZE, Source};
use crate::rng::Ratio;

/// Limit of outstanding requests, of which releases and flushes need a few.
const REQUESTS: usize = 6;

/// Probabilities per tick.
const GIVE_BACK: Ratio = Ratio::per_mille(700);
const REQUEST: Ratio = Ratio::per_mille(60);
const FLUSH: Ratio = Ratio::per_mille(15);
const RELEASE: Ratio = Ratio::per_mille(8);
const LEND: Ratio = Ratio::per_mille(30);
/// The program is idle for a while, at most this many microseconds: only credit limits the peer.
const IDLE: Ratio = Ratio::per_mille(20);
const MAX_IDLE_US: u64 = 4000;
/// It makes as many requests at once as it may.
const BURST: Ratio = Ratio::per_mille(20);
/// A channel that may lose cells is refreshed at this interval, even if something arrives: a lost request or pool is not visible
/// from the packets of the other direction.
const REFRESH: Duration = Duration::from_millis(8);
/// A peer that is silent for this long is probed, and considered gone after the second limit.
const PROBE: Duration = Duration::from_millis(40);
const PEER_TIMEOUT: Duration = Duration::from_millis(400);

/// The state of the program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) memories: BTreeMap<u32, Memory>,
    /// Own elements that hold packets.
    held: Vec<(u32, u32)>,
    /// The peer's pools, with the size of their elements.
    lent: BTreeMap<u32, u32>,
    /// Requests, with the expected answers.
    requested: BTreeMap<u64, Vec<u8>>,
    next_pool: u32,
    /// The times of the last arrival and of the last refresh.
    pub(super) last_arrival: Time,
    last_refresh: Time,
    /// It is idle until then.
    pub(super) idle_until: Time,
    /// Packets that arrived since the faults ended.
    arrivals: u64,
    answers: u64,
}

impl Program {
    pub(super) fn new(here: &mut EndContext<'_>) -> Program {
        Program {
            memories: BTreeMap::new(),
            held: Vec::new(),
            lent: BTreeMap::new(),
            requested: BTreeMap::new(),
            // P7: some do not fit immediate data, some stop fitting.
            next_pool: here.rng.pick(&[0, 1, 250, 255, 5000]),
            last_arrival: here.now,
            last_refresh: here.now,
            idle_until: here.now,
            arrivals: 0,
            answers: 0,
        }
    }
}

/// What an end has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Activity {
    /// Everything that programs do.
    Busy,
    /// Everything is given back and nothing is begun.
    Quiet,
}

impl End {
    pub(super) fn memory(&mut self, pool: u32) -> Result<&mut Memory, String> {
        let memory = self.program.memories.get_mut(&pool);
        memory.ok_or_else(|| format!("{}: there is no pool {pool}", self.id))
    }

    /// Elements that immediate data may name.
    pub(super) fn lent_elements(&self) -> usize {
        let lent = self.program.memories.values().filter(|m| !m.freed);
        lent.map(|m| m.pool.count as usize).sum()
    }

    /// The peer's pool, where there is one at a time.
    pub(super) fn lent_pool(&self) -> Option<u32> {
        self.program.lent.keys().next().copied()
    }

    /// Whether the program is idle.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        now < self.program.idle_until
    }

    /// The faults have ended: restarts the count of packets.
    pub(in super::super) fn reset_progress(&mut self) {
        self.program.arrivals = 0;
    }

    /// Whether packets and answers arrive.
    pub(in super::super) fn makes_progress(&self) -> bool {
        self.program.arrivals >= 5 && self.program.answers > 0
    }

    /// Whether nothing is lent, borrowed, held, requested or under way.
    pub(in super::super) fn is_done(&self) -> bool {
        let Program {
            memories,
            held,
            lent,
            requested: asked,
            ..
        } = &self.program;
        let session = self.session.open_requests() == 0 && self.session.inflight() == 0;
        let borrowed = lent.is_empty() && self.session.free() == 0;
        let whole = self.sources.is_empty() && asked.is_empty();
        session && borrowed && whole && held.is_empty() && memories.values().all(|m| m.freed)
    }

    /// Whether the peer was silent for too long.
    pub(in super::super) fn is_peer_silent(&self, now: Time) -> bool {
        now.since(self.program.last_arrival) > PEER_TIMEOUT
    }

    /// What is still open, for people.
    pub(in super::super) fn state(&self) -> String {
        let Program {
            memories,
            held,
            lent,
            requested: asked,
            arrivals: fresh,
            answers,
            ..
        } = &self.program;
        let unfreed = memories.values().filter(|m| !m.freed).count();
        let side = if self.at_unit { "unit" } else { "host" };
        format!(
            "{} at the {side}: open {}, {unfreed} pools, {} held, {} lent, {} asked, {} under way, {fresh} came, {answers} answers",
            self.id,
            self.is_open(),
            held.len(),
            lent.len(),
            asked.len(),
            self.session.inflight(),
        )
    }

    pub(super) fn handle_event(
        &mut self,
        event: Event,
        here: &mut EndContext<'_>,
    ) -> Result<(), String> {
        match event {
            Event::Arrived { pool, element, len } => {
                let bytes = self.memory(pool)?.take(element, len)?;
                self.program.held.push((pool, element));
                self.program.arrivals += 1;
                let arrived = self.accounting(false, here)?.arrive(&bytes);
                arrived.map_err(|why| format!("{}: {why}", self.id))?;
            }
            Event::Sent { packet } => {
                let source = self.sources.remove(&packet);
                let place = source
                    .ok_or_else(|| format!("packet {packet} was sent twice"))?
                    .slot;
                // A later read of these bytes would be detected.
                self.outbox.write(place * SLOT_SIZE, &[EMPTY; SLOT_SIZE]);
                self.free.push(place);
            }
            Event::PoolLent(pool) => {
                self.program.lent.insert(pool.reference, pool.size);
            }
            Event::PoolClosed { pool } => {
                let known = self.program.lent.remove(&pool);
                known.ok_or_else(|| format!("pool {pool} was not lent"))?;
            }
            Event::PoolFreed { pool } => {
                let freed = self.memory(pool)?.free();
                freed.map_err(|why| format!("{}: {why}", self.id))?;
            }
            Event::Request { context, data, .. } => {
                let replied = self.session.reply(context, Status::Ok, &answer(&data));
                replied.map_err(|e| e.to_string())?;
            }
            Event::Reply { context, data, .. } => {
                let expected = self.program.requested.remove(&context);
                if expected != Some(data) {
                    return Err(format!("{}: a wrong answer to {context}", self.id));
                }
                self.program.answers += 1;
            }
            Event::Unsupported { context } => {
                return Err(format!("{}: request {context} is not supported", self.id));
            }
            Event::RoomAvailable | Event::PoolRequested { .. } => {}
        }
        Ok(())
    }

    /// Lets the program act.
    pub(in super::super) fn tick(
        &mut self,
        mood: Activity,
        here: &mut EndContext<'_>,
    ) -> Result<(), String> {
        if !self.is_open() || self.is_idle(here.now) {
            return Ok(());
        }
        match mood {
            Activity::Busy => self.work(here)?,
            Activity::Quiet => self.wind_down(here)?,
        }
        let now = here.now;
        let since = now.since(self.program.last_refresh);
        if self.id.arrangement == Arrangement::Sends && since > REFRESH {
            self.session.refresh();
            self.program.last_refresh = now;
        }
        if now.since(self.program.last_arrival) > PROBE && self.session.open_requests() == 0 {
            self.request(here)?;
        }
        self.drain(here)
    }

    fn work(&mut self, here: &mut EndContext<'_>) -> Result<(), String> {
        self.lend_some(here)?;
        self.send_some(here)?;
        while !self.program.held.is_empty() && here.rng.chance(GIVE_BACK) {
            let at = here.rng.len(0, self.program.held.len() - 1);
            self.give_back(at, here)?;
        }
        let burst = here.rng.chance(BURST);
        let asks = if burst { REQUESTS } else { REQUESTS / 2 };
        while (burst || here.rng.chance(REQUEST)) && self.session.open_requests() < asks {
            self.request(here)?;
        }
        if here.rng.chance(IDLE) {
            let micros = here.rng.below(MAX_IDLE_US);
            self.program.idle_until = here.now + Duration::from_micros(micros);
        }
        if here.rng.chance(FLUSH) {
            self.flush(here, 1)?;
        }
        if here.rng.chance(RELEASE)
            && let Some(pool) = self.program.lent.keys().next().copied()
        {
            // Fails if it is already being released.
            let _ = self.session.release(pool);
        }
        Ok(())
    }

    /// Gives back and takes back everything.
    fn wind_down(&mut self, here: &mut EndContext<'_>) -> Result<(), String> {
        while !self.program.held.is_empty() {
            self.give_back(0, here)?;
        }
        self.flush(here, POOLS + 1)
    }

    /// Keeps at least one pool lent, of random sizes; where pools are memory, sometimes several.
    fn lend_some(&mut self, here: &mut EndContext<'_>) -> Result<(), String> {
        // A session keeps a pool until its last element is given back.
        let held = |m: &Memory| {
            let mut held = self.program.held.iter();
            held.any(|(pool, _)| *pool == m.pool.reference)
        };
        let memories = self.program.memories.values();
        let mut pools = memories.filter(|m| !m.freed || held(m)).count();
        let most = match self.id.arrangement {
            Arrangement::Writes => POOLS,
            Arrangement::Sends | Arrangement::Single => 1,
        };
        while pools == 0 || (pools < most && here.rng.chance(LEND)) {
            let reference = self.program.next_pool;
            self.program.next_pool += 1;
            let count = here.rng.range(1, u64::from(ELEMENTS)) as u32;
            let size = here.rng.range(SHORTEST.into(), SIZE.into()) as u32;
            let shape = (reference, count, size);
            let memory = Memory::new(&self.tpt, self.pd, shape, self.id.arrangement)?;
            let pool = memory.pool;
            self.program.memories.insert(reference, memory);
            let advertised = self.session.advertise(&[pool]);
            advertised.map_err(|e| format!("{}: {e}", self.id))?;
            // Descriptors are posted before the message that lends them.
            self.post_receives(here)?;
            pools += 1;
        }
        self.drain(here)
    }

    fn send_some(&mut self, here: &mut EndContext<'_>) -> Result<(), String> {
        for _ in 0..here.rng.below(4) {
            let longest = self.program.lent.values().max().copied();
            let (Some(longest), Some(place)) = (longest, self.free.last().copied()) else {
                return Ok(());
            };
            let len = here.rng.range(SHORTEST.into(), longest.into()) as u32;
            let packet = match self.session.send(len) {
                Ok(packet) => packet,
                Err(Refused::Full { .. } | Refused::TooLong { .. }) => {
                    continue;
                }
                Err(refused) => return Err(format!("{}: {refused}", self.id)),
            };
            self.free.pop();
            let (number, bytes) = self.accounting(true, here)?.next(len);
            self.outbox
                .write(place * SLOT_SIZE + SEND_DATA_HEAD, &bytes);
            self.sources.insert(
                packet,
                Source {
                    slot: place,
                    number,
                },
            );
            self.drain(here)?;
        }
        Ok(())
    }

    fn give_back(&mut self, at: usize, here: &mut EndContext<'_>) -> Result<(), String> {
        let (pool, element) = self.program.held.swap_remove(at);
        let memory = self.memory(pool)?;
        memory.give_back(element)?;
        let given = self.session.give_back(pool, element);
        given.map_err(|e| format!("{}: {e}", self.id))?;
        self.drain(here)
    }

    fn request(&mut self, here: &mut EndContext<'_>) -> Result<(), String> {
        let len = here.rng.len(0, 40);
        let data = here.rng.bytes(len);
        let operation =
            here.rng
                .pick(&[Operation::GetMac, Operation::GetLink, Operation::Statistics]);
        let context = self.session.request(operation, &data);
        let context = context.map_err(|e| format!("{}: {e}", self.id))?;
        self.program.requested.insert(context, answer(&data));
        self.drain(here)
    }

    /// Takes some pools back; has no effect on those that are already being taken back.
    fn flush(&mut self, here: &mut EndContext<'_>, most: usize) -> Result<(), String> {
        let memories = self.program.memories.values();
        let own: Vec<u32> = memories
            .filter(|m| !m.freed)
            .map(|m| m.pool.reference)
            .collect();
        for pool in own.into_iter().take(most) {
            let _ = self.session.flush(&[pool]);
        }
        self.drain(here)
    }
}

/// The answer of the configuration service.
fn answer(data: &[u8]) -> Vec<u8> {
    data.iter().rev().map(|byte| !byte).collect()
}
