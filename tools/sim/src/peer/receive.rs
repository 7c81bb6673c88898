//! The receive half of a peer: bytes go to the stage or directly to their place, then the stream is called.
//! Both forms of the contract are used; the run fails if the stream asks for bytes that it already has. Responses are queued for the
//! transmit half.

use verbena_stream::rx::{STAGE_WITH_CRC, STAGE_WITHOUT_CRC};
use verbena_stream::{AccessFault, Claim, Delivery, Offender, Place, Run, Step, Time, Violation};
use verbena_wire::Stag;
use verbena_wire::ddp::{Header, Untagged};
use verbena_wire::rdmap::{AtomicRequest, AtomicResponse, Opcode, ReadRequest};

use super::{Peer, Receive, Right};
use crate::work::{Received, Report, Status, TaggedAddr};

/// A response to be sent.
#[derive(Debug)]
pub(super) enum Response {
    /// Local data, for a sink named on the wire or for one that is not.
    Read {
        source: TaggedAddr,
        size: u32,
        sink: Option<TaggedAddr>,
        offender: Offender,
    },
    /// The result of an atomic, which was already executed.
    Atomic(AtomicResponse),
}

impl Peer {
    /// Takes bytes in, in this peer's form.
    pub(super) fn receive_bytes(&mut self, bytes: &[u8], now: Time) {
        let mut input = bytes;
        if self.stream.is_none() {
            return;
        }
        if !self.profile.direct || self.crc {
            self.stage.extend(input);
            return self.drain_stage(now);
        }
        loop {
            self.drain_stage(now);
            if input.is_empty() {
                return;
            }
            let n = self.place_direct(input);
            if n > 0 {
                input = &input[n..];
                continue;
            }
            // Only what the stream asks for, so that the stage is empty when payload follows.
            let n = input.len().min(self.need.saturating_sub(self.stage.len()));
            assert!(n > 0, "the stream wants nothing, yet there is input");
            self.stage.extend(&input[..n]);
            input = &input[n..];
        }
    }

    /// Places the front of the input directly, if payload is next.
    fn place_direct(&mut self, input: &[u8]) -> usize {
        let Some(stream) = self.stream.as_mut().filter(|_| self.stage.is_empty()) else {
            return 0;
        };
        let Some(run) = stream.pending() else {
            return 0;
        };
        let n = input.len().min(run.len as usize);
        self.place(run, &input[..n]);
        n
    }

    /// Lets the stream process the stage until it needs more bytes.
    fn drain_stage(&mut self, now: Time) {
        let stage = core::mem::take(&mut self.stage);
        let mut at = 0;
        loop {
            let rest = &stage[at..];
            let Some(stream) = &mut self.stream else {
                break;
            };
            // A violation has queued its Terminate; the stream drops what follows.
            let Ok((used, step)) = stream.handle(rest, now) else {
                continue;
            };
            assert!(used <= rest.len(), "the stream used more than it was shown");
            at += used;
            let rest = &rest[used..];
            match step {
                Step::More(need) => {
                    assert!(need > rest.len(), "asked for {need} of {}", rest.len());
                    let most = if self.crc {
                        STAGE_WITH_CRC
                    } else {
                        STAGE_WITHOUT_CRC
                    };
                    assert!(need <= most, "asked for {need}, promised at most {most}");
                    self.need = need;
                    break;
                }
                Step::Claim { .. } => self.claim(),
                Step::Place(_) if rest.is_empty() => {
                    self.need = 1;
                    break;
                }
                Step::Place(run) => {
                    let n = rest.len().min(run.len as usize);
                    at += self.place(run, &rest[..n]);
                }
                Step::Deliver(delivery) => self.deliver(&delivery),
            }
        }
        self.stage = stage;
        self.stage.drain(..at);
    }

    fn claim(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let claim = match self.receives.pop_front() {
            Some(receive) => {
                let capacity = receive.memory.len() as u32;
                self.claimed = Some(receive);
                Claim::Granted { capacity }
            }
            None => {
                self.reports.push(Report::NotReady);
                Claim::NotReady {
                    timer: self.profile.rnr_timer,
                }
            }
        };
        // A violation shows in the stream's state.
        let _ = stream.claim(claim);
    }

    /// Places bytes of a run, or ends the stream; returns how many were placed.
    fn place(&mut self, run: Run, bytes: &[u8]) -> usize {
        let Some(stream) = &mut self.stream else {
            return 0;
        };
        let refused = match run.place {
            Place::Write { stag, to } => {
                // The whole run is checked before its first byte is placed (RFC 5041 §7.1).
                let at = TaggedAddr { stag, to };
                let judged = self.memory.check(at, run.len, Right::RemoteWrite);
                let written =
                    judged.and_then(|()| self.memory.write(at, bytes, Right::RemoteWrite));
                written
                    .err()
                    .map(|fault| access(Opcode::Write, stag, fault))
            }
            Place::Receive { offset } => {
                let receive = self.claimed.as_mut().expect("a claimed receive");
                let target = receive.memory.bytes_mut(offset as usize, bytes.len());
                target.copy_from_slice(bytes);
                None
            }
            Place::Sink { offset } => {
                let head = stream.accounting().reads_out.head().expect("a read waits");
                let request = self.requests.iter().find(|r| r.rsn == Some(head.rsn));
                let sink = request.and_then(|r| r.sink).expect("it has a sink");
                let to = sink.to.checked_add(u64::from(offset)).expect("it fits");
                let at = TaggedAddr { to, ..sink };
                let written = self.memory.write(at, bytes, Right::LocalWrite);
                written
                    .err()
                    .map(|fault| access(Opcode::ReadResponse, sink.stag, fault))
            }
            Place::Discard => None,
        };
        match refused {
            Some(violation) => {
                stream.fail(violation);
                0
            }
            None => {
                stream.placed(bytes.len() as u32);
                bytes.len()
            }
        }
    }

    /// Handles something that has arrived completely.
    fn deliver(&mut self, delivery: &Delivery) {
        match *delivery {
            Delivery::Send {
                opcode,
                len,
                invalidate,
                immediate,
                ..
            } => {
                if let Some(stag) = invalidate
                    && let Err(fault) = self.memory.invalidate(stag)
                {
                    return self.fail(access(opcode, stag, fault));
                }
                self.received(|receive| Received {
                    receive,
                    opcode,
                    len,
                    immediate,
                    invalidated: invalidate,
                    write_len: None,
                });
            }
            Delivery::Immediate {
                opcode,
                data,
                write_len,
                ..
            } => self.received(|receive| Received {
                receive,
                opcode,
                len: 0,
                immediate: Some(data),
                invalidated: None,
                write_len,
            }),
            Delivery::ReadRequest {
                ref header,
                ref request,
                ..
            } => self.queue_read_response(header, request),
            Delivery::ReadV2Request {
                header, request, ..
            } => {
                let source = TaggedAddr {
                    stag: request.source_stag,
                    to: request.source_to,
                };
                let len = Untagged::LEN + verbena_wire::ext::ReadV2Request::LEN;
                let offender = Offender::of(&Header::Untagged(header), len as u16, None);
                self.queue_response(source, request.size, None, offender);
            }
            Delivery::AtomicRequest { ref request, .. } => self.execute(request),
            Delivery::ReadDone(read) => self.respond(read.rsn, Status::Acked),
            Delivery::AtomicDone(read, response) => {
                self.respond(read.rsn, Status::Fetched(response.original));
            }
            Delivery::Acked(n) => self.acknowledge(n),
            Delivery::Rnr(n) => self.reports.push(Report::Rnr(n)),
            Delivery::Ready(n) => {
                self.reports.push(Report::Ready(n));
                self.rewind(n);
            }
            Delivery::Terminate(ref terminate, _) => {
                self.reports.push(Report::Terminated(terminate.cause));
            }
            Delivery::Write { .. }
            | Delivery::Discarded(_)
            | Delivery::Rtr
            | Delivery::Caps(_)
            | Delivery::Resumed(_)
            | Delivery::Active(_)
            | Delivery::Srq(_) => {}
        }
    }

    fn received(&mut self, describe: impl FnOnce(u64) -> Received) {
        let receive: Receive = self.claimed.take().expect("a claimed receive");
        self.reports.push(Report::Received(describe(receive.id)));
        self.consumed.push(receive);
    }

    fn queue_read_response(&mut self, header: &Untagged, request: &ReadRequest) {
        let source = TaggedAddr {
            stag: request.source_stag,
            to: request.source_to,
        };
        let sink = TaggedAddr {
            stag: request.sink_stag,
            to: request.sink_to,
        };
        let len = (Untagged::LEN + ReadRequest::LEN) as u16;
        let offender = Offender::of(&Header::Untagged(*header), len, Some(*request));
        self.queue_response(source, request.size, Some(sink), offender);
    }

    fn queue_response(
        &mut self,
        source: TaggedAddr,
        size: u32,
        sink: Option<TaggedAddr>,
        offender: Offender,
    ) {
        // RFC 5040 §5.4: a zero-length read names no memory, so none is checked.
        let judged = self.memory.check(source, size, Right::RemoteRead);
        if let Err(fault) = judged.or_else(|f| if size == 0 { Ok(()) } else { Err(f) }) {
            return self.fail(access(Opcode::ReadRequest, source.stag, fault));
        }
        self.answers.push_back(Response::Read {
            source,
            size,
            sink,
            offender,
        });
    }

    /// Executes an atomic once, now; only its response waits.
    fn execute(&mut self, request: &AtomicRequest) {
        // RFC 7306 §5.1: the address is a multiple of eight.
        if !request.to.get().is_multiple_of(8) {
            return self.fail(Violation::Unaligned { to: request.to });
        }
        let at = TaggedAddr {
            stag: request.stag,
            to: request.to,
        };
        match self.memory.atomic(at, &request.op) {
            Ok(original) => self.answers.push_back(Response::Atomic(AtomicResponse {
                id: request.id,
                original,
            })),
            Err(fault) => self.fail(access(Opcode::AtomicRequest, request.stag, fault)),
        }
    }

    fn fail(&mut self, violation: Violation) {
        if let Some(stream) = &mut self.stream {
            stream.fail(violation);
        }
    }
}

pub(super) fn access(opcode: Opcode, stag: Stag, fault: AccessFault) -> Violation {
    Violation::Access {
        opcode,
        stag,
        fault,
    }
}
