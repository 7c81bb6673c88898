//! One client of an export: received bytes become jobs, and jobs become replies. Memory is bounded, and payload moves between the socket
//! and registered memory without a copy. Jobs wait here until the server submits them to the disk.

mod process;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use verbena::Memory;

use super::Counts;
use super::codec::{Errno, HEAD, Head, ReplyHead};
use super::handshake::{ExportInfo, Handshake, LONGEST, greeting};
use super::job::{Job, Kind};
use super::outbox::{Outbox, Reply, SendOutcome};
use super::slots::{Run, Slots};
use super::stage::Stage;
use crate::blocks::Geometry;
use crate::error::{Error, Failure};

/// Most requests and replies of one client in progress; beyond that nothing is read from it.
pub(super) const MAX_OUTSTANDING: usize = 256;
/// Most iterations per client before the others get their turn.
const BUDGET: usize = 64;
/// Bytes of request headers that are read at once while no payload is expected.
const HEADS: usize = 16 * HEAD;

/// State of a client.
#[derive(Debug)]
enum Phase {
    Negotiating(Handshake),
    Serving,
    /// No more requests are read; outstanding ones are still answered.
    Draining,
    /// Disconnected.
    Closed,
}

/// What the next bytes belong to.
#[derive(Debug)]
enum Incoming {
    Head,
    /// Payload of a job: bytes received.
    Payload {
        job: usize,
        got: u32,
    },
    /// Payload of a rejected request: bytes still to come, and the reply.
    Discard {
        left: u32,
        reply: ReplyHead,
    },
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    socket: OwnedFd,
    phase: Phase,
    /// Structured replies were negotiated.
    structured_replies: bool,
    stage: Stage,
    incoming: Incoming,
    /// A request that waits for memory.
    stalled: Option<Head>,
    /// The last request carried payload, and the next one may too: read its header alone.
    payload_follows: bool,
    memory: Memory,
    slots: Slots,
    jobs: Vec<Option<Job>>,
    /// Free entries of `jobs`.
    free: Vec<usize>,
    /// Jobs with pieces to submit.
    pub(super) pending: VecDeque<usize>,
    outbox: Outbox,
    /// The socket may be readable, or writable.
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Time limit of the negotiation.
    deadline: Option<Instant>,
    /// When something was last sent, processed or read.
    last_progress: Instant,
    /// Why it was disconnected.
    pub(super) why: Option<String>,
}

impl Client {
    pub(super) fn new(socket: OwnedFd, memory: Memory, deadline: Instant) -> Client {
        let mut outbox = Outbox::default();
        outbox.handshake_buffer().extend_from_slice(&greeting());
        Client {
            socket,
            phase: Phase::Negotiating(Handshake::new()),
            structured_replies: false,
            stage: Stage::new(),
            incoming: Incoming::Head,
            stalled: None,
            payload_follows: false,
            memory,
            slots: Slots::new(),
            jobs: Vec::new(),
            free: Vec::new(),
            pending: VecDeque::new(),
            outbox,
            readable: true,
            writable: true,
            deadline: Some(deadline),
            last_progress: Instant::now(),
            why: None,
        }
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(super) fn job(&mut self, at: usize) -> Option<&mut Job> {
        self.jobs.get_mut(at)?.as_mut()
    }

    /// Disconnected or leaving, without outstanding jobs or replies.
    pub(super) fn is_over(&self) -> bool {
        let idle = self.free.len() == self.jobs.len();
        match self.phase {
            Phase::Closed => idle,
            Phase::Draining => idle && self.outbox.is_empty(),
            Phase::Negotiating(_) | Phase::Serving => false,
        }
    }

    /// When to disconnect it if there is no progress, and why: during negotiation, within a request, and while it does not read replies.
    /// Waiting for the disk has no limit here.
    pub(super) fn limit(&self, idle: Duration) -> Option<(Instant, &'static str)> {
        if let Some(deadline) = self.deadline {
            return Some((deadline, "it chose no export in time"));
        }
        let limit = self.last_progress.checked_add(idle)?;
        let reads = self.stalled.is_none() && !self.is_full();
        let begun = !matches!(self.incoming, Incoming::Head) || !self.stage.is_empty();
        match self.phase {
            Phase::Serving if !self.outbox.is_empty() => Some((limit, "it does not read replies")),
            Phase::Serving if reads && begun => {
                Some((limit, "it has stopped in the middle of a request"))
            }
            _ => None,
        }
    }

    /// Since when it has no outstanding request.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let idle = self.free.len() == self.jobs.len() && self.outbox.is_empty();
        let serving = matches!(self.phase, Phase::Serving);
        (serving && idle).then_some(self.last_progress)
    }

    /// Reads no more requests, and answers outstanding ones.
    pub(super) fn drain(&mut self) {
        if !matches!(self.phase, Phase::Closed) {
            self.phase = Phase::Draining;
        }
        self.deadline = None;
        self.stalled = None;
        // Incomplete payload will not be completed.
        if let Incoming::Payload { job, .. } = self.incoming {
            self.release_job(job);
        }
        self.incoming = Incoming::Head;
    }

    /// Disconnects: jobs not submitted are dropped.
    pub(super) fn disconnect(&mut self, why: Option<String>) {
        self.drain();
        self.phase = Phase::Closed;
        self.why = self.why.take().or(why);
        self.outbox.clear(&mut self.slots);
        self.pending.clear();
        for at in 0..self.jobs.len() {
            if self.jobs[at].as_ref().is_some_and(Job::is_idle) {
                self.release_job(at);
            }
        }
    }

    /// Both directions of its socket are closed: remaining bytes are read, and then the end is seen.
    pub(super) fn handle_hangup(&mut self) {
        match self.phase {
            Phase::Draining | Phase::Closed => self.disconnect(None),
            Phase::Negotiating(_) | Phase::Serving => (self.readable, self.writable) = (true, true),
        }
    }

    fn remove(&mut self, at: usize) -> Option<Job> {
        let job = self.jobs.get_mut(at)?.take()?;
        self.free.push(at);
        Some(job)
    }

    fn release_job(&mut self, at: usize) {
        if let Some(run) = self.remove(at).and_then(|job| job.run) {
            self.slots.release(run);
        }
    }

    /// Sends, processes and reads until there is no progress or the budget is used up. Returns whether it could continue.
    pub(super) fn turn(
        &mut self,
        facts: &ExportInfo,
        geometry: &Geometry,
        counts: &mut Counts,
    ) -> Result<bool, Error> {
        for turn in 0..BUDGET {
            let sent = self.transmit()?;
            let understood = self.process_staged(facts, geometry, counts)?;
            let read = self.receive()?;
            if !(sent || understood || read) {
                return Ok(false);
            }
            if turn == 0 {
                self.last_progress = Instant::now();
            }
        }
        Ok(true)
    }

    fn transmit(&mut self) -> Result<bool, Error> {
        if !self.writable || matches!(self.phase, Phase::Closed) {
            return Ok(false);
        }
        let socket = self.socket.as_fd();
        match self
            .outbox
            .transmit(socket, &self.memory, &mut self.slots)?
        {
            Ok(SendOutcome::Progress) => return Ok(true),
            Ok(SendOutcome::Empty) => {}
            Ok(SendOutcome::WouldBlock) => self.writable = false,
            Err(error) => self.disconnect(reason(&error)),
        }
        Ok(false)
    }

    /// Whether the limit on requests and replies is reached.
    fn is_full(&self) -> bool {
        self.jobs.len() - self.free.len() + self.outbox.len() >= MAX_OUTSTANDING
    }

    /// Reads what is expected next.
    fn receive(&mut self) -> Result<bool, Error> {
        if !self.readable || self.stalled.is_some() || self.is_full() {
            return Ok(false);
        }
        let want = match (&self.phase, &self.incoming) {
            (Phase::Draining | Phase::Closed, _) => return Ok(false),
            // One answer at a time, so that a client that does not read cannot accumulate them.
            (Phase::Negotiating(_), _) if !self.outbox.is_empty() => return Ok(false),
            (Phase::Negotiating(_), _) => LONGEST,
            (_, Incoming::Payload { job, got }) => {
                let (job, got) = (*job, *got);
                return self.receive_payload(job, got);
            }
            (_, Incoming::Discard { .. }) => LONGEST,
            (_, Incoming::Head) if self.payload_follows => HEAD,
            (_, Incoming::Head) => HEADS,
        };
        let read = self.stage.fill(self.socket.as_fd(), want);
        Ok(self.check_read(read).is_some())
    }

    fn receive_payload(&mut self, at: usize, got: u32) -> Result<bool, Error> {
        let Some(Some(job)) = self.jobs.get(at) else {
            return Ok(false);
        };
        let start = job.run.as_ref().map_or(0, Run::offset) + got as usize;
        let left = (job.len - got) as usize;
        let socket = self.socket.as_fd();
        let read = self.memory.read_from(socket, &mut [], start, left)?;
        if let Some(count) = self.check_read(read) {
            self.advance(at, got + count as u32);
            return Ok(true);
        }
        Ok(false)
    }

    /// Evaluates a read: bytes, or none for now, or the end.
    fn check_read(&mut self, read: io::Result<usize>) -> Option<usize> {
        match read {
            Ok(0) => match (&self.phase, &self.incoming) {
                (Phase::Serving, Incoming::Head) if self.stage.is_empty() => self.drain(),
                _ => self.disconnect(Some("it closed the connection unexpectedly".into())),
            },
            Ok(count) => return Some(count),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => self.readable = false,
                io::ErrorKind::Interrupted => {}
                _ => self.disconnect(reason(&error)),
            },
        }
        None
    }

    /// Accounts for payload of a job; when it is complete the job can be submitted.
    fn advance(&mut self, at: usize, got: u32) {
        let whole = matches!(&self.jobs[at], Some(job) if job.len == got);
        self.incoming = if whole {
            self.pending.push_back(at);
            Incoming::Head
        } else {
            Incoming::Payload { job: at, got }
        };
    }

    fn reply_head(
        &self,
        (cookie, offset, len): (u64, u64, u32),
        read: bool,
        result: Result<(), Errno>,
    ) -> ReplyHead {
        let chunks = self.structured_replies;
        match result {
            Ok(()) if chunks && read => ReplyHead::data(cookie, offset, len),
            Err(error) if chunks && read => ReplyHead::failed(cookie, error),
            _ => ReplyHead::simple(cookie, result.err()),
        }
    }

    /// A piece of a job is done; after the last one the reply is queued.
    pub(super) fn complete_piece(
        &mut self,
        at: usize,
        result: Result<(), &Failure>,
        counts: &mut Counts,
    ) {
        let gone = matches!(self.phase, Phase::Closed);
        let Some(job) = self.job(at) else {
            return;
        };
        job.complete_piece(result);
        let Some(outcome) = job.outcome() else {
            if gone && job.is_idle() {
                self.release_job(at);
            } else if job.is_idle() && !self.pending.contains(&at) {
                // A flush has to follow.
                self.pending.push_back(at);
            }
            return;
        };
        if gone {
            return self.release_job(at);
        }
        counts.count(job, outcome);
        let Some(mut job) = self.remove(at) else {
            return;
        };
        self.pending.retain(|pending| *pending != at);
        let read = job.kind == Kind::Read;
        let head = self.reply_head((job.cookie, job.offset, job.len), read, outcome);
        let run = job.run.take();
        let payload = match run {
            Some(run) if read && outcome.is_ok() => Some((run, job.len)),
            Some(run) => {
                self.slots.release(run);
                None
            }
            None => None,
        };
        self.outbox.push(Reply { head, payload });
    }

    /// Its memory, for the next client.
    pub(super) fn into_memory(self) -> Memory {
        self.memory
    }
}

/// Why a socket failed; `None` if the client closed it without reading its replies, which it may.
fn reason(error: &io::Error) -> Option<String> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    let left = matches!(error.kind(), BrokenPipe | ConnectionReset);
    (!left).then(|| error.to_string())
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
