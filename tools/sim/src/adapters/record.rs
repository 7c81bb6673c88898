//! The record of a run of adapters: what programs posted, what was reported to them, and what memory held at the end.
//! The checkers have no other input, so that they can be tested with a falsified record.

mod cell;

pub use cell::{Cell, CellUse};

use std::collections::BTreeSet;

use verbena_nic::{QpState, Status, Wc};
use verbena_stream::Time;

use crate::packet_link::PacketCounts;

/// The initial contents of memory.
pub const FRESH: u8 = 0xEE;

/// What went wrong, or may have, on the connection of two queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The connection was reset, or its packet links were cut.
    Reset,
    /// One of the hosts was killed.
    Killed,
    /// A program moved a queue pair to the error state.
    Failed,
    /// A completion queue overflowed.
    Overflow,
    /// A sender may exceed its RNR retries.
    RnrLimited,
    /// A request that must be refused was posted, or memory in use was revoked.
    Bad,
    /// The links damaged bytes that a checksum covers.
    Flipped,
    /// A queue pair was moved to `Reset` under traffic.
    QpReset,
    /// A program closed its side (`Closing`).
    Closed,
    /// A sender may use up its retries on a bad link.
    RetryLimited,
}

/// How the use of a queue pair ended before the run did; it may be used again, with another number in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpEnd {
    /// It was reset: nothing completes from then on.
    Reset,
    /// It closed gracefully and is idle.
    Closed,
}

/// A program closed its side of a connection with the iWARP personality.
#[derive(Debug, Clone, Copy)]
pub struct Closing {
    /// The queue pair.
    pub qp: usize,
    /// Outstanding sends: if there are any, it fails at once.
    pub outstanding: usize,
    /// Nothing was under way on either side: then both become idle.
    pub idle: bool,
    /// Its state right after.
    pub state_after: QpState,
    /// The states of both when nothing was under way any more; checked only if it was idle.
    pub final_states: [QpState; 2],
    /// Events of failure that either raised meanwhile.
    pub failure_events: usize,
}

/// The limit events of a shared receive queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Times it was armed.
    pub armed: usize,
    /// Events that had to be raised: it was armed, a receive was taken, and fewer than the limit were left.
    pub due: usize,
    /// Events that were raised.
    pub seen: usize,
    /// The limit still armed: according to its program, and according to the queue.
    pub left: (usize, usize),
}

/// Two connected queue pairs.
#[derive(Debug, Clone, Default)]
pub struct Pair {
    /// What went wrong.
    pub faults: BTreeSet<Fault>,
    /// Packets of its RoCEv2 connection are lost, damaged or overtaken.
    pub loses_packets: bool,
}

/// A queue pair.
#[derive(Debug, Clone)]
pub struct QueuePair {
    /// Its host.
    pub host: usize,
    /// Its pair; also the number of the connection.
    pub pair: usize,
    /// The queue pair at the other end.
    pub peer: usize,
    /// RoCE personality.
    pub roce: bool,
    /// Both sides use the extensions of docs/extensions.md.
    pub extended: bool,
    /// Success means that the peer has executed the request.
    pub acked: bool,
    /// Reliable.
    pub reliable: bool,
    /// Sends with immediate data are one message.
    pub send_imm: bool,
    /// Its connection uses RoCEv2 packets.
    pub packets: bool,
    /// Its shared receive queue.
    pub srq: Option<usize>,
    /// Completions of the send queue as they were polled.
    pub sent: Vec<Wc>,
    /// Completions of receives as they were polled.
    pub received: Vec<Wc>,
    /// Whether completions were lost in an overflow: of sends, of receives.
    pub lossy: [bool; 2],
    /// Sends and receives that had not ended at the end of the run.
    pub left: (usize, usize),
    /// It was asked to drain, was idle and without faults, and did not raise the event.
    pub undrained: bool,
    /// It was asked to drain last: its requests wait.
    pub drains: bool,
    /// How its use ended before the run did.
    pub ended: Option<QpEnd>,
    /// It has a limited number of RNR retries.
    pub rnr_limited: bool,
    /// It has no RNR retries.
    pub no_rnr_retry: bool,
    /// It has no RNR retries, and was found waiting when nothing was under way.
    pub waited: bool,
    /// Bytes that were damaged on their way to it.
    pub damage: usize,
    /// Completions after its use had ended.
    pub late_completions: usize,
    /// It had a message to send and its peer had a receive for it, and nothing was under way.
    pub forgotten: bool,
}

/// Memory a request depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// A region of its own side.
    Local(usize),
    /// A region of the peer.
    Remote(usize),
    /// A window of the peer.
    Window(usize),
    /// A window of its own side.
    Own(usize),
}

/// The kind of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A message, with immediate data or not.
    Send {
        /// The payload.
        payload: Vec<u8>,
        /// The request's number is immediate data.
        immediate: bool,
        /// The window of the peer that it invalidates.
        invalidates: Option<usize>,
    },
    /// A write, with the request's number as immediate data or not.
    Write {
        /// Bytes.
        len: usize,
        /// With immediate data.
        immediate: bool,
    },
    /// A read.
    Read {
        /// The window of its own side that it invalidates.
        invalidates: Option<usize>,
    },
    /// Adds this bit to a counter.
    Add {
        /// The counter.
        counter: usize,
        /// The value added: a bit of its own, with a free bit above for a carry.
        add: u64,
    },
    /// Compare and swap.
    Swap,
    /// A window is bound, or unbound.
    Bind {
        /// The window.
        window: usize,
    },
    /// A window is invalidated.
    Invalidate {
        /// The window.
        window: usize,
    },
}

/// A request; its number is its index.
#[derive(Debug, Clone)]
pub struct Op {
    /// The queue pair.
    pub qp: usize,
    /// What it was.
    pub kind: Kind,
    /// Whether it is signaled.
    pub signaled: bool,
    /// It must be refused, with this status where the peer reports the reason.
    pub bad: Option<Status>,
    /// Memory it depends on.
    pub touches: Vec<Touch>,
    /// It was posted when earlier bytes of the stream were already damaged: it must never arrive.
    pub behind_damage: bool,
}

impl Op {
    /// Whether it consumes a receive of the peer.
    pub fn wants_receive(&self) -> bool {
        matches!(
            self.kind,
            Kind::Send { .. }
                | Kind::Write {
                    immediate: true,
                    ..
                }
        )
    }
}

/// Where a receive was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// To a queue pair.
    Own(usize),
    /// To a shared receive queue.
    Shared(usize),
}

/// A receive; its number is its index.
#[derive(Debug, Clone, Copy)]
pub struct Supply {
    /// Where it was posted.
    pub queue: Queue,
    /// Its memory.
    pub slot: usize,
    /// Its memory is of another domain: no message can be placed there.
    pub foreign: bool,
}

/// The purpose of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// Written by its program at the beginning: never changes.
    Fixed(Vec<u8>),
    /// The target of a request: fresh, or these bytes.
    Target(usize, Vec<u8>),
    /// The memory of a receive.
    Receive(usize),
    /// Added to by requests; begins at zero.
    Counter,
    /// The result of an atomic.
    Result(usize),
    /// A word that one request swaps: from, to.
    Swap(usize, u64, u64),
    /// Written and read by the requests of one queue pair.
    Cell,
    /// The sink of such a read, with its request.
    Seen(usize),
}

/// A range of a region.
#[derive(Debug, Clone)]
pub struct Slot {
    /// The region.
    pub region: usize,
    /// Offset.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// Its purpose.
    pub usage: Use,
}

/// A region as it was at the end.
#[derive(Debug, Clone)]
pub struct RegionRecord {
    /// Its host.
    pub host: usize,
    /// Its bytes when it was deregistered under traffic, if it was.
    pub revoked: Option<Vec<u8>>,
    /// Its bytes at the end.
    pub image: Vec<u8>,
}

/// A window as it was at the end.
#[derive(Debug, Clone)]
pub struct WindowRecord {
    /// The region under it.
    pub region: usize,
    /// Offset.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// Its end was requested, or it was never bound.
    pub doubtful: bool,
    /// It is invalidated by the first message that ends in it (M9).
    pub one_touch: bool,
    /// Its bytes when its program learned that it was invalid.
    pub revoked: Option<Vec<u8>>,
}

/// Everything known of a run.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Connections.
    pub pairs: Vec<Pair>,
    /// Queue pairs.
    pub qps: Vec<QueuePair>,
    /// Requests.
    pub ops: Vec<Op>,
    /// Receives.
    pub supplies: Vec<Supply>,
    /// Receives left in each shared receive queue.
    pub shared_left: Vec<usize>,
    /// Limit events of each.
    pub limits: Vec<Limits>,
    /// Queue pairs that got another partner.
    pub reused: usize,
    /// Queue pairs that were failed right after a shared receive was posted for which they may have waited.
    pub stranded: usize,
    /// Queue pairs that raised `SqDrained`.
    pub drained: usize,
    /// Connections that moved to another queue pair.
    pub migrated: usize,
    /// Those that could not be moved.
    pub migration_failures: usize,
    /// Requests posted although policy, queue pair or domain forbids them.
    pub forbidden: [usize; 3],
    /// Sides that were closed.
    pub closings: Vec<Closing>,
    /// Regions.
    pub regions: Vec<RegionRecord>,
    /// Ranges of them.
    pub slots: Vec<Slot>,
    /// Slots that one queue pair reads and writes repeatedly.
    pub cells: Vec<Cell>,
    /// Windows.
    pub windows: Vec<WindowRecord>,
    /// Entries left in each host's table after everything was deregistered.
    pub entries_left: Vec<u32>,
    /// Completions whose number is of no queue pair.
    pub strays: usize,
    /// Bytes on the wire.
    pub bytes: u64,
    /// What became of packets.
    pub packets: PacketCounts,
    /// RNRs sent.
    pub rnrs: u64,
    /// When it ended.
    pub end: Time,
    /// The log, for people.
    pub log: Vec<String>,
}

impl Record {
    /// Whether memory that a request depends on was revoked at some time.
    pub fn is_doubtful(&self, touch: Touch) -> bool {
        match touch {
            Touch::Local(area) | Touch::Remote(area) => self.regions[area].revoked.is_some(),
            Touch::Window(window) | Touch::Own(window) => self.windows[window].doubtful,
        }
    }

    /// The requests of a queue pair, in posting order.
    pub fn ops_of(&self, qp: usize) -> impl Iterator<Item = (usize, &Op)> {
        let all = self.ops.iter().enumerate();
        all.filter(move |(_, op)| op.qp == qp)
    }

    /// How a request ended, if that was reported.
    pub fn status(&self, op: usize) -> Option<Status> {
        let sent = &self.qps[self.ops[op].qp].sent;
        sent.iter().find(|w| w.id == op as u64).map(|w| w.status)
    }

    /// The bytes of a slot at the end.
    pub fn bytes_of(&self, slot: usize) -> &[u8] {
        let Slot {
            region: area,
            at,
            len,
            ..
        } = self.slots[slot];
        &self.regions[area].image[at..at + len]
    }
}
