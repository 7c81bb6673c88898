//! Checks when something ends: regions, queues whose events or completions the program has not taken, and the process. What waits for the program without an
//! end, as destroying an object with events that are not acknowledged, is reported and not waited for.

use core::time::Duration;
use std::collections::HashMap;

use super::kind::Kind;
use super::memory::{Span, is_mapped};
use super::report::Report;
use super::stack::Stack;
use super::tables::{PEER_RIGHTS, Region};
use super::{Checker, LOCK_TIMEOUT};
use crate::abi::*;
use crate::{cq, qp};

/// How long another thread may take to acknowledge an event before it is reported, in steps.
const GRACE: (u32, Duration) = (50, Duration::from_millis(10));

impl Checker {
    /// The memory and the rights of a region that is deregistered, or left at the end.
    pub(super) fn region_ends(&self, region: &Region, ended: Option<&Stack>) {
        let info = region.info;
        let span = Span {
            start: info.start,
            len: info.len,
        };
        let stacks = || {
            let mut stacks = vec![("registered", region.stack.clone())];
            stacks.extend(ended.map(|stack| ("deregistered", stack.clone())));
            stacks
        };
        if !region.ended
            && info.stays_mapped
            && info.access & IBV_ACCESS_ON_DEMAND == 0
            && !is_mapped(span)
        {
            let what = format!(
                "memory was unmapped while it was registered: {} bytes at {:#x}",
                info.len, info.start
            );
            self.report(&Report {
                kind: Kind::MemoryUnmapped,
                what,
                stacks: stacks(),
            });
        }
        let for_peers = info.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) != 0;
        if info.access & IBV_ACCESS_LOCAL_WRITE != 0 && !for_peers && !region.written {
            let what = format!(
                "IBV_ACCESS_LOCAL_WRITE was not needed: no receive, Read or atomic wrote to these {} bytes at {:#x}",
                info.len, info.start
            );
            self.report(&Report {
                kind: Kind::UnusedAccess,
                what,
                stacks: stacks(),
            });
        }
        if info.access & PEER_RIGHTS != 0 && !self.was_connected() {
            let what = format!(
                "rights for peers ({:#x}) were not needed: no queue pair of the process was connected while these {} bytes at {:#x} were registered",
                info.access & PEER_RIGHTS,
                info.len,
                info.start
            );
            self.report(&Report {
                kind: Kind::UnusedAccess,
                what,
                stacks: stacks(),
            });
        }
    }

    /// The object is being destroyed, which waits for events about it that are not acknowledged. Returns how many were reported, which are not waited for.
    #[cold]
    pub(crate) fn closing(&self, about: usize, call: &str) -> u64 {
        for _ in 0..GRACE.0 {
            if !self.tables().events.contains_key(&about) {
                return 0;
            }
            std::thread::sleep(GRACE.1);
        }
        let Some(given) = self.tables().events.remove(&about) else {
            return 0;
        };
        let count = given.count;
        let what = format!(
            "{call} is called while {count} events about the object are not acknowledged: it waits for that, without an end (here it went on)"
        );
        let stacks = vec![
            ("destroyed", Stack::capture()),
            ("an event was read", given.stack),
        ];
        self.report(&Report {
            kind: Kind::EventUnacknowledged,
            what,
            stacks,
        });
        count
    }

    /// A queue pair that has not failed is destroyed, and its completions are removed from their queues: those of requests that the adapter has ended, of
    /// which `sends` and `receives` are not.
    #[cold]
    pub(crate) fn pair_ends(&self, qp: usize, sends: usize, receives: usize) {
        let tables = self.tables();
        let Some(pair) = tables.pairs.get(&qp) else {
            return;
        };
        let ended = pair.sends.len().saturating_sub(sends);
        let ended = pair.sends.iter().take(ended).filter(|send| send.signaled);
        let received = pair
            .receives
            .iter()
            .take(pair.receives.len().saturating_sub(receives));
        let count = ended.clone().count() + received.clone().count();
        let posted = ended
            .map(|send| &send.stack)
            .chain(received.map(|receive| &receive.stack));
        let Some(posted) = posted.last().cloned() else {
            return;
        };
        drop(tables);
        let what =
            format!("a queue pair was destroyed with {count} completions that had not been polled");
        self.report(&Report {
            kind: Kind::CompletionUnpolled,
            what,
            stacks: vec![
                ("destroyed", Stack::capture()),
                ("the last request was posted", posted),
            ],
        });
    }

    /// A completion queue ends with so many completions of success that the program has not polled.
    #[cold]
    pub(crate) fn unpolled(&self, cq: usize, count: usize, at_exit: bool) {
        if count == 0 {
            return;
        }
        let created = self
            .tables()
            .objects
            .get(&cq)
            .map(|object| object.stack.clone());
        let created = ("created", created.unwrap_or_default());
        let stacks = match at_exit {
            true => vec![created],
            false => vec![("destroyed", Stack::capture()), created],
        };
        let what = format!(
            "{count} completions (without those of errors) were in the queue at its end and had not been polled"
        );
        self.report(&Report {
            kind: Kind::CompletionUnpolled,
            what,
            stacks,
        });
    }

    /// The peer was refused this key, the first cause of the failure of a queue pair.
    #[cold]
    pub(crate) fn refused(&self, key: u32, operation: &str, len: u64) {
        let tables = self.tables();
        let Some(dead) = tables.dead.get(&key) else {
            return;
        };
        let mut stacks = vec![(dead.how, dead.ended.clone())];
        stacks.extend(dead.registered.clone().map(|stack| ("registered", stack)));
        let what = format!(
            "the peer used the rkey {key:#x}, which was {}: {len} bytes, which needed {operation}",
            dead.how
        );
        drop(tables);
        self.report(&Report {
            kind: Kind::StaleKey,
            what,
            stacks,
        });
    }

    /// The adapter reports that the queue is full.
    #[cold]
    pub(crate) fn overflowed(&self, cq: usize) {
        let created = self
            .tables()
            .objects
            .get(&cq)
            .map(|object| object.stack.clone());
        let what = "the completion queue was full, and a completion was lost (IBV_EVENT_CQ_ERR)"
            .to_owned();
        self.report_one(
            Kind::CqOverrun,
            what,
            "the completion queue was created",
            created.unwrap_or_default(),
        );
    }

    /// Whether some queue pair has been connected.
    fn was_connected(&self) -> bool {
        self.tables().was_connected
    }

    /// A queue pair is connected, or about to be.
    #[cold]
    pub(crate) fn connected(&self) {
        self.tables().was_connected = true;
    }

    /// The process ends.
    pub(super) fn end(&self) {
        let Some(tables) = self.tables.try_lock_for(LOCK_TIMEOUT) else {
            return;
        };
        let named = |name: &str| -> Vec<usize> {
            let all = tables
                .objects
                .iter()
                .filter(|(_, object)| object.name == name);
            all.map(|(at, _)| *at).collect()
        };
        let (queues, pairs) = (named("ibv_cq"), named("ibv_qp"));
        let regions: Vec<u32> = tables.regions.keys().copied().collect();
        drop(tables);
        for at in pairs {
            // SAFETY: the object was created by this library and is not destroyed, which would have removed it from the table; no thread does that now.
            unsafe { qp::look_at_failure(at as *const ibv_qp) };
        }
        for at in queues {
            // SAFETY: the queue was created by this library and is still in the table of objects, so it is not destroyed; no thread destroys it now.
            let count = unsafe { cq::drain(at as *const ibv_cq) };
            self.unpolled(at, count, true);
        }
        for key in regions {
            let region = self.tables().regions.remove(&key);
            if let Some(region) = region {
                self.region_ends(&region, None);
            }
        }
        let events = core::mem::take(&mut self.tables().events);
        for given in events.into_values() {
            let what = format!(
                "{} events about an object were not acknowledged when the process ended",
                given.count
            );
            self.report_one(
                Kind::EventUnacknowledged,
                what,
                "an event was read",
                given.stack,
            );
        }
        self.report_leaks();
        self.reporter.lock().end();
    }

    /// Objects that are left, those that one call created together.
    fn report_leaks(&self) {
        let mut groups: HashMap<Stack, Vec<(u64, &'static str)>> = HashMap::new();
        for object in self.tables().objects.values() {
            let group = groups.entry(object.stack.clone()).or_default();
            group.push((object.number, object.name));
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        for (_, group) in &mut groups {
            group.sort_unstable();
        }
        groups.sort_unstable_by_key(|(_, group)| group[0].0);
        for (stack, group) in groups {
            let mut names: Vec<&str> = group.iter().map(|(_, name)| *name).collect();
            names.sort_unstable();
            let counted = names.chunk_by(|a, b| a == b).map(|same| match same.len() {
                1 => same[0].to_owned(),
                count => format!("{count} × {}", same[0]),
            });
            let list = counted.collect::<Vec<_>>().join(", ");
            let what = format!("not destroyed when the process ended: {list}");
            self.report_one(Kind::LeakedObject, what, "created", stack);
        }
    }
}
