//! Transfers that arrive: immediate data, indications in messages, bare packets, packets in messages; and announcements. A packet is
//! accepted only in an element that is lent, once, and within the element's size (P7).

use verbena_split_wire::push::{Element, Elements, Function, Indication};

use super::Session;
use crate::error::{Violation, keep_first};
use crate::output::{Channel, Event, Output, SEND_DATA_HEAD};
use crate::own_pool::{OwnPool, OwnPoolState};
use crate::settings::{Arrangement, MAX_MESSAGES};
use crate::window::MESSAGE_POOL;

/// The announcement of messages, see [`Session::refresh`]: how many messages the peer has sent; whether this one is counted among
/// them, 0 or 1; and up to which number we may send.
pub(super) fn synchronisation(elements: Elements<'_>) -> Option<(u32, u32, u32)> {
    let mut elements = elements.iter();
    let three = (elements.next(), elements.next(), elements.next());
    let (
        Some(Element::Index {
            pool: MESSAGE_POOL,
            element: sent,
            length: itself @ (0 | 1),
        }),
        Some(Element::Index {
            pool: MESSAGE_POOL,
            element: limit,
            ..
        }),
        None,
    ) = three
    else {
        return None;
    };
    Some((sent.wrapping_add(itself), itself, limit))
}

impl Session {
    /// The immediate data of an RDMA write arrived (B), after its data.
    pub fn handle_immediate(&mut self, channel: Channel, word: u32) -> Result<(), Violation> {
        let result = self.process_immediate(channel, word);
        result.map_err(|violation| self.count_violation(violation))
    }

    /// A packet of `len` bytes consumed the next receive descriptor of the data channel (A). Also to be called, with the packet's whole
    /// length, if it was too long for the descriptor and consumed it.
    pub fn handle_packet(&mut self, channel: Channel, len: u32) -> Result<(), Violation> {
        let right = self.settings.arrangement == Arrangement::Sends && channel == Channel::Data;
        let result = match right {
            true => self.place_packet(len).map(drop),
            false => Err(Violation::Channel(channel)),
        };
        result.map_err(|violation| self.count_violation(violation))
    }

    fn process_immediate(&mut self, channel: Channel, word: u32) -> Result<(), Violation> {
        self.check_backlog()?;
        if self.settings.arrangement != Arrangement::Writes || channel != Channel::Data {
            return Err(Violation::Channel(channel));
        }
        self.counters.immediates_in += 1;
        let Indication {
            pool,
            element,
            length,
        } = Indication::from_immediate(word);
        self.arrive(u32::from(pool), u32::from(element), u32::from(length))
    }

    /// C: the packet is inside the message, and is copied out of it.
    pub(super) fn handle_data(&mut self, data: &[u8]) -> Result<(), Violation> {
        if self.settings.arrangement != Arrangement::Single {
            return Err(Violation::Channel(Channel::Control));
        }
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let (pool, element) = self.descriptor(len)?;
        self.outputs.push_back(Output::Store {
            pool,
            element,
            from: SEND_DATA_HEAD,
            len,
        });
        self.arrived(pool, element, len);
        self.settle_drained();
        Ok(())
    }

    /// A: the packet is in the descriptor's memory already.
    fn place_packet(&mut self, len: u32) -> Result<(), Violation> {
        self.check_backlog()?;
        let (pool, element) = self.descriptor(len)?;
        self.arrived(pool, element, len);
        self.settle_drained();
        Ok(())
    }

    /// Consumes the next descriptor; returns pool and element.
    fn descriptor(&mut self, len: u32) -> Result<(u32, u32), Violation> {
        let mut pools = self.owned.values_mut();
        let lent = pools.find(|o| o.state() != OwnPoolState::Free);
        let owned = lent.ok_or(Violation::PacketOverrun)?;
        let pool = owned.pool().reference;
        let fallen = owned.consume_descriptor(len);
        let again = owned.state() == OwnPoolState::Lent;
        if let Err(Violation::Length { element, .. } | Violation::Late { element, .. }) = fallen
            && again
            && self.settings.arrangement == Arrangement::Sends
        {
            self.outputs.push_back(Output::Post {
                pool,
                first: element,
                count: 1,
            });
        }
        fallen.map(|element| (pool, element))
    }

    fn arrived(&mut self, pool: u32, element: u32, len: u32) {
        self.counters.packets_in += 1;
        self.event(Event::Arrived { pool, element, len });
    }

    pub(super) fn handle_elements(&mut self, elements: Elements<'_>) -> Result<(), Violation> {
        if self.settings.arrangement.counts()
            && let Some((sent, itself, limit)) = synchronisation(elements)
        {
            return self.synchronised(sent, itself, limit);
        }
        let mut result = Ok(());
        for element in elements.iter() {
            keep_first(&mut result, self.handle_element(element));
        }
        result
    }

    fn handle_element(&mut self, element: Element) -> Result<(), Violation> {
        self.counters.indications_in += 1;
        if self.settings.arrangement.counts() {
            return self.announced(element);
        }
        match element {
            Element::Index {
                pool,
                element,
                length,
            } => self.arrive(pool, element, length),
            Element::Address { pool, at, length } => {
                let at = at.get();
                let element = self.indicated_pool(pool)?.element_at(at);
                let element = element.ok_or(Violation::Address { pool, at })?;
                self.arrive(pool, element, length)
            }
        }
    }

    fn indicated_pool(&mut self, pool: u32) -> Result<&mut OwnPool, Violation> {
        self.owned.get_mut(&pool).ok_or(Violation::UnknownPool {
            function: Function::BufferRdmaIndicate as u16,
            reference: pool,
        })
    }

    /// An element was written and indicated, by immediate data or by a message.
    fn arrive(&mut self, pool: u32, element: u32, length: u32) -> Result<(), Violation> {
        self.indicated_pool(pool)?.arrive(element, length)?;
        self.arrived(pool, element, length);
        Ok(())
    }

    /// Messages arrive in order, so all that are missing are lost, except the announcement itself.
    fn synchronised(&mut self, sent: u32, itself: u32, limit: u32) -> Result<(), Violation> {
        let missing = self.grant.missing(sent).ok_or(Violation::Number {
            pool: MESSAGE_POOL,
            got: sent,
            from: self.grant.received(),
            to: self.grant.limit(),
        })?;
        let moved = self.grant.count_lost(missing);
        self.counters.lost += u64::from(moved.saturating_sub(itself));
        self.raise_credit(limit)
    }

    /// The peer posted descriptors for messages.
    pub(super) fn raise_credit(&mut self, limit: u32) -> Result<(), Violation> {
        let raised = self.credit.raise(limit, MAX_MESSAGES);
        raised.map(drop).map_err(|(from, to)| Violation::Number {
            pool: MESSAGE_POOL,
            got: limit,
            from,
            to,
        })
    }

    /// A, C: the peer announces how many packets it has sent.
    fn announced(&mut self, element: Element) -> Result<(), Violation> {
        let (pool, number) = match element {
            Element::Index { pool, element, .. } => (pool, element),
            Element::Address { pool, at, .. } => {
                let at = at.get();
                return Err(Violation::Address { pool, at });
            }
        };
        let announced = self.indicated_pool(pool)?.announce(number);
        announced.map_err(|(from, to)| Violation::Number {
            pool,
            got: number,
            from,
            to,
        })?;
        self.settle_drained();
        Ok(())
    }
}
