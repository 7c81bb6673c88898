//! The loop of an export: accepts clients, runs them in turn, submits pieces to the disk and processes completions. A client's memory is
//! kept until its jobs have ended, and the disk is flushed at the end. Only `Blocks::wait` blocks; no client can.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use verbena::Memory;

use super::acceptor::{Accepted, Acceptor};
use super::client::{Client, MAX_OUTSTANDING};
use super::handshake::ExportInfo;
use super::job::{MAX_REQUEST, PieceContext};
use super::{Counts, Export, slots};
use crate::blocks::{Blocks, Done, Geometry, Request};
use crate::error::Error;
use crate::stop::Stop;

/// Most clients; further connections wait in the listener's backlog.
const MAX_CLIENTS: usize = 16;
/// Time limit of the negotiation.
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for sending the last replies when the server ends.
#[cfg(not(test))]
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than tests wait: they fail if a client that has left is waited for.
#[cfg(test)]
const CLOSE_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of zeroes for disks without `Request::Zero`.
const ZEROES: usize = 256 << 10;
/// Id of the flush at the end; no job has it.
const LAST_FLUSH: u64 = u64::MAX;
/// epoll data of the listener and the stop flag; clients have their index.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

const _: () = assert!(MAX_CLIENTS < 1 << 16 && MAX_OUTSTANDING < 1 << 16);

/// All clients and the disk.
pub(super) struct Server<'a, B: Blocks> {
    blocks: &'a mut B,
    acceptor: &'a Acceptor,
    geometry: Geometry,
    export_info: ExportInfo,
    idle: Duration,
    zeroes: Memory,
    epoll: OwnedFd,
    clients: Vec<Option<Client>>,
    /// The client that submits next.
    first: usize,
    /// Memory of clients that have left.
    spare: Vec<Memory>,
    /// A connection may wait to be accepted.
    accept_pending: bool,
    outstanding: usize,
    /// Pieces submitted; part of their ids.
    pieces: u32,
    done: Vec<Done>,
    /// The disk was written to, so it has to be flushed at the end.
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
        epoll::add(
            &watch,
            &export.acceptor,
            epoll::EventData::new_u64(LISTENER),
            edge,
        )
        .map_err(io)?;
        epoll::add(&watch, stop, epoll::EventData::new_u64(STOP), edge).map_err(io)?;
        let zeroes = ZEROES.max(geometry.block_size as usize);
        Ok(Server {
            export_info: export.export_info(&geometry),
            idle: export.options.idle,
            zeroes: blocks.memory(zeroes)?,
            blocks,
            acceptor: &export.acceptor,
            geometry,
            epoll: watch,
            clients: Vec::new(),
            first: 0,
            spare: Vec::new(),
            accept_pending: true,
            outstanding: 0,
            pieces: 0,
            done: Vec::new(),
            dirty: false,
            counts: Counts::default(),
        })
    }

    pub(super) fn run(&mut self, stop: &Stop, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
        while !stop.is_requested() {
            let busy = self.turn(say)?;
            if !busy {
                self.sleep(self.deadline())?;
            }
            self.expire();
        }
        // Outstanding requests are completed, and clients get some time to read the replies.
        self.clients.iter_mut().flatten().for_each(Client::drain);
        let last = Instant::now() + CLOSE_TIMEOUT;
        while self.clients.iter().any(Option::is_some) {
            if Instant::now() >= last {
                let clients = self.clients.iter_mut().flatten();
                clients
                    .for_each(|client| client.disconnect(Some("it does not read replies".into())));
            }
            let busy = self.turn(say)?;
            // The last client may just have left.
            if !busy && self.clients.iter().any(Option::is_some) {
                self.sleep(Some(last.max(Instant::now() + Duration::from_millis(100))))?;
            }
        }
        self.flush()
    }

    pub(super) fn into_counts(self) -> Counts {
        self.counts
    }

    /// Does everything that can be done now. Returns whether there may be more.
    fn turn(&mut self, say: &mut dyn FnMut(&str)) -> Result<bool, Error> {
        self.poll_sockets()?;
        self.accept(say)?;
        let mut busy = false;
        for client in self.clients.iter_mut().flatten() {
            match client.turn(&self.export_info, &self.geometry, &mut self.counts) {
                Ok(more) => busy |= more,
                // An error of one client does not affect the others.
                Err(error) => client.disconnect(Some(error.to_string())),
            }
        }
        busy |= self.start()?;
        busy |= self.handle_completions()?;
        // A waiting connection can be accepted now.
        busy |= self.remove_finished(say) && self.accept_pending;
        Ok(busy)
    }

    /// Updates the readiness of sockets.
    fn poll_sockets(&mut self) -> Result<(), Error> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; MAX_CLIENTS + 2];
        let none = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let count = match epoll::wait(&self.epoll, &mut events, Some(&none)) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(Error::io("an epoll set")(error.into())),
        };
        for event in &events[..count] {
            let (flags, data) = (event.flags, event.data.u64());
            match data {
                LISTENER => self.accept_pending = true,
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
                        client.handle_hangup();
                    }
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
        while self.accept_pending && self.clients.iter().flatten().count() < MAX_CLIENTS {
            let socket = match self.acceptor.accept() {
                Ok(Some(Accepted::Client(socket))) => socket,
                Ok(Some(Accepted::OtherUser(user))) => {
                    say(&format!(
                        "a client was rejected: it is a process of user {user}"
                    ));
                    continue;
                }
                Ok(None) => {
                    self.accept_pending = false;
                    break;
                }
                // The connection was closed before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                // For example out of descriptors: retried with the next connection.
                Err(error) => {
                    say(&format!("cannot accept a client: {error}"));
                    self.accept_pending = false;
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
                    say(&format!("cannot accept a client: {error}"));
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
            if let Err(error) = epoll::add(&self.epoll, &socket, name, flags) {
                say(&format!("cannot accept a client: {error}"));
                self.spare.push(memory);
                continue;
            }
            let client = Client::new(socket, memory, Instant::now() + NEGOTIATION_TIMEOUT);
            self.clients[at] = Some(client);
            self.counts.clients += 1;
        }
        Ok(())
    }

    /// Submits pieces to the disk, one per client in turn, until it is full. Returns whether any was accepted.
    fn start(&mut self) -> Result<bool, Error> {
        let mut any = false;
        let mut idle = 0;
        while !self.clients.is_empty() && idle < self.clients.len() {
            if self.outstanding >= self.blocks.depth().max(1) {
                break;
            }
            self.first = (self.first + 1) % self.clients.len();
            match self.start_one(self.first)? {
                SubmitOutcome::Submitted => (any, idle) = (true, 0),
                SubmitOutcome::Nothing => idle += 1,
                SubmitOutcome::Full => break,
            }
        }
        Ok(any)
    }

    fn start_one(&mut self, index: usize) -> Result<SubmitOutcome, Error> {
        let Some(client) = self.clients.get_mut(index).and_then(Option::as_mut) else {
            return Ok(SubmitOutcome::Nothing);
        };
        while let Some(&at) = client.pending.front() {
            let memory = client.memory().clone();
            let material = PieceContext {
                geometry: self.geometry,
                memory: &memory,
                zeroes: &self.zeroes,
            };
            let next = client.job(at).and_then(|job| {
                let next = job.next(&material);
                next.map(|(request, bytes)| (job, request, bytes))
            });
            let Some((job, request, bytes)) = next else {
                // All of it is submitted, or its flush waits for its pieces.
                client.pending.pop_front();
                continue;
            };
            let changes = !matches!(request, Request::Read { .. } | Request::Flush);
            // Pieces of one job differ in the upper half.
            let id = u64::from(self.pieces) << 32 | (index as u64) << 16 | at as u64;
            return match self.blocks.submit(id, request) {
                Ok(()) => {
                    job.started(bytes);
                    self.outstanding += 1;
                    self.pieces = self.pieces.wrapping_add(1);
                    self.dirty |= changes;
                    Ok(SubmitOutcome::Submitted)
                }
                Err(Error::Full { .. }) if self.outstanding > 0 => Ok(SubmitOutcome::Full),
                // The disk is lost for all clients.
                Err(error @ (Error::Lost(_) | Error::Timeout { .. } | Error::Link(_))) => {
                    Err(error)
                }
                // The request was not accepted. NBD has no reply for that, and other clients are not affected.
                Err(error) => {
                    client.disconnect(Some(error.to_string()));
                    Ok(SubmitOutcome::Nothing)
                }
            };
        }
        Ok(SubmitOutcome::Nothing)
    }

    /// Processes completions of the disk. Returns whether there were any.
    fn handle_completions(&mut self) -> Result<bool, Error> {
        self.blocks.poll(&mut self.done)?;
        let any = !self.done.is_empty();
        for done in self.done.drain(..) {
            self.outstanding = self.outstanding.saturating_sub(1);
            let (index, at) = ((done.id >> 16) as u16, done.id as u16);
            let (index, at) = (usize::from(index), usize::from(at));
            if let Some(Some(client)) = self.clients.get_mut(index) {
                client.complete_piece(at, done.result.as_ref().copied(), &mut self.counts);
            }
        }
        Ok(any)
    }

    /// Removes clients that are over. Their sockets leave the epoll set when they are closed. Returns whether any was removed.
    fn remove_finished(&mut self, say: &mut dyn FnMut(&str)) -> bool {
        let mut any = false;
        for place in &mut self.clients {
            if let Some(client) = place.take_if(|client| client.is_over()) {
                if let Some(why) = &client.why {
                    say(&format!("a client was disconnected: {why}"));
                }
                self.spare.push(client.into_memory());
                any = true;
            }
        }
        any
    }

    /// Disconnects clients past their time limit; and if a connection waits, the one that has been idle for longest.
    fn expire(&mut self) {
        let (now, idle) = (Instant::now(), self.idle);
        for client in self.clients.iter_mut().flatten() {
            if let Some((limit, why)) = client.limit(idle)
                && limit <= now
            {
                client.disconnect(Some(why.into()));
            }
        }
        if self.eviction_time().is_some_and(|at| at <= now) {
            let clients = self.clients.iter_mut().flatten();
            let longest = clients.filter(|client| client.idle_since().is_some());
            if let Some(client) = longest.min_by_key(|client| client.idle_since()) {
                client.disconnect(Some("it was idle, and another client was waiting".into()));
            }
        }
    }

    /// When the client that has been idle for longest has to make room for a waiting connection.
    fn eviction_time(&self) -> Option<Instant> {
        let full = self.clients.iter().flatten().count() >= MAX_CLIENTS;
        if !full || !self.acceptor.has_pending() {
            return None;
        }
        let idle = self.clients.iter().flatten().filter_map(Client::idle_since);
        idle.min()?.checked_add(self.idle)
    }

    /// When a client is to be disconnected, if nothing happens before.
    fn deadline(&self) -> Option<Instant> {
        let clients = self.clients.iter().flatten();
        let limits = clients.filter_map(|client| client.limit(self.idle));
        limits.map(|(at, _)| at).chain(self.eviction_time()).min()
    }

    fn sleep(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let timeout = until.map(|at| at.saturating_duration_since(Instant::now()));
        self.blocks.wait(&[self.epoll.as_fd()], timeout)
    }

    /// Flushes the disk after writes, even if no client asked for it.
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

/// Result of submitting a piece.
enum SubmitOutcome {
    Submitted,
    Nothing,
    Full,
}
