//! The queue of answers: acknowledgements, responses to reads and atomics, and their repetition for requests that arrive again.
//! Answers leave in the order in which they were queued. Consecutive acknowledgements become one, and each read or atomic has at most one
//! answer in the queue, so that its length is limited by the responder's resources.

use verbena_wire::To;
use verbena_wire::roce::{Aeth, Nak, Operation, Packet, Psn, Reth, Syndrome};

use super::resources::Resource;
use super::{OutResponse, ReadPart, Responder, State};

/// Something to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Response {
    Acknowledge {
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    },
    /// The response to a Read from PSN `first` on.
    Read {
        first: Psn,
        /// PSN of the first packet of the whole response.
        read: Psn,
        reth: Reth,
        msn: u32,
        sent: u32,
        is_repeated: bool,
    },
    Atomic {
        psn: Psn,
        original: u64,
        msn: u32,
        is_repeated: bool,
    },
}

/// What is left of the response to `reth` after `sent` packets from PSN `first` on.
fn rest((first, read): (Psn, Psn), reth: &Reth, sent: u32, mtu: u32) -> ReadPart {
    let offset = sent.saturating_mul(mtu);
    let before = first.minus(read).saturating_mul(mtu);
    ReadPart {
        read,
        offset: before.saturating_add(offset),
        memory: Reth {
            va: To::new(reth.va.get().wrapping_add(u64::from(offset))),
            rkey: reth.rkey,
            len: reth.len.saturating_sub(offset),
        },
    }
}

impl Response {
    /// The first PSN of an answer that is given again.
    fn repeated(&self) -> Option<Psn> {
        match *self {
            Response::Read {
                first: psn,
                is_repeated: true,
                ..
            }
            | Response::Atomic {
                psn,
                is_repeated: true,
                ..
            } => Some(psn),
            _ => None,
        }
    }
}

impl Responder {
    /// Another read or atomic may be served: fewer than agreed are unanswered. Answers that are given again do not count, because the peer may have got
    /// them the first time.
    pub(super) fn may_answer(&self) -> bool {
        let answers = self.out.iter().filter(|response| {
            let is_first = response.repeated().is_none();
            is_first && matches!(response, Response::Read { .. } | Response::Atomic { .. })
        });
        answers.count() < self.resources.limit()
    }

    /// Remembers a request that was served. The peer does not need repeated answers to one that is forgotten for it.
    pub(super) fn remember(&mut self, resource: Resource) {
        self.resources.add(resource);
        self.out.retain(|response| {
            let repeated = response.repeated();
            repeated.is_none_or(|psn| self.resources.range_of(psn).is_some())
        });
    }

    /// A packet that was executed is answered again and not executed again.
    pub(super) fn handle_repeated(&mut self, packet: &Packet<'_>) {
        match packet.operation {
            Operation::ReadRequest(_) if self.state == State::Closed => {}
            Operation::ReadRequest(reth) => {
                let repeated = self.resources.repeated_read(packet.psn, reth, self.mtu);
                if let Some((again, msn)) = repeated {
                    self.repeat_read((packet.psn, again), reth, msn);
                }
            }
            Operation::CmpSwap(_) | Operation::FetchAdd(_) => {
                if let Some((original, msn)) = self.resources.repeated_atomic(packet.psn) {
                    let again = packet.psn;
                    let is_queued = |response: &Response| matches!(*response, Response::Atomic { psn, .. } if psn == again);
                    if !self.out.iter().any(is_queued) {
                        self.out.push_back(Response::Atomic {
                            psn: again,
                            original,
                            msn,
                            is_repeated: true,
                        });
                    }
                }
            }
            _ => {
                // Everything up to here was executed. While a response is queued, the acknowledgement follows it.
                self.acknowledge(self.expected.previous(), Syndrome::ACK);
            }
        }
    }

    /// Queues the response to the Read `again`, the PSN of its first packet, from PSN `first` on. One that is queued keeps its place: behind the responses to later
    /// requests the peer would drop it, and ask for all of them again, when a later Write may have changed what they read.
    fn repeat_read(&mut self, (first, again): (Psn, Psn), reth: Reth, msn: u32) {
        let response = Response::Read {
            first,
            read: again,
            reth,
            msn,
            sent: 0,
            is_repeated: true,
        };
        let is_same =
            |other: &&mut Response| matches!(other, Response::Read { read, .. } if *read == again);
        let Some(queued) = self.out.iter_mut().find(is_same) else {
            self.out.push_back(response);
            return;
        };
        // Packets that have left may be lost; the others are still to be sent.
        if let Response::Read {
            first: begin, sent, ..
        } = *queued
            && first.minus(again) < begin.minus(again).saturating_add(sent)
        {
            *queued = response;
        }
    }

    /// Queues an acknowledgement; it replaces an earlier one that nothing follows.
    pub(super) fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome) {
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

    /// A positive acknowledgement is to be sent and nothing else: it can wait a little for another packet.
    pub fn owes_ack_only(&self) -> bool {
        let mut queued = self.out.iter();
        let ack = queued.next().is_some_and(|response| {
            let Response::Acknowledge { syndrome, .. } = response else {
                return false;
            };
            matches!(syndrome, Syndrome::Ack { .. })
        });
        ack && queued.next().is_none()
    }

    /// The next response packet. If its memory cannot be read, call [`fail_read`](Responder::fail_read) and send nothing of it.
    pub fn poll(&mut self) -> Option<OutResponse> {
        let mtu = self.mtu.bytes();
        let (operation, psn, source) = match self.out.front_mut()? {
            &mut Response::Acknowledge { psn, syndrome, msn } => {
                (Operation::Acknowledge(Aeth { syndrome, msn }), psn, None)
            }
            &mut Response::Atomic {
                psn, original, msn, ..
            } => {
                let aeth = acknowledged(msn);
                (Operation::AtomicAcknowledge(aeth, original), psn, None)
            }
            Response::Read {
                first,
                read,
                reth,
                msn,
                sent,
                ..
            } => {
                let at = *sent;
                let mut source = rest((*first, *read), reth, at, mtu);
                let is_last = source.memory.len <= mtu;
                source.memory.len = source.memory.len.min(mtu);
                let aeth = acknowledged(*msn);
                let operation = match (at == 0, is_last) {
                    (true, true) => Operation::ReadResponseOnly(aeth),
                    (true, false) => Operation::ReadResponseFirst(aeth),
                    (false, false) => Operation::ReadResponseMiddle,
                    (false, true) => Operation::ReadResponseLast(aeth),
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

    /// What queued responses to Reads have not sent yet.
    pub fn unsent_reads(&self) -> impl Iterator<Item = ReadPart> + '_ {
        let mtu = self.mtu.bytes();
        self.out.iter().filter_map(move |response| match response {
            Response::Read {
                first,
                read,
                reth,
                sent,
                ..
            } => Some(rest((*first, *read), reth, *sent, mtu)),
            _ => None,
        })
    }

    /// The memory of a response packet can no longer be read: the peer gets a NAK in its place, and the connection fails.
    pub fn fail_read(&mut self, psn: Psn, nak: Nak) {
        self.out.clear();
        self.fail(psn, nak);
    }
}

fn acknowledged(msn: u32) -> Aeth {
    let syndrome = Syndrome::ACK;
    Aeth { syndrome, msn }
}
