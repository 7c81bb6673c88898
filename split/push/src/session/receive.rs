//! Messages that arrive, and their effect on pools and flushes. Every entry of a message is checked by itself, an unknown message is
//! answered (P6), and a message beyond the granted credit is a violation.

use verbena_split_wire::push::{Body, Entries, Function, Message, Parsed, Pool, Range, Reference};

use super::arrive::synchronisation;
use super::pools::is_valid;
use super::{RECEIVER_OWNED, Session};
use crate::error::{Violation, keep_first};
use crate::output::{Channel, Event};
use crate::peer_pools::{PeerPoolEvent, PeerPoolState};
use crate::settings::Arrangement;
use crate::transactions::{OpenRequest, Recall};
use crate::window::MESSAGE_POOL;

impl Session {
    /// A message arrived. Poll all outputs before its buffer is reused. On a violation the offending part was ignored and counted.
    pub fn handle_message(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), Violation> {
        self.counters.messages_in += 1;
        let result = self.process_message(channel, bytes);
        result.map_err(|violation| self.count_violation(violation))
    }

    pub(super) fn check_backlog(&self) -> Result<(), Violation> {
        let most = self.settings.limits.outputs;
        match self.is_backlogged() {
            true => Err(Violation::Backlog { most }),
            false => Ok(()),
        }
    }

    fn process_message(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), Violation> {
        self.check_backlog()?;
        if channel != Channel::Control {
            return Err(Violation::Channel(channel));
        }
        let parsed = Message::parse(bytes);
        match &parsed {
            // These are counted by themselves.
            Ok(Parsed::Known(message)) if self.is_uncounted(message) => {}
            _ if !self.grant.receive() => {
                let window = self.settings.messages;
                return Err(Violation::MessageOverrun { window });
            }
            _ => {}
        }
        match parsed {
            Ok(Parsed::Known(message)) => self.handle(&message),
            // Counted and answered, never fatal.
            Ok(Parsed::Unknown(envelope)) => {
                self.counters.unknown += 1;
                let Message { context, body } = envelope.unknown_reply();
                self.compose_reply(context, body)
            }
            Err(malformed) => {
                self.answer_malformed(bytes)?;
                Err(malformed.into())
            }
        }
    }

    /// A packet in a message has its own window, and an announcement of messages says itself whether it is counted.
    fn is_uncounted(&self, message: &Message<'_>) -> bool {
        match message.body {
            Body::SendData(_) => self.settings.arrangement == Arrangement::Single,
            Body::BufferRdmaIndicate(elements) => {
                self.settings.arrangement.counts() && synchronisation(elements).is_some()
            }
            _ => false,
        }
    }

    fn handle(&mut self, message: &Message<'_>) -> Result<(), Violation> {
        let context = message.context;
        match message.body {
            Body::BufferRecvPool(pools) => self.handle_pools(pools),
            Body::BufferRecvPoolGet { count, size } => {
                self.is_peer_low = true;
                self.event(Event::PoolRequested { count, size });
                Ok(())
            }
            Body::BufferRecvPoolUpdate(ranges) => self.handle_ranges(ranges),
            Body::BufferPoolFlushRequest(pools) => self.handle_flush(context, pools),
            Body::BufferPoolFlushReply => self.handle_flush_reply(context),
            Body::SendData(data) => self.handle_data(data),
            Body::BufferRdmaIndicate(elements) => self.handle_elements(elements),
            Body::CfgUtilRequest { operation, data } => {
                self.handle_request(context, operation, data)
            }
            Body::CfgUtilReply {
                operation,
                status,
                data,
            } => self.handle_reply(context, operation, status, data),
        }
    }

    fn handle_pools(&mut self, pools: Entries<'_, Pool>) -> Result<(), Violation> {
        let mut result = Ok(());
        for pool in pools.iter() {
            keep_first(&mut result, self.handle_pool(pool));
        }
        self.report_room();
        result
    }

    fn handle_pool(&mut self, pool: Pool) -> Result<(), Violation> {
        let Pool {
            reference,
            count,
            size,
            ..
        } = pool;
        let counts = self.settings.arrangement.counts();
        let known = self.peer_pools.get(reference);
        if counts && known.is_some_and(|lent| lent.pool == pool) {
            // Repeated, see `refresh`.
            return Ok(());
        }
        if known.is_some() || !is_valid(&pool) {
            return Err(Violation::BadPool {
                reference,
                count,
                size,
            });
        }
        let limits = &self.settings.limits;
        let most = if counts { 1 } else { limits.pools as usize };
        let elements = self.peer_pools.elements() + u64::from(count);
        if self.peer_pools.len() >= most || elements > u64::from(limits.elements) {
            return Err(Violation::TooMuch { reference, count });
        }
        self.peer_pools.insert(pool, counts);
        self.event(Event::PoolLent(pool));
        Ok(())
    }

    fn handle_ranges(&mut self, ranges: Entries<'_, Range>) -> Result<(), Violation> {
        let mut result = Ok(());
        for range in ranges.iter() {
            keep_first(&mut result, self.handle_range(range));
        }
        self.report_room();
        result
    }

    fn handle_range(&mut self, range: Range) -> Result<(), Violation> {
        let Range { pool, first, count } = range;
        let limit = first.wrapping_add(count);
        if pool == MESSAGE_POOL {
            return self.raise_credit(limit);
        }
        let function = Function::BufferRecvPoolUpdate as u16;
        let lent = self.peer_pools.get(pool);
        let of = lent
            .map(|lent| lent.pool.count)
            .ok_or(Violation::UnknownPool {
                function,
                reference: pool,
            })?;
        if self.settings.arrangement.counts() {
            let raised = self.peer_pools.raise(pool, limit);
            return raised.map(drop).map_err(|(from, to)| Violation::Number {
                pool,
                got: limit,
                from,
                to,
            });
        }
        if u64::from(first) + u64::from(count) > u64::from(of) {
            return Err(Violation::Range {
                pool,
                first,
                count,
                of,
            });
        }
        // Ends at the first element that was not in use, so that a message costs no more than the elements it gives back.
        (first..first + count).try_for_each(|element| {
            let back = self.peer_pools.give_back(pool, element);
            back.then_some(())
                .ok_or(Violation::NotUsed { pool, element })
        })
    }

    fn handle_flush(
        &mut self,
        context: u64,
        pools: Entries<'_, Reference>,
    ) -> Result<(), Violation> {
        let theirs = pools.iter().filter(|Reference(p)| p & RECEIVER_OWNED == 0);
        // A pool that is unknown, because it is gone already, is not in use.
        let busy: Vec<u32> = theirs
            .map(|Reference(pool)| pool)
            .filter(|pool| self.peer_pools.get(*pool).is_some())
            .collect();
        let most = self.settings.limits.transactions;
        let recall = Recall {
            context,
            busy: busy.clone(),
        };
        if !self.transactions.add_recall(recall, most) {
            return Err(Violation::TooManyRequests { most });
        }
        for Reference(pool) in pools.iter().filter(|Reference(p)| p & RECEIVER_OWNED != 0) {
            self.handle_stopped(pool & !RECEIVER_OWNED);
        }
        for pool in busy {
            let recall = |lent: &mut crate::peer_pools::PeerPool| {
                lent.state = lent.state.next(PeerPoolEvent::Recall).unwrap_or(lent.state);
                lent.state
            };
            match self.peer_pools.change(pool, recall) {
                Some(PeerPoolState::Closed) => self.remove_peer_pool(pool),
                _ => self.settle_leases(pool),
            }
        }
        self.answer_recalls();
        Ok(())
    }

    fn handle_flush_reply(&mut self, context: u64) -> Result<(), Violation> {
        match self.transactions.get(context) {
            Some(OpenRequest::Flush(_) | OpenRequest::Release(_)) => {}
            None if self.transactions.is_repeated_reply(context) => return Ok(()),
            Some(OpenRequest::Config) | None => return Err(Violation::StrayReply { context }),
        }
        match self.transactions.close(context) {
            Some(OpenRequest::Flush(pools)) => {
                pools.into_iter().for_each(|pool| self.handle_stopped(pool));
            }
            // Gone already if the peer recalled it at the same time.
            Some(OpenRequest::Release(pool)) if self.is_answered(pool) => {
                self.remove_peer_pool(pool);
            }
            Some(OpenRequest::Release(_)) => {}
            Some(OpenRequest::Config) | None => {}
        }
        Ok(())
    }

    fn is_answered(&self, pool: u32) -> bool {
        let lent = self.peer_pools.get(pool);
        lent.is_some_and(|lent| {
            lent.state.next(PeerPoolEvent::Reply) == Some(PeerPoolState::Closed)
        })
    }
}
