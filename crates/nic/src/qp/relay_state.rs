//! A conversation of an XRC target with the process of a shared receive queue: records that could not be sent yet, and the answer that is waited for.
//! One request is without an answer at most. What the records mean for the target is in [`super::relay`].

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use verbena_wire::Srqn;

use super::QpInit;
use crate::xrc::record::{Answer, HEAD, Request, VERSION};
use crate::xrc::{PathClosed, XrcPath, XrcProcesses};

/// How long another process may take for an answer. One that is stopped for a moment goes on later.
pub(super) const PROCESS_WAIT: Duration = Duration::from_secs(20);

/// Bytes of reads from other processes that a target holds until their responses are sent, and of one read.
pub(super) const MAX_READ_BYTES: usize = 16 << 20;

/// Conversations of a target with other processes.
pub(super) const MAX_CONVERSATIONS: usize = 64;

/// A conversation with the process of a queue. Invariant: records are unsent only behind each other, in order.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) process: u32,
    pub(super) path: Arc<dyn XrcPath>,
    /// The queue that requests are for.
    pub(super) number: Srqn,
    pub(super) phase: Phase,
    /// A message is being received: it has a receive, or a part of its bytes was sent.
    pub(super) busy: bool,
    /// The peer was told that there is no receive, and READY follows.
    pub(super) unready: bool,
    /// There was no room for these records; no more than the bytes that were read at once.
    unsent: VecDeque<Vec<u8>>,
    /// The bytes of a read that have come so far.
    pub(super) read: Vec<u8>,
}

/// Whether an answer is waited for.
#[derive(Debug)]
pub(super) enum Phase {
    Idle,
    Waiting,
    /// It has come, and the request that it belongs to continues.
    Answered(Answer),
}

impl Relay {
    pub(super) fn send(&mut self, request: Request, body: &[u8]) -> Result<(), PathClosed> {
        let head = request.emit();
        if self.unsent.is_empty() && self.path.send(&head, body)? {
            return Ok(());
        }
        self.unsent.push_back([&head, body].concat());
        Ok(())
    }

    /// Sends what there was no room for.
    pub(super) fn flush(&mut self) -> Result<(), PathClosed> {
        while let Some(record) = self.unsent.front() {
            let (head, body) = record.split_at(HEAD);
            if !self.path.send(head, body)? {
                break;
            }
            self.unsent.pop_front();
        }
        Ok(())
    }

    /// Receives what has come; true if a receive is ready.
    pub(super) fn receive(&mut self, room: &mut [u8]) -> Result<bool, PathClosed> {
        let mut ready = false;
        while let Some(len) = self.path.receive(room)? {
            let record = room.get(..len).unwrap_or_default();
            let (answer, body) = Answer::parse(record).ok_or(PathClosed)?;
            match (&self.phase, answer) {
                (_, Answer::Ready) if self.unready => {
                    self.unready = false;
                    ready = true;
                }
                (Phase::Waiting, Answer::Ready) => return Err(PathClosed),
                // A receive was posted before the claim continued here: it is repeated. Or its queue is being destroyed.
                (Phase::Answered(Answer::NotReady), Answer::Ready) => self.phase = Phase::Idle,
                (Phase::Answered(Answer::NotReady), Answer::Refused(reason)) => {
                    self.phase = Phase::Answered(Answer::Refused(reason));
                }
                (Phase::Waiting, answer) => {
                    self.read.extend_from_slice(body);
                    if self.read.len() > MAX_READ_BYTES {
                        return Err(PathClosed);
                    }
                    self.phase = Phase::Answered(answer);
                }
                // Also the end of a queue whose receive is waited for.
                _ => return Err(PathClosed),
            }
        }
        Ok(ready)
    }

    /// Records wait for room.
    pub(super) fn is_full(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Something would be lost with the conversation.
    pub(super) fn is_needed(&self) -> bool {
        self.busy || self.unready || !matches!(self.phase, Phase::Idle)
    }
}

/// Begins a conversation.
pub(super) fn open(
    init: &QpInit,
    processes: &dyn XrcProcesses,
    process: u32,
) -> Option<Box<Relay>> {
    let mut relay = Box::new(Relay {
        process,
        path: processes.connect(process, init.number)?,
        number: Srqn::wrapping(0),
        phase: Phase::Idle,
        busy: false,
        unready: false,
        unsent: VecDeque::new(),
        read: Vec::new(),
    });
    let hello = Request::Hello {
        version: VERSION,
        qpn: init.wc_qpn,
    };
    relay.send(hello, &[]).ok()?;
    Some(relay)
}
