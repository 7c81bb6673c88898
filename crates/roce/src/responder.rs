//! The responder of a connection: accepts the peer's packets in order, says where their payload goes, and makes acknowledgements and responses.
//! A packet is executed once. [`handle`](Responder::handle) changes nothing by itself: the caller does what the step says and reports with
//! [`accept`](Responder::accept) or [`refuse`](Responder::refuse). Answers leave in the order of their requests, and their number is
//! limited by the responder's resources, however often a peer repeats itself.

mod resources;

use std::collections::VecDeque;

use verbena_wire::ext::RnrTimer;
use verbena_wire::roce::{
    Aeth, AtomicEth, Immediate, Nak, Operation, Packet, Psn, Qpn, Reth, Service, Syndrome, Tail,
};
use verbena_wire::{Stag, To};

use crate::settings::{Mtu, Settings};
use resources::{Resource, Resources, Result as Answer};

/// The longest message (IBTA volume 1, 9.7).
pub const MAX_MESSAGE: u32 = 1 << 31;
const MSN_MASK: u32 = 0x00ff_ffff;

/// What to do with an arrived packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestStep {
    /// Nothing: it is repeated, too early, or of no message. There may be something to send.
    Nothing,
    /// The payload belongs into a receive.
    Receive {
        /// The first packet of the message: a receive is to be taken.
        is_first: bool,
        /// Bytes from the start of the message.
        offset: u32,
        /// The message is complete with it.
        end: Option<SendEnd>,
    },
    /// The payload belongs into memory.
    Write {
        /// The memory.
        rkey: Stag,
        /// The address of the payload.
        va: To,
        /// The whole message, for the check of rights and bounds with its first packet.
        message: Option<Reth>,
        /// The message is complete with it.
        end: Option<WriteEnd>,
    },
    /// Memory is to be read: [`accept`](Responder::accept) queues the response.
    Read(Reth),
    /// A word is to be changed: report its original value with [`accept_atomic`](Responder::accept_atomic).
    Atomic(Atomic),
    /// The packet breaks the protocol: a NAK was queued, and the connection has failed.
    Violation(Violation),
}

/// The end of a Send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendEnd {
    /// Bytes of the message.
    pub len: u32,
    /// Immediate data, or an R_Key to invalidate.
    pub tail: Tail,
    /// With a solicited event.
    pub solicited: bool,
}

/// The end of a Write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteEnd {
    /// Bytes of the message.
    pub len: u32,
    /// Immediate data, which consumes a receive.
    pub immediate: Option<Immediate>,
    /// With a solicited event.
    pub solicited: bool,
}

/// An atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    /// Compare and swap.
    CmpSwap(AtomicEth),
    /// Fetch and add.
    FetchAdd(AtomicEth),
}

/// How a packet breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Violation {
    /// A middle or last packet without a first one, or a first one within a message.
    #[error("a packet that does not continue the message")]
    OpcodeSequence,
    /// A packet whose payload has another length than its place in the message allows.
    #[error("a packet of a wrong length")]
    PacketLength,
    /// A message that is longer than the protocol or its own header allows.
    #[error("a message of a wrong length")]
    MessageLength,
    /// More reads and atomics at once than were agreed, or of a service that has none.
    #[error("more reads and atomics than agreed")]
    TooManyReads,
    /// An atomic operation on a word that is not aligned.
    #[error("an atomic operation on an address that is not a multiple of eight")]
    Alignment,
}

/// Why a packet is not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No receive is posted: the peer repeats the message after this time. An unreliable connection drops it.
    NotReady(RnrTimer),
    /// The connection fails. An unreliable connection drops the message.
    Nak(Nak),
}

/// A response packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutResponse {
    /// The packet without its payload.
    pub packet: Packet<'static>,
    /// The memory that its payload is read from.
    pub source: Option<Reth>,
}

/// The states of a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The expected packet is executed.
    Expecting,
    /// A NAK was sent: packets behind the expected one are dropped without another.
    Refused,
    /// The connection failed: nothing is executed any more.
    Failed,
}

/// What changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The expected packet was executed.
    Executed,
    /// A packet behind the expected one arrived, or there was no receive.
    Refused,
    /// A packet broke the protocol, or rights.
    Failure,
}

impl State {
    /// Every state, for tables.
    pub const ALL: [State; 3] = [State::Expecting, State::Refused, State::Failed];

    /// The state after `event`.
    pub fn next(self, event: Event) -> State {
        match (self, event) {
            (State::Failed, _) | (_, Event::Failure) => State::Failed,
            (_, Event::Refused) => State::Refused,
            (_, Event::Executed) => State::Expecting,
        }
    }
}

impl Event {
    /// Every event, for tables.
    pub const ALL: [Event; 3] = [Event::Executed, Event::Refused, Event::Failure];
}

/// The message that is arriving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    Send {
        offset: u32,
    },
    Write {
        reth: Reth,
        offset: u32,
    },
    /// The rest of a message that an unreliable connection drops.
    Dropped,
}

/// A packet that was handled and not yet reported.
#[derive(Debug, Clone, Copy)]
struct Pending {
    psn: Psn,
    psns: u32,
    ack_request: bool,
    /// What is left of the message.
    next: Option<Begun>,
    ends_message: bool,
    read: Option<Reth>,
}

/// Something to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Response {
    Acknowledge {
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    },
    /// The response to a Read from this PSN on.
    Read {
        first: Psn,
        reth: Reth,
        msn: u32,
        sent: u32,
    },
    Atomic {
        psn: Psn,
        original: u64,
        msn: u32,
    },
}

/// Counters of a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that were executed.
    pub executed: u64,
    /// Packets that had been executed before.
    pub repeated: u64,
    /// Packets behind a missing one.
    pub out_of_order: u64,
    /// Messages that an unreliable connection dropped.
    pub dropped: u64,
}

/// The responding role of a connection.
#[derive(Debug, Clone)]
pub struct Responder {
    service: Service,
    mtu: Mtu,
    dest_qpn: Qpn,
    state: State,
    /// PSN of the next packet.
    expected: Psn,
    /// Messages completed, modulo 2^24.
    msn: u32,
    begun: Option<Begun>,
    pending: Option<Pending>,
    resources: Resources,
    out: VecDeque<Response>,
    counters: Counters,
}

impl Responder {
    /// A responder that has received nothing.
    pub fn new(settings: &Settings) -> Responder {
        Responder {
            service: settings.service,
            mtu: settings.mtu,
            dest_qpn: settings.dest_qpn,
            state: State::Expecting,
            expected: settings.receive_psn,
            msn: 0,
            begun: None,
            pending: None,
            resources: Resources::new(settings.responder_resources),
            out: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// PSN of the next packet.
    pub fn expected_psn(&self) -> Psn {
        self.expected
    }

    /// Its counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// A request of the peer arrived.
    pub fn handle(&mut self, packet: &Packet<'_>) -> RequestStep {
        self.pending = None;
        if self.state == State::Failed || service_of(&packet.operation) != Some(self.service) {
            return RequestStep::Nothing;
        }
        let is_expected = packet.psn == self.expected;
        match self.service {
            Service::Uc if !is_expected || self.is_interrupted(packet) => self.handle_gap(packet),
            Service::Uc => self.handle_expected(packet),
            Service::Rc if is_expected => self.handle_expected(packet),
            Service::Rc if packet.psn.is_before(self.expected) => {
                self.counters.repeated += 1;
                self.handle_repeated(packet);
                RequestStep::Nothing
            }
            Service::Rc => {
                self.counters.out_of_order += 1;
                if self.state == State::Expecting {
                    self.state = self.state.next(Event::Refused);
                    self.acknowledge(self.expected, Syndrome::Nak(Nak::PsnSequence));
                }
                RequestStep::Nothing
            }
        }
    }

    /// A message begins although the one before it has not ended.
    fn is_interrupted(&self, packet: &Packet<'_>) -> bool {
        self.begun.is_some() && begins_message(&packet.operation)
    }

    /// Packets of an unreliable connection are missing: the message that they belong to is dropped, and a new one may begin.
    fn handle_gap(&mut self, packet: &Packet<'_>) -> RequestStep {
        if self.begun.is_some_and(|begun| begun != Begun::Dropped) {
            self.counters.dropped += 1;
        }
        self.expected = packet.psn;
        let begins = begins_message(&packet.operation);
        self.begun = (!begins).then_some(Begun::Dropped);
        self.handle_expected(packet)
    }

    fn handle_expected(&mut self, packet: &Packet<'_>) -> RequestStep {
        match self.next_step(packet) {
            Ok((RequestStep::Nothing, pending)) => {
                self.expected = pending.psn.plus(pending.psns);
                self.begun = pending.next;
                RequestStep::Nothing
            }
            Ok((step, pending)) => {
                self.pending = Some(pending);
                step
            }
            Err(violation) => {
                if self.service == Service::Uc {
                    self.drop_message(packet);
                    return RequestStep::Nothing;
                }
                self.fail(packet.psn, Nak::InvalidRequest);
                RequestStep::Violation(violation)
            }
        }
    }

    /// The step of the expected packet, and what its execution changes.
    fn next_step(&self, packet: &Packet<'_>) -> Result<(RequestStep, Pending), Violation> {
        let mut pending = Pending {
            psn: packet.psn,
            psns: 1,
            ack_request: packet.ack_request,
            next: None,
            ends_message: false,
            read: None,
        };
        // The payload of a UDP datagram: far below 32 bits.
        let len = packet.payload.len() as u32;
        let mtu = self.mtu.bytes();
        let is_whole = |last: bool| match last {
            false => len == mtu,
            true => len <= mtu,
        };
        let solicited = packet.solicited;
        let step = match (packet.operation, self.begun) {
            (
                Operation::SendMiddle(_)
                | Operation::SendLast(..)
                | Operation::WriteMiddle(_)
                | Operation::WriteLast(..),
                Some(Begun::Dropped),
            ) => {
                let is_last = matches!(
                    packet.operation,
                    Operation::SendLast(..) | Operation::WriteLast(..)
                );
                pending.next = (!is_last).then_some(Begun::Dropped);
                RequestStep::Nothing
            }
            (Operation::SendFirst(_) | Operation::SendOnly(..), None) => {
                let tail = match packet.operation {
                    Operation::SendOnly(_, tail) => Some(tail),
                    _ => None,
                };
                check(is_whole(tail.is_some()), Violation::PacketLength)?;
                pending.ends_message = tail.is_some();
                pending.next = tail.is_none().then_some(Begun::Send { offset: len });
                RequestStep::Receive {
                    is_first: true,
                    offset: 0,
                    end: tail.map(|tail| SendEnd {
                        len,
                        tail,
                        solicited,
                    }),
                }
            }
            (Operation::SendMiddle(_) | Operation::SendLast(..), Some(Begun::Send { offset })) => {
                let tail = match packet.operation {
                    Operation::SendLast(_, tail) => Some(tail),
                    _ => None,
                };
                check(is_whole(tail.is_some()), Violation::PacketLength)?;
                check(tail.is_none() || len > 0, Violation::PacketLength)?;
                let end = offset + len;
                check(end <= MAX_MESSAGE, Violation::MessageLength)?;
                pending.ends_message = tail.is_some();
                pending.next = tail.is_none().then_some(Begun::Send { offset: end });
                RequestStep::Receive {
                    is_first: false,
                    offset,
                    end: tail.map(|tail| SendEnd {
                        len: end,
                        tail,
                        solicited,
                    }),
                }
            }
            (Operation::WriteFirst(_, reth), None) => {
                check(is_whole(false), Violation::PacketLength)?;
                let fits = len < reth.len && reth.len <= MAX_MESSAGE;
                check(fits, Violation::MessageLength)?;
                pending.next = Some(Begun::Write { reth, offset: len });
                RequestStep::Write {
                    rkey: reth.rkey,
                    va: reth.va,
                    message: Some(reth),
                    end: None,
                }
            }
            (Operation::WriteOnly(_, reth, immediate), None) => {
                check(is_whole(true), Violation::PacketLength)?;
                check(len == reth.len, Violation::MessageLength)?;
                pending.ends_message = true;
                RequestStep::Write {
                    rkey: reth.rkey,
                    va: reth.va,
                    message: Some(reth),
                    end: Some(WriteEnd {
                        len,
                        immediate,
                        solicited,
                    }),
                }
            }
            (
                Operation::WriteMiddle(_) | Operation::WriteLast(..),
                Some(Begun::Write { reth, offset }),
            ) => {
                let last = match packet.operation {
                    Operation::WriteLast(_, immediate) => Some(immediate),
                    _ => None,
                };
                check(is_whole(last.is_some()), Violation::PacketLength)?;
                let end = offset + len;
                let fits = match last {
                    Some(_) => end == reth.len && len > 0,
                    None => end < reth.len,
                };
                check(fits, Violation::MessageLength)?;
                pending.ends_message = last.is_some();
                pending.next = last.is_none().then_some(Begun::Write { reth, offset: end });
                RequestStep::Write {
                    rkey: reth.rkey,
                    va: To::new(reth.va.get().wrapping_add(u64::from(offset))),
                    message: None,
                    end: last.map(|immediate| WriteEnd {
                        len: end,
                        immediate,
                        solicited,
                    }),
                }
            }
            (Operation::ReadRequest(reth), None) => {
                check(len == 0, Violation::PacketLength)?;
                check(reth.len <= MAX_MESSAGE, Violation::MessageLength)?;
                check(self.may_answer(), Violation::TooManyReads)?;
                pending.psns = self.mtu.packets(reth.len);
                pending.ends_message = true;
                pending.read = Some(reth);
                RequestStep::Read(reth)
            }
            (Operation::CmpSwap(atomic) | Operation::FetchAdd(atomic), None) => {
                check(len == 0, Violation::PacketLength)?;
                check(atomic.va.get() % 8 == 0, Violation::Alignment)?;
                check(self.may_answer(), Violation::TooManyReads)?;
                pending.ends_message = true;
                RequestStep::Atomic(match packet.operation {
                    Operation::CmpSwap(_) => Atomic::CmpSwap(atomic),
                    _ => Atomic::FetchAdd(atomic),
                })
            }
            _ => return Err(Violation::OpcodeSequence),
        };
        Ok((step, pending))
    }

    /// Another read or atomic may be served: fewer than agreed are unanswered.
    fn may_answer(&self) -> bool {
        let answers = self
            .out
            .iter()
            .filter(|response| matches!(response, Response::Read { .. } | Response::Atomic { .. }));
        answers.count() < self.resources.limit()
    }

    /// The step of the last packet was executed.
    pub fn accept(&mut self) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        self.advance(&pending);
        if let Some(reth) = pending.read {
            let (first, msn) = (pending.psn, self.msn);
            self.resources.add(Resource {
                first,
                psns: pending.psns,
                msn,
                answer: Answer::Read(reth),
            });
            self.out.push_back(Response::Read {
                first,
                reth,
                msn,
                sent: 0,
            });
        } else if pending.ack_request && self.service == Service::Rc {
            self.acknowledge(pending.psn, Syndrome::ACK);
        }
    }

    /// The word of the last packet's atomic operation had this value before it.
    pub fn accept_atomic(&mut self, original: u64) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        self.advance(&pending);
        let (psn, msn) = (pending.psn, self.msn);
        self.resources.add(Resource {
            first: psn,
            psns: 1,
            msn,
            answer: Answer::Atomic(original),
        });
        self.out.push_back(Response::Atomic { psn, original, msn });
    }

    fn advance(&mut self, pending: &Pending) {
        self.counters.executed += 1;
        self.expected = pending.psn.plus(pending.psns);
        self.begun = pending.next;
        self.state = self.state.next(Event::Executed);
        if pending.ends_message {
            self.msn = self.msn.wrapping_add(1) & MSN_MASK;
        }
    }

    /// The step of the last packet was not executed.
    pub fn refuse(&mut self, refusal: Refusal) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        if self.service == Service::Uc {
            self.counters.dropped += 1;
            self.expected = pending.psn.plus(pending.psns);
            self.begun = pending.next.map(|_| Begun::Dropped);
            return;
        }
        match refusal {
            Refusal::NotReady(timer) => {
                self.state = self.state.next(Event::Refused);
                self.acknowledge(pending.psn, Syndrome::RnrNak(timer));
            }
            Refusal::Nak(nak) => self.fail(pending.psn, nak),
        }
    }

    /// A packet of an unreliable connection that breaks the protocol: its message is dropped.
    fn drop_message(&mut self, packet: &Packet<'_>) {
        self.counters.dropped += 1;
        self.expected = packet.psn.next();
        let ends = matches!(
            packet.operation,
            Operation::SendLast(..)
                | Operation::SendOnly(..)
                | Operation::WriteLast(..)
                | Operation::WriteOnly(..)
        );
        self.begun = (!ends).then_some(Begun::Dropped);
    }

    fn fail(&mut self, psn: Psn, nak: Nak) {
        self.state = self.state.next(Event::Failure);
        self.acknowledge(psn, Syndrome::Nak(nak));
    }

    /// A packet that was executed is answered again and not executed again.
    fn handle_repeated(&mut self, packet: &Packet<'_>) {
        match packet.operation {
            Operation::ReadRequest(reth) => {
                let repeated = self.resources.repeated_read(packet.psn, reth, self.mtu);
                if let Some(msn) = repeated {
                    // One response to each Read is queued at most.
                    let range = self.resources.range_of(packet.psn);
                    self.out.retain(|response| match response {
                        Response::Read { first, .. } => self.resources.range_of(*first) != range,
                        _ => true,
                    });
                    self.out.push_back(Response::Read {
                        first: packet.psn,
                        reth,
                        msn,
                        sent: 0,
                    });
                }
            }
            Operation::CmpSwap(_) | Operation::FetchAdd(_) => {
                if let Some((original, msn)) = self.resources.repeated_atomic(packet.psn) {
                    let psn = packet.psn;
                    let again = Response::Atomic { psn, original, msn };
                    if !self.out.contains(&again) {
                        self.out.push_back(again);
                    }
                }
            }
            _ => {
                // Everything up to here was executed. While a response is queued, the acknowledgement follows it.
                self.acknowledge(self.expected.plus(u32::MAX), Syndrome::ACK);
            }
        }
    }

    /// Queues an acknowledgement; it replaces an earlier one that nothing follows.
    fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome) {
        if let Some(Response::Acknowledge {
            syndrome: Syndrome::Ack { .. },
            ..
        }) = self.out.back()
        {
            self.out.pop_back();
        }
        let msn = self.msn;
        self.out
            .push_back(Response::Acknowledge { psn, syndrome, msn });
    }

    /// Something is to be sent.
    pub fn has_response(&self) -> bool {
        !self.out.is_empty()
    }

    /// The next response packet. If its memory cannot be read, call [`fail_read`](Responder::fail_read) and send nothing of it.
    pub fn poll(&mut self) -> Option<OutResponse> {
        let mtu = self.mtu.bytes();
        let (operation, psn, source) = match self.out.front_mut()? {
            &mut Response::Acknowledge { psn, syndrome, msn } => {
                (Operation::Acknowledge(Aeth { syndrome, msn }), psn, None)
            }
            &mut Response::Atomic { psn, original, msn } => {
                let aeth = acknowledged(msn);
                (Operation::AtomicAcknowledge(aeth, original), psn, None)
            }
            Response::Read {
                first,
                reth,
                msn,
                sent,
            } => {
                let at = *sent;
                let offset = at.saturating_mul(mtu);
                let left = reth.len.saturating_sub(offset);
                let is_last = left <= mtu;
                let aeth = acknowledged(*msn);
                let operation = match (at == 0, is_last) {
                    (true, true) => Operation::ReadResponseOnly(aeth),
                    (true, false) => Operation::ReadResponseFirst(aeth),
                    (false, false) => Operation::ReadResponseMiddle,
                    (false, true) => Operation::ReadResponseLast(aeth),
                };
                let source = Reth {
                    va: To::new(reth.va.get().wrapping_add(u64::from(offset))),
                    rkey: reth.rkey,
                    len: left.min(mtu),
                };
                let psn = first.plus(at);
                *sent += 1;
                if !is_last {
                    let packet = Packet::new(operation, self.dest_qpn, psn);
                    let source = Some(source);
                    return Some(OutResponse { packet, source });
                }
                (operation, psn, Some(source))
            }
        };
        self.out.pop_front();
        let packet = Packet::new(operation, self.dest_qpn, psn);
        Some(OutResponse { packet, source })
    }

    /// The memory of a response packet can no longer be read: the peer gets a NAK in its place, and the connection fails.
    pub fn fail_read(&mut self, psn: Psn, nak: Nak) {
        self.out.clear();
        self.fail(psn, nak);
    }
}

/// The packet is the first of its message.
fn begins_message(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::SendFirst(_)
            | Operation::SendOnly(..)
            | Operation::WriteFirst(..)
            | Operation::WriteOnly(..)
    )
}

fn check(holds: bool, violation: Violation) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(violation) }
}

fn acknowledged(msn: u32) -> Aeth {
    let syndrome = Syndrome::ACK;
    Aeth { syndrome, msn }
}

/// The service of a request; `None` if it is none of a connection.
fn service_of(operation: &Operation) -> Option<Service> {
    match *operation {
        Operation::SendFirst(service)
        | Operation::SendMiddle(service)
        | Operation::SendLast(service, _)
        | Operation::SendOnly(service, _)
        | Operation::WriteFirst(service, _)
        | Operation::WriteMiddle(service)
        | Operation::WriteLast(service, _)
        | Operation::WriteOnly(service, ..) => Some(service),
        Operation::ReadRequest(_) | Operation::CmpSwap(_) | Operation::FetchAdd(_) => {
            Some(Service::Rc)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
