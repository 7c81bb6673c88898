//! Reassembly (P3): the order of cells, by the rule of each kind of channel, and delivery. An acknowledged, connected channel delivers
//! packets once and in order, the others whole or not at all. Cells out of order are not kept.

use verbena_nic::Outbox;
use verbena_nic::receive::Receive;
use verbena_nic::wc::WcOp;
use verbena_split_wire::cell::{Data, Kind, NakReason, PacketSeq, Tail};

use super::Wqp;
use super::answer::EventContext;
use super::complete::Overflowed;
use super::duplicates::Novelty;
use super::step::{Reassembly, Step, Target};
use crate::counters::Refused;
use crate::descriptor::Peer;
use crate::notice::{Effects, EndReason};
use crate::state::State;

/// Packets in a row that an unacknowledged channel can lose. Numbers further ahead belong to an earlier connection, whose first number
/// was another random one; a sender that is really so far ahead is told that there is no channel.
const MAX_LOST: u32 = 1 << 20;

impl Wqp {
    /// A packet in progress has taken a receive.
    pub(super) fn holds_receive(&self) -> bool {
        let claims = |part: &Reassembly| part.kind() == Kind::Send;
        self.partial.as_ref().is_some_and(claims)
    }

    /// Handles a data cell. True if its sender must be told that there is no such connection.
    pub(crate) fn on_data(
        &mut self,
        from: Peer,
        (connected, packet): (bool, PacketSeq),
        data: &Data<'_>,
        moment: &EventContext<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) -> bool {
        let kind = self.init.kind;
        let bound = match kind.connected {
            true => self.peer == Some(from),
            false => self.source.is_none_or(|only| only == from),
        };
        let alike = kind.connected == connected && kind.acknowledged == data.acknowledged;
        if !self.state.is_active() || !bound || !alike {
            self.refuse(Refused::Channel);
            // While connecting, the peer may have sent data that overtook its Accept.
            let gone = self.state != State::Connecting && !(self.state.is_active() && bound);
            return connected && gone;
        }
        let ahead = !packet.is_before(self.expected) && packet.minus(self.expected) > MAX_LOST;
        if kind.connected && !kind.acknowledged && ahead {
            self.refuse(Refused::Channel);
            return true;
        }
        self.restart_keepalive(moment.now, moment.config);
        let verdict = match (kind.connected, kind.acknowledged) {
            (true, true) => self.receive_in_order(from, packet, data, moment, out),
            (true, false) => self.receive_unacknowledged(from, packet, data, moment, out),
            (false, _) => self.receive_connectionless(from, packet, data, moment, out),
        };
        match verdict {
            Ok(overflowed) => self.note_overflow(moment.local, overflowed, fx, out),
            Err(why) => {
                self.refuse(why);
                if why == Refused::Receive {
                    self.fail(moment.local, EndReason::LocalMemory, None, fx, out);
                }
            }
        }
        false
    }

    /// Acknowledged and connected: accepts exactly the next cell.
    fn receive_in_order(
        &mut self,
        from: Peer,
        packet: PacketSeq,
        data: &Data<'_>,
        moment: &EventContext<'_>,
        out: &mut Outbox,
    ) -> Result<Overflowed, Refused> {
        let cell = u32::from(data.position.cell());
        let next = self.partial.as_ref().map_or(0, |part| part.next);
        if packet.is_before(self.expected) {
            // Its acknowledgement was lost, or is on its way.
            self.pending_ack = true;
            return Err(Refused::Duplicate);
        }
        if packet == self.expected && cell < next {
            return Err(Refused::Duplicate);
        }
        if packet != self.expected || cell > next {
            if !core::mem::replace(&mut self.nak_sent, true) {
                self.pending_nak = Some(NakReason::Gap);
            }
            return Err(Refused::Gap);
        }
        let part = self.partial.take();
        match self.step(part, data, moment, out) {
            Ok(Step::More(part)) => {
                self.partial = Some(part);
                self.nak_sent = false;
                Ok(Overflowed(false))
            }
            Ok(Step::Whole(part)) => {
                self.nak_sent = false;
                self.expected = self.expected.next();
                self.pending_ack = true;
                // Cells that came too early were dropped: a Nak for the gap is still owed, other Naks are obsolete.
                self.pending_nak = self.pending_nak.filter(|reason| *reason == NakReason::Gap);
                self.starved = false;
                Ok(self.deliver(part, data, from, out))
            }
            Err((why, part)) => {
                if why == Refused::NoBuffer {
                    // What is placed stays placed: the sender retransmits the packet, and its cells before this one are duplicates.
                    self.partial = part.map(|part| *part);
                    self.starved = true;
                } else {
                    self.abandon(part.map(|part| *part));
                }
                // Later cells wait for this one: no further Nak.
                self.nak_sent = true;
                self.pending_nak = why.nak();
                Err(why)
            }
        }
    }

    /// Connected and not acknowledged: accepts whole packets in ascending order.
    fn receive_unacknowledged(
        &mut self,
        from: Peer,
        packet: PacketSeq,
        data: &Data<'_>,
        moment: &EventContext<'_>,
        out: &mut Outbox,
    ) -> Result<Overflowed, Refused> {
        if packet.is_before(self.expected) {
            return Err(Refused::Duplicate);
        }
        if packet != self.expected {
            // The rest of the previous packet is lost, and perhaps whole packets.
            let part = self.partial.take();
            self.abandon(part);
            self.expected = packet;
        }
        let cell = u32::from(data.position.cell());
        let next = self.partial.as_ref().map_or(0, |part| part.next);
        if cell < next {
            return Err(Refused::Duplicate);
        }
        let part = self.partial.take();
        if cell > next {
            self.abandon(part);
            return Err(Refused::Gap);
        }
        match self.step(part, data, moment, out) {
            Ok(Step::More(part)) => {
                self.partial = Some(part);
                Ok(Overflowed(false))
            }
            Ok(Step::Whole(part)) => {
                self.expected = packet.next();
                Ok(self.deliver(part, data, from, out))
            }
            Err((why, part)) => {
                self.abandon(part.map(|part| *part));
                // The rest of the packet is ignored.
                self.expected = packet.next();
                Err(why)
            }
        }
    }

    /// Connectionless: a packet is one cell (P2).
    fn receive_connectionless(
        &mut self,
        from: Peer,
        packet: PacketSeq,
        data: &Data<'_>,
        moment: &EventContext<'_>,
        out: &mut Outbox,
    ) -> Result<Overflowed, Refused> {
        let whole = data.position.cell() == 0 && data.tail != Tail::More;
        if !whole {
            return Err(Refused::Fragment);
        }
        let acknowledged = data.acknowledged;
        let limits = moment.config;
        if acknowledged {
            match self.duplicates.check(from, packet) {
                Novelty::New => {}
                Novelty::Old => {
                    self.queue_answer(from, packet, None, limits.answers);
                    return Err(Refused::Duplicate);
                }
                Novelty::Late => return Err(Refused::Duplicate),
            }
        }
        match self.step(None, data, moment, out) {
            Ok(Step::Whole(part)) => {
                if acknowledged {
                    self.duplicates.record(from, packet, limits.senders);
                    self.queue_answer(from, packet, None, limits.answers);
                }
                Ok(self.deliver(part, data, from, out))
            }
            Ok(Step::More(part)) => {
                self.abandon(Some(part));
                Err(Refused::Fragment)
            }
            Err((why, part)) => {
                self.abandon(part.map(|part| *part));
                if let Some(nak) = why.nak().filter(|_| acknowledged) {
                    self.queue_answer(from, packet, Some(nak), limits.answers);
                }
                Err(why)
            }
        }
    }

    /// Queues an answer to a connectionless packet; beyond the limit it is dropped, as if lost on the way.
    fn queue_answer(&mut self, to: Peer, packet: PacketSeq, nak: Option<NakReason>, limit: usize) {
        if self.pending_answers.len() < limit {
            self.pending_answers.push_back((to, packet, nak));
        }
    }

    /// Delivers a packet that is placed completely; the immediate data is separate from the data.
    fn deliver(
        &mut self,
        part: Reassembly,
        data: &Data<'_>,
        from: Peer,
        out: &mut Outbox,
    ) -> Overflowed {
        self.counters.packets_placed += 1;
        let immediate = match data.tail {
            Tail::Last { immediate, .. } => immediate,
            Tail::More => None,
        };
        let info = (immediate, data.solicited);
        match part.target {
            Target::Receive(receive) => {
                let what = (receive.id, WcOp::Receive);
                self.complete_receive(what, part.offset, info, from, out)
            }
            Target::Write(_) if immediate.is_none() => Overflowed(false),
            Target::Write(block) => match self.take_receive() {
                Some(receive) => {
                    let what = (receive.id, WcOp::ReceiveWriteImm);
                    self.complete_receive(what, block.len, info, from, out)
                }
                // `check` has checked that there is one.
                None => Overflowed(false),
            },
        }
    }

    pub(super) fn take_receive(&mut self) -> Option<Receive> {
        self.rung_receives = self.rung_receives.checked_sub(1)?;
        self.receives.pop_front()
    }

    /// Gives up an incomplete packet: its receive is available again.
    fn abandon(&mut self, part: Option<Reassembly>) {
        if let Some(receive) = part.and_then(Reassembly::into_receive) {
            self.receives.push_front(receive);
            self.rung_receives += 1;
        }
    }
}
