//! One TCP connection of a port. Until its owner takes it over, its bytes pass through a local pair in both directions (the startup, TLS, protocols of
//! streams); then its segments go to the owner in the order in which they arrive, and what it writes is cut into segments by FPDUs.
//! Every byte that the stack hands up is taken here; the window moves with what was written to the pair, processed or discarded.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use verbena_mem::Sources;
use verbena_nic::qp::Segment;
use verbena_nic::{IoOutcome, Outbox};
use verbena_stream::{Alignment, Time};
use verbena_sync::atomic::{AtomicBool, AtomicU8, Ordering};
use verbena_sync::locks::{Mutex, OnceLock};
use verbena_tcpip::tcp::{Connection, KeepAlive, Received};
use verbena_tcpip::{ConnectionId, Stack, TrafficClass};

use super::outbox::{self, Ending};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::line::ReadNear;
use crate::sys::{
    self, Interest, Line, LineError, LineOwner, Ready, Socket, TcpNumbers, read_into, write_from,
};

/// Bytes of a peer that may arrive ahead of what was processed.
pub(super) const RECEIVE_WINDOW: u64 = 1 << 20;
/// Probes of an idle connection without an answer after which it is broken.
const KEEPALIVE_PROBES: u32 = 6;
/// Bytes that move through the pair at once.
const PIECE: usize = 16 << 10;
/// Pieces in one turn.
const PIECES: usize = 16;

/// It is being opened.
const CONNECTING: u8 = 0;
/// It is established.
const OPEN: u8 = 1;
/// Both sides have ended it.
const CLOSED: u8 = 2;
/// It has failed; the cause is added.
const FAILED: u8 = 3;

const FAILURES: [LineError; 3] = [LineError::Refused, LineError::TimedOut, LineError::Reset];

/// No end.
const RUNNING: u8 = 0;
/// The peer has finished, and everything before was processed.
const EOF: u8 = 1;
/// The connection broke.
const BROKEN: u8 = 2;

/// What a connection needs of its port.
pub(super) trait LinePort: Send + Sync {
    fn shard(&self) -> &Shard;

    /// Calls `act` with the stack and the outbox of a connection, and sends what follows; false if it is closed.
    fn with_outbox(
        &self,
        id: ConnectionId,
        act: &mut dyn FnMut(&mut Stack, &mut outbox::Outbox),
    ) -> bool;

    /// Calls `act` with the stack, and sends what follows.
    fn with_stack(&self, act: &mut dyn FnMut(&mut Stack));

    /// Calls `act` with a connection and its outbox, if it is not closed.
    fn look(&self, id: ConnectionId, act: &mut dyn FnMut(&Connection, &outbox::Outbox));

    /// Connects again; returns the new connection and its local address.
    fn connect_again(&self, line: &Arc<PortLine>) -> sys::Result<(ConnectionId, SocketAddr)>;

    /// The owner is told soon that there is room.
    fn tell_room_soon(&self, line: &Arc<PortLine>);

    /// Reads what has arrived.
    fn poll(&self);
}

/// When idle connections are probed; zero for never.
pub(super) fn probes(idle: Duration) -> Option<KeepAlive> {
    (!idle.is_zero()).then(|| KeepAlive {
        idle,
        interval: (idle / KEEPALIVE_PROBES).max(Duration::from_secs(1)),
        probes: KEEPALIVE_PROBES,
    })
}

/// The class for a type of service or traffic class.
pub(super) fn traffic_class(class: u8) -> TrafficClass {
    TrafficClass {
        dscp: class >> 2,
        priority: Some(class >> 5),
    }
}

/// A connection of a port.
pub(super) struct PortLine {
    port: Weak<dyn LinePort>,
    token: u64,
    local: Mutex<SocketAddr>,
    peer: SocketAddr,
    id: Mutex<ConnectionId>,
    status: AtomicU8,
    /// It was established.
    was_open: AtomicBool,
    /// The peer sends no more.
    finished: AtomicBool,
    /// How it ends for the owner that has taken it over.
    end: AtomicU8,
    abortive: AtomicBool,
    taken_over: AtomicBool,
    /// The near end is closed.
    released: AtomicBool,
    owner: OnceLock<Weak<dyn LineOwner>>,
    /// The far end of the pair; it stays open, so that a poller does not report the end of the near one.
    far: Socket,
    gate: Mutex<Gate>,
}

/// Where arrived bytes go, and how many the stack was told of.
struct Gate {
    mode: Mode,
    consumed: u64,
    /// Everything before this offset has arrived.
    in_order: u64,
}

enum Mode {
    Relay(Relay),
    Segments(Segments),
    Discard,
}

/// The pair.
struct Relay {
    /// Bytes in order that found no room in the pair.
    pending: VecDeque<u8>,
    /// Bytes ahead of a gap, by offset. The window limits them.
    ahead: BTreeMap<u64, Vec<u8>>,
    /// The offset behind the last byte in order.
    next: u64,
    /// Bytes that were written to the pair.
    delivered: u64,
    /// The near end sends no more.
    near_finished: bool,
    /// The near end was told that the peer sends no more.
    told_end: bool,
    /// Bytes that the near end was filled with until the connection is established.
    filler: usize,
}

/// The stream of a queue pair.
struct Segments {
    /// The offset of its first byte in the connection's stream.
    base: u64,
    /// Parts that arrived before the owner was ready, by position.
    held: Vec<(u64, Vec<u8>)>,
    started: bool,
    /// Everything before this position was processed.
    processed: u64,
}

impl Relay {
    fn insert(&mut self, offset: u64, bytes: &[u8]) {
        if offset != self.next {
            self.ahead.insert(offset, bytes.to_vec());
            return;
        }
        self.append(bytes);
        while let Some(bytes) = self.ahead.remove(&self.next) {
            self.append(&bytes);
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        self.next += bytes.len() as u64;
        self.pending.extend(bytes);
    }

    /// Writes to the pair what it takes. If the near end is closed, nothing reads it any more.
    fn push(&mut self, far: &Socket) {
        while !self.pending.is_empty() {
            let (front, _) = self.pending.as_slices();
            let n = match write_from(far, front) {
                IoOutcome::Bytes(n) => n,
                IoOutcome::WouldBlock => break,
                IoOutcome::Eof | IoOutcome::Broken | IoOutcome::Fault => self.pending.len(),
            };
            self.pending.drain(..n);
            self.delivered += n as u64;
        }
    }
}

impl Gate {
    /// How many further bytes the stack may be told of.
    fn take_consumed(&mut self) -> u64 {
        let until = match &self.mode {
            Mode::Relay(relay) => relay.delivered,
            Mode::Segments(segments) => segments.base + segments.processed,
            Mode::Discard => self.in_order,
        };
        let more = until.saturating_sub(self.consumed);
        self.consumed += more;
        more
    }
}

impl PortLine {
    pub(super) fn new(
        port: Weak<dyn LinePort>,
        (local, peer): (SocketAddr, SocketAddr),
        id: ConnectionId,
        far: Socket,
        filler: Option<usize>,
    ) -> Arc<PortLine> {
        let is_open = filler.is_none();
        Arc::new(PortLine {
            port,
            token: next_token(),
            local: Mutex::new(local),
            peer,
            id: Mutex::new(id),
            status: AtomicU8::new(if is_open { OPEN } else { CONNECTING }),
            was_open: AtomicBool::new(is_open),
            finished: AtomicBool::new(false),
            end: AtomicU8::new(RUNNING),
            abortive: AtomicBool::new(false),
            taken_over: AtomicBool::new(false),
            released: AtomicBool::new(false),
            owner: OnceLock::new(),
            far,
            gate: Mutex::new(Gate {
                mode: Mode::Relay(Relay {
                    pending: VecDeque::new(),
                    ahead: BTreeMap::new(),
                    next: 0,
                    delivered: 0,
                    near_finished: false,
                    told_end: false,
                    filler: filler.unwrap_or(0),
                }),
                consumed: 0,
                in_order: 0,
            }),
        })
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Another connection takes the place of the one that was refused.
    pub(super) fn set_id(&self, id: ConnectionId) {
        *self.id.lock() = id;
    }

    fn id(&self) -> ConnectionId {
        *self.id.lock()
    }

    /// Watches the far end of the pair.
    pub(super) fn watch(self: &Arc<Self>) {
        let Some(port) = self.port.upgrade() else {
            return;
        };
        let once = Interest::READ_ONCE;
        // Without it the startup times out.
        let _ = port
            .shard()
            .serve_watched(self.token, self.clone(), &self.far, once);
    }

    pub(super) fn set_connected(&self) {
        self.was_open.store(true, Ordering::Release);
        self.status.store(OPEN, Ordering::Release);
    }

    pub(super) fn set_finished(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// The connection is over; `None` if both sides have ended it.
    pub(super) fn set_closed(&self, why: Option<LineError>) {
        let known = why.and_then(|why| FAILURES.iter().position(|one| *one == why));
        let status = match (why, known) {
            (None, _) => CLOSED,
            (Some(_), known) => FAILED + known.unwrap_or(0) as u8,
        };
        self.status.store(status, Ordering::Release);
        if status == CLOSED {
            self.finished.store(true, Ordering::Release);
        } else {
            self.end.store(BROKEN, Ordering::Release);
        }
    }

    fn failure(&self) -> Option<LineError> {
        let status = self.status.load(Ordering::Acquire);
        let at = status.checked_sub(FAILED)?;
        FAILURES.get(usize::from(at)).copied()
    }

    fn is_over(&self) -> bool {
        self.status.load(Ordering::Acquire) >= CLOSED
    }

    fn owner(&self) -> Option<Arc<dyn LineOwner>> {
        self.owner.get()?.upgrade()
    }

    /// Takes what a segment has brought; returns how many bytes the window moves.
    pub(super) fn take(
        self: &Arc<Self>,
        received: &Received,
        bytes: &[u8],
        now: Time,
        taken: &mut Vec<Arc<dyn LineOwner>>,
        out: &mut Outbox,
    ) -> u64 {
        if received.runs.is_empty() {
            return 0;
        }
        let mut gate = self.gate.lock();
        gate.in_order = received.in_order;
        let in_order = gate.in_order;
        let mut runs = received.runs.iter().filter_map(|run| {
            let bytes = bytes.get(run.payload.clone())?;
            Some((run.offset, bytes))
        });
        match &mut gate.mode {
            Mode::Discard => {}
            Mode::Relay(relay) => {
                runs.for_each(|(offset, bytes)| relay.insert(offset, bytes));
                relay.push(&self.far);
                self.arm(relay);
            }
            Mode::Segments(segments) if !segments.started => {
                let base = segments.base;
                let held = runs.map(|(offset, bytes)| (offset - base, bytes.to_vec()));
                segments.held.extend(held);
            }
            Mode::Segments(segments) => {
                let Some(owner) = self.owner() else {
                    gate.mode = Mode::Discard;
                    return gate.take_consumed();
                };
                let is_taken = runs.all(|(offset, bytes)| {
                    segments.give(&*owner, (offset - segments.base, bytes), in_order, now, out)
                });
                if !taken.iter().any(|one| Arc::ptr_eq(one, &owner)) {
                    taken.push(owner);
                }
                if !is_taken {
                    self.refuse(&mut gate.mode);
                }
            }
        }
        gate.take_consumed()
    }

    /// Bytes were acknowledged that the owner has not taken, which the window should make impossible.
    fn refuse(&self, mode: &mut Mode) {
        *mode = Mode::Discard;
        self.end.store(BROKEN, Ordering::Release);
        self.set_abortive_now();
    }

    fn set_abortive_now(&self) {
        let id = self.id();
        if let Some(port) = self.port.upgrade() {
            port.with_stack(&mut |stack| stack.abort(id));
        }
    }

    /// Watches the pair for what is awaited from it.
    fn arm(&self, relay: &Relay) {
        let interest = Interest {
            read: !relay.near_finished,
            write: !relay.pending.is_empty(),
            oneshot: true,
        };
        if let Some(port) = self.port.upgrade()
            && (interest.read || interest.write)
        {
            let _ = port.shard().arm(&self.far, self.token, interest);
        }
    }

    /// Moves bytes through the pair in both directions.
    fn pump(&self) {
        let Some(port) = self.port.upgrade() else {
            return;
        };
        let mut gate = self.gate.lock();
        let Mode::Relay(relay) = &mut gate.mode else {
            return;
        };
        relay.push(&self.far);
        self.pull(relay, &*port);
        self.tell_end(relay);
        self.arm(relay);
        let consumed = gate.take_consumed();
        drop(gate);
        self.consume(consumed);
    }

    /// Tells the near end that the peer sends no more.
    fn tell_end(&self, relay: &mut Relay) {
        let is_end = self.finished.load(Ordering::Acquire) && relay.ahead.is_empty();
        let is_broken = self.end.load(Ordering::Acquire) == BROKEN;
        // A refused attempt may be repeated.
        let was_open = self.was_open.load(Ordering::Acquire);
        if was_open && (is_end && relay.pending.is_empty() || is_broken) && !relay.told_end {
            relay.told_end = true;
            let _ = self.far.shutdown_write();
        }
    }

    /// Takes what the near end has written, as far as there is room.
    fn pull(&self, relay: &mut Relay, port: &dyn LinePort) {
        if relay.near_finished || self.status.load(Ordering::Acquire) == CONNECTING {
            return;
        }
        let mut piece = [0; PIECE];
        while relay.filler > 0 {
            let most = relay.filler.min(PIECE);
            match read_into(&self.far, &mut piece[..most]) {
                IoOutcome::Bytes(n) => relay.filler -= n,
                // All of it is there.
                _ => relay.filler = 0,
            }
        }
        let (id, mut more) = (self.id(), true);
        for _ in 0..PIECES {
            let mut pull = |stack: &mut Stack, outbox: &mut outbox::Outbox| {
                more = self.pull_piece(relay, outbox, &mut piece);
                outbox.advance(stack, id, sys::now());
            };
            if !port.with_outbox(id, &mut pull) {
                relay.near_finished = true;
            }
            if !more || relay.near_finished {
                return;
            }
        }
    }

    /// Moves a piece to the outbox; false if there is none, or no room.
    fn pull_piece(&self, relay: &mut Relay, to: &mut outbox::Outbox, piece: &mut [u8]) -> bool {
        let room = to.room().min(piece.len());
        if room == 0 {
            to.is_full = true;
            return false;
        }
        match read_into(&self.far, &mut piece[..room]) {
            IoOutcome::Bytes(n) => to.push(&piece[..n]),
            IoOutcome::WouldBlock => return false,
            IoOutcome::Eof | IoOutcome::Broken | IoOutcome::Fault => {
                relay.near_finished = true;
                to.end_with(if self.released.load(Ordering::Acquire) {
                    Ending::Release
                } else {
                    Ending::Close
                });
            }
        }
        true
    }

    /// What has happened is told to the owner. Called without a lock, by the shard's thread.
    pub(super) fn tell(self: &Arc<Self>) {
        let taken_over = self.taken_over.load(Ordering::Acquire);
        if taken_over {
            self.update_end(&self.gate.lock());
        } else {
            self.pump();
        }
        if self.is_over() {
            self.forget();
        }
        if let Some(owner) = self.owner() {
            owner.line_changed();
        }
    }

    /// There is room for further bytes.
    pub(super) fn tell_room(&self) {
        if !self.taken_over.load(Ordering::Acquire) {
            self.pump();
        } else if let Some(owner) = self.owner() {
            owner.line_changed();
        }
    }

    fn forget(&self) {
        let Some(port) = self.port.upgrade() else {
            return;
        };
        if let Mode::Relay(relay) = &self.gate.lock().mode {
            // What the peer has sent stays readable until the near end closes.
            if relay.pending.is_empty() {
                port.shard().unwatch(&self.far);
            } else {
                return;
            }
        }
        port.shard().forget(self.token);
    }

    fn update_end(&self, gate: &Gate) {
        let is_processed = match &gate.mode {
            Mode::Segments(segments) => segments.base + segments.processed >= gate.in_order,
            Mode::Discard => true,
            Mode::Relay(_) => false,
        };
        if is_processed && self.finished.load(Ordering::Acquire) {
            let _ = self
                .end
                .compare_exchange(RUNNING, EOF, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn consume(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let id = self.id();
        if let Some(port) = self.port.upgrade() {
            port.with_stack(&mut |stack| stack.consume(id, bytes));
        }
    }

    /// Calls `act` with the stack's connection and the outbox.
    fn look<R>(&self, act: impl Fn(&Connection, &outbox::Outbox) -> R) -> Option<R> {
        let mut found = None;
        let mut look = |one: &Connection, outbox: &outbox::Outbox| found = Some(act(one, outbox));
        self.port.upgrade()?.look(self.id(), &mut look);
        found
    }
}

impl Segments {
    /// Gives the owner a part; false if it did not take all of it.
    fn give(
        &mut self,
        owner: &dyn LineOwner,
        (position, bytes): (u64, &[u8]),
        in_order: u64,
        now: Time,
        out: &mut Outbox,
    ) -> bool {
        let segment = Segment {
            position,
            bytes,
            in_order: in_order.saturating_sub(self.base),
            window: RECEIVE_WINDOW as u32,
            alignment: Alignment::Unknown,
        };
        let taken = owner.take_segment(&segment, now, out);
        self.processed = self.processed.max(taken.processed);
        taken.taken == bytes.len()
    }
}

/// The far end of the pair is ready.
impl ShardTask for PortLine {
    fn ready(self: Arc<Self>, _: Ready) {
        self.pump();
        if self.is_over() {
            self.forget();
        }
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {}
}

/// The near end's side of a connection.
#[derive(Debug)]
pub(super) struct LineEnd(pub(super) Arc<PortLine>);

impl LineEnd {
    fn finish(&self, ending: Ending) {
        let line = &self.0;
        let id = line.id();
        if let Some(port) = line.port.upgrade() {
            port.with_outbox(id, &mut |stack, outbox| {
                outbox.end_with(ending);
                outbox.advance(stack, id, sys::now());
            });
        }
    }
}

impl Line for LineEnd {
    fn is_connected(&self) -> sys::Result<bool> {
        if let Some(cause) = self.0.failure() {
            return Err(sys::Error::of_line(cause));
        }
        match self.0.status.load(Ordering::Acquire) {
            CONNECTING => Ok(false),
            _ => Ok(true),
        }
    }

    fn reconnect(&self) -> sys::Result<()> {
        let line = &self.0;
        let refused = || sys::Error::of_line(LineError::Refused);
        let port = line.port.upgrade().ok_or_else(refused)?;
        if let Mode::Relay(relay) = &mut line.gate.lock().mode {
            // Nothing was written before the connection was established.
            relay.near_finished = false;
        }
        line.status.store(CONNECTING, Ordering::Release);
        line.end.store(RUNNING, Ordering::Release);
        line.finished.store(false, Ordering::Release);
        let (_, local) = port.connect_again(line)?;
        *line.local.lock() = local;
        line.watch();
        Ok(())
    }

    fn local_addr(&self) -> SocketAddr {
        *self.0.local.lock()
    }

    fn peer_addr(&self) -> SocketAddr {
        self.0.peer
    }

    fn shutdown_write(&self) -> bool {
        if !self.0.taken_over.load(Ordering::Acquire) {
            return false;
        }
        self.finish(Ending::Close);
        true
    }

    fn set_abortive(&self) {
        self.0.abortive.store(true, Ordering::Release);
    }

    fn set_traffic_class(&self, class: u8) {
        let id = self.0.id();
        if let Some(port) = self.0.port.upgrade() {
            port.with_stack(&mut |stack| stack.set_class(id, traffic_class(class)));
        }
    }

    fn set_keepalive(&self, idle: Duration) {
        let id = self.0.id();
        if let Some(port) = self.0.port.upgrade() {
            port.with_stack(&mut |stack| stack.set_keep_alive(id, probes(idle)));
        }
    }

    fn mss(&self) -> Option<u32> {
        let mss = self.0.look(|one, _| one.mss());
        mss.and_then(|mss| u32::try_from(mss).ok())
    }

    fn silence(&self) -> Option<Duration> {
        let now = sys::now();
        self.0.look(|one, _| one.silence(now)).flatten()
    }

    fn unsent(&self) -> u64 {
        let unsent = |one: &Connection, outbox: &outbox::Outbox| {
            // The outbox learns of it when the next segment arrives.
            outbox.unacknowledged(one.released())
        };
        self.0.look(unsent).unwrap_or(0)
    }

    fn numbers(&self) -> Option<TcpNumbers> {
        let now = sys::now();
        self.0.look(|one, _| TcpNumbers {
            retransmitted: u32::try_from(one.counters().retransmitted).unwrap_or(u32::MAX),
            window: u32::try_from(one.peer_window()).unwrap_or(u32::MAX),
            window_limited: Duration::ZERO,
            heard: one.heard(now),
        })
    }

    fn set_owner(&self, owner: Weak<dyn LineOwner>) {
        // Set once, by the connection that has the near end.
        let _ = self.0.owner.set(owner);
    }

    fn take_over(&self, early: Vec<u8>, read: &ReadNear<'_>, markers: bool) -> bool {
        let line = &self.0;
        let Some(port) = line.port.upgrade() else {
            return false;
        };
        let mut gate = line.gate.lock();
        let Mode::Relay(relay) = &mut gate.mode else {
            return false;
        };
        // What is in the pair, in both directions, belongs to the startup or is the beginning of the stream.
        let mut early = early;
        let mut piece = [0; PIECE];
        while let IoOutcome::Bytes(n) = read(&mut piece) {
            early.extend_from_slice(&piece[..n]);
        }
        line.pull(relay, &*port);
        let base = relay.delivered - early.len() as u64;
        let mut held = vec![(0, early)];
        held.push((
            relay.delivered - base,
            core::mem::take(&mut relay.pending).into(),
        ));
        let ahead = core::mem::take(&mut relay.ahead);
        held.extend(
            ahead
                .into_iter()
                .map(|(offset, bytes)| (offset - base, bytes)),
        );
        held.retain(|(_, bytes)| !bytes.is_empty());
        port.shard().unwatch(&line.far);
        port.shard().forget(line.token);
        let begun = port.with_outbox(line.id(), &mut |_, outbox| outbox.begin_frames(markers));
        if !begun {
            return false;
        }
        gate.mode = Mode::Segments(Segments {
            base,
            held,
            started: false,
            processed: 0,
        });
        line.taken_over.store(true, Ordering::Release);
        true
    }

    fn start(&self, now: Time, out: &mut Outbox) {
        let line = &self.0;
        let mut gate = line.gate.lock();
        let in_order = gate.in_order;
        let Mode::Segments(segments) = &mut gate.mode else {
            return;
        };
        segments.started = true;
        let held = core::mem::take(&mut segments.held);
        let is_taken = line.owner().is_some_and(|owner| {
            held.iter().all(|(position, bytes)| {
                segments.give(&*owner, (*position, bytes), in_order, now, out)
            })
        });
        if !is_taken {
            line.refuse(&mut gate.mode);
        }
        line.update_end(&gate);
        let consumed = gate.take_consumed();
        drop(gate);
        line.consume(consumed);
    }

    fn poll(&self) {
        if let Some(port) = self.0.port.upgrade() {
            port.poll();
        }
    }

    fn resume(&self, now: Time, out: &mut Outbox) {
        let line = &self.0;
        let mut gate = line.gate.lock();
        let in_order = gate.in_order;
        let Mode::Segments(segments) = &mut gate.mode else {
            return;
        };
        if let (true, Some(owner)) = (segments.started, line.owner()) {
            let here = segments.processed;
            segments.give(&*owner, (here, &[]), in_order, now, out);
        }
        line.update_end(&gate);
        let consumed = gate.take_consumed();
        drop(gate);
        line.consume(consumed);
    }

    fn discard(&self) {
        let line = &self.0;
        let mut gate = line.gate.lock();
        if matches!(gate.mode, Mode::Relay(_)) {
            return;
        }
        gate.mode = Mode::Discard;
        line.update_end(&gate);
        let consumed = gate.take_consumed();
        drop(gate);
        line.consume(consumed);
    }

    fn write(&self, sources: &Sources<'_>) -> IoOutcome {
        let line = &self.0;
        let (id, mut moved) = (line.id(), IoOutcome::Broken);
        if let Some(port) = line.port.upgrade() {
            port.with_outbox(id, &mut |stack, outbox| {
                if outbox.room() == 0 {
                    outbox.is_full = true;
                    moved = IoOutcome::WouldBlock;
                    return;
                }
                moved = match outbox.take(sources) {
                    None => IoOutcome::Fault,
                    Some(0) => IoOutcome::WouldBlock,
                    Some(n) => IoOutcome::Bytes(n),
                };
                outbox.advance(stack, id, sys::now());
            });
        }
        moved
    }

    fn ask_for_room(&self) {
        if let Some(port) = self.0.port.upgrade() {
            port.tell_room_soon(&self.0);
        }
    }

    fn end(&self) -> Option<IoOutcome> {
        match self.0.end.load(Ordering::Acquire) {
            RUNNING => None,
            EOF => Some(IoOutcome::Eof),
            _ => Some(IoOutcome::Broken),
        }
    }
}

impl Drop for LineEnd {
    fn drop(&mut self) {
        let line = &self.0;
        line.released.store(true, Ordering::Release);
        if line.abortive.load(Ordering::Acquire)
            || line.status.load(Ordering::Acquire) == CONNECTING
        {
            line.set_abortive_now();
        } else {
            let is_read = match &line.gate.lock().mode {
                // The end of the pair tells it, behind what was written.
                Mode::Relay(relay) => relay.near_finished,
                Mode::Segments(_) | Mode::Discard => true,
            };
            if is_read {
                self.finish(Ending::Release);
            }
        }
    }
}

impl core::fmt::Debug for PortLine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PortLine")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
