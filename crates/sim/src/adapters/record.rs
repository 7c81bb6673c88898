//! What is written down of an adapter world: what programs posted, what they were told, and what memory held at the end.
//! It promises to be all that the checkers get, so that a damaged record shows whether they look.
//! It refuses to judge.

mod cell;

pub use cell::{Cell, CellUse};

use std::collections::BTreeSet;

use verbena_nic::{QpState, Status, Wc};
use verbena_stream::Time;

/// What memory holds before anybody writes it.
pub const FRESH: u8 = 0xEE;

/// What went wrong, or may have, on the connection of two queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The connection was broken.
    Reset,
    /// One of the hosts was killed.
    Killed,
    /// A program asked for the end.
    Failed,
    /// A completion queue had no room.
    Overflow,
    /// A sender may run out of patience.
    Impatient,
    /// A request that must be refused was posted, or memory in use was revoked.
    Bad,
    /// The links damaged something that a checksum covers.
    Flipped,
    /// A queue pair was emptied (`Reset`) among the traffic.
    Emptied,
    /// A program closed its side (`Closing`).
    Closed,
}

/// How the life of a queue pair ended before the world did; it may begin another, under another number in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// It was emptied: nothing completes from here on.
    Emptied,
    /// It closed in peace and is idle.
    Closed,
}

/// A program closed its side of a connection of the RDMA Consortium's manners.
#[derive(Debug, Clone, Copy)]
pub struct Closing {
    /// The queue pair.
    pub qp: usize,
    /// Sends it had outstanding: then it fails at once.
    pub outstanding: usize,
    /// Nothing was under way on either side: then both become idle.
    pub idle: bool,
    /// Where it stood right after.
    pub then: QpState,
    /// Where both stood when all was quiet again; looked at only if it was idle.
    pub last: [QpState; 2],
    /// Events of failure that either raised meanwhile.
    pub complaints: usize,
}

/// The limit events of a shared receive queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Times it was armed.
    pub armed: usize,
    /// Events that had to come: it was armed, a receive was taken, and fewer than the limit were left.
    pub due: usize,
    /// Events that came.
    pub seen: usize,
    /// It is armed still, by what its program knows, and by what it says.
    pub left: (usize, usize),
}

/// Two connected queue pairs.
#[derive(Debug, Clone, Default)]
pub struct Pair {
    /// What went wrong.
    pub faults: BTreeSet<Fault>,
}

/// A queue pair.
#[derive(Debug, Clone)]
pub struct QueuePair {
    /// Its host.
    pub host: usize,
    /// Its pair; also the connection.
    pub pair: usize,
    /// The queue pair at the other end.
    pub peer: usize,
    /// InfiniBand's manners.
    pub roce: bool,
    /// Both sides speak docs/extensions.md.
    pub extended: bool,
    /// Success means the peer has it.
    pub acked: bool,
    /// Reliable.
    pub reliable: bool,
    /// Sends with immediate data are one message.
    pub send_imm: bool,
    /// Its shared receive queue.
    pub srq: Option<usize>,
    /// Completions of the send queue as they were polled.
    pub sent: Vec<Wc>,
    /// Completions of receives as they were polled.
    pub received: Vec<Wc>,
    /// Some completions were lost to an overflow: of sends, of receives.
    pub lossy: [bool; 2],
    /// Sends and receives that had not ended when all was over.
    pub left: (usize, usize),
    /// It was asked to drain, was idle and healthy, and did not say so.
    pub undrained: bool,
    /// Its life ended before the world did.
    pub over: Option<Over>,
    /// It does not wait for receivers for ever.
    pub impatient: bool,
    /// It does not wait for receivers at all.
    pub hasty: bool,
    /// It does not wait at all, and was found waiting when all was quiet.
    pub waited: bool,
    /// Bytes that were damaged on their way to it.
    pub damage: usize,
    /// Completions that came after its life was over.
    pub late: usize,
    /// It had a message to send and its peer had a receive for it, yet nothing moved.
    pub forgotten: bool,
}

/// Memory a request depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Its own side's region.
    Local(usize),
    /// A region of the peer's.
    Remote(usize),
    /// A window of the peer's.
    Window(usize),
    /// A window of its own side's.
    Own(usize),
}

/// What a request was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A message, with immediate data or not.
    Send {
        /// What it says.
        payload: Vec<u8>,
        /// The request's number came as immediate data.
        immediate: bool,
        /// The window the peer loses.
        invalidates: Option<usize>,
    },
    /// A write of so many bytes; with the request's number as immediate data or not.
    Write {
        /// Bytes.
        len: usize,
        /// With immediate data.
        immediate: bool,
    },
    /// A read.
    Read {
        /// The window of its own side that ends with it.
        invalidates: Option<usize>,
    },
    /// Adds this bit to a counter.
    Add {
        /// The counter.
        counter: usize,
        /// What is added: a bit of its own, with room for a carry.
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

/// A request; its number is its place.
#[derive(Debug, Clone)]
pub struct Op {
    /// The queue pair.
    pub qp: usize,
    /// What it was.
    pub kind: Kind,
    /// Success is reported.
    pub signaled: bool,
    /// It must be refused, with this status where the peer says why.
    pub bad: Option<Status>,
    /// Memory it depends on.
    pub touches: Vec<Touch>,
    /// It was posted when bytes before it in the stream were damaged already: it must never arrive.
    pub behind_damage: bool,
}

impl Op {
    /// It consumes a receive of the peer.
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

/// A receive; its number is its place.
#[derive(Debug, Clone, Copy)]
pub struct Supply {
    /// Where it was posted.
    pub queue: Queue,
    /// Its memory.
    pub slot: usize,
    /// Its memory is of another domain: no message can be put there.
    pub foreign: bool,
}

/// What a piece of memory is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// Written by its program before anything happened: never changes.
    Fixed(Vec<u8>),
    /// The target of a request: fresh, or this.
    Target(usize, Vec<u8>),
    /// Takes a message.
    Receive(usize),
    /// Added to by requests; begins at zero.
    Counter,
    /// The result of an atomic.
    Result(usize),
    /// A word that one request swaps: from, to.
    Swap(usize, u64, u64),
    /// Written and read by the requests of one queue pair.
    Cell,
    /// Where such a read, this request, puts what it read.
    Seen(usize),
}

/// A piece of memory.
#[derive(Debug, Clone)]
pub struct Slot {
    /// The region.
    pub area: usize,
    /// Where in it.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// What for.
    pub usage: Use,
}

/// A region as it was at the end.
#[derive(Debug, Clone)]
pub struct Area {
    /// Its host.
    pub host: usize,
    /// Its bytes when it was deregistered among the traffic, if it was.
    pub revoked: Option<Vec<u8>>,
    /// Its bytes at the end.
    pub image: Vec<u8>,
}

/// A window as it was at the end.
#[derive(Debug, Clone)]
pub struct WindowRecord {
    /// The region under it.
    pub area: usize,
    /// Where in it.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// Somebody asked for its end, or it never began.
    pub doubtful: bool,
    /// It ends with the first message that ends in it (M9).
    pub one_touch: bool,
    /// Its bytes when its program knew it was invalid.
    pub revoked: Option<Vec<u8>>,
}

/// Everything that is known of an adapter world.
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
    /// Queue pairs that were taken away right after a shared receive was posted for which they may have waited.
    pub stranded: usize,
    /// Queue pairs that said they are drained.
    pub drained: usize,
    /// Connections that moved to another queue pair.
    pub moved: usize,
    /// And those that were asked to and did not.
    pub stayed: usize,
    /// Requests posted although policy, queue pair or domain forbids them.
    pub unwelcome: [usize; 3],
    /// Sides that were closed.
    pub closings: Vec<Closing>,
    /// Regions.
    pub areas: Vec<Area>,
    /// Pieces of them.
    pub slots: Vec<Slot>,
    /// Those that one queue pair reads and writes again and again.
    pub cells: Vec<Cell>,
    /// Windows.
    pub windows: Vec<WindowRecord>,
    /// Entries left in each host's table after everything was deregistered.
    pub entries_left: Vec<u32>,
    /// Completions that name no queue pair of ours.
    pub strays: usize,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Times a receiver was not ready.
    pub rnrs: u64,
    /// When it ended.
    pub end: Time,
    /// What happened, for people.
    pub story: Vec<String>,
}

impl Record {
    /// Memory that a request depends on was revoked at some time.
    pub fn is_doubtful(&self, touch: Touch) -> bool {
        match touch {
            Touch::Local(area) | Touch::Remote(area) => self.areas[area].revoked.is_some(),
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
        let Slot { area, at, len, .. } = self.slots[slot];
        &self.areas[area].image[at..at + len]
    }
}
