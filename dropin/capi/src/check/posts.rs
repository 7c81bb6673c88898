//! Checks of requests that are posted. They are entered into the tables before the adapter gets them, since they can complete at once, and taken out again
//! if it refuses them.

use smallvec::SmallVec;
use verbena::low::QpState;

use super::Checker;
use super::kind::Kind;
use super::memory::{Snapshot, Span};
use super::report::Report;
use super::stack::Stack;
use super::tables::{Buffer, DeadKey, Receive, Send, Sink, SinkKey, Tables};
use crate::abi::*;

/// Where the bytes of a send request are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Read from its buffers.
    Source,
    /// Written to its buffers.
    Sink,
    /// It has none, or they were copied.
    None,
}

/// A send request of either form.
pub(crate) struct SendInfo {
    pub(crate) id: u64,
    pub(crate) operation: &'static str,
    pub(crate) signaled: bool,
    pub(crate) direction: Direction,
    pub(crate) sges: SmallVec<[ibv_sge; 1]>,
    pub(crate) rkey: Option<u32>,
    /// A key of the peer that it invalidates.
    pub(crate) invalidates: Option<u32>,
    /// A key of this side that it invalidates.
    pub(crate) invalidates_own: Option<u32>,
}

/// A receive.
pub(crate) struct ReceiveInfo {
    pub(crate) id: u64,
    pub(crate) sges: SmallVec<[ibv_sge; 1]>,
}

/// The queue that receives are posted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveQueue {
    Pair(usize),
    Shared(usize),
}

/// What the adapter answered to a list of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    /// 0 or an error number.
    pub(crate) code: i32,
    /// Requests of the list that were posted.
    pub(crate) posted: usize,
    /// The state in which they were posted.
    pub(crate) state: Option<QpState>,
    /// The connection manager moves the queue pair through its states.
    pub(crate) managed: bool,
}

/// Requests in the tables that the adapter has not answered yet.
pub(crate) struct Entered {
    numbers: Vec<u64>,
    stack: Stack,
}

fn span(sge: &ibv_sge) -> Span {
    Span {
        start: sge.addr as usize,
        len: sge.length as usize,
    }
}

/// The pieces of a request that have bytes.
fn pieces(sges: &[ibv_sge]) -> impl Iterator<Item = &ibv_sge> {
    sges.iter().filter(|sge| sge.length > 0)
}

impl Checker {
    /// Before send requests are posted.
    #[cold]
    pub(crate) fn before_send(&self, qp: usize, list: &[SendInfo]) -> Entered {
        let stack = Stack::capture();
        let mut numbers = Vec::with_capacity(list.len());
        let mut found = Vec::new();
        for info in list {
            let is_source = info.direction == Direction::Source;
            let sources = self.snapshots(&info.sges, is_source, &stack);
            let mut tables = self.tables();
            let number = tables.number();
            if info.direction != Direction::None {
                let writes = info.direction == Direction::Sink;
                tables.check_keys(&info.sges, writes, &stack, &mut found);
            }
            let sinks = match info.direction {
                Direction::Sink => {
                    tables
                        .add_sinks(&info.sges, number, false, &stack, &mut found)
                        .0
                }
                _ => SmallVec::new(),
            };
            if let Some(key) = info.invalidates_own {
                let registered = tables.regions.get(&key).map(|region| region.stack.clone());
                let dead = DeadKey {
                    how: "invalidated by a local invalidate",
                    ended: stack.clone(),
                    registered,
                };
                tables.kill_key(key, dead);
            }
            tables.enter_send(qp, info, number, sources, sinks, &stack, &mut found);
            numbers.push(number);
        }
        found.iter().for_each(|report| self.report(report));
        Entered { numbers, stack }
    }

    /// After send requests were posted or refused.
    #[cold]
    pub(crate) fn after_send(&self, qp: usize, entered: Entered, answer: Answer) {
        let mut tables = self.tables();
        let refused = entered.numbers.get(answer.posted..).unwrap_or(&[]);
        for number in refused.iter().filter(|_| answer.code != 0) {
            tables.withdraw_send(qp, *number);
        }
        let depth = tables.pairs.get(&qp).map_or(0, |pair| pair.info.max_send);
        drop(tables);
        let early = |state| matches!(state, QpState::Reset | QpState::Init | QpState::Rtr);
        let refused = answer.code != 0 && answer.code != libc::ENOMEM;
        match answer.state {
            Some(state) if early(state) && (refused || !answer.managed) => {
                let what = format!(
                    "a send request was posted in state {state:?}; sends are possible from RTS on"
                );
                self.report_one(Kind::WrongState, what, "posted", entered.stack);
            }
            _ if refused => {
                let what = format!(
                    "ibv_post_send or ibv_wr_complete refused a request with error {} ({})",
                    answer.code,
                    error_name(answer.code)
                );
                self.report_one(Kind::PostRefused, what, "posted", entered.stack);
            }
            _ if answer.code == 0 && depth > 0 => self.check_depth(qp, depth, entered.stack),
            _ => {}
        }
    }

    /// Whether an adapter would still have room in the send queue.
    fn check_depth(&self, qp: usize, depth: usize, stack: Stack) {
        let tables = self.tables();
        let Some(pair) = tables
            .pairs
            .get(&qp)
            .filter(|pair| pair.sends.len() > depth)
        else {
            return;
        };
        let count = pair.sends.len();
        let unsignaled = pair.sends.iter().filter(|send| !send.signaled).count();
        let what = format!(
            "{count} send requests are outstanding in a queue for {depth}; {unsignaled} of them are unsignaled, and give up their place only when a later \
             signaled one is polled"
        );
        drop(tables);
        self.report_one(Kind::SendQueueOverrun, what, "posted", stack);
    }

    /// Before receives are posted.
    #[cold]
    pub(crate) fn before_receive(&self, queue: ReceiveQueue, list: &[ReceiveInfo]) -> Entered {
        let stack = Stack::capture();
        let mut numbers = Vec::with_capacity(list.len());
        let mut found = Vec::new();
        for info in list {
            let buffers = self.snapshots(&info.sges, true, &stack);
            let mut tables = self.tables();
            let number = tables.number();
            tables.check_keys(&info.sges, true, &stack, &mut found);
            let (sinks, overlaps) = tables.add_sinks(&info.sges, number, true, &stack, &mut found);
            let receive = Receive {
                number,
                id: info.id,
                buffers,
                sinks,
                overlaps,
                stack: stack.clone(),
            };
            match queue {
                ReceiveQueue::Shared(srq) => {
                    tables.shared.entry(srq).or_default().push_back(receive);
                }
                ReceiveQueue::Pair(qp) => {
                    let cq = tables.pairs.get_mut(&qp).map(|pair| {
                        pair.receives.push_back(receive);
                        pair.info.recv_cq
                    });
                    tables.expect(cq, &stack, &mut found);
                }
            }
            numbers.push(number);
        }
        found.iter().for_each(|report| self.report(report));
        Entered { numbers, stack }
    }

    /// After receives were posted or refused.
    #[cold]
    pub(crate) fn after_receive(&self, queue: ReceiveQueue, entered: Entered, answer: Answer) {
        let mut tables = self.tables();
        let refused = entered.numbers.get(answer.posted..).unwrap_or(&[]);
        for number in refused.iter().filter(|_| answer.code != 0) {
            tables.withdraw_receive(queue, *number);
        }
        drop(tables);
        let refused = answer.code != 0 && answer.code != libc::ENOMEM;
        if answer.state == Some(QpState::Reset) {
            let what = "a receive was posted in state RESET; receives are possible from INIT on"
                .to_owned();
            self.report_one(Kind::WrongState, what, "posted", entered.stack);
        } else if refused {
            let what = format!(
                "ibv_post_recv or ibv_post_srq_recv refused a request with error {} ({})",
                answer.code,
                error_name(answer.code)
            );
            self.report_one(Kind::PostRefused, what, "posted", entered.stack);
        }
    }

    /// What the buffers contain now; memory that is not mapped is reported.
    fn snapshots(&self, sges: &[ibv_sge], wanted: bool, stack: &Stack) -> SmallVec<[Buffer; 1]> {
        let mut all = SmallVec::new();
        for sge in pieces(sges).filter(|_| wanted) {
            let span = span(sge);
            if !self.is_in_memory(sge) {
                continue;
            }
            match Snapshot::take(span) {
                Ok(before) => all.push(Buffer { span, before }),
                Err(_) => {
                    let what = format!(
                        "a request was posted with a buffer that is not mapped: {} bytes at {:#x}",
                        span.len, span.start
                    );
                    self.report_one(Kind::MemoryUnmapped, what, "posted", stack.clone());
                }
            }
        }
        all
    }

    /// The addresses of the piece are addresses of memory, and not of a zero-based, null or other region.
    fn is_in_memory(&self, sge: &ibv_sge) -> bool {
        let tables = self.tables();
        let key = sge.lkey;
        let region = tables.regions.get(&key);
        region.is_some_and(|region| {
            let (info, at) = (region.info, sge.addr as usize);
            let end = info.start.saturating_add(info.len);
            info.stays_mapped
                && info.access & IBV_ACCESS_ZERO_BASED == 0
                && (info.start..end).contains(&at)
        })
    }
}

fn error_name(code: i32) -> String {
    std::io::Error::from_raw_os_error(code).to_string()
}

impl Tables {
    /// Checks the local keys of a request.
    fn check_keys(
        &mut self,
        sges: &[ibv_sge],
        writes: bool,
        stack: &Stack,
        found: &mut Vec<Report>,
    ) {
        for sge in pieces(sges) {
            let key = sge.lkey;
            if let Some(dead) = self.dead.get(&key) {
                let mut stacks = vec![("posted", stack.clone()), (dead.how, dead.ended.clone())];
                stacks.extend(dead.registered.clone().map(|stack| ("registered", stack)));
                let what = format!(
                    "a request was posted with the lkey {key:#x}, which was {}",
                    dead.how
                );
                found.push(Report {
                    kind: Kind::StaleKey,
                    what,
                    stacks,
                });
            } else if let Some(region) = self.regions.get_mut(&key) {
                region.written |= writes;
            } else {
                let what = format!(
                    "a request was posted with the lkey {key:#x}, which no region of this process has or had"
                );
                let stacks = vec![("posted", stack.clone())];
                found.push(Report {
                    kind: Kind::UnknownKey,
                    what,
                    stacks,
                });
            }
        }
    }

    /// Enters memory that a request writes to; whether another request writes there, too.
    fn add_sinks(
        &mut self,
        sges: &[ibv_sge],
        number: u64,
        is_receive: bool,
        stack: &Stack,
        found: &mut Vec<Report>,
    ) -> (SmallVec<[SinkKey; 1]>, bool) {
        let mut keys = SmallVec::new();
        let mut overlaps = false;
        for sge in pieces(sges) {
            let (span, key) = (span(sge), sge.lkey);
            let in_memory = self.regions.get(&key).is_some_and(|region| {
                region.info.start != 0 && region.info.access & IBV_ACCESS_ZERO_BASED == 0
            });
            if !in_memory {
                continue;
            }
            if let Some((start, other)) = self.sinks.overlapping(span) {
                overlaps = true;
                let both = is_receive && other.is_receive;
                let name = |is_receive| {
                    if is_receive {
                        "receive"
                    } else {
                        "Read or atomic"
                    }
                };
                let what = format!(
                    "the buffer of a {} ({} bytes at {:#x}) overlaps that of an outstanding {} ({} bytes at {start:#x})",
                    name(is_receive),
                    span.len,
                    span.start,
                    name(other.is_receive),
                    other.len
                );
                let stacks = vec![
                    ("posted", stack.clone()),
                    ("the other one was posted", other.stack.clone()),
                ];
                found.push(Report {
                    kind: if both {
                        Kind::OverlappingReceives
                    } else {
                        Kind::OverlappingReads
                    },
                    what,
                    stacks,
                });
            }
            let sink = Sink {
                len: span.len,
                is_receive,
                stack: stack.clone(),
            };
            keys.push(self.sinks.insert(span.start, number, sink));
        }
        (keys, overlaps)
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of one entry, made at different moments"
    )]
    fn enter_send(
        &mut self,
        qp: usize,
        info: &SendInfo,
        number: u64,
        sources: SmallVec<[Buffer; 1]>,
        sinks: SmallVec<[SinkKey; 1]>,
        stack: &Stack,
        found: &mut Vec<Report>,
    ) {
        let cq = self.pairs.get_mut(&qp).map(|pair| {
            if let Some(key) = info.invalidates {
                pair.invalidated.insert(key, stack.clone());
            }
            pair.sends.push_back(Send {
                number,
                id: info.id,
                operation: info.operation,
                signaled: info.signaled,
                sources,
                sinks,
                rkey: info.rkey,
                stack: stack.clone(),
            });
            pair.info.send_cq
        });
        self.expect(cq.filter(|_| info.signaled), stack, found);
    }

    /// One more completion will come into the queue.
    fn expect(&mut self, cq: Option<usize>, stack: &Stack, found: &mut Vec<Report>) {
        let Some((cq, queue)) = cq.and_then(|cq| Some((cq, self.queues.get_mut(&cq)?))) else {
            return;
        };
        queue.expected += 1;
        if queue.expected <= queue.entries {
            return;
        }
        let what = format!(
            "{} requests are outstanding that complete in a queue for {} completions: it overruns if they complete before it is polled",
            queue.expected, queue.entries
        );
        let mut stacks = vec![("posted", stack.clone())];
        stacks.extend(
            self.objects
                .get(&cq)
                .map(|object| ("the completion queue was created", object.stack.clone())),
        );
        found.push(Report {
            kind: Kind::CqOverrun,
            what,
            stacks,
        });
    }

    fn withdraw_send(&mut self, qp: usize, number: u64) {
        let Some(pair) = self.pairs.get_mut(&qp) else {
            return;
        };
        let Some(at) = pair.sends.iter().rposition(|send| send.number == number) else {
            return;
        };
        let cq = pair.info.send_cq;
        if let Some(send) = pair.sends.remove(at) {
            self.ended(Some(cq).filter(|_| send.signaled), &send.sinks);
        }
    }

    fn withdraw_receive(&mut self, queue: ReceiveQueue, number: u64) {
        let (list, cq) = match queue {
            ReceiveQueue::Shared(srq) => (self.shared.get_mut(&srq), None),
            ReceiveQueue::Pair(qp) => match self.pairs.get_mut(&qp) {
                Some(pair) => (Some(&mut pair.receives), Some(pair.info.recv_cq)),
                None => (None, None),
            },
        };
        let Some(list) = list else { return };
        let at = list.iter().rposition(|receive| receive.number == number);
        if let Some(receive) = at.and_then(|at| list.remove(at)) {
            self.ended(cq, &receive.sinks);
        }
    }

    /// A request is not outstanding any more: its place in the completion queue, and its memory.
    pub(super) fn ended(&mut self, cq: Option<usize>, sinks: &[SinkKey]) {
        if let Some(queue) = cq.and_then(|cq| self.queues.get_mut(&cq)) {
            queue.expected = queue.expected.saturating_sub(1);
        }
        for key in sinks {
            self.sinks.remove(*key);
        }
    }
}
