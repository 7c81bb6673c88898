//! The send queue of a queue pair on a TCP connection: requests that are not written yet, and requests that are written and wait for
//! their acknowledgement. Both are in posting order, and every request is in exactly one of them until it completes.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;
use verbena_mem::{Refusal, Sources};
use verbena_stream::Time;

use super::rest;
use crate::carrier::{Carrier, IoOutcome};
use crate::qp::{Limits, PostError};
use crate::ulp::UlpInit;
use crate::wr::{Data, Flags, Sge};

/// Time until the carrier is asked for acknowledgements: TCP reports none. It doubles while none arrive.
const FIRST_CHECK: Duration = Duration::from_micros(200);
/// The longest such time.
const LAST_CHECK: Duration = Duration::from_millis(10);
/// Requests whose bytes are handed over in one call.
const BATCH: usize = 16;

/// A send to post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSendWr<'a> {
    /// The program's id, returned with the completion.
    pub id: u64,
    /// [`Flags::SIGNALED`] has an effect.
    pub flags: Flags,
    /// The bytes.
    pub data: Data<'a>,
}

/// The bytes of a request.
#[derive(Debug)]
enum Bytes {
    Gather(SmallVec<[Sge; 2]>),
    Inline(Box<[u8]>),
}

#[derive(Debug)]
struct Send {
    id: u64,
    signaled: bool,
    bytes: Bytes,
    len: u32,
}

/// A request whose bytes the carrier has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) id: u64,
    pub(super) signaled: bool,
    /// Bytes written up to its end.
    end: u64,
}

/// The send queue.
#[derive(Debug, Default)]
pub(super) struct Sends {
    queue: VecDeque<Send>,
    /// Bytes of the first of them that were written.
    begun: u32,
    waiting: VecDeque<Written>,
    /// Bytes written in all.
    written: u64,
    /// The sending direction ends behind the queue.
    finishing: bool,
    finished: bool,
    check: Option<Time>,
    interval: Duration,
}

impl Sends {
    pub(super) fn outstanding(&self) -> usize {
        self.queue.len() + self.waiting.len()
    }

    pub(super) fn post(&mut self, wr: &TcpSendWr<'_>, limits: &Limits) -> Result<(), PostError> {
        if self.finishing {
            return Err(PostError::State(crate::state::QpState::Sqd));
        }
        let len = wr.data.len().ok_or(PostError::Length)?;
        let bytes = match wr.data {
            Data::Gather(sges) if sges.len() > limits.max_sge => {
                let (got, limit) = (sges.len(), limits.max_sge);
                return Err(PostError::TooManySges { got, limit });
            }
            Data::Inline(bytes) if bytes.len() > limits.inline => {
                let (got, limit) = (bytes.len(), limits.inline);
                return Err(PostError::Inline { got, limit });
            }
            Data::Gather(sges) => Bytes::Gather(SmallVec::from_slice(sges)),
            Data::Inline(bytes) => Bytes::Inline(bytes.into()),
        };
        if self.outstanding() >= limits.sends {
            return Err(PostError::Full(limits.sends));
        }
        self.queue.push_back(Send {
            id: wr.id,
            signaled: wr.flags.contains(Flags::SIGNALED),
            bytes,
            len,
        });
        Ok(())
    }

    pub(super) fn finish(&mut self) {
        self.finishing = true;
    }

    /// The ids of all requests, in posting order; none is left.
    pub(super) fn take_all(&mut self) -> Vec<u64> {
        self.check = None;
        let waiting = self.waiting.drain(..).map(|send| send.id);
        let queued = self.queue.drain(..).map(|send| send.id);
        waiting.chain(queued).collect()
    }

    /// Hands the next bytes to the carrier; `None` if there are none.
    pub(super) fn write(
        &mut self,
        init: &UlpInit,
        carrier: &mut dyn Carrier,
    ) -> Result<Option<IoOutcome>, Refusal> {
        // Requests without bytes at the front are written already.
        self.advance(0);
        if self.queue.is_empty() {
            if self.finishing && !self.finished {
                self.finished = true;
                carrier.finish();
            }
            return Ok(None);
        }
        let outcome = {
            let sources = self.sources(init)?;
            carrier.write(&sources)
        };
        if let IoOutcome::Bytes(n) = outcome {
            self.advance(n);
        }
        Ok(Some(outcome))
    }

    /// The bytes to write next. Memory of the first request that may not be read is an error; that of a later one ends the batch.
    fn sources<'a>(&'a self, init: &'a UlpInit) -> Result<Sources<'a>, Refusal> {
        let mut sources = Sources::new();
        for (at, send) in self.queue.iter().take(BATCH).enumerate() {
            let skip = if at == 0 { self.begun } else { 0 };
            match &send.bytes {
                Bytes::Inline(bytes) => {
                    let bytes = bytes.get(skip as usize..).unwrap_or_default();
                    if !bytes.is_empty() && !sources.borrow_bytes(bytes) {
                        return Ok(sources);
                    }
                }
                Bytes::Gather(sges) => {
                    for piece in rest(sges, skip) {
                        let gather = match init.gather(&piece) {
                            Ok(gather) => gather,
                            Err(refusal) if sources.bytes() == 0 => return Err(refusal),
                            Err(_) => return Ok(sources),
                        };
                        if sources.gather(gather) < piece.len as usize {
                            return Ok(sources);
                        }
                    }
                }
            }
        }
        Ok(sources)
    }

    /// So many bytes of the queue were written.
    fn advance(&mut self, mut n: usize) {
        while let Some(send) = self.queue.front() {
            let left = (send.len - self.begun) as usize;
            if n < left {
                // Less than the length of the request, which is a u32.
                self.begun += n as u32;
                self.written += n as u64;
                return;
            }
            n -= left;
            self.written += left as u64;
            self.begun = 0;
            let (id, signaled, end) = (send.id, send.signaled, self.written);
            self.waiting.push_back(Written { id, signaled, end });
            self.queue.pop_front();
        }
    }

    /// Bytes that the peer's transport has acknowledged.
    pub(super) fn acknowledged(&self, carrier: &dyn Carrier) -> u64 {
        let unacknowledged = carrier.unacknowledged().unwrap_or(0);
        self.written.saturating_sub(unacknowledged)
    }

    /// Takes all requests that are written.
    pub(super) fn accepted(&mut self) -> impl Iterator<Item = Written> + '_ {
        self.waiting.drain(..)
    }

    /// Takes the requests that end within the first `bytes` bytes.
    pub(super) fn answered(&mut self, bytes: u64) -> impl Iterator<Item = Written> + '_ {
        let n = self.waiting.partition_point(|send| send.end <= bytes);
        if n > 0 {
            self.interval = Duration::ZERO;
        }
        self.waiting.drain(..n)
    }

    /// Sets the time of the next look for acknowledgements, if requests wait for one.
    pub(super) fn set_check(&mut self, now: Time) {
        if self.waiting.is_empty() {
            self.check = None;
        } else if self.check.is_none_or(|check| check <= now) {
            self.interval = (self.interval * 2).clamp(FIRST_CHECK, LAST_CHECK);
            self.check = Some(now + self.interval);
        }
    }

    pub(super) fn next_check(&self) -> Option<Time> {
        self.check
    }

    pub(super) fn clear_check(&mut self) {
        self.check = None;
    }
}
