//! Composes messages when the carrier polls, so that everything since the last poll shares them. A message is sent only with credit
//! for a receive descriptor of the peer, and the last credit is reserved for granting credit, so that two sides never deadlock. The
//! exception is the announcement of messages in `synchronise`.

use verbena_split_wire::push::{Body, Element, Entry, Function, Message, Pool, Range};

use super::{ElementRequest, RECEIVER_OWNED, Session};
use crate::output::Output;
use crate::own_pool::{OwnPool, OwnPoolState};
use crate::peer_pools::PeerElementEvent;
use crate::settings::IndicationMode;
use crate::window::MESSAGE_POOL;

/// The longer form of an indicated element on the wire.
const ELEMENT_LEN: usize = 16;

impl Session {
    pub(super) fn pump(&mut self) {
        self.pump_grant();
        self.pump_indications();
        self.pump_outbox();
        self.pump_updates();
        self.pump_element_request();
    }

    /// One credit is reserved for [`pump_grant`](Self::pump_grant).
    fn may_send(&self) -> bool {
        self.credit.left() > 1
    }

    fn transmit(&mut self, bytes: Vec<u8>) {
        self.credit.spend();
        self.counters.messages_out += 1;
        self.outputs.push_back(Output::Send(bytes));
    }

    /// Grants new credit for messages when half of the window is used.
    fn pump_grant(&mut self) {
        let window = self.settings.messages;
        if self.credit.left() == 0 || self.grant.grantable(window) < window / 2 {
            return;
        }
        let (first, count) = self.grant.grant(window);
        let pool = MESSAGE_POOL;
        self.transmit_ranges(&[Range { pool, first, count }]);
    }

    fn transmit_ranges(&mut self, ranges: &[Range]) {
        let mut bytes = Vec::new();
        let context = self.transactions.context();
        Message::emit_ranges(context, ranges, &mut bytes);
        self.transmit(bytes);
    }

    /// P7: indications that did not fit the immediate data, several elements per message.
    fn pump_indications(&mut self) {
        let most = self.entries(ELEMENT_LEN);
        while self.may_send() && !self.indications.is_empty() {
            let count = most.min(self.indications.len());
            let batch: Vec<_> = self.indications.drain(..count).collect();
            let mut elements = Vec::with_capacity(count);
            for &(pool, element, length) in &batch {
                self.peer_pools
                    .change(pool, |lent| lent.step(element, PeerElementEvent::Indicate));
                elements.push(self.indication_element(pool, element, length));
            }
            self.counters.indications_out += count as u64;
            let mut bytes = Vec::new();
            let context = self.transactions.context();
            Message::emit_elements(context, &elements, &mut bytes);
            self.transmit(bytes);
            for (pool, ..) in batch {
                self.settle_leases(pool);
            }
        }
    }

    fn indication_element(&self, pool: u32, element: u32, length: u32) -> Element {
        match self.peer_pools.get(pool) {
            Some(lent) if self.settings.indication == IndicationMode::Address => Element::Address {
                pool,
                at: lent.address(element),
                length,
            },
            _ => Element::Index {
                pool,
                element,
                length,
            },
        }
    }

    fn pump_outbox(&mut self) {
        while self.may_send()
            && let Some(bytes) = self.outbox.pop_front()
        {
            self.transmit(bytes);
        }
    }

    /// Elements that the program gave back, of as many pools as fit a message.
    fn pump_updates(&mut self) {
        let most = self.entries(Range::LEN);
        while self.may_send() {
            let mut ranges = Vec::new();
            let hurry = self.is_peer_low;
            for owned in self.owned.values_mut().filter(|o| o.is_due(hurry)) {
                owned.update(most, &mut ranges);
                if ranges.len() >= most {
                    break;
                }
            }
            if ranges.is_empty() {
                self.is_peer_low = false;
                return;
            }
            self.transmit_ranges(&ranges);
        }
    }

    fn pump_element_request(&mut self) {
        let ElementRequest::Due(size) = self.element_request else {
            return;
        };
        if self.may_send() {
            self.element_request = ElementRequest::Sent(size);
            let context = self.transactions.context();
            let count = self.settings.request_count;
            let body = Body::BufferRecvPoolGet { count, size };
            let mut bytes = Vec::new();
            Message { context, body }.emit(&mut bytes);
            self.transmit(bytes);
        }
    }

    /// Tells the peer how many packets were sent to a pool of descriptors, so that it can detect missing ones.
    pub(super) fn announce(&mut self, pool: u32) {
        if let Some(element) = self
            .peer_pools
            .get(pool)
            .and_then(crate::peer_pools::PeerPool::packets_sent)
        {
            let mut bytes = Vec::new();
            let context = self.transactions.context();
            Message::emit_elements(context, &[announcement(pool, element, 0)], &mut bytes);
            self.outbox.push_back(bytes);
        }
    }

    /// Repeats everything that may have been lost, where channels are not acknowledged.
    pub(super) fn repeat(&mut self) {
        self.synchronise();
        if !self.outbox.is_empty() {
            return;
        }
        // A recalled pool must not be advertised again.
        let lent = |o: &&OwnPool| o.state() == OwnPoolState::Lent;
        let pools: Vec<Pool> = self
            .owned
            .values()
            .filter(lent)
            .map(|o| *o.pool())
            .collect();
        self.compose_pools(&pools);
        let again = self
            .owned
            .values()
            .filter(lent)
            .filter_map(OwnPool::current_grant);
        let ranges: Vec<Range> = again.collect();
        if !ranges.is_empty() {
            let mut bytes = Vec::new();
            let context = self.transactions.context();
            Message::emit_ranges(context, &ranges, &mut bytes);
            self.outbox.push_back(bytes);
        }
        // Also for a pool with full credit: its owner may have counted packets twice, as given up and as arrived.
        let used = self
            .peer_pools
            .iter()
            .filter(|l| l.packets_sent() != Some(0));
        let used: Vec<u32> = used.map(|l| l.pool.reference).collect();
        for pool in used {
            self.announce(pool);
        }
        self.outbox.extend(self.transactions.repeat_open());
    }

    /// Announces how many messages were sent before this one, which is counted itself if there is credit for it, and up to which number
    /// the peer may send. It is sent even without credit: the lost messages took the credit, and their descriptors are free.
    fn synchronise(&mut self) {
        let context = self.transactions.context();
        let counted = u32::from(self.credit.left() > 0);
        // Both sides may be out of credit, each waiting for the other's grant.
        self.grant.grant(self.settings.messages);
        let elements = [
            announcement(MESSAGE_POOL, self.credit.sent(), counted),
            announcement(MESSAGE_POOL, self.grant.limit(), 0),
        ];
        let mut bytes = Vec::new();
        Message::emit_elements(context, &elements, &mut bytes);
        if counted > 0 {
            self.transmit(bytes);
        } else {
            self.counters.messages_out += 1;
            self.outputs.push_back(Output::Send(bytes));
        }
    }
}

/// An entry that announces how many were sent; the length tells whether this message is one more.
fn announcement(pool: u32, number: u32, itself: u32) -> Element {
    Element::Index {
        pool,
        element: number,
        length: itself,
    }
}

/// Relations that the composition of messages relies on.
const _: () = {
    assert!(MESSAGE_POOL & RECEIVER_OWNED == 0);
    assert!(crate::window::INITIAL_CREDIT >= 4);
    assert!(Function::BufferRecvPool as u16 == 1);
};
