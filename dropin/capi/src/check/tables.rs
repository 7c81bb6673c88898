//! What the checks know: objects, regions and their keys, and for each queue the requests that the program has posted and not seen complete. Objects are
//! named by their addresses in the program. Everything is bounded by the program's own objects and queues, but for the keys that are gone,
//! of which the last [`MOST_DEAD`] are kept.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;

use super::memory::{Snapshot, Span};
use super::report::Report;
use super::stack::Stack;
use super::{Checker, kind::Kind};
use crate::abi::*;

/// Keys that are gone and kept.
const MOST_DEAD: usize = 4096;

#[derive(Default)]
pub(super) struct Tables {
    pub(super) objects: HashMap<usize, Object>,
    pub(super) regions: HashMap<u32, Region>,
    /// The key of a region, by the address of its struct.
    keys: HashMap<usize, u32>,
    pub(super) dead: HashMap<u32, DeadKey>,
    /// Dead keys, the oldest first.
    dead_order: VecDeque<u32>,
    pub(super) pairs: HashMap<usize, Pair>,
    /// Queue pairs by the number in their completions.
    pub(super) numbers: HashMap<u32, SmallVec<[usize; 1]>>,
    pub(super) queues: HashMap<usize, Queue>,
    pub(super) shared: HashMap<usize, VecDeque<Receive>>,
    /// Where the receives of a queue of an XRC domain complete.
    pub(super) shared_cqs: HashMap<usize, usize>,
    pub(super) sinks: Sinks,
    /// Events that the program was given and has not acknowledged, by the object that they are about.
    pub(super) events: HashMap<usize, Delivered>,
    /// Some queue pair was or is connected.
    pub(super) was_connected: bool,
    /// The number of the next request or object.
    next: u64,
}

/// An object that the program has.
pub(super) struct Object {
    pub(super) name: &'static str,
    pub(super) number: u64,
    pub(super) stack: Stack,
}

/// What is known of a region when it is registered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegionInfo {
    pub(crate) key: u32,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) access: u32,
    /// It lies in memory of the program that must stay mapped.
    pub(crate) stays_mapped: bool,
}

pub(super) struct Region {
    pub(super) info: RegionInfo,
    /// A receive, Read or atomic wrote into it, or may have.
    pub(super) written: bool,
    /// Its memory is gone, which was reported.
    pub(super) ended: bool,
    pub(super) stack: Stack,
}

/// A key that is not valid any more.
pub(super) struct DeadKey {
    pub(super) how: &'static str,
    pub(super) ended: Stack,
    pub(super) registered: Option<Stack>,
}

/// What is known of a queue pair when it is created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairInfo {
    pub(crate) number: u32,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    pub(crate) srq: usize,
    pub(crate) max_send: usize,
}

pub(super) struct Pair {
    pub(super) info: PairInfo,
    pub(super) sends: VecDeque<Send>,
    pub(super) receives: VecDeque<Receive>,
    /// A request has failed, and the first cause was looked at.
    pub(super) failed: bool,
    /// Receives were flushed: the first of them may be filled in part.
    pub(super) flushed: bool,
    /// Keys that this side has invalidated at the peer.
    pub(super) invalidated: HashMap<u32, Stack>,
}

/// A buffer of a request, and what it contained.
pub(super) struct Buffer {
    pub(super) span: Span,
    pub(super) before: Snapshot,
}

/// A send request that has not completed.
pub(super) struct Send {
    pub(super) number: u64,
    pub(super) id: u64,
    pub(super) operation: &'static str,
    pub(super) signaled: bool,
    pub(super) sources: SmallVec<[Buffer; 1]>,
    pub(super) sinks: SmallVec<[SinkKey; 1]>,
    pub(super) rkey: Option<u32>,
    pub(super) stack: Stack,
}

/// A receive that has not completed.
pub(super) struct Receive {
    pub(super) number: u64,
    pub(super) id: u64,
    pub(super) buffers: SmallVec<[Buffer; 1]>,
    pub(super) sinks: SmallVec<[SinkKey; 1]>,
    /// Another request writes into its memory, too.
    pub(super) overlaps: bool,
    pub(super) stack: Stack,
}

/// A completion queue.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) entries: usize,
    /// Completions that posted requests will or may add.
    pub(super) expected: usize,
    pub(super) empty: EmptyPolls,
}

/// Polls in a row that found nothing, of one thread.
#[derive(Default)]
pub(super) struct EmptyPolls {
    pub(super) count: u64,
    pub(super) thread: libc::pthread_t,
    pub(super) busy_since: Duration,
}

/// Events of an object that are not acknowledged.
pub(super) struct Delivered {
    pub(super) count: u64,
    pub(super) stack: Stack,
}

pub(super) type SinkKey = (usize, u64);

/// Memory into which outstanding requests write.
#[derive(Default)]
pub(super) struct Sinks {
    all: BTreeMap<SinkKey, Sink>,
    /// The longest that there was: how far before a span others that overlap it can begin.
    longest: usize,
}

#[derive(Clone)]
pub(super) struct Sink {
    pub(super) len: usize,
    pub(super) is_receive: bool,
    pub(super) stack: Stack,
}

impl Sinks {
    pub(super) fn insert(&mut self, start: usize, number: u64, sink: Sink) -> SinkKey {
        self.longest = self.longest.max(sink.len);
        self.all.insert((start, number), sink);
        (start, number)
    }

    pub(super) fn remove(&mut self, key: SinkKey) {
        self.all.remove(&key);
        if self.all.is_empty() {
            self.longest = 0;
        }
    }

    /// Some other that overlaps a span.
    pub(super) fn overlapping(&self, span: Span) -> Option<(usize, &Sink)> {
        let first = span.start.saturating_sub(self.longest);
        let end = span.start.saturating_add(span.len);
        let near = self.all.range((first, 0)..(end, 0));
        let mut overlapping = near.filter(|((start, _), sink)| start + sink.len > span.start);
        overlapping.next().map(|((start, _), sink)| (*start, sink))
    }
}

impl Tables {
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn kill_key(&mut self, key: u32, dead: DeadKey) {
        if self.dead.insert(key, dead).is_none() {
            self.dead_order.push_back(key);
        }
        if self.dead_order.len() > MOST_DEAD
            && let Some(oldest) = self.dead_order.pop_front()
        {
            self.dead.remove(&oldest);
        }
    }

    /// Forgets the outstanding requests of a queue pair.
    pub(super) fn drop_requests(&mut self, qp: usize) {
        let Some(pair) = self.pairs.get_mut(&qp) else {
            return;
        };
        let info = pair.info;
        let (sends, receives) = (
            core::mem::take(&mut pair.sends),
            core::mem::take(&mut pair.receives),
        );
        pair.flushed = false;
        let signaled = sends.iter().filter(|send| send.signaled).count();
        for (cq, count) in [(info.send_cq, signaled), (info.recv_cq, receives.len())] {
            if let Some(queue) = self.queues.get_mut(&cq) {
                queue.expected = queue.expected.saturating_sub(count);
            }
        }
        let sinks = sends.iter().flat_map(|send| &send.sinks);
        let sinks = sinks.chain(receives.iter().flat_map(|receive| &receive.sinks));
        for key in sinks {
            self.sinks.remove(*key);
        }
    }
}

impl Tables {
    /// A queue pair is destroyed. Completions of receives that it took from a shared queue are removed with it, so that which of these are outstanding
    /// is not known any more: their memory may be used again.
    fn drop_pair(&mut self, qp: usize) {
        let Some(pair) = self.pairs.remove(&qp) else {
            return;
        };
        let number = pair.info.number;
        if let Some(same) = self.numbers.get_mut(&number) {
            same.retain(|other| *other != qp);
            if same.is_empty() {
                self.numbers.remove(&number);
            }
        }
        let receives = self.shared.get_mut(&pair.info.srq).into_iter().flatten();
        for key in receives.flat_map(|receive| core::mem::take(&mut receive.sinks)) {
            self.sinks.remove(key);
        }
    }
}

/// The name of a C struct as programs know it.
fn short(name: &'static str) -> &'static str {
    name.rsplit("::").next().unwrap_or(name)
}

impl Checker {
    pub(super) fn report(&self, report: &Report) {
        self.reporter.lock().report(report);
    }

    pub(super) fn report_one(&self, kind: Kind, what: String, label: &'static str, stack: Stack) {
        let stacks = vec![(label, stack)];
        self.report(&Report { kind, what, stacks });
    }

    /// An object was created; `name` is that of its type.
    #[cold]
    pub(crate) fn created(&self, at: usize, name: &'static str) {
        let stack = Stack::capture();
        let name = match short(name) {
            "ibv_cq_ex" => "ibv_cq",
            "ibv_qp_ex" => "ibv_qp",
            // Given to the program by calls that the checks see.
            "rdma_cm_event" => return,
            name => name,
        };
        let mut tables = self.tables();
        let number = tables.number();
        let object = Object {
            name,
            number,
            stack,
        };
        tables.objects.insert(at, object);
        if name == "ibv_srq" {
            tables.shared.insert(at, VecDeque::new());
        }
    }

    /// The object belongs to the library, and lives as long as the process.
    #[cold]
    pub(crate) fn forget(&self, at: usize) {
        self.tables().objects.remove(&at);
    }

    /// An object is freed.
    #[cold]
    pub(crate) fn destroyed(&self, at: usize) {
        let mut tables = self.tables();
        tables.objects.remove(&at);
        tables.queues.remove(&at);
        tables.events.remove(&at);
        tables.drop_requests(at);
        tables.drop_pair(at);
        tables.shared_cqs.remove(&at);
        for receive in tables.shared.remove(&at).into_iter().flatten() {
            for key in receive.sinks {
                tables.sinks.remove(key);
            }
        }
    }

    /// A completion queue has this many entries.
    #[cold]
    pub(crate) fn cq_sized(&self, cq: usize, entries: usize) {
        self.tables().queues.entry(cq).or_default().entries = entries;
    }

    /// Receives of this shared queue complete there.
    #[cold]
    pub(crate) fn shared_completes(&self, srq: usize, cq: usize) {
        self.tables().shared_cqs.insert(srq, cq);
    }

    #[cold]
    pub(crate) fn pair_created(&self, qp: usize, info: PairInfo) {
        let pair = Pair {
            info,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            failed: false,
            flushed: false,
            invalidated: HashMap::new(),
        };
        let mut tables = self.tables();
        tables.numbers.entry(info.number).or_default().push(qp);
        tables.pairs.insert(qp, pair);
    }

    /// The queue pair is in RESET: its requests are gone.
    #[cold]
    pub(crate) fn pair_reset(&self, qp: usize) {
        self.tables().drop_requests(qp);
    }

    #[cold]
    pub(crate) fn registered(&self, mr: usize, info: RegionInfo) {
        let stack = Stack::capture();
        let mut tables = self.tables();
        // Keys are used again.
        tables.dead.remove(&info.key);
        tables.dead_order.retain(|key| *key != info.key);
        tables.keys.insert(mr, info.key);
        let region = Region {
            info,
            written: false,
            ended: false,
            stack,
        };
        tables.regions.insert(info.key, region);
        drop(tables);
        if info.stays_mapped && info.access & IBV_ACCESS_ON_DEMAND == 0 {
            self.watched.add(info.start, info.len, info.key);
        }
    }

    /// The rights of a region were changed.
    #[cold]
    pub(crate) fn access_changed(&self, mr: usize, access: u32) {
        let mut tables = self.tables();
        if let Some(key) = tables.keys.get(&mr).copied()
            && let Some(region) = tables.regions.get_mut(&key)
        {
            region.info.access = access;
        }
    }

    /// A region is deregistered: its key is invalid now.
    #[cold]
    pub(crate) fn deregistered(&self, mr: usize) {
        let ended = Stack::capture();
        let mut tables = self.tables();
        let Some(key) = tables.keys.remove(&mr) else {
            return;
        };
        let Some(region) = tables.regions.remove(&key) else {
            return;
        };
        let dead = DeadKey {
            how: "deregistered",
            ended: ended.clone(),
            registered: Some(region.stack.clone()),
        };
        tables.kill_key(key, dead);
        drop(tables);
        self.watched.remove(region.info.start, key);
        self.region_ends(&region, Some(&ended));
    }

    /// A key is invalid, because the program or its peer has invalidated it.
    #[cold]
    pub(crate) fn key_invalidated(&self, key: u32, how: &'static str) {
        let ended = Stack::capture();
        let mut tables = self.tables();
        let registered = tables.regions.get(&key).map(|region| region.stack.clone());
        let dead = DeadKey {
            how,
            ended,
            registered,
        };
        tables.kill_key(key, dead);
    }

    /// The program was given an event about this object.
    #[cold]
    pub(crate) fn event_given(&self, about: usize) {
        let stack = Stack::capture();
        let mut tables = self.tables();
        let given = tables.events.entry(about).or_insert_with(|| Delivered {
            count: 0,
            stack: Stack::default(),
        });
        given.count += 1;
        given.stack = stack;
    }

    #[cold]
    pub(crate) fn events_acknowledged(&self, about: usize, count: u64) {
        let mut tables = self.tables();
        if let Some(given) = tables.events.get_mut(&about) {
            given.count = given.count.saturating_sub(count);
            if given.count == 0 {
                tables.events.remove(&about);
            }
        }
    }
}

/// What `ibv_reg_mr` can grant to peers.
pub(super) const PEER_RIGHTS: u32 =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_found_whatever_the_lengths() {
        let mut sinks = Sinks::default();
        let sink = |len| Sink {
            len,
            is_receive: true,
            stack: Stack::default(),
        };
        let long = sinks.insert(1000, 1, sink(500));
        sinks.insert(1400, 2, sink(10));
        let found = |sinks: &Sinks, start, len| sinks.overlapping(Span { start, len }).map(|f| f.0);
        assert_eq!(found(&sinks, 1499, 1), Some(1000));
        assert_eq!(found(&sinks, 1500, 9), None);
        assert_eq!(found(&sinks, 900, 100), None);
        assert_eq!(found(&sinks, 900, 101), Some(1000));
        sinks.remove(long);
        assert_eq!(found(&sinks, 1300, 200), Some(1400));
        assert_eq!(found(&sinks, 1410, 200), None);
    }
}
