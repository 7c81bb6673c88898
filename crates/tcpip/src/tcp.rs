//! A TCP connection as a machine without input and output (RFC 9293): segments and times go in, segments and deadlines come out.
//! Payload is not held here. An arrived segment is answered with the parts of it that are new, in or out of order, and a segment to
//! send names a range of the consumer's stream, with the same boundaries whenever it is sent again.
//!
//! The caller gives each arrived segment to [`Connection::handle_segment`] and each deadline to [`Connection::handle_timeout`], then
//! sends what [`Connection::poll_transmit`] returns until it returns nothing, and then asks for [`Connection::deadline`]. The same
//! holds after each call of the consumer.
//!
//! Reading order: [`state`], `seq`, [`segment`] → `input` (`receiver`, `scoreboard`, `rtt`, `cubic`) → `output` (`queue`, `path`) →
//! `timers`.

mod config;
mod cubic;
mod input;
mod limiter;
mod output;
mod path;
mod queue;
mod receiver;
mod rtt;
mod scoreboard;
pub mod segment;
pub(crate) mod seq;
pub mod state;
mod timers;

#[cfg(test)]
mod tests;

use core::ops::Range;

use arrayvec::ArrayVec;
use verbena_stream::Time;

pub use config::{KeepAlive, TcpConfig};
pub use limiter::MAX_CHALLENGES_PER_SECOND;
pub use path::{MIN_MTU_V4, MIN_MTU_V6};
pub use queue::{Framing, MAX_QUEUED_BYTES, MAX_QUEUED_MESSAGES, QueueError};
pub use receiver::{MAX_RANGES, MAX_RECEIVE_WINDOW, MAX_RUNS};
pub use rtt::MAX_RTO;
pub use scoreboard::MAX_SEGMENTS_IN_FLIGHT;
pub use segment::{Segment, SegmentError, TcpFlags, TcpOptions};
pub use state::{State, StateEvent};

use cubic::Congestion;
use limiter::Limiter;
use path::Path;
use queue::Queue;
use receiver::Receiver;
use rtt::Rtt;
use scoreboard::Scoreboard;
use segment::{TCP_HEADER_LEN, TIMESTAMPS_LEN};
use seq::{Offset, Space, stream_offset};
use timers::Timers;

/// The longest segment of a peer that announces none (RFC 9293, 3.7.1).
const DEFAULT_MSS_V4: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1220;
/// A peer's announcement below this is raised to it: segments of a few bytes are mostly headers.
const MIN_PEER_MSS: u16 = 88;

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// Both sides have ended, and all is acknowledged.
    #[error("both sides have closed the connection")]
    Finished,
    /// The peer has reset the connection.
    #[error("the peer has reset the connection")]
    Reset,
    /// The peer does not listen, or a router says that it cannot be reached.
    #[error("the peer refuses the connection")]
    Refused,
    /// The peer does not answer, or acknowledges nothing.
    #[error("the peer has not answered in time")]
    TimedOut,
    /// The consumer has given the connection up, or was gone when data arrived.
    #[error("the connection was given up on this side")]
    Aborted,
}

/// A part of an arrived segment that is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Where it is in the peer's stream.
    pub offset: u64,
    /// Where it is in the segment's payload.
    pub payload: Range<usize>,
}

/// What a segment has brought.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Received {
    /// The parts that are new, by offset. They are not reported again: the consumer takes them now.
    pub runs: ArrayVec<Run, MAX_RUNS>,
    /// Everything before this offset of the peer's stream has arrived.
    pub in_order: u64,
}

/// A segment to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Its header.
    pub segment: Segment,
    /// Its payload, as a range of the consumer's stream.
    pub payload: Range<u64>,
}

/// An ICMP message about a segment that this connection is said to have sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathReport {
    /// The packet is larger than the MTU of a link.
    TooBig {
        /// That MTU.
        mtu: usize,
    },
    /// The destination or the port cannot be reached.
    Unreachable,
}

/// Counters of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpCounters {
    /// Segments that were sent.
    pub segments_out: u64,
    /// Segments that arrived for this connection.
    pub segments_in: u64,
    /// Segments with data that were sent again.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Probes of closed windows and idle connections.
    pub probes: u64,
    /// Acknowledgements that answer segments which may be forged.
    pub challenges: u64,
    /// Segments that were dropped because their timestamp is too old.
    pub too_old: u64,
}

/// A tail loss probe that is not accounted for (RFC 8985, 7.4).
#[derive(Debug, Clone, Copy)]
struct TailProbe {
    end: Offset,
    is_retransmission: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recovery {
    None,
    /// Until this offset is acknowledged, losses belong to one reduction of the window.
    Fast(Offset),
    /// The same, after a retransmission timeout.
    Timeout(Offset),
}

#[derive(Debug, Clone)]
struct Handshake {
    /// The peer has acknowledged our SYN.
    is_done: bool,
    /// A SYN is to be sent.
    is_due: bool,
    sent_at: Option<Time>,
    retransmitted: bool,
    began: Time,
}

/// What the peer has announced.
#[derive(Debug, Clone)]
struct Peer {
    mss: u16,
    shift: u8,
    sack: bool,
    timestamps: bool,
    /// The right edge of its window.
    right: Offset,
    max_window: u64,
    /// Sequence and acknowledgement number of the segment that last changed the window.
    updated_by: (Offset, Offset),
}

/// Timestamps (RFC 7323).
#[derive(Debug, Clone)]
struct Stamps {
    offset: u32,
    recent: u32,
    recent_at: Time,
    last_ack: Offset,
}

/// The acknowledgement that is owed.
#[derive(Debug, Clone, Default)]
struct Owed {
    now: bool,
    /// Segments with data that are not acknowledged yet.
    segments: u32,
}

/// One TCP connection.
#[derive(Debug, Clone)]
pub struct Connection {
    config: TcpConfig,
    state: State,
    local_port: u16,
    remote_port: u16,
    ours: Space,
    theirs: Space,
    handshake: Handshake,
    peer: Peer,
    stamps: Stamps,
    rx: Receiver,
    queue: Queue,
    board: Scoreboard,
    congestion: Congestion,
    rtt: Rtt,
    path: Path,
    recovery: Recovery,
    tail_probe: Option<TailProbe>,
    owed: Owed,
    challenges: Limiter,
    timers: Timers,
    duplicate_acks: u32,
    is_fin_sent: bool,
    /// The peer does not scale windows.
    is_unscaled: bool,
    /// The consumer takes no more data.
    is_released: bool,
    /// The last segment of data was sent then.
    sent_at: Time,
    /// The left edge moved then, or the first data in flight was sent.
    progress_at: Time,
    heard_at: Time,
    reply: Option<Segment>,
    reason: Option<CloseReason>,
    counters: TcpCounters,
}

/// Numbers of a new connection that a peer must not guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Secrets {
    /// The initial sequence number (RFC 6528).
    pub initial: u32,
    /// Added to timestamps.
    pub timestamp_offset: u32,
}

impl Connection {
    /// Opens a connection: a SYN is to be sent.
    pub fn connect(
        config: TcpConfig,
        (local_port, remote_port): (u16, u16),
        secrets: Secrets,
        now: Time,
    ) -> Connection {
        Connection::new(config, local_port, remote_port, secrets, now)
    }

    /// Answers a SYN: a SYN with an acknowledgement is to be sent.
    pub fn accept(config: TcpConfig, syn: &Segment, secrets: Secrets, now: Time) -> Connection {
        let ports = (syn.destination_port, syn.source_port);
        let mut connection = Connection::new(config, ports.0, ports.1, secrets, now);
        connection.state = State::SynReceived;
        connection.negotiate(syn, now);
        connection
    }

    /// The same for a SYN that was answered without keeping anything of it.
    pub fn accept_answered(
        config: TcpConfig,
        syn: &Segment,
        secrets: Secrets,
        now: Time,
    ) -> Connection {
        let mut connection = Connection::accept(config, syn, secrets, now);
        connection.handshake.is_due = false;
        connection.handshake.retransmitted = true;
        // The window of that answer.
        let mss = connection.local_mss();
        connection.rx.window(mss, true);
        connection
    }

    fn new(
        config: TcpConfig,
        local_port: u16,
        remote_port: u16,
        secrets: Secrets,
        now: Time,
    ) -> Connection {
        let default_mss = if config.is_v6 {
            DEFAULT_MSS_V6
        } else {
            DEFAULT_MSS_V4
        };
        let mut rx = Receiver::new(config.receive_window);
        if !config.window_scaling {
            rx.without_scaling();
        }
        let mut connection = Connection {
            state: State::SynSent,
            local_port,
            remote_port,
            ours: Space::new(secrets.initial),
            theirs: Space::new(0),
            handshake: Handshake {
                is_done: false,
                is_due: true,
                sent_at: None,
                retransmitted: false,
                began: now,
            },
            peer: Peer {
                mss: default_mss,
                shift: 0,
                sack: false,
                timestamps: false,
                right: 0,
                max_window: 0,
                updated_by: (0, 0),
            },
            stamps: Stamps {
                offset: secrets.timestamp_offset,
                recent: 0,
                recent_at: now,
                last_ack: 0,
            },
            rx,
            queue: Queue::new(config.framing),
            board: Scoreboard::new(),
            congestion: Congestion::new(usize::from(default_mss)),
            rtt: Rtt::new(config.min_rto, now),
            path: Path::new(config.mtu, config.is_v6),
            recovery: Recovery::None,
            tail_probe: None,
            owed: Owed::default(),
            challenges: Limiter::default(),
            timers: Timers::default(),
            duplicate_acks: 0,
            is_fin_sent: false,
            is_unscaled: false,
            is_released: false,
            sent_at: now,
            progress_at: now,
            heard_at: now,
            reply: None,
            reason: None,
            counters: TcpCounters::default(),
            config,
        };
        let mss = connection.mss();
        connection.congestion.set_mss(mss, true);
        connection
    }

    /// Where the connection is in its life.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Why the connection is closed; `None` while it is not.
    pub const fn close_reason(&self) -> Option<CloseReason> {
        self.reason
    }

    /// The port on this side.
    pub const fn local_port(&self) -> u16 {
        self.local_port
    }

    /// The port of the peer.
    pub const fn remote_port(&self) -> u16 {
        self.remote_port
    }

    /// Counters.
    pub const fn counters(&self) -> TcpCounters {
        self.counters
    }

    /// Data that a segment carries: the longest message. It changes with the path.
    pub fn mss(&self) -> usize {
        let path = self.path.mtu().saturating_sub(self.headers());
        let stamps = self.stamps_len();
        path.min(usize::from(self.peer.mss))
            .saturating_sub(stamps)
            .max(1)
    }

    /// Bytes before this offset of the consumer's stream are acknowledged and not needed again.
    pub fn released(&self) -> u64 {
        stream_offset(self.board.released().min(self.queue.end()))
    }

    /// Where the data that the consumer has queued ends.
    pub fn queued(&self) -> u64 {
        stream_offset(self.queue.end())
    }

    /// Everything before this offset of the peer's stream has arrived.
    pub fn in_order(&self) -> u64 {
        stream_offset(self.rx.in_order())
    }

    /// All data of the peer has arrived, and the peer sends no more.
    pub fn is_peer_finished(&self) -> bool {
        self.rx.is_finished()
    }

    /// Data is queued that was not acknowledged.
    pub fn has_unacknowledged(&self) -> bool {
        self.released() < self.queued()
    }

    /// Bytes that congestion control lets into the network.
    pub const fn congestion_window(&self) -> u64 {
        self.congestion.window()
    }

    /// The smoothed round-trip time.
    pub const fn round_trip(&self) -> Option<core::time::Duration> {
        self.rtt.smoothed()
    }

    /// How long the peer has been silent although it owes an acknowledgement; `None` if it owes nothing.
    pub fn silence(&self, now: Time) -> Option<core::time::Duration> {
        // The time of the last progress is also that at which the first data in flight was sent.
        let since = self.heard_at.max(self.progress_at);
        (!self.board.is_empty()).then(|| now.since(since))
    }

    /// How long ago a segment of the peer arrived.
    pub fn heard(&self, now: Time) -> core::time::Duration {
        now.since(self.heard_at)
    }

    /// Bytes that the peer has room for.
    pub fn peer_window(&self) -> u64 {
        u64::try_from(self.peer.right - self.board.next()).unwrap_or(0)
    }

    /// Changes when the idle connection is probed; probes that are under way begin anew.
    pub fn set_keep_alive(&mut self, keep_alive: Option<KeepAlive>) {
        self.config.keep_alive = keep_alive;
        self.timers.keep_alive = None;
        self.timers.probes_sent = 0;
    }

    /// Queues the next `len` bytes of the consumer's stream; with [`Framing::Messages`] they are one message.
    ///
    /// # Errors
    /// If the connection was closed for sending, a message is too long, or too much is queued.
    pub fn queue(&mut self, len: u64) -> Result<(), QueueError> {
        if matches!(self.state, State::Closed) {
            return Err(QueueError::Closed);
        }
        let mss = self.mss();
        self.queue.push(len, mss, self.board.una())
    }

    /// The consumer has taken `len` bytes that arrived in order, and can take as many more.
    pub fn consume(&mut self, len: u64) {
        self.rx.consume(len);
        if self.state.receives() && !self.rx.is_finished() && self.rx.wants_update(self.local_mss())
        {
            self.owed.now = true;
        }
    }

    /// The consumer sends no more; what is queued is sent. In `SynSent` the connection is given up (RFC 9293, 3.10.4).
    pub fn close(&mut self, now: Time) {
        if self.queue.is_finished() {
            return;
        }
        self.queue.finish();
        self.apply(StateEvent::Close, now);
    }

    /// The consumer is gone: closes, and resets the connection if more data arrives (RFC 9293, 3.6.1).
    pub fn release(&mut self, now: Time) {
        self.close(now);
        self.is_released = true;
        if self.state == State::FinWait2 {
            self.timers.end = Some(now + self.config.fin_wait);
        }
    }

    /// Gives the connection up with a reset.
    pub fn abort(&mut self) {
        if self.state != State::Closed && self.state != State::SynSent {
            let mut segment = self.plain(self.ours.wire(self.board.next()));
            segment.ack = Some(self.theirs.wire(self.rx.next()));
            segment.flags.rst = true;
            self.reply = Some(segment);
        }
        self.end(CloseReason::Aborted);
    }

    /// A router's report about a segment with this sequence number.
    pub fn handle_report(&mut self, report: PathReport, seq: u32, now: Time) {
        let quoted = self.ours.offset(seq, self.board.una());
        if !self.handshake.is_done {
            // Only a connection that is being opened can be refused (RFC 5927, 5.2).
            if seq == self.ours.initial() && report == PathReport::Unreachable {
                self.end(CloseReason::Refused);
            }
            return;
        }
        let in_flight = self.board.una() <= quoted && quoted < self.board.next();
        if let PathReport::TooBig { mtu } = report
            && in_flight
            && self.path.too_big(mtu, self.board.next(), now)
        {
            self.path_changed();
            // What is too long was lost.
            self.board.lose_long(self.mss());
            self.arm_rto(now);
        }
    }

    fn path_changed(&mut self) {
        let mss = self.mss();
        self.congestion.set_mss(mss, false);
    }

    /// Headers of IP and TCP without options.
    const fn headers(&self) -> usize {
        TCP_HEADER_LEN + if self.config.is_v6 { 40 } else { 20 }
    }

    const fn stamps_len(&self) -> usize {
        if self.peer.timestamps {
            TIMESTAMPS_LEN
        } else {
            0
        }
    }

    /// What this side announces: options are not counted (RFC 6691).
    fn local_mss(&self) -> usize {
        self.config
            .mtu
            .saturating_sub(self.headers())
            .clamp(1, 65535)
    }

    /// Takes the options of the peer's SYN over.
    fn negotiate(&mut self, syn: &Segment, now: Time) {
        let options = &syn.options;
        self.theirs = Space::new(syn.seq);
        self.rx.synchronize();
        if let Some(mss) = options.mss {
            self.peer.mss = mss.max(MIN_PEER_MSS);
        }
        match options.window_scale {
            Some(shift) if self.config.window_scaling => self.peer.shift = shift,
            _ => {
                self.is_unscaled = true;
                self.rx.without_scaling();
            }
        }
        self.peer.sack = options.sack_permitted && self.config.sack;
        if let Some((value, _)) = options.timestamps.filter(|_| self.config.timestamps) {
            self.peer.timestamps = true;
            self.stamps.recent = value;
            self.stamps.recent_at = now;
        }
        // The window of a SYN is not scaled.
        self.peer.right = Offset::from(syn.window);
        self.peer.max_window = u64::from(syn.window);
        self.peer.updated_by = (seq::SYN, seq::SYN);
        let mss = self.mss();
        self.congestion.set_mss(mss, true);
    }

    /// The only place where the state changes, except for [`Connection::end`].
    fn apply(&mut self, event: StateEvent, now: Time) {
        let Some(to) = self.state.next(event) else {
            return;
        };
        self.state = to;
        match to {
            State::Established => {
                self.progress_at = now;
                self.timers.rto = None;
                if self.queue.is_finished() {
                    self.apply(StateEvent::Close, now);
                }
            }
            State::FinWait2 if self.is_released => {
                self.timers.end = Some(now + self.config.fin_wait);
            }
            State::TimeWait => {
                self.timers = Timers::default();
                self.timers.end = Some(now + self.config.time_wait);
            }
            State::Closed => self.end(match event {
                StateEvent::Reset => CloseReason::Reset,
                StateEvent::Timeout => CloseReason::TimedOut,
                StateEvent::AckOfFin => CloseReason::Finished,
                _ => CloseReason::Aborted,
            }),
            _ => {}
        }
    }

    fn end(&mut self, reason: CloseReason) {
        self.state = State::Closed;
        self.timers = Timers::default();
        self.owed.now = false;
        self.reason.get_or_insert(reason);
    }

    /// A segment of this connection without anything but a sequence number.
    fn plain(&self, seq: u32) -> Segment {
        Segment {
            source_port: self.local_port,
            destination_port: self.remote_port,
            seq,
            ..Segment::default()
        }
    }
}
