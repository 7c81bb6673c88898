//! Performs the outputs of a session: messages, packets and receives become requests to the carrier. The order of the control channel is
//! kept also when outputs wait for a message slot.

use verbena_nic::wr::RemoteAddr;
use verbena_push::output::SEND_DATA_HEAD;

use super::channel_events::PoolLevel;
use super::{Arrangement, Event, Link, LinkError, LinkEvent, Output, Packet};
use crate::carrier::{Carrier, Pair};
use crate::slots::Slot;

/// The highest byte of a request's id is its kind; the rest is the slot or element.
pub(super) const KIND_SHIFT: u32 = 56;
pub(super) const MESSAGE: u64 = 1;
pub(super) const PACKET: u64 = 2;
pub(super) const CONTROL: u64 = 3;
pub(super) const ELEMENT: u64 = 4;

pub(super) fn id(kind: u64, of: u32) -> u64 {
    kind << KIND_SHIFT | u64::from(of)
}

impl Link {
    /// Posts the receives that must exist before the peer sends.
    pub(super) fn post_first(&mut self, carrier: &mut dyn Carrier) -> Result<(), LinkError> {
        for slot in 0..self.receives.count() {
            self.post_control(carrier, slot)?;
        }
        if let (Arrangement::Writes, Some(data)) = (self.options.arrangement, self.data) {
            for element in 0..self.options.elements {
                carrier.post_receive(data, id(ELEMENT, element), None)?;
            }
        }
        Ok(())
    }

    pub(super) fn post_control(
        &mut self,
        carrier: &mut dyn Carrier,
        slot: Slot,
    ) -> Result<(), LinkError> {
        let piece = self.receives.sge(slot, 0, self.receives.size() as u32);
        carrier.post_receive(self.control, id(CONTROL, slot), Some(piece))?;
        Ok(())
    }

    /// Performs the session's outputs.
    pub fn drive(&mut self, carrier: &mut dyn Carrier) -> Result<(), LinkError> {
        if !self.is_open() {
            return Ok(());
        }
        let kept = self.held_ack.take();
        self.send_held_ack(kept);
        while self.messages.free() > 0
            && let Some(output) = self.blocked_outputs.pop_front()
        {
            self.perform(carrier, output)?;
        }
        while let Some(output) = self.session.poll() {
            let control = matches!(output, Output::Send(_) | Output::SendData { .. });
            if control && (self.messages.free() == 0 || !self.blocked_outputs.is_empty()) {
                self.blocked_outputs.push_back(output);
            } else {
                self.perform(carrier, output)?;
            }
        }
        self.report_channels(carrier);
        Ok(())
    }

    fn report_channels(&mut self, carrier: &mut dyn Carrier) {
        if !carrier.observes_channels() {
            return self.channel_reporter.reset();
        }
        let pool = PoolLevel {
            channel: u8::from(self.data.is_some()),
            lent: self.session.lent(),
            elements: self.options.elements,
        };
        let counters = self.session.counters();
        self.channel_reporter.report(carrier, counters, pool);
    }

    fn perform(&mut self, carrier: &mut dyn Carrier, output: Output) -> Result<(), LinkError> {
        match output {
            Output::Send(bytes) => {
                // The caller has checked that a slot is free, and no message is longer than a slot.
                if let Some(slot) = self.messages.fill(&bytes) {
                    let piece = self.messages.sge(slot, 0, bytes.len() as u32);
                    carrier.post_send(self.control, id(MESSAGE, slot), piece)?;
                }
            }
            Output::SendData { packet, head, len } => {
                let slot = self.slot_of(packet)?;
                self.packets.write(slot, 0, &head);
                let piece = self.packets.sge(slot, 0, SEND_DATA_HEAD as u32 + len);
                carrier.post_send(self.control, id(PACKET, slot), piece)?;
            }
            Output::SendPacket { packet, len } => {
                let slot = self.slot_of(packet)?;
                let piece = self.packets.sge(slot, SEND_DATA_HEAD, len);
                carrier.post_send(self.data_pair(), id(PACKET, slot), piece)?;
            }
            Output::Write {
                packet,
                handle,
                at,
                len,
                immediate,
            } => {
                let slot = self.slot_of(packet)?;
                let piece = self.packets.sge(slot, SEND_DATA_HEAD, len);
                let to = RemoteAddr {
                    stag: handle,
                    to: at,
                };
                carrier.post_write(self.data_pair(), id(PACKET, slot), piece, to, immediate)?;
            }
            Output::Post { first, count, .. } => {
                for element in first..first + count {
                    let offset = element as usize * self.options.size as usize;
                    let piece = self.pool.sge(offset, self.options.size);
                    carrier.post_receive(self.data_pair(), id(ELEMENT, element), Some(piece))?;
                }
            }
            Output::Store {
                element, from, len, ..
            } => {
                let offset = element as usize * self.options.size as usize;
                let data = self.current.get(from..from + len as usize);
                self.pool.write(offset, data.unwrap_or_default());
            }
            // Receives cannot be removed from a queue one by one. Pools are only recalled at the end, so the channel is destroyed.
            Output::Withdraw { .. } => {
                if let Some(data) = self.data {
                    carrier.destroy(data);
                }
            }
            Output::Event(event) => self.handle_event(event),
        }
        Ok(())
    }

    fn data_pair(&self) -> Pair {
        self.data.unwrap_or(self.control)
    }

    /// The slot of a packet. The session sends packets in the order in which it got them.
    fn slot_of(&mut self, packet: Packet) -> Result<Slot, LinkError> {
        match self.queued.pop_front() {
            Some((queued, slot)) if queued == packet => Ok(slot),
            _ => Err(LinkError::UnknownCompletion(packet.0)),
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Arrived { element, len, .. } => self.arrived.push_back((element, len)),
            Event::Request {
                context,
                operation,
                data,
            } => self.events.push_back(LinkEvent::Request {
                context,
                operation,
                data,
            }),
            Event::Reply {
                context,
                operation,
                status,
                data,
            } => self.events.push_back(LinkEvent::Reply {
                context,
                operation,
                status,
                data,
            }),
            Event::PoolFreed { .. } => self.is_freed = true,
            // The only pool was lent at the beginning; room is checked before each send; slots are returned by completions.
            Event::PoolRequested { .. }
            | Event::RoomAvailable
            | Event::Sent { .. }
            | Event::PoolLent(_)
            | Event::PoolClosed { .. }
            | Event::Unsupported { .. } => {}
        }
    }
}
