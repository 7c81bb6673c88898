//! Packets of a link: made where they leave from, and looked at where they lie.
//! It promises that an element is the peer's again only when whoever looked is done with it.
//! It refuses packets for which neither side has room.

use super::{Link, Lost, Memory, POOL, Refused, SEND_DATA_HEAD};

impl Link {
    /// Sends a packet made of two parts. It is copied.
    pub fn send(&mut self, head: &[u8], rest: &[u8]) -> Result<(), Refused> {
        let len = u32::try_from(head.len() + rest.len()).unwrap_or(u32::MAX);
        let most = (self.packets.size() - SEND_DATA_HEAD) as u32;
        if len > most {
            return Err(Refused::TooLong { len, most });
        }
        if !self.has_room() {
            return Err(Refused::Full { len });
        }
        let packet = self.session.send(len)?;
        // There is one: the session has said nothing yet.
        if let Some(slot) = self.packets.fill(&[]) {
            self.packets.write(slot, SEND_DATA_HEAD, head);
            self.packets.write(slot, SEND_DATA_HEAD + head.len(), rest);
            if let Some(carried) = self.carried.get_mut(slot as usize) {
                *carried = Some(packet);
            }
            self.queued.push_back((packet, slot));
        }
        Ok(())
    }

    /// Sends a packet that is made where it leaves from: `make` is handed memory and a place in it, with room for as many bytes
    /// as the longest packet has, and says how many there are, or that there is none. False if there is none.
    pub fn send_by(
        &mut self,
        make: impl FnOnce(&dyn Memory, usize) -> Option<usize>,
    ) -> Result<bool, Refused> {
        let Some(slot) = self.packets.fill(&[]) else {
            return Err(Refused::Full { len: 0 });
        };
        let (memory, offset) = self.packets.place(slot);
        let made = make(memory, offset + SEND_DATA_HEAD);
        let sent = match made {
            Some(len) => {
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                self.session.send(len).map(Some)
            }
            None => Ok(None),
        };
        match sent {
            Ok(Some(packet)) => {
                if let Some(carried) = self.carried.get_mut(slot as usize) {
                    *carried = Some(packet);
                }
                self.queued.push_back((packet, slot));
                Ok(true)
            }
            nothing => {
                self.packets.put_back(slot);
                nothing.map(|_| false)
            }
        }
    }

    /// Packets wait to be taken.
    pub fn has_packets(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Looks at the oldest packet that came where it lies: `look` is handed memory, place and length, and its element is the
    /// peer's again afterwards. An honest peer leaves it alone meanwhile; what must not change is to be copied first.
    pub fn look_at_packet<T>(
        &mut self,
        look: impl FnOnce(&dyn Memory, usize, usize) -> T,
    ) -> Result<Option<T>, Lost> {
        let Some((element, len)) = self.arrived.pop_front() else {
            return Ok(None);
        };
        let offset = element as usize * self.options.size as usize;
        let seen = look(&*self.pool, offset, len as usize);
        self.session.give_back(POOL, element)?;
        Ok(Some(seen))
    }
}
