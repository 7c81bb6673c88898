//! Reassembly (P3): each cell is judged, placed where it belongs, and forgotten; the last one delivers its packet.
//! It promises that a bad cell is not placed and its packet never delivered or completed, and that on an acknowledged, connected
//! channel packets are delivered once and in order. It refuses to keep cells that come before their turn.

use verbena_mem::Refusal;
use verbena_nic::Outbox;
use verbena_nic::receive::Receive;
use verbena_nic::wc::{Status, WcOp};
use verbena_wire::cell::{AddressBlock, Data, Kind, NakReason, PacketSeq, Place, Tail};
use verbena_wire::crc::Crc32c;

use super::answer::Moment;
use super::complete::Overflowed;
use super::seen::Novelty;
use super::{Wqp, place};
use crate::counters::Refused;
use crate::descriptor::Peer;
use crate::notice::{Effects, Why};
use crate::state::State;

/// A packet of which some cells are there.
#[derive(Debug)]
pub(super) struct Reassembly {
    target: Target,
    /// The cell whose turn it is; one more than the largest number after the longest packet.
    next: u32,
    /// Bytes placed.
    offset: u32,
    crc: Crc32c,
}

#[derive(Debug)]
enum Target {
    Receive(Receive),
    Write(AddressBlock),
}

impl Reassembly {
    /// The receive it had claimed.
    pub(super) fn into_receive(self) -> Option<Receive> {
        match self.target {
            Target::Receive(receive) => Some(receive),
            Target::Write(_) => None,
        }
    }

    fn kind(&self) -> Kind {
        match self.target {
            Target::Receive(_) => Kind::Send,
            Target::Write(_) => Kind::Write,
        }
    }

    /// The most that its target takes.
    fn room(&self) -> u32 {
        match &self.target {
            Target::Receive(receive) => receive.capacity(),
            Target::Write(block) => block.len,
        }
    }
}

impl Wqp {
    /// A packet under way has claimed a receive.
    pub(super) fn holds_receive(&self) -> bool {
        let claims = |part: &Reassembly| part.kind() == Kind::Send;
        self.partial.as_ref().is_some_and(claims)
    }

    /// A cell of a packet came. True if its sender must learn that there is no such connection.
    pub(crate) fn on_data(
        &mut self,
        from: Peer,
        (connected, packet): (bool, PacketSeq),
        data: &Data<'_>,
        moment: &Moment<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) -> bool {
        let kind = self.init.kind;
        let bound = !kind.connected || self.peer == Some(from);
        let alike = kind.connected == connected && kind.acknowledged == data.acknowledged;
        if !self.state.works() || !bound || !alike {
            self.refuse(Refused::Channel);
            // While we ask, the peer may be ahead of us: its Accept is on its way.
            let gone = self.state != State::Connecting && !(self.state.works() && bound);
            return connected && gone;
        }
        let verdict = match (kind.connected, kind.acknowledged) {
            (true, true) => self.in_order(from, packet, data, moment, out),
            (true, false) => self.as_it_comes(from, packet, data, moment, out),
            (false, _) => self.alone(from, packet, data, moment, out),
        };
        match verdict {
            Ok(overflowed) => self.note_overflow(moment.here, overflowed, fx, out),
            Err(why) => {
                self.refuse(why);
                if why == Refused::Receive {
                    self.fail(moment.here, Why::Memory, None, fx, out);
                }
            }
        }
        false
    }

    /// Acknowledged and connected: exactly the cell whose turn it is.
    fn in_order(
        &mut self,
        from: Peer,
        packet: PacketSeq,
        data: &Data<'_>,
        moment: &Moment<'_>,
        out: &mut Outbox,
    ) -> Result<Overflowed, Refused> {
        let cell = u32::from(data.place.cell());
        let next = self.partial.as_ref().map_or(0, |part| part.next);
        if packet.is_before(self.expected) {
            // Its acknowledgement was lost, or is on its way.
            self.owed_ack = true;
            return Err(Refused::Duplicate);
        }
        if packet == self.expected && cell < next {
            return Err(Refused::Duplicate);
        }
        if packet != self.expected || cell > next {
            if !core::mem::replace(&mut self.nak_told, true) {
                self.owed_nak = Some(NakReason::Gap);
            }
            return Err(Refused::Gap);
        }
        let part = self.partial.take();
        match self.step(part, data, moment, out) {
            Ok(Step::More(part)) => {
                self.partial = Some(part);
                self.nak_told = false;
                Ok(Overflowed(false))
            }
            Ok(Step::Whole(part)) => {
                self.nak_told = false;
                self.expected = self.expected.next();
                self.owed_ack = true;
                // Cells that came too early were dropped: what follows this packet is asked for. Anything else is settled.
                self.owed_nak = self.owed_nak.filter(|reason| *reason == NakReason::Gap);
                self.starved = false;
                Ok(self.deliver(part, data, from, out))
            }
            Err((why, part)) => {
                if why == Refused::NoBuffer {
                    // What is placed stays placed: the sender begins anew, and we go on from here.
                    self.partial = part.map(|part| *part);
                    self.starved = true;
                } else {
                    self.abandon(part.map(|part| *part));
                }
                // What comes behind is no news: it all waits for this one.
                self.nak_told = true;
                self.owed_nak = why.nak();
                Err(why)
            }
        }
    }

    /// Connected and not acknowledged: whatever comes whole and not backwards.
    fn as_it_comes(
        &mut self,
        from: Peer,
        packet: PacketSeq,
        data: &Data<'_>,
        moment: &Moment<'_>,
        out: &mut Outbox,
    ) -> Result<Overflowed, Refused> {
        if packet.is_before(self.expected) {
            return Err(Refused::Duplicate);
        }
        if packet != self.expected {
            // The rest of the packet before is lost, and perhaps whole packets.
            let part = self.partial.take();
            self.abandon(part);
            self.expected = packet;
        }
        let cell = u32::from(data.place.cell());
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
                // The rest of it is not looked at.
                self.expected = packet.next();
                Err(why)
            }
        }
    }

    /// Connectionless: one cell, one packet (P2).
    fn alone(
        &mut self,
        from: Peer,
        packet: PacketSeq,
        data: &Data<'_>,
        moment: &Moment<'_>,
        out: &mut Outbox,
    ) -> Result<Overflowed, Refused> {
        let whole = data.place.cell() == 0 && data.tail != Tail::More;
        if !whole {
            return Err(Refused::Fragment);
        }
        let acknowledged = data.acknowledged;
        let limits = moment.config;
        if acknowledged {
            match self.seen.judge(from, packet) {
                Novelty::New => {}
                Novelty::Old => {
                    self.owe(from, packet, None, limits.answers);
                    return Err(Refused::Duplicate);
                }
                Novelty::Late => return Err(Refused::Duplicate),
            }
        }
        match self.step(None, data, moment, out) {
            Ok(Step::Whole(part)) => {
                if acknowledged {
                    self.seen.note(from, packet, limits.senders);
                    self.owe(from, packet, None, limits.answers);
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
                    self.owe(from, packet, Some(nak), limits.answers);
                }
                Err(why)
            }
        }
    }

    /// Remembers an answer to a connectionless packet; one that finds no room is as good as lost on the way.
    fn owe(&mut self, to: Peer, packet: PacketSeq, nak: Option<NakReason>, limit: usize) {
        if self.owed.len() < limit {
            self.owed.push_back((to, packet, nak));
        }
    }

    /// Places the cell whose turn it is. A refusal gives the packet back as it was.
    fn step(
        &mut self,
        part: Option<Reassembly>,
        data: &Data<'_>,
        moment: &Moment<'_>,
        out: &mut Outbox,
    ) -> Result<Step, (Refused, Option<Box<Reassembly>>)> {
        let mut part = match part {
            Some(part) => part,
            None => self.start(data, moment).map_err(|why| (why, None))?,
        };
        let last = data.tail != Tail::More;
        let (crc, end) = match self.judge(&part, data, moment) {
            Ok(judged) => judged,
            Err(why) => return Err((why, Some(Box::new(part)))),
        };
        match &part.target {
            Target::Write(block) => {
                let placed = place::write(&self.init, block, part.offset, data.payload, last);
                if let Err(why) = placed {
                    return Err((why, Some(Box::new(part))));
                }
            }
            Target::Receive(receive) => {
                match place::scatter(&self.init, receive, part.offset, data.payload) {
                    Ok(()) => {}
                    Err(Refusal::Pending { .. }) => {
                        return Err((Refused::NoBuffer, Some(Box::new(part))));
                    }
                    Err(_) => {
                        // Our own memory refused: the receive says so, and the channel fails.
                        self.receive_failed(receive.id, Status::LocProtErr, out);
                        return Err((Refused::Receive, None));
                    }
                }
            }
        }
        self.counters.cells_placed += 1;
        part.crc = crc;
        part.offset = end;
        part.next += 1;
        Ok(if last {
            Step::Whole(part)
        } else {
            Step::More(part)
        })
    }

    /// The first cell: a receive is claimed, or all of the memory is checked.
    fn start(&mut self, data: &Data<'_>, moment: &Moment<'_>) -> Result<Reassembly, Refused> {
        let target = match data.place {
            Place::WriteFirst(block) => {
                if block.len > moment.config.packet {
                    return Err(Refused::Bounds);
                }
                place::check_write(&self.init, &block)?;
                Target::Write(block)
            }
            Place::SendFirst => Target::Receive(self.take_receive().ok_or(Refused::NoBuffer)?),
            Place::SendMore(_) | Place::WriteMore(_) => return Err(Refused::Gap),
        };
        Ok(Reassembly {
            target,
            next: 0,
            offset: 0,
            crc: Crc32c::new(),
        })
    }

    /// Lengths and checksum of a cell in its turn; where the packet ends with it.
    fn judge(
        &self,
        part: &Reassembly,
        data: &Data<'_>,
        moment: &Moment<'_>,
    ) -> Result<(Crc32c, u32), Refused> {
        let len = data.payload.len();
        let end = part.offset.saturating_add(len as u32);
        let fits = len <= usize::from(moment.config.cell) && end <= part.room();
        if !fits || part.kind() != data.place.kind() {
            return Err(Refused::Bounds);
        }
        let mut crc = part.crc.clone();
        if let Place::WriteFirst(block) = &data.place {
            crc.update(&block.emit());
        }
        let Tail::Last {
            immediate,
            crc: sum,
        } = data.tail
        else {
            crc.update(data.payload);
            return Ok((crc, end));
        };
        let write = part.kind() == Kind::Write;
        // A write that is shorter than it said lied about what was checked.
        if write && end != part.room() {
            return Err(Refused::Bounds);
        }
        if let Some(immediate) = immediate {
            if write && self.rung_receives == 0 {
                return Err(Refused::NoBuffer);
            }
            crc.update(&immediate.to_be_bytes());
        }
        crc.update(data.payload);
        if crc.clone().finish() != sum {
            return Err(Refused::PacketCrc);
        }
        Ok((crc, end))
    }

    /// The whole packet is in its place: the consumer is told, the immediate data apart from the data.
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
        let told = (immediate, data.solicited);
        match part.target {
            Target::Receive(receive) => {
                let what = (receive.id, WcOp::Receive);
                self.tell_receive(what, part.offset, told, from, out)
            }
            Target::Write(_) if immediate.is_none() => Overflowed(false),
            Target::Write(block) => match self.take_receive() {
                Some(receive) => {
                    let what = (receive.id, WcOp::ReceiveWriteImm);
                    self.tell_receive(what, block.len, told, from, out)
                }
                // It was looked for before the cell was placed.
                None => Overflowed(false),
            },
        }
    }

    fn take_receive(&mut self) -> Option<Receive> {
        self.rung_receives = self.rung_receives.checked_sub(1)?;
        self.receives.pop_front()
    }

    /// A packet will not become whole: its receive is there for another.
    fn abandon(&mut self, part: Option<Reassembly>) {
        if let Some(receive) = part.and_then(Reassembly::into_receive) {
            self.receives.push_front(receive);
            self.rung_receives += 1;
        }
    }
}

/// How far a packet is after a cell.
enum Step {
    More(Reassembly),
    Whole(Reassembly),
}
