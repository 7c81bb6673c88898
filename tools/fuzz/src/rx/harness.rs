//! A caller that executes every step of a stream and checks it; the steps are recorded in a [`StepTrace`].
//! The stories of equal bytes must be equal, however the bytes were split and whether or not payload passed through the stage.

use verbena_stream::reads::Requested;
use verbena_stream::rx::{STAGE_WITH_CRC, STAGE_WITHOUT_CRC};
use verbena_stream::{
    AccessFault, Claim, Delivery, Message, Place, Run, Step, Stream, Time, Violation,
};
use verbena_wire::rdmap::{AtomicResponse, Opcode};
use verbena_wire::{Msn, Stag};

use super::Peer;
use super::config::Config;
use super::output_rules;

/// The steps that a stream returned to its caller, in order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct StepTrace {
    events: Vec<TraceEvent>,
    violation: Option<Violation>,
    /// Whether the bytes ended between two frames and two messages.
    clean: Option<bool>,
}

#[derive(Debug, PartialEq)]
enum TraceEvent {
    /// Bytes placed contiguously are merged.
    Placed(Place, Vec<u8>),
    Claimed(Msn, Opcode),
    Delivered(Delivery),
}

/// The stream and its caller.
pub(super) struct Harness<'a> {
    config: &'a Config,
    stream: Stream,
    stage: Vec<u8>,
    direct: bool,
    trace: StepTrace,
    claims: usize,
    discarded: usize,
    /// Capacity of the receive of the current message.
    capacity: u32,
    /// Responses to the peer's reads, none of which is sent before the end.
    responses: Vec<Message>,
}

impl Harness<'_> {
    pub(super) fn new(config: &Config, direct: bool) -> Harness<'_> {
        Harness {
            config,
            stream: Stream::new(&config.agreement, config.settings),
            stage: Vec::new(),
            direct,
            trace: StepTrace::default(),
            claims: 0,
            discarded: 0,
            capacity: 0,
            responses: Vec::new(),
        }
    }

    /// Sends the reads that the peer will answer, if the stream may send.
    pub(super) fn send_reads(&mut self) {
        while self.stream.poll_control(true).is_some() {}
        for message in self.config.reads() {
            let Ok(mut outgoing) = self.stream.begin(message) else {
                continue;
            };
            while self.stream.next_frame(&mut outgoing).is_some() {}
        }
    }

    /// Feeds the next bytes of the stream, `chunk` at a time.
    pub(super) fn feed(&mut self, mut bytes: &[u8], chunk: usize) {
        while !bytes.is_empty() && self.trace.violation.is_none() {
            let mut n = chunk.min(bytes.len());
            let bypass = self.direct && self.stage.is_empty();
            if let Some(run) = self.stream.pending().filter(|_| bypass) {
                n = n.min(run.len as usize);
                if !self.place(run, &bytes[..n]) {
                    continue;
                }
            } else {
                self.stage.extend(&bytes[..n]);
                self.execute_steps();
            }
            bytes = &bytes[n..];
        }
        self.execute_steps();
    }

    /// Executes the steps of the stream until it needs more bytes than are staged.
    fn execute_steps(&mut self) {
        while self.trace.violation.is_none() {
            let open = self.stream.state().is_open();
            let (used, step) = match self.stream.handle(&self.stage, Time::ZERO) {
                Ok(result) => result,
                Err(violation) => return self.record_violation(violation),
            };
            assert!(used <= self.stage.len(), "used more than there is");
            self.stage.drain(..used);
            match step {
                Step::More(need) => return self.check_need(need),
                Step::Place(run) => {
                    assert_eq!(self.stream.pending(), Some(run));
                    if self.stage.is_empty() {
                        return;
                    }
                    let n = self.stage.len().min(run.len as usize);
                    let bytes: Vec<u8> = self.stage[..n].to_vec();
                    if self.place(run, &bytes) {
                        self.stage.drain(..n);
                    }
                }
                Step::Claim { msn, opcode } => {
                    self.trace.events.push(TraceEvent::Claimed(msn, opcode));
                    self.claim();
                }
                Step::Deliver(delivery) => {
                    assert!(used > 0, "delivered without a byte");
                    self.deliver(delivery);
                }
            }
            assert!(open, "a stream reported an event after its end");
        }
    }

    fn check_need(&self, need: usize) {
        let promised = if self.config.agreement.crc {
            STAGE_WITH_CRC
        } else {
            STAGE_WITHOUT_CRC
        };
        assert!(need > self.stage.len(), "asked for what it has");
        assert!(need <= promised, "asked for {need} of {promised} bytes");
    }

    fn claim(&mut self) {
        let claim = self.config.claim(self.claims);
        self.claims += 1;
        if let Claim::Granted { capacity } = claim {
            self.capacity = capacity;
        }
        if let Err(violation) = self.stream.claim(claim) {
            self.record_violation(violation);
        }
    }

    /// Places bytes where the stream says; false if it must be asked again.
    fn place(&mut self, run: Run, bytes: &[u8]) -> bool {
        assert!(run.len > 0 && bytes.len() <= run.len as usize);
        match run.place {
            Place::Write { stag, to } => {
                assert!(to.checked_add(u64::from(run.len)).is_some(), "wraps");
                if self.refuses(stag) {
                    return false;
                }
            }
            Place::Receive { offset } => {
                let end = u64::from(offset) + u64::from(run.len);
                assert!(end <= u64::from(self.capacity), "beyond the receive");
            }
            Place::Sink { offset } => {
                let end = u64::from(offset) + u64::from(run.len);
                assert!(end <= self.read_size(), "beyond what was asked");
            }
            Place::Discard => {}
        }
        self.stream.placed(bytes.len() as u32);
        self.record_placed(run.place, bytes);
        true
    }

    /// An invalid STag fails the stream, or drops the message as an unreliable queue pair does.
    fn refuses(&mut self, stag: Stag) -> bool {
        if stag.get() == Peer::REFUSED {
            let violation = Violation::Access {
                opcode: Opcode::Write,
                stag,
                fault: AccessFault::InvalidStag,
            };
            self.stream.fail(violation);
            self.record_violation(violation);
        } else if stag.get() == Peer::DROPPED {
            self.stream.drop_message();
        } else {
            return false;
        }
        true
    }

    fn read_size(&self) -> u64 {
        let head = self.stream.accounting().reads_out.head();
        match head.expect("a read waits").requested {
            Requested::Read { size, .. } | Requested::ReadV2 { size } => size.into(),
            Requested::Atomic { .. } | Requested::Rtr => 0,
        }
    }

    fn record_placed(&mut self, place: Place, bytes: &[u8]) {
        if let Some(TraceEvent::Placed(start, placed)) = self.trace.events.last_mut()
            && advance(*start, placed.len() as u64) == Some(place)
        {
            placed.extend(bytes);
        } else {
            self.trace
                .events
                .push(TraceEvent::Placed(place, bytes.to_vec()));
        }
    }

    fn deliver(&mut self, delivery: Delivery) {
        if let Delivery::Discarded(_) = delivery {
            self.discarded += 1;
            if self.discarded > self.config.discard_limit() {
                self.stream.receive_posted();
            }
        }
        self.responses.extend(answer(&delivery));
        self.trace.events.push(TraceEvent::Delivered(delivery));
    }

    fn record_violation(&mut self, violation: Violation) {
        assert_eq!(self.stream.cause(), Some(&violation));
        self.trace.violation = Some(violation);
    }

    /// Ends the input, and checks what the stream sends then.
    pub(super) fn end(mut self) -> StepTrace {
        if let Some(violation) = self.trace.violation {
            let answers = if self.config.drops_responses() {
                self.stream.drop_responses();
                &[]
            } else {
                &self.responses[..]
            };
            let agreement = &self.config.agreement;
            output_rules::after_violation(&mut self.stream, &violation, agreement, answers);
        } else {
            output_rules::while_running(&mut self.stream, &self.config.agreement);
            let verdict = self.stream.handle_eof(self.stage.len());
            assert!(verdict.is_err() || self.stage.is_empty());
            self.trace.clean = Some(verdict.is_ok());
        }
        self.trace
    }
}

/// The response that a delivery demands, if any.
fn answer(delivery: &Delivery) -> Option<Message> {
    Some(match delivery {
        Delivery::ReadRequest { request, .. } => Message::ReadResponse {
            stag: request.sink_stag,
            to: request.sink_to,
            // Long enough for several frames, short enough to fuzz fast.
            len: request.size.min(3000),
        },
        Delivery::ReadV2Request { request, .. } => Message::ReadV2Response {
            len: request.size.min(3000),
        },
        Delivery::AtomicRequest { request, .. } => Message::AtomicResponse(AtomicResponse {
            id: request.id,
            original: 0,
        }),
        _ => return None,
    })
}

/// The place `n` bytes after `place`.
fn advance(place: Place, n: u64) -> Option<Place> {
    Some(match place {
        Place::Write { stag, to } => Place::Write {
            stag,
            to: to.checked_add(n)?,
        },
        Place::Receive { offset } => Place::Receive {
            offset: offset.checked_add(n.try_into().ok()?)?,
        },
        Place::Sink { offset } => Place::Sink {
            offset: offset.checked_add(n.try_into().ok()?)?,
        },
        Place::Discard => Place::Discard,
    })
}
