//! The carrier of the tests: per side a queue of messages, one of packets, and one of acknowledgements. Each keeps its order and none
//! waits for another; lost packets are recorded.

use super::{Item, World};
use crate::Channel;

impl World {
    /// Delivers one item to a side; `false` if its queue is empty.
    pub(crate) fn deliver(&mut self, to: usize, lane: usize) -> bool {
        let side = &mut self.sides[to];
        match lane {
            0 => {
                let Some(item) = side.control.pop_front() else {
                    return false;
                };
                self.arrive(to, item);
            }
            1 => {
                let Some(item) = side.data.pop_front() else {
                    return false;
                };
                self.arrive(to, item);
            }
            _ => {
                let Some(packet) = side.acks.pop_front() else {
                    return false;
                };
                side.session.handle_written(packet).unwrap();
            }
        }
        self.drain(to);
        true
    }

    /// Loses one item; the sender's carrier reports it written all the same.
    pub(crate) fn lose(&mut self, to: usize, lane: usize) {
        let side = &mut self.sides[to];
        let item = match lane {
            0 => side.control.pop_front(),
            _ => side.data.pop_front(),
        };
        match item {
            Some(Item::Packet { stamp, .. }) => {
                self.lost.insert(stamp);
            }
            Some(Item::Data { packet, stamp, .. }) => {
                self.lost.insert(stamp);
                self.sides[1 - to].acks.push_back(packet);
            }
            _ => {}
        }
    }

    fn arrive(&mut self, to: usize, item: Item) {
        let from = 1 - to;
        match item {
            Item::Message(bytes) => {
                let result = self.sides[to]
                    .session
                    .handle_message(Channel::Control, &bytes);
                assert!(self.lossy || result.is_ok(), "{result:?}");
            }
            Item::Data {
                packet,
                head,
                len,
                stamp,
            } => {
                let mut bytes = head;
                bytes.resize(bytes.len() + len as usize, 0);
                let side = &mut self.sides[to];
                side.current = Some((stamp, len));
                side.session
                    .handle_message(Channel::Control, &bytes)
                    .unwrap();
                self.sides[from].acks.push_back(packet);
            }
            Item::Packet { len, stamp } => {
                let (pool, element) = self.sides[to].posted.pop_front().expect("overrun");
                self.store(to, pool, element, stamp, len);
                let side = &mut self.sides[to];
                side.session.handle_packet(Channel::Data, len).unwrap();
            }
            Item::Write {
                packet,
                handle,
                at,
                len,
                immediate,
                stamp,
            } => {
                let mut pools = self.sides[to].memory.values();
                let memory = pools
                    .find(|m| m.pool.handle == handle)
                    .expect("no such memory");
                let offset = at.get() - memory.pool.at.get();
                let size = u64::from(memory.pool.size);
                assert_eq!(offset % size, 0);
                let (pool, element) = (memory.pool.reference, (offset / size) as u32);
                self.store(to, pool, element, stamp, len);
                if let Some(word) = immediate {
                    let side = &mut self.sides[to];
                    side.session.handle_immediate(Channel::Data, word).unwrap();
                }
                self.sides[from].acks.push_back(packet);
            }
        }
    }

    /// Delivers everything.
    pub(crate) fn settle(&mut self) {
        let lanes = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];
        let mut turns = 0;
        while lanes.iter().any(|(to, lane)| self.deliver(*to, *lane)) {
            turns += 1;
            assert!(turns < 1_000_000, "never at rest");
        }
    }
}
