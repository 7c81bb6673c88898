//! The responder of a connection: accepts the peer's packets in order, says where their payload goes, and makes acknowledgements and responses.
//! A packet is executed once. [`handle`](Responder::handle) changes nothing by itself: the caller does what the step says and reports with
//! [`accept`](Responder::accept) or [`refuse`](Responder::refuse). Answers leave in the order of their requests, and their number is
//! limited by the responder's resources, however often a peer repeats itself.

mod answers;
mod assembly;
mod resources;

use std::collections::VecDeque;

use verbena_wire::ext::RnrTimer;
use verbena_wire::roce::{
    AtomicEth, Immediate, Nak, Operation, Packet, Psn, Qpn, Reth, Service, Syndrome, Tail,
};
use verbena_wire::{Stag, To};

use crate::settings::{Mtu, Settings};
use answers::Response;
use assembly::{Begun, Pending, begins_message};
use resources::{Resource, Resources, Served};

/// The longest message (IBTA volume 1, 9.7).
pub const MAX_MESSAGE: u32 = 1 << 31;
const MSN_MASK: u32 = 0x00ff_ffff;
/// How far behind the expected packet one of an unreliable connection counts as repeated or overtaken on its way; it is dropped. One further
/// behind begins anew, as after a long loss.
const LATE: u32 = 1 << 10;

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
    /// Queued responses need what the packet would change: the peer repeats it after a NAK that follows them.
    ResponsesFirst,
    /// The connection fails. An unreliable connection drops the message.
    Nak(Nak),
}

/// The payload of response packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPart {
    /// PSN of the first packet of the whole response, which names it.
    pub read: Psn,
    /// Bytes of the whole response before this part.
    pub offset: u32,
    /// The memory of this part.
    pub memory: Reth,
}

/// A response packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutResponse {
    /// The packet without its payload.
    pub packet: Packet<'static>,
    /// What its payload is read from.
    pub source: Option<ReadPart>,
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
    /// The connection has ended in order: what was executed is answered again, and nothing else.
    Closed,
}

/// What changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The expected packet was executed.
    Executed,
    /// A packet behind the expected one arrived, or it cannot be executed yet.
    Refused,
    /// A packet broke the protocol, or rights.
    Failure,
    /// This side has ended the connection.
    Close,
}

impl State {
    /// Every state, for tables.
    pub const ALL: [State; 4] = [
        State::Expecting,
        State::Refused,
        State::Failed,
        State::Closed,
    ];

    /// The state after `event`.
    pub fn next(self, event: Event) -> State {
        match (self, event) {
            (State::Failed | State::Closed, _) => self,
            (_, Event::Failure) => State::Failed,
            (_, Event::Close) => State::Closed,
            (_, Event::Refused) => State::Refused,
            (_, Event::Executed) => State::Expecting,
        }
    }
}

impl Event {
    /// Every event, for tables.
    pub const ALL: [Event; 4] = [
        Event::Executed,
        Event::Refused,
        Event::Failure,
        Event::Close,
    ];
}

/// Counters of a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that were executed.
    pub executed: u64,
    /// Packets that had been executed before, or that an unreliable connection dropped because they came too late.
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
            Service::Uc if self.state == State::Closed => RequestStep::Nothing,
            Service::Uc if self.is_late(packet.psn) => {
                self.counters.repeated += 1;
                RequestStep::Nothing
            }
            Service::Uc if !is_expected || self.is_interrupted(packet) => self.handle_gap(packet),
            Service::Uc => self.handle_expected(packet),
            Service::Rc if is_expected && self.state != State::Closed => {
                self.handle_expected(packet)
            }
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

    /// A packet of an unreliable connection arrives a second time, or behind one that was sent later.
    fn is_late(&self, psn: Psn) -> bool {
        (1..=LATE).contains(&self.expected.minus(psn))
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

    /// This side ends the connection, which works: from now on only what was executed is answered, apart from Reads, since
    /// their memory may be gone. An acknowledgement that was lost would fail a request of the peer that has succeeded.
    pub fn close(&mut self) {
        self.state = self.state.next(Event::Close);
        self.pending = None;
        self.out
            .retain(|response| !matches!(response, Response::Read { .. }));
    }

    /// The step of the last packet was executed.
    pub fn accept(&mut self) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        self.advance(&pending);
        if let Some(reth) = pending.read {
            let (first, msn) = (pending.psn, self.msn);
            self.remember(Resource {
                first,
                psns: pending.psns,
                msn,
                answer: Served::Read(reth),
            });
            self.out.push_back(Response::Read {
                first,
                read: first,
                reth,
                msn,
                sent: 0,
                is_repeated: false,
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
        self.remember(Resource {
            first: psn,
            psns: 1,
            msn,
            answer: Served::Atomic(original),
        });
        self.out.push_back(Response::Atomic {
            psn,
            original,
            msn,
            is_repeated: false,
        });
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
            Refusal::ResponsesFirst => {
                self.state = self.state.next(Event::Refused);
                self.acknowledge(pending.psn, Syndrome::Nak(Nak::PsnSequence));
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
