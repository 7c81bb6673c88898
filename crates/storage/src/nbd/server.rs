//! The loop of an export: clients at the door, their turns, pieces for the disk, and what comes back.
//! It promises that every client has its turn, that no job outlives its memory, and that the disk is flushed at the end.
//! It refuses to block on a client: only the disk's own wait sleeps.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use verbena::Memory;

use super::client::{Client, MAX_OUTSTANDING};
use super::door::{Door, Visitor};
use super::handshake::Facts;
use super::job::{MAX_REQUEST, Material};
use super::{Counts, Export, slots};
use crate::blocks::{Blocks, Done, Geometry, Request};
use crate::error::Error;
use crate::stop::Stop;

/// Clients at a time; others wait at the door.
const MAX_CLIENTS: usize = 16;
/// How long a client may take to choose an export.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long clients have to take their last answers when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);
/// Zeroes for disks that cannot make their own, in bytes.
const ZEROES: usize = 256 << 10;
/// The name of the flush at the end; no client's job has it.
const LAST_FLUSH: u64 = u64::MAX;
/// What the epoll set calls the door and the flag; clients have their numbers.
const DOOR: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

const _: () = assert!(MAX_CLIENTS < 1 << 16 && MAX_OUTSTANDING < 1 << 16);

/// All clients and the disk.
pub(super) struct Server<'a, B: Blocks> {
    blocks: &'a mut B,
    door: &'a Door,
    geometry: Geometry,
    facts: Facts,
    idle: Duration,
    zeroes: Memory,
    watch: OwnedFd,
    clients: Vec<Option<Client>>,
    /// Whose turn it is to start pieces.
    first: usize,
    /// Memory of clients that have left.
    spare: Vec<Memory>,
    /// Somebody may be at the door.
    knocked: bool,
    flying: usize,
    /// Pieces that were started; for their names.
    pieces: u32,
    done: Vec<Done>,
    /// The disk was written to since it was flushed by us.
    dirty: bool,
    counts: Counts,
}

impl<'a, B: Blocks> Server<'a, B> {
    pub(super) fn new(
        export: &'a Export,
        blocks: &'a mut B,
        stop: &Stop,
    ) -> Result<Server<'a, B>, Error> {
        let mut geometry = blocks.geometry();
        geometry.read_only |= export.options.read_only;
        if !geometry.block_size.is_power_of_two() || geometry.block_size > MAX_REQUEST {
            let what = format!("a disk with blocks of {} bytes", geometry.block_size);
            return Err(Error::Setting(format!("{what} cannot be exported")));
        }
        let io = |error: rustix::io::Errno| Error::io("an epoll set")(error.into());
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?;
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&watch, &export.door, epoll::EventData::new_u64(DOOR), edge).map_err(io)?;
        epoll::add(&watch, stop, epoll::EventData::new_u64(STOP), edge).map_err(io)?;
        let zeroes = ZEROES.max(geometry.block_size as usize);
        Ok(Server {
            facts: export.facts(&geometry),
            idle: export.options.idle,
            zeroes: blocks.memory(zeroes)?,
            blocks,
            door: &export.door,
            geometry,
            watch,
            clients: Vec::new(),
            first: 0,
            spare: Vec::new(),
            knocked: true,
            flying: 0,
            pieces: 0,
            done: Vec::new(),
            dirty: false,
            counts: Counts::default(),
        })
    }

    pub(super) fn run(&mut self, stop: &Stop, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
        while !stop.pulled() {
            let busy = self.turn(say)?;
            if !busy {
                self.sleep(self.deadline())?;
            }
            self.expire();
        }
        // What clients have asked for is done; they have a while to take the answers.
        self.clients.iter_mut().flatten().for_each(Client::leave);
        let last = Instant::now() + FAREWELL;
        while self.clients.iter().any(Option::is_some) {
            if Instant::now() >= last {
                let clients = self.clients.iter_mut().flatten();
                clients.for_each(|client| client.hang_up(Some("it takes no answers".into())));
            }
            let busy = self.turn(say)?;
            // The last one may just have left.
            if !busy && self.clients.iter().any(Option::is_some) {
                self.sleep(Some(last.max(Instant::now() + Duration::from_millis(100))))?;
            }
        }
        self.flush()
    }

    pub(super) fn into_counts(self) -> Counts {
        self.counts
    }

    /// Everything that can be done now. Whether there may be more.
    fn turn(&mut self, say: &mut dyn FnMut(&str)) -> Result<bool, Error> {
        self.look()?;
        self.accept(say)?;
        let mut busy = false;
        for client in self.clients.iter_mut().flatten() {
            match client.turn(&self.facts, &self.geometry, &mut self.counts) {
                Ok(more) => busy |= more,
                // What is wrong with one is no reason to end the others.
                Err(error) => client.hang_up(Some(error.to_string())),
            }
        }
        busy |= self.start()?;
        busy |= self.land()?;
        // Whoever waits at the door may come in now.
        busy |= self.part(say) && self.knocked;
        Ok(busy)
    }

    /// Which sockets have something, or room.
    fn look(&mut self) -> Result<(), Error> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; MAX_CLIENTS + 2];
        let none = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let count = match epoll::wait(&self.watch, &mut events, Some(&none)) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(Error::io("an epoll set")(error.into())),
        };
        for event in &events[..count] {
            let (flags, data) = (event.flags, event.data.u64());
            match data {
                DOOR => self.knocked = true,
                STOP => {}
                _ => {
                    let client = self.clients.get_mut(data as usize);
                    let Some(client) = client.and_then(Option::as_mut) else {
                        continue;
                    };
                    client.readable |= flags.contains(epoll::EventFlags::IN);
                    client.writable |= flags.contains(epoll::EventFlags::OUT);
                    let over = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                    if flags.intersects(over) {
                        client.closed();
                    }
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
        while self.knocked && self.clients.iter().flatten().count() < MAX_CLIENTS {
            let socket = match self.door.accept() {
                Ok(Some(Visitor::Client(socket))) => socket,
                Ok(Some(Visitor::Stranger(user))) => {
                    say(&format!("a client was sent away: it is of user {user}"));
                    continue;
                }
                Ok(None) => {
                    self.knocked = false;
                    break;
                }
                // Whoever was at the door left again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                // No descriptors, say: whoever comes next tries again.
                Err(error) => {
                    say(&format!("a client could not be let in: {error}"));
                    self.knocked = false;
                    break;
                }
            };
            let memory = match self.spare.pop() {
                Some(memory) => Ok(memory),
                None => self.blocks.memory(slots::TOTAL),
            };
            let memory = match memory {
                Ok(memory) => memory,
                Err(error) => {
                    say(&format!("a client could not be let in: {error}"));
                    continue;
                }
            };
            let at = match self.clients.iter().position(Option::is_none) {
                Some(at) => at,
                None => {
                    self.clients.push(None);
                    self.clients.len() - 1
                }
            };
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            let name = epoll::EventData::new_u64(at as u64);
            if let Err(error) = epoll::add(&self.watch, &socket, name, flags) {
                say(&format!("a client could not be let in: {error}"));
                self.spare.push(memory);
                continue;
            }
            let client = Client::new(socket, memory, Instant::now() + PATIENCE);
            self.clients[at] = Some(client);
            self.counts.clients += 1;
        }
        Ok(())
    }

    /// Hands pieces to the disk, one per client in turn, as long as it takes them. Whether any was taken.
    fn start(&mut self) -> Result<bool, Error> {
        let mut any = false;
        let mut idle = 0;
        while !self.clients.is_empty() && idle < self.clients.len() {
            if self.flying >= self.blocks.depth().max(1) {
                break;
            }
            self.first = (self.first + 1) % self.clients.len();
            match self.start_one(self.first)? {
                Start::Taken => (any, idle) = (true, 0),
                Start::Nothing => idle += 1,
                Start::Full => break,
            }
        }
        Ok(any)
    }

    fn start_one(&mut self, index: usize) -> Result<Start, Error> {
        let Some(client) = self.clients.get_mut(index).and_then(Option::as_mut) else {
            return Ok(Start::Nothing);
        };
        while let Some(&at) = client.pending.front() {
            let memory = client.memory().clone();
            let material = Material {
                geometry: self.geometry,
                memory: &memory,
                zeroes: &self.zeroes,
            };
            let next = client.job(at).and_then(|job| {
                let next = job.next(&material);
                next.map(|(request, bytes)| (job, request, bytes))
            });
            let Some((job, request, bytes)) = next else {
                // All of it is under way, or it waits for its pieces before its flush.
                client.pending.pop_front();
                continue;
            };
            let changes = !matches!(request, Request::Read { .. } | Request::Flush);
            // Pieces of one job differ in their upper half.
            let id = u64::from(self.pieces) << 32 | (index as u64) << 16 | at as u64;
            return match self.blocks.submit(id, request) {
                Ok(()) => {
                    job.started(bytes);
                    self.flying += 1;
                    self.pieces = self.pieces.wrapping_add(1);
                    self.dirty |= changes;
                    Ok(Start::Taken)
                }
                Err(Error::Full { .. }) if self.flying > 0 => Ok(Start::Full),
                // The disk is gone for everybody.
                Err(error @ (Error::Lost(_) | Error::Silent { .. } | Error::Link(_))) => Err(error),
                // This request is not taken. Its client has no answer for that, and the others have nothing to do with it.
                Err(error) => {
                    client.hang_up(Some(error.to_string()));
                    Ok(Start::Nothing)
                }
            };
        }
        Ok(Start::Nothing)
    }

    /// Takes what the disk has done. Whether there was any.
    fn land(&mut self) -> Result<bool, Error> {
        self.blocks.poll(&mut self.done)?;
        let any = !self.done.is_empty();
        for done in self.done.drain(..) {
            self.flying = self.flying.saturating_sub(1);
            let (index, at) = ((done.id >> 16) as u16, done.id as u16);
            let (index, at) = (usize::from(index), usize::from(at));
            if let Some(Some(client)) = self.clients.get_mut(index) {
                client.landed(at, done.result.as_ref().copied(), &mut self.counts);
            }
        }
        Ok(any)
    }

    /// Lets go of clients that are done. Their sockets leave the epoll set when they are closed. Whether any left.
    fn part(&mut self, say: &mut dyn FnMut(&str)) -> bool {
        let mut any = false;
        for place in &mut self.clients {
            if let Some(client) = place.take_if(|client| client.is_over()) {
                if let Some(why) = &client.why {
                    say(&format!("a client was hung up on: {why}"));
                }
                self.spare.push(client.into_memory());
                any = true;
            }
        }
        any
    }

    /// Hangs up on who takes too long to say what it wants; and if another waits, on the one that has wanted nothing for longest.
    fn expire(&mut self) {
        let (now, idle) = (Instant::now(), self.idle);
        for client in self.clients.iter_mut().flatten() {
            if let Some((limit, why)) = client.limit(idle)
                && limit <= now
            {
                client.hang_up(Some(why.into()));
            }
        }
        if self.gives_way().is_some_and(|at| at <= now) {
            let clients = self.clients.iter_mut().flatten();
            let longest = clients.filter(|client| client.idle_since().is_some());
            if let Some(client) = longest.min_by_key(|client| client.idle_since()) {
                client.hang_up(Some("it was idle, and another waited for its place".into()));
            }
        }
    }

    /// When the client that is idle for longest must give its place to one that waits.
    fn gives_way(&self) -> Option<Instant> {
        let full = self.clients.iter().flatten().count() >= MAX_CLIENTS;
        if !full || !self.door.is_wanted() {
            return None;
        }
        let idle = self.clients.iter().flatten().filter_map(Client::idle_since);
        idle.min()?.checked_add(self.idle)
    }

    /// When somebody is to be hung up on, if nothing happens before.
    fn deadline(&self) -> Option<Instant> {
        let clients = self.clients.iter().flatten();
        let limits = clients.filter_map(|client| client.limit(self.idle));
        limits.map(|(at, _)| at).chain(self.gives_way()).min()
    }

    fn sleep(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let timeout = until.map(|at| at.saturating_duration_since(Instant::now()));
        self.blocks.wait(&[self.watch.as_fd()], timeout)
    }

    /// What was written outlives us, even if no client has asked for that.
    fn flush(&mut self) -> Result<(), Error> {
        if !self.dirty {
            return Ok(());
        }
        self.blocks.submit(LAST_FLUSH, Request::Flush)?;
        loop {
            self.blocks.poll(&mut self.done)?;
            if let Some(done) = self.done.drain(..).find(|done| done.id == LAST_FLUSH) {
                let failed = |failure| Error::Failed {
                    what: "the flush at the end",
                    at: 0,
                    failure,
                };
                return done.result.map_err(failed);
            }
            self.blocks.wait(&[], None)?;
        }
    }
}

/// What became of an attempt to start a piece.
enum Start {
    Taken,
    Nothing,
    Full,
}
