//! Checks when the program polls a completion: the request and, of sends, the unsignaled ones before it give their buffers back to the program at this
//! moment, and these are compared with what they contained when they were posted. Requests of one queue pair that are posted by several threads at once may be
//! entered in another order than they were posted in; buffers are then compared earlier, never later.

use std::time::Duration;

use smallvec::SmallVec;

use super::Checker;
use super::kind::Kind;
use super::memory::Span;
use super::report::Report;
use super::stack::Stack;
use super::tables::{Buffer, EmptyPolls, Receive, Send, Tables};
use crate::abi::*;

/// Processor time that a thread uses for polls that find nothing until it is told.
const BUSY: Duration = Duration::from_millis(100);
/// Empty polls between two looks at the clock.
const BETWEEN: u64 = 256;

/// A completion as the program gets it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompletionInfo {
    pub(crate) cq: usize,
    pub(crate) pair: u32,
    pub(crate) id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) len: u32,
    /// A key that the peer has invalidated by it.
    pub(crate) invalidated: Option<u32>,
}

/// What a completion ends.
enum Ended {
    Sends(Vec<Send>),
    Receive(Receive, Option<Filled>),
}

/// How far the adapter has written into a receive.
struct Filled(usize);

impl Checker {
    /// The program polled a completion. Returns the queue pair if its first cause of failure is to be looked at.
    #[cold]
    pub(crate) fn completed(&self, wc: CompletionInfo) -> Option<usize> {
        if let Some(key) = wc.invalidated {
            self.key_invalidated(key, "invalidated by the peer");
        }
        let mut tables = self.tables();
        if let Some(queue) = tables.queues.get_mut(&wc.cq) {
            queue.empty = EmptyPolls::default();
        }
        let is_receive = wc.opcode & IBV_WC_RECV != 0;
        let Some(qp) = tables.find_pair(&wc, is_receive) else {
            if is_receive {
                tables.end_shared(&wc);
            }
            return None;
        };
        let ended = match is_receive {
            true => tables.end_receive(qp, &wc),
            false => tables.end_sends(qp, &wc).map(Ended::Sends),
        };
        let pair = tables.pairs.get_mut(&qp)?;
        let first_failure =
            wc.status != IBV_WC_SUCCESS && !core::mem::replace(&mut pair.failed, true);
        let refused = matches!(wc.status, IBV_WC_REM_ACCESS_ERR | IBV_WC_REM_INV_REQ_ERR);
        let stale = match &ended {
            Some(Ended::Sends(sends)) if refused => sends.last().and_then(|send| {
                let key = send.rkey?;
                let here = tables.pairs.get(&qp)?.invalidated.get(&key).cloned();
                let here = here.map(|stack| ("invalidated at the peer", stack));
                let dead = || {
                    tables
                        .dead
                        .get(&key)
                        .map(|dead| (dead.how, dead.ended.clone()))
                };
                let (how, ended) = here.or_else(dead)?;
                Some((key, send.operation, send.stack.clone(), how, ended))
            }),
            _ => None,
        };
        drop(tables);
        if let Some((key, operation, posted, how, ended)) = stale {
            let what =
                format!("the peer refused a {operation} with the rkey {key:#x}, which was {how}");
            self.report(&Report {
                kind: Kind::StaleKey,
                what,
                stacks: vec![("posted", posted), (how, ended)],
            });
        }
        match ended {
            Some(Ended::Sends(sends)) => sends.iter().for_each(|send| self.compare_send(send)),
            Some(Ended::Receive(receive, Some(Filled(from)))) => {
                self.compare_receive(&receive, from);
            }
            _ => {}
        }
        first_failure.then_some(qp)
    }

    fn compare_send(&self, send: &Send) {
        let operation = send.operation;
        for Buffer { span, before } in &send.sources {
            let posted = vec![("posted", send.stack.clone())];
            match before.first_change(*span, 0) {
                Ok(None) => {}
                Ok(Some(change)) => {
                    let when = if send.signaled {
                        ""
                    } else {
                        "; it is unsignaled, so that it ends when a later request is polled"
                    };
                    let what = format!(
                        "the buffer of a {operation} ({} bytes at {:#x}) was changed before its completion was polled: first {change}{when}",
                        span.len, span.start
                    );
                    self.report(&Report {
                        kind: Kind::SendBufferChanged,
                        what,
                        stacks: posted,
                    });
                }
                Err(_) => self.unmapped(*span, operation, posted),
            }
        }
    }

    /// Behind the bytes of the message, a receive's buffer is as it was.
    fn compare_receive(&self, receive: &Receive, from: usize) {
        let mut before_this = 0;
        for Buffer { span, before } in &receive.buffers {
            let first = from.saturating_sub(before_this).min(span.len);
            before_this += span.len;
            let posted = vec![("posted", receive.stack.clone())];
            match before.first_change(*span, first) {
                Ok(None) => {}
                Ok(Some(change)) => {
                    let what = format!(
                        "the buffer of a receive ({} bytes at {:#x}) was changed behind the {from} bytes of its message before its completion was polled: \
                         first {change}",
                        span.len, span.start
                    );
                    self.report(&Report {
                        kind: Kind::ReceiveBufferChanged,
                        what,
                        stacks: posted,
                    });
                }
                Err(_) => self.unmapped(*span, "receive", posted),
            }
        }
    }

    fn unmapped(&self, span: Span, operation: &str, stacks: Vec<(&'static str, Stack)>) {
        let what = format!(
            "the buffer of a {operation} ({} bytes at {:#x}) was unmapped before its completion was polled",
            span.len, span.start
        );
        self.report(&Report {
            kind: Kind::MemoryUnmapped,
            what,
            stacks,
        });
    }

    /// A poll found nothing.
    #[cold]
    pub(crate) fn polled_empty(&self, cq: usize) {
        let mut tables = self.tables();
        let Some(empty) = tables.queues.get_mut(&cq).map(|queue| &mut queue.empty) else {
            return;
        };
        // SAFETY: `pthread_self` has no preconditions.
        let thread = unsafe { libc::pthread_self() };
        if empty.count == 0 || empty.thread != thread {
            *empty = EmptyPolls {
                count: 1,
                thread,
                busy_since: thread_time(),
            };
            return;
        }
        empty.count += 1;
        if empty.count % BETWEEN != 0 {
            return;
        }
        let used = thread_time().saturating_sub(empty.busy_since);
        if used < BUSY {
            return;
        }
        let count = empty.count;
        *empty = EmptyPolls::default();
        let created = tables
            .objects
            .get(&cq)
            .map(|object| ("the completion queue was created", object.stack.clone()));
        drop(tables);
        let what = format!(
            "a thread used {} ms of processor time for {count} polls that found nothing: ibv_req_notify_cq and ibv_get_cq_event would sleep",
            used.as_millis()
        );
        let mut stacks = vec![("polled", Stack::capture())];
        stacks.extend(created);
        self.report(&Report {
            kind: Kind::BusyPoll,
            what,
            stacks,
        });
    }
}

/// Processor time of the calling thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

impl Tables {
    fn find_pair(&self, wc: &CompletionInfo, is_receive: bool) -> Option<usize> {
        let completes_here = |info: &super::PairInfo| match is_receive {
            true => info.recv_cq == wc.cq,
            false => info.send_cq == wc.cq,
        };
        let mut all = self.numbers.get(&wc.pair)?.iter();
        let is_it = |qp: &&usize| {
            self.pairs
                .get(qp)
                .is_some_and(|pair| completes_here(&pair.info))
        };
        all.find(is_it).copied()
    }

    /// A receive of a shared queue of an XRC domain, whose target has no completion queue.
    fn end_shared(&mut self, wc: &CompletionInfo) {
        let here = self.shared_cqs.iter().filter(|(_, cq)| **cq == wc.cq);
        let queues: SmallVec<[usize; 1]> = here.map(|(srq, _)| *srq).collect();
        for srq in queues {
            let Some(list) = self.shared.get_mut(&srq) else {
                continue;
            };
            let at = list.iter().position(|receive| receive.id == wc.id);
            if let Some(receive) = at.and_then(|at| list.remove(at)) {
                self.ended(None, &receive.sinks);
                return;
            }
        }
    }

    /// The request and the unsignaled ones before it.
    fn end_sends(&mut self, qp: usize, wc: &CompletionInfo) -> Option<Vec<Send>> {
        let pair = self.pairs.get_mut(&qp)?;
        let failed = wc.status != IBV_WC_SUCCESS;
        let is_it = |send: &Send| send.id == wc.id && (send.signaled || failed);
        let at = pair.sends.iter().position(is_it)?;
        let ended: Vec<Send> = pair.sends.drain(..=at).collect();
        let cq = pair.info.send_cq;
        for send in &ended {
            self.ended(Some(cq).filter(|_| send.signaled), &send.sinks);
        }
        Some(ended)
    }

    fn end_receive(&mut self, qp: usize, wc: &CompletionInfo) -> Option<Ended> {
        let pair = self.pairs.get_mut(&qp)?;
        let (srq, cq) = (pair.info.srq, pair.info.recv_cq);
        let flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
        // The first one that is flushed may be filled in part.
        let partial = flushed && !core::mem::replace(&mut pair.flushed, flushed);
        let list = match srq {
            0 => Some(&mut pair.receives),
            _ => self.shared.get_mut(&srq),
        }?;
        let at = list.iter().position(|receive| receive.id == wc.id)?;
        let receive = list.remove(at)?;
        self.ended(Some(cq).filter(|_| srq == 0), &receive.sinks);
        let known = !receive.overlaps && !partial && srq_is_known(srq, flushed);
        let filled = match (wc.status, wc.opcode) {
            (IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM) => Some(0),
            (IBV_WC_SUCCESS, _) => Some(wc.len as usize),
            (IBV_WC_WR_FLUSH_ERR, _) => Some(0),
            _ => None,
        };
        Some(Ended::Receive(
            receive,
            filled.filter(|_| known).map(Filled),
        ))
    }
}

/// A receive of a shared queue that is flushed was taken by a message that did not arrive whole.
fn srq_is_known(srq: usize, flushed: bool) -> bool {
    srq == 0 || !flushed
}
