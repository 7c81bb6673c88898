//! A queue pair over RoCEv2: its requester and responder (crate `verbena-roce`) in place of a stream, packets in place of bytes.
//! Work requests, receives, memory checks and completions are those of every queue pair; what differs is in this module: how a request becomes
//! packets ([`requests`]), and how the peer's packets are executed ([`responses`]). A packet is whole: its payload is placed or it is refused.

mod requests;
mod responses;
mod unsent;
pub(super) mod wire;

use verbena_events::event::{Event, Outbox};
use verbena_roce::responder::State as Responding;
use verbena_roce::{Requester, Responder, Settings};
use verbena_stream::Time;
use verbena_wire::roce::{Operation, Packet, Service};

use super::inner::Inner;
use super::link_state::{LinkAct, LinkEvent};
use super::send::{Acks, Sending};
use super::wire::Wire;
use super::{Qp, QpInit};
use crate::state::{Personality, QpEvent, QpState, QpType};
use crate::wc::Status;
use wire::RoceWire;

/// Takes the packets that a queue pair sends.
pub trait PacketSender {
    /// Takes the next packet, from its BTH to its pad and without the ICRC: `write` appends exactly `len` bytes. If it fails, nothing is
    /// taken. `None` if no more can be taken now; `write` is not called then.
    fn put<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>>;

    /// All packets of a turn have been written. Called under the lock of the queue pair, so that packets leave in order.
    fn flush(&mut self) {}
}

/// Result of an attempt to send one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// One was sent, or something else was done: try again.
    Done,
    /// There is none.
    Nothing,
    /// There is no room.
    Full,
}

impl Inner {
    /// Attaches the machines; false if the state does not allow it.
    fn connect_roce(&mut self, init: &QpInit, settings: &Settings) -> bool {
        let service = match init.qp_type {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            _ => return false,
        };
        let free = !self.wire.is_connected();
        let suits = init.personality == Personality::Roce && service == settings.service;
        let next = self.state.next(init.personality, QpEvent::Connected);
        let Some(next) = next.filter(|_| free && suits) else {
            return false;
        };
        if self.link.handle(LinkEvent::Attach) == LinkAct::Reject {
            return false;
        }
        self.state = next;
        self.receive.begin_stream();
        // Immediate data and atomics are part of the protocol.
        self.attributes.rfc7306 = true;
        self.wire = Wire::Roce(Box::new(RoceWire::new(settings)));
        true
    }

    /// Replaces the requester of a connection that has sent nothing yet; false if it has.
    fn restart_requester(&mut self, settings: &Settings) -> bool {
        let Some(roce) = self.wire.roce_mut() else {
            return false;
        };
        let unused = roce.reported == 0 && roce.numbers.is_empty();
        if unused {
            roce.requester = Requester::new(settings);
        }
        unused
    }

    fn handle_packet(&mut self, init: &QpInit, packet: &Packet<'_>, now: Time, out: &mut Outbox) {
        self.now = self.now.max(now);
        let Some(roce) = self.wire.roce_mut() else {
            return;
        };
        if !self.state.receives() {
            // InfiniBand: a queue pair that has failed does not answer.
            if roce.responder.state() == Responding::Closed {
                roce.responder.handle(packet);
            }
            return;
        }
        self.counters.bytes_in += packet.payload.len() as u64;
        if packet.operation == Operation::CongestionNotification {
            roce.requester.handle_congestion();
        } else if packet.operation.is_response() {
            self.handle_response(init, packet, now, out);
        } else {
            self.handle_request(init, packet, out);
        }
        self.report_completed();
    }

    /// Sends requests and responses in turn, until there is nothing left or no room. `acks` says whether a mere acknowledgement waits for a
    /// request.
    fn push_packets(
        &mut self,
        init: &QpInit,
        sender: &mut impl PacketSender,
        (now, acks): (Time, Acks),
        out: &mut Outbox,
    ) -> Sending {
        self.now = self.now.max(now);
        let sending = self.write_packets(init, sender, acks, out);
        sender.flush();
        sending
    }

    fn write_packets(
        &mut self,
        init: &QpInit,
        sender: &mut impl PacketSender,
        mut acks: Acks,
        out: &mut Outbox,
    ) -> Sending {
        loop {
            if self.wire.roce().is_none() {
                return Sending::Ended;
            }
            // A request first: an acknowledgement is mostly shorter, and a burst can end with a shorter packet.
            let request = self.send_request(init, sender, out);
            if request == Step::Full {
                return Sending::Blocked;
            }
            if request == Step::Done {
                acks = Acks::Now;
            }
            let response = match acks {
                Acks::Piggyback if self.owes_ack_only() => Step::Nothing,
                _ => self.send_response(init, sender, out),
            };
            if response == Step::Full {
                return Sending::Blocked;
            }
            if response == Step::Done || request == Step::Done {
                continue;
            }
            // An unreliable connection completes what was sent.
            self.report_completed();
            if !self.begin_next(init, out) {
                return Sending::Idle;
            }
        }
    }

    /// An acknowledgement is all that is to be sent to the peer's requester.
    fn owes_ack_only(&self) -> bool {
        let roce = self.wire.roce();
        roce.is_some_and(|roce| roce.held_response.is_none() && roce.responder.owes_ack_only())
    }

    /// Tells the send queue which requests are complete.
    fn report_completed(&mut self) {
        let Some(roce) = self.wire.roce_mut() else {
            return;
        };
        // An unreliable request is complete with its last packet, which may not have left yet.
        let held = roce.held_request.filter(|_| roce.service == Service::Uc);
        let sent = held.map_or(u64::MAX, |held| held.request);
        let end = roce.requester.completed().min(sent);
        while roce.reported < end {
            roce.reported += 1;
            let Some(number) = roce.numbers.pop_front() else {
                continue;
            };
            let at = self.sends.position(number);
            if self.sends.get(at).is_some_and(|wqe| !wqe.is_done()) {
                self.sends.end(at, Status::Success);
            }
            if roce.service == Service::Rc && self.sends.forget_failing(number) {
                // Its memory was gone when it was to be repeated; the first time has arrived.
                self.cause.clear();
            }
        }
        self.restore_send_fault();
    }

    /// Processes the timeouts of the requester.
    pub(super) fn handle_roce_timeout(&mut self, init: &QpInit, now: Time, out: &mut Outbox) {
        let Some(roce) = self.wire.roce_mut() else {
            return;
        };
        let step = roce.requester.handle_timeout(now);
        self.finish_step(init, step, &[], out);
    }

    /// This side ends the connection. If it works, the peer may repeat what was executed, and gets its acknowledgement again.
    pub(super) fn close_roce_responder(&mut self) {
        let works = self.state.receives();
        if let Some(roce) = self.wire.roce_mut().filter(|_| works) {
            roce.responder.close();
            roce.drop_snapshots();
        }
    }

    /// The connection manager has ended the connection.
    pub(super) fn roce_disconnected(&mut self, init: &QpInit, out: &mut Outbox) {
        if self.link.handle(LinkEvent::End { grace: false }) == LinkAct::RaiseDisconnected {
            out.push(Event::Disconnected { qp: init.number });
        }
    }
}

impl Qp {
    /// Attaches the machines of RoCEv2: the queue pair sends and receives packets from now on. A queue pair in `Rtr` receives, and its
    /// requester may be replaced by [`restart_requester`](Qp::restart_requester) when it is moved to `Rts`.
    ///
    /// False if the state does not allow it, or if it is not an RC or UC queue pair of the RoCE personality; nothing has changed then.
    pub fn attach_roce(&self, settings: &Settings, out: &mut Outbox) -> bool {
        self.run_locked(out, |inner, init, _| inner.connect_roce(init, settings))
    }

    /// Sets what its requester begins with: first PSN, timeout, retries and depth. False if it has begun already.
    pub fn restart_requester(&self, settings: &Settings, out: &mut Outbox) -> bool {
        self.run_locked(out, |inner, _, _| inner.restart_requester(settings))
    }

    /// The responder of a connection that works, or that this side has ended: it answers what was executed, and nothing else. For the time
    /// after the queue pair was destroyed.
    pub fn closed_responder(&self) -> Option<Responder> {
        self.lock.read(|inner| {
            let roce = inner.wire.roce()?;
            let was_closed = roce.responder.state() == Responding::Closed;
            if !(inner.state.receives() || was_closed) || roce.service == Service::Uc {
                return None;
            }
            let mut responder = roce.responder.clone();
            responder.close();
            Some(responder)
        })
    }

    /// Packets that were sent over RoCEv2 are not acknowledged, and the peer has not asked to wait.
    pub fn awaits_roce_ack(&self) -> bool {
        self.lock.read(|inner| {
            let roce = inner.wire.roce().filter(|_| sends(inner.state));
            roce.is_some_and(|roce| roce.requester.awaits_ack())
        })
    }

    /// A packet that the peer of an idle connection must acknowledge (see [`Requester::keep_alive`]); `None` if it is not idle, or sends nothing.
    pub fn keep_alive_packet(&self) -> Option<Packet<'static>> {
        self.lock.read(|inner| {
            let roce = inner.wire.roce().filter(|_| sends(inner.state))?;
            roce.requester.keep_alive()
        })
    }

    /// Handles a packet of the peer for this queue pair, whose addresses and ICRC were checked. The caller calls
    /// [`transmit_packets`](Qp::transmit_packets) afterwards, once for all packets that arrived together.
    pub fn handle_packet(&self, packet: &Packet<'_>, now: Time, out: &mut Outbox) {
        self.handle_packets(core::slice::from_ref(packet), now, out);
    }

    /// The same for several packets that arrived behind each other.
    pub fn handle_packets(&self, packets: &[Packet<'_>], now: Time, out: &mut Outbox) {
        self.run_locked(out, |inner, init, out| {
            for packet in packets {
                inner.handle_packet(init, packet, now, out);
            }
        });
    }

    /// Sends packets until there is nothing left or the sender has no room.
    pub fn transmit_packets(
        &self,
        sender: &mut impl PacketSender,
        now: Time,
        out: &mut Outbox,
    ) -> Sending {
        use std::cell::{Cell, RefCell};
        let (init, hands) = (&self.init, RefCell::new((sender, out)));
        let send = |inner: &mut Inner| {
            let (sender, out) = &mut *hands.borrow_mut();
            inner.turn(init, out, |inner, init, out| {
                inner.push_packets(init, *sender, (now, Acks::Now), out)
            })
        };
        let last = Cell::new(Sending::Idle);
        self.lock
            .lock_and_run(|inner| last.set(send(inner)), |inner| last.set(send(inner)));
        last.get()
    }

    /// The same, unless another thread holds the lock, which then sends before it unlocks or calls
    /// [`transmit_packets`](Qp::transmit_packets) afterwards: `None`. With [`Acks::Piggyback`] an acknowledgement is sent only along with
    /// other packets.
    pub fn try_transmit_packets(
        &self,
        sender: &mut impl PacketSender,
        (now, acks): (Time, Acks),
        out: &mut Outbox,
    ) -> Option<PacketTurn> {
        let mut last = None;
        self.lock.run_or_delegate(|inner| {
            let sending = inner.turn(&self.init, out, |inner, init, out| {
                inner.push_packets(init, sender, (now, acks), out)
            });
            last = Some(PacketTurn {
                sending,
                deadline: inner.deadline(),
                owes_ack: acks == Acks::Piggyback && inner.owes_ack_only(),
            });
        });
        last
    }
}

/// The result of sending packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketTurn {
    /// Why no more were sent.
    pub sending: Sending,
    /// When to call [`handle_timeout`](Qp::handle_timeout).
    pub deadline: Option<Time>,
    /// An acknowledgement was deferred.
    pub owes_ack: bool,
}

/// The state in which requests are sent.
fn sends(state: QpState) -> bool {
    matches!(state, QpState::Rts | QpState::Sqd | QpState::Sqe)
}
