//! Processing of a client's bytes: options during negotiation, then requests and their payload. Every request is validated before memory is
//! allocated for it, and payload of a rejected request is skipped. Nothing is read here; the input is the stage.

use super::{Client, Incoming, Phase};
use crate::blocks::Geometry;
use crate::error::Error;
use crate::nbd::Counts;
use crate::nbd::codec::{Command, Errno, HEAD, Head, ReplyHead};
use crate::nbd::handshake::{ExportInfo, Verdict};
use crate::nbd::job::{Job, Kind, validate};
use crate::nbd::outbox::Reply;
use crate::nbd::slots::Run;

/// The longest payload that is read and discarded.
const MAX_DISCARDED: u32 = 32 << 20;

impl Client {
    /// Processes staged bytes. Returns whether there was progress.
    pub(super) fn process_staged(
        &mut self,
        facts: &ExportInfo,
        geometry: &Geometry,
        counts: &mut Counts,
    ) -> Result<bool, Error> {
        let mut any = false;
        loop {
            let more = match &self.phase {
                Phase::Negotiating(_) => self.negotiate(facts),
                Phase::Serving => match self.incoming {
                    Incoming::Head => self.next_request(geometry, counts),
                    Incoming::Payload { job, got } => self.staged_payload(job, got, counts)?,
                    Incoming::Discard { left, reply } => self.discard(left, reply),
                },
                Phase::Draining | Phase::Closed => false,
            };
            if !more {
                return Ok(any);
            }
            any = true;
        }
    }

    fn negotiate(&mut self, facts: &ExportInfo) -> bool {
        let Phase::Negotiating(handshake) = &mut self.phase else {
            return false;
        };
        if !self.outbox.is_empty() {
            return false;
        }
        match handshake.take(self.stage.bytes(), facts, self.outbox.handshake_buffer()) {
            Ok((0, None)) => return false,
            Ok((taken, verdict)) => {
                self.stage.consume(taken);
                match verdict {
                    Some(Verdict::Go {
                        structured_replies: chunks,
                    }) => {
                        self.phase = Phase::Serving;
                        self.structured_replies = chunks;
                        self.deadline = None;
                    }
                    Some(Verdict::Abort) => self.drain(),
                    None => {}
                }
            }
            Err(violation) => self.disconnect(Some(violation.to_string())),
        }
        true
    }

    fn next_request(&mut self, geometry: &Geometry, counts: &mut Counts) -> bool {
        let stalled = self.stalled.take();
        let head = match stalled {
            Some(head) => head,
            None => {
                let Some(bytes) = self.stage.bytes().first_chunk::<HEAD>() else {
                    return false;
                };
                if self.is_full() {
                    return false;
                }
                match Head::parse(bytes) {
                    Ok(head) => head,
                    Err(error) => {
                        self.disconnect(Some(error.to_string()));
                        return false;
                    }
                }
            }
        };
        if stalled.is_none() {
            self.stage.consume(HEAD);
            counts.requests += 1;
            self.payload_follows = head.payload;
        }
        if head.command == Some(Command::Disconnect) {
            self.drain();
            return false;
        }
        match validate(&head, geometry) {
            Ok(what) => self.begin(&head, what),
            Err(error) => {
                counts.refused += 1;
                self.refuse(&head, error);
                true
            }
        }
    }

    /// Makes a job of a request, if there is memory for it.
    fn begin(&mut self, head: &Head, what: (Kind, bool)) -> bool {
        let payload = matches!(what.0, Kind::Read | Kind::Write { .. });
        let run = match payload.then(|| self.slots.allocate(head.len as usize)) {
            Some(None) => {
                self.stalled = Some(*head);
                return false;
            }
            Some(run) => run,
            None => None,
        };
        let job = Some(Job::new(head, what, run));
        let at = match self.free.pop() {
            Some(at) => {
                self.jobs[at] = job;
                at
            }
            None => {
                self.jobs.push(job);
                self.jobs.len() - 1
            }
        };
        if head.payload {
            self.incoming = Incoming::Payload { job: at, got: 0 };
        } else {
            self.pending.push_back(at);
        }
        true
    }

    fn refuse(&mut self, head: &Head, error: Errno) {
        let read = head.command == Some(Command::Read);
        let reply = self.reply_head((head.cookie, head.offset, head.len), read, Err(error));
        if !head.payload || head.len == 0 {
            self.outbox.push(Reply {
                head: reply,
                payload: None,
            });
        } else if head.len <= MAX_DISCARDED {
            let left = head.len;
            self.incoming = Incoming::Discard { left, reply };
        } else {
            self.disconnect(Some(format!("a write of {} bytes is too long", head.len)));
        }
    }

    /// Payload that was read together with its header.
    fn staged_payload(&mut self, at: usize, got: u32, counts: &mut Counts) -> Result<bool, Error> {
        let Some(Some(job)) = self.jobs.get(at) else {
            return Ok(false);
        };
        let left = (job.len - got) as usize;
        let bytes = self.stage.bytes();
        let bytes = &bytes[..bytes.len().min(left)];
        if bytes.is_empty() {
            return Ok(false);
        }
        let start = job.run.as_ref().map_or(0, Run::offset);
        self.memory.write_at(start + got as usize, bytes)?;
        let count = bytes.len();
        counts.copied += count as u64;
        self.stage.consume(count);
        self.advance(at, got + count as u32);
        Ok(true)
    }

    fn discard(&mut self, left: u32, reply: ReplyHead) -> bool {
        let count = self.stage.bytes().len().min(left as usize);
        self.stage.consume(count);
        let left = left - count as u32;
        self.incoming = Incoming::Discard { left, reply };
        if left == 0 {
            self.incoming = Incoming::Head;
            self.outbox.push(Reply {
                head: reply,
                payload: None,
            });
        }
        count > 0
    }
}
