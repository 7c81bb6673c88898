//! Packets of a link: built in the send buffer, and read in the pool, without copies. An element is returned to the peer only after the
//! caller has finished with its packet. A packet that is too long, or for which there is no room, is refused.

use verbena_lan::{Ack, VNET_HDR_LEN};

use super::{Link, LinkError, Memory, POOL_ID, Refused, SEND_DATA_HEAD};
use crate::slots::Slot;

/// A packet that is only an acknowledgement, built and not sent yet.
#[derive(Debug)]
pub(super) struct HeldAck {
    ack: Ack,
    /// It repeats the one before, which reports a gap: it is sent whatever follows.
    is_duplicate: bool,
    slot: Slot,
    len: u32,
}

impl Link {
    /// Sends a packet of two parts, which are copied.
    pub fn send(&mut self, head: &[u8], rest: &[u8]) -> Result<(), Refused> {
        let len = u32::try_from(head.len() + rest.len()).unwrap_or(u32::MAX);
        let most = (self.packets.size() - SEND_DATA_HEAD) as u32;
        if len > most {
            return Err(Refused::TooLong { len, most });
        }
        if !self.has_room() {
            return Err(Refused::Full { len });
        }
        let Some(slot) = self.packets.fill(&[]) else {
            return Err(Refused::Full { len });
        };
        self.packets.write(slot, SEND_DATA_HEAD, head);
        self.packets.write(slot, SEND_DATA_HEAD + head.len(), rest);
        self.enqueue(slot, len)
    }

    /// Sends a packet that `make` builds in the send buffer: it gets memory and an offset with room for the longest packet, and returns the
    /// length, or `None` if there is no packet; then the result is false.
    pub fn send_with(
        &mut self,
        make: impl FnOnce(&dyn Memory, usize) -> Option<usize>,
    ) -> Result<bool, Refused> {
        let Some(slot) = self.packets.fill(&[]) else {
            return Err(Refused::Full { len: 0 });
        };
        let (memory, offset) = self.packets.location(slot);
        match make(memory, offset + SEND_DATA_HEAD) {
            Some(len) => {
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                self.enqueue(slot, len).map(|()| true)
            }
            None => {
                self.packets.release(slot);
                Ok(false)
            }
        }
    }

    /// Sends a packet. One that is only an acknowledgement is kept until something else is sent, or the turn ends: the next one may
    /// supersede it.
    fn enqueue(&mut self, slot: Slot, len: u32) -> Result<(), Refused> {
        let ack = self.parse_ack(slot, len as usize);
        let before = self.held_ack.as_ref().zip(ack);
        let repeats = before.is_some_and(|(kept, ack)| ack.is_duplicate_of(&kept.ack));
        match (self.held_ack.take(), ack) {
            (Some(kept), Some(ack)) if !kept.is_duplicate && ack.supersedes(&kept.ack) => {
                self.packets.release(kept.slot);
                self.superseded_acks += 1;
            }
            (kept, _) => self.send_held_ack(kept),
        }
        match ack {
            Some(ack) => {
                self.held_ack = Some(HeldAck {
                    ack,
                    is_duplicate: repeats,
                    slot,
                    len,
                });
                Ok(())
            }
            None => self.send_slot(slot, len),
        }
    }

    /// Sends a kept packet. There was room when it was kept; if the peer has recalled its pool since, it is dropped as any frame may be.
    pub(super) fn send_held_ack(&mut self, kept: Option<HeldAck>) {
        if let Some(kept) = kept {
            let _ = self.send_slot(kept.slot, kept.len);
        }
    }

    fn send_slot(&mut self, slot: Slot, len: u32) -> Result<(), Refused> {
        match self.session.send(len) {
            Ok(packet) => {
                if let Some(carried) = self.slot_packets.get_mut(slot as usize) {
                    *carried = Some((packet, len));
                }
                self.inflight.add(slot, len);
                self.queued.push_back((packet, slot));
                Ok(())
            }
            Err(refused) => {
                self.packets.release(slot);
                Err(refused)
            }
        }
    }

    fn parse_ack(&self, slot: Slot, len: usize) -> Option<Ack> {
        let mut bytes = [0; Ack::MAX_LEN];
        let frame = bytes.get_mut(..len.checked_sub(VNET_HDR_LEN)?)?;
        let (memory, offset) = self.packets.location(slot);
        memory.read(offset + SEND_DATA_HEAD + VNET_HDR_LEN, frame);
        Ack::parse(frame)
    }

    /// Whether packets wait to be taken.
    #[cfg(test)]
    pub(crate) fn has_packets(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Calls `look` on the oldest packet that came, with memory, offset and length, and then returns its element to the peer. A peer that
    /// breaks the protocol may write to it meanwhile: what is checked must be copied first.
    pub fn with_packet<T>(
        &mut self,
        look: impl FnOnce(&dyn Memory, usize, usize) -> T,
    ) -> Result<Option<T>, LinkError> {
        let Some((element, len)) = self.arrived.pop_front() else {
            return Ok(None);
        };
        let offset = element as usize * self.options.size as usize;
        let seen = look(&*self.pool, offset, len as usize);
        self.session.give_back(POOL_ID, element)?;
        Ok(Some(seen))
    }
}
