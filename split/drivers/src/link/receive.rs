//! Passes completions to the session. A control receive is posted again before the session gets its message, so that the credit it grants
//! is backed by a posted receive. A completion of no request of this link is an error.

use std::time::Instant;

use verbena_nic::{Status, Wc, WcOp};

use super::perform::{CONTROL, ELEMENT, KIND_SHIFT, MESSAGE, PACKET, id};
use super::{Arrangement, Channel, Link, LinkError};
use crate::carrier::Carrier;

impl Link {
    /// Handles a completion of one of its pairs.
    pub fn handle(
        &mut self,
        carrier: &mut dyn Carrier,
        wc: &Wc,
        now: Instant,
    ) -> Result<(), LinkError> {
        // An acknowledged send also shows that the peer is alive, even if it sends nothing itself.
        let came = matches!(wc.op, WcOp::Receive | WcOp::ReceiveWriteImm);
        let acknowledged = self.options.kinds.acknowledged;
        if wc.status == Status::Success && (came || acknowledged) {
            self.note_alive(now);
        }
        if self.is_open() {
            self.completed(carrier, wc)
        } else {
            // Bounded by the receives posted.
            self.early.push(*wc);
            Ok(())
        }
    }

    pub(super) fn completed(
        &mut self,
        carrier: &mut dyn Carrier,
        wc: &Wc,
    ) -> Result<(), LinkError> {
        let (kind, of) = (wc.id >> KIND_SHIFT, wc.id as u32);
        let what = match kind {
            MESSAGE => "a message",
            PACKET => "a packet",
            CONTROL | ELEMENT => "a receive",
            _ => return Err(LinkError::UnknownCompletion(wc.id)),
        };
        if wc.status != Status::Success {
            let status = wc.status;
            return Err(LinkError::Failed { what, status });
        }
        match kind {
            MESSAGE => {
                self.messages.release(of);
            }
            PACKET => {
                let carried = self.slot_packets.get_mut(of as usize);
                let carried = carried.and_then(Option::take);
                let (packet, len) = carried.ok_or(LinkError::UnknownCompletion(wc.id))?;
                self.inflight.complete(of, len);
                self.session.handle_written(packet)?;
                self.packets.release(of);
            }
            CONTROL => {
                self.current.resize(wc.len as usize, 0);
                self.receives.read(of, &mut self.current);
                self.post_control(carrier, of)?;
                // A violation of the peer is counted by the session.
                let _ = self.session.handle_message(Channel::Control, &self.current);
            }
            _ => self.on_data(carrier, wc, of)?,
        }
        self.drive(carrier)
    }

    fn on_data(&mut self, carrier: &mut dyn Carrier, wc: &Wc, of: u32) -> Result<(), LinkError> {
        // Violations of the peer are counted by the session.
        match (self.options.arrangement, self.data) {
            (Arrangement::Writes, Some(data)) => {
                carrier.post_receive(data, id(ELEMENT, of), None)?;
                let word = wc.immediate.unwrap_or_default();
                let _ = self.session.handle_immediate(Channel::Data, word);
            }
            _ => {
                let _ = self.session.handle_packet(Channel::Data, wc.len);
            }
        }
        Ok(())
    }
}
