//! The send queue: work becomes one or two requests, which are kept until they are finished, in order.
//! Go-back-N: from READY(n) on, exactly the requests that the responder discarded begin again. Frames are made elsewhere.

use std::rc::Rc;

use verbena_stream::Message;
use verbena_wire::Rsn;
use verbena_wire::ext::ReadV2Request;
use verbena_wire::rdmap::{AtomicRequest, ReadRequest};

use super::Peer;
use crate::work::{Report, Status, TaggedAddr, Work};

/// One request of a work request.
#[derive(Debug)]
pub(super) struct Request {
    /// The work it belongs to.
    pub(super) id: u64,
    /// The work ends with it.
    last: bool,
    pub(super) message: Message,
    pub(super) payload: Rc<[u8]>,
    /// The sink of a read.
    pub(super) sink: Option<TaggedAddr>,
    /// Its number, once it has begun.
    pub(super) rsn: Option<Rsn>,
    /// The stream position behind its last byte, once framed.
    pub(super) end: Option<u64>,
    status: Option<Status>,
}

impl Peer {
    pub(super) fn enqueue(&mut self, id: u64, work: &Work) {
        if self.ended {
            self.reports.push(Report::Completed(id, Status::Flushed));
            return;
        }
        let messages = messages_of(id, work);
        let payload: Rc<[u8]> = match work {
            Work::Write { payload, .. } | Work::Send { payload, .. } => payload.as_slice().into(),
            _ => Rc::default(),
        };
        let sink = match *work {
            Work::Read { sink, .. } => Some(sink),
            _ => None,
        };
        let count = messages.len();
        for (k, message) in messages.into_iter().enumerate() {
            self.requests.push_back(Request {
                id,
                last: k + 1 == count,
                message,
                payload: payload.clone(),
                sink,
                rsn: None,
                end: None,
                status: None,
            });
        }
    }

    /// All requests before `n` are executed.
    pub(super) fn acknowledge(&mut self, n: Rsn) {
        for request in self.requests.iter_mut().take(self.begun) {
            if request.rsn.is_some_and(|rsn| rsn.is_before(n)) {
                request.status.get_or_insert(Status::Acked);
            }
        }
        self.complete();
    }

    /// The response to request `rsn` is complete.
    pub(super) fn respond(&mut self, rsn: Rsn, status: Status) {
        let begun = self.requests.iter_mut().take(self.begun);
        let mut waiting = begun.filter(|r| r.rsn == Some(rsn) && r.message.wants_response());
        if let Some(request) = waiting.next() {
            request.status = Some(status);
        }
        // A response acknowledges everything before it (docs/extensions.md).
        if self.tracked {
            self.acknowledge(rsn.next());
        }
        self.complete();
    }

    /// The link took bytes: towards a standard peer nothing more will be known (RFC 5040 §5.5).
    pub(super) fn accept_taken(&mut self) {
        if self.tracked {
            return;
        }
        let taken = self.accepted;
        for request in self.requests.iter_mut().take(self.begun) {
            let gone = request.end.is_some_and(|end| end <= taken);
            if gone && !request.message.wants_response() {
                request.status = Some(Status::Accepted);
            }
        }
        self.complete();
    }

    /// The peer is ready for request `n` again: it and all later ones begin again.
    pub(super) fn rewind(&mut self, n: Rsn) {
        let begun = self.requests.iter().take(self.begun);
        let stopped = begun.clone().position(|r| r.rsn == Some(n));
        self.begun = stopped.expect("READY names a request that is kept");
        for request in self.requests.iter_mut().skip(self.begun) {
            (request.rsn, request.end) = (None, None);
        }
    }

    /// The next request cannot be sent to this peer at all.
    pub(super) fn refuse_next(&mut self) {
        if let Some(request) = self.requests.get_mut(self.begun) {
            request.status = Some(Status::Unsupported);
            self.begun += 1;
        }
        self.complete();
    }

    /// Reports finished work, in the order it was posted.
    fn complete(&mut self) {
        while let Some(status) = self.requests.front().and_then(|r| r.status) {
            let Some(request) = self.requests.pop_front() else {
                return;
            };
            self.begun -= 1;
            if request.last {
                self.reports.push(Report::Completed(request.id, status));
            }
        }
    }

    /// Ends all unfinished work: the work being executed with `first`, the rest as flushed.
    pub(super) fn flush(&mut self, first: Option<Status>) {
        let mut status = first.unwrap_or(Status::Flushed);
        let mut done = None;
        for request in core::mem::take(&mut self.requests) {
            if done == Some(request.id) {
                continue;
            }
            done = Some(request.id);
            self.reports.push(Report::Completed(request.id, status));
            status = Status::Flushed;
        }
        self.begun = 0;
        self.sending = None;
    }
}

/// The messages of a work request, in order.
fn messages_of(id: u64, work: &Work) -> Vec<Message> {
    match *work {
        Work::Write {
            at,
            ref payload,
            immediate,
        } => {
            let write = Message::Write {
                stag: at.stag,
                to: at.to,
                len: payload.len() as u32,
            };
            let immediate = immediate.map(|data| Message::Immediate {
                solicited: false,
                data,
            });
            // docs/extensions.md: a zero-length Write with immediate is the Immediate alone.
            let write = Some(write).filter(|_| !payload.is_empty() || immediate.is_none());
            write.into_iter().chain(immediate).collect()
        }
        Work::Send {
            ref payload,
            solicited,
            invalidate,
            immediate,
        } => {
            let len = payload.len() as u32;
            vec![match immediate {
                Some(immediate) => Message::SendImm {
                    solicited,
                    invalidate,
                    immediate,
                    len,
                },
                None => Message::Send {
                    solicited,
                    invalidate,
                    len,
                },
            }]
        }
        Work::Read {
            source,
            sink,
            len,
            v2,
        } => vec![if v2 {
            Message::ReadV2Request(ReadV2Request {
                size: len,
                source_stag: source.stag,
                source_to: source.to,
            })
        } else {
            Message::ReadRequest(ReadRequest {
                sink_stag: sink.stag,
                sink_to: sink.to,
                size: len,
                source_stag: source.stag,
                source_to: source.to,
            })
        }],
        Work::Atomic { at, op } => vec![Message::AtomicRequest(AtomicRequest {
            op,
            id: id as u32,
            stag: at.stag,
            to: at.to,
        })],
    }
}
