//! Pools of both sides: ours are advertised, given back and recalled; the peer's are released (P6). A pool of ours is reported as
//! freed only when the peer has stopped using it and no packet to it is in flight.

use verbena_split_wire::push::{Body, Entry, Envelope, Message, Pool, Reference};

use super::{RECEIVER_OWNED, Session};
use crate::error::Misuse;
use crate::output::{Event, Output};
use crate::own_pool::{OwnPool, OwnPoolEvent, OwnPoolState};
use crate::peer_pools::{PeerPoolEvent, PeerPoolState};
use crate::settings::Arrangement;
use crate::transactions::OpenRequest;
use crate::window::MESSAGE_POOL;

/// Whether a pool is valid: its memory does not wrap, and its number has no reserved value.
pub(super) fn is_valid(pool: &Pool) -> bool {
    let bytes = u64::from(pool.count) * u64::from(pool.size);
    let numbered = pool.reference & RECEIVER_OWNED == 0 && pool.reference != MESSAGE_POOL;
    numbered && bytes > 0 && pool.at.checked_add(bytes).is_some()
}

impl Session {
    /// Lends pools to the peer, as many per message as fit. All are advertised, or none.
    ///
    /// In arrangements A and C the elements are receive descriptors, in the order of their numbers; handle and address have no
    /// meaning for the peer, and there is one pool at a time.
    pub fn advertise(&mut self, pools: &[Pool]) -> Result<(), Misuse> {
        self.check_pools(pools)?;
        for pool in pools {
            let counts = self.settings.arrangement.counts();
            self.owned
                .insert(pool.reference, OwnPool::new(*pool, counts));
            self.owned_elements += u64::from(pool.count);
            if self.settings.arrangement == Arrangement::Sends {
                self.outputs.push_back(Output::Post {
                    pool: pool.reference,
                    first: 0,
                    count: pool.count,
                });
            }
        }
        self.compose_pools(pools);
        Ok(())
    }

    pub(super) fn compose_pools(&mut self, pools: &[Pool]) {
        for part in pools.chunks(self.entries(Pool::LEN)) {
            let mut bytes = Vec::new();
            let context = self.transactions.context();
            Message::emit_pools(context, part, &mut bytes);
            self.outbox.push_back(bytes);
        }
    }

    fn check_pools(&self, pools: &[Pool]) -> Result<(), Misuse> {
        let limits = &self.settings.limits;
        if self.is_backlogged() {
            let most = limits.outputs;
            return Err(Misuse::Backlog { most });
        }
        let single = self.settings.arrangement.counts();
        let most = if single { 1 } else { limits.pools };
        let mut count = self.owned.len();
        let mut elements = self.owned_elements;
        for (at, pool) in pools.iter().enumerate() {
            let Pool {
                reference,
                count: of,
                size,
                ..
            } = *pool;
            if !is_valid(pool) {
                return Err(Misuse::BadPool {
                    reference,
                    count: of,
                    size,
                });
            }
            let twice = pools.iter().take(at).any(|p| p.reference == reference);
            if twice || self.owned.contains_key(&reference) {
                return Err(Misuse::PoolExists { reference });
            }
            count += 1;
            elements += u64::from(of);
            if count > most as usize || elements > u64::from(limits.elements) {
                return Err(Misuse::TooMuch {
                    reference,
                    pools: most,
                    elements: limits.elements,
                });
            }
        }
        Ok(())
    }

    /// The program returns an element in which a packet [arrived](Event::Arrived): the peer may use it again.
    pub fn give_back(&mut self, pool: u32, element: u32) -> Result<(), Misuse> {
        let owned = self.owned.get_mut(&pool);
        let owned = owned.ok_or(Misuse::UnknownPool { reference: pool })?;
        let again = owned
            .give_back(element)
            .ok_or(Misuse::NotHeld { pool, element })?;
        if again && self.settings.arrangement == Arrangement::Sends {
            // Posted before the peer is told.
            self.outputs.push_back(Output::Post {
                pool,
                first: element,
                count: 1,
            });
        }
        self.remove_if_finished(pool);
        Ok(())
    }

    /// Recalls pools of ours (P6): each is [freed](Event::PoolFreed) when the peer has stopped. Returns the last transaction's context.
    pub fn flush(&mut self, pools: &[u32]) -> Result<u64, Misuse> {
        for &reference in pools {
            let known = self.owned.get(&reference);
            if known.is_none_or(|owned| owned.state() != OwnPoolState::Lent) {
                return Err(Misuse::UnknownPool { reference });
            }
        }
        let parts = pools.chunks(self.entries(Reference::LEN));
        self.check_transactions(parts.len())?;
        let mut last = 0;
        for part in parts {
            for pool in part {
                if let Some(owned) = self.owned.get_mut(pool) {
                    owned.advance(OwnPoolEvent::Recall);
                }
            }
            last = self.request_flush(part, OpenRequest::Flush(part.to_vec()));
        }
        Ok(last)
    }

    /// Stops using a pool of the peer and tells the peer: it is [gone](Event::PoolClosed) when the peer has answered.
    pub fn release(&mut self, pool: u32) -> Result<(), Misuse> {
        // The request is made when no transfer is in flight; a transaction must be available then.
        let closing = self
            .peer_pools
            .iter()
            .filter(|l| l.state == PeerPoolState::Releasing);
        self.check_transactions(closing.count() + 1)?;
        let released = self.peer_pools.change(pool, |lent| {
            let next = lent.state.next(PeerPoolEvent::Release);
            lent.state = next.unwrap_or(lent.state);
            next.is_some()
        });
        if released != Some(true) {
            return Err(Misuse::UnknownPool { reference: pool });
        }
        self.settle_leases(pool);
        Ok(())
    }

    pub(super) fn check_transactions(&self, more: usize) -> Result<(), Misuse> {
        let most = self.settings.limits.transactions;
        if self.transactions.open_count() + more > most as usize {
            return Err(Misuse::TooManyRequests { most });
        }
        Ok(())
    }

    fn request_flush(&mut self, pools: &[u32], open: OpenRequest) -> u64 {
        let references: Vec<Reference> = pools.iter().copied().map(Reference).collect();
        let mut bytes = Vec::new();
        let context = self.transactions.context();
        Message::emit_flush(context, &references, &mut bytes);
        self.transactions.open(context, open, bytes.clone());
        self.outbox.push_back(bytes);
        context
    }

    /// If no transfer to this pool of the peer is in flight any more, answers the peer's recall, or asks the peer to take it back.
    pub(super) fn settle_leases(&mut self, pool: u32) {
        let Some(lent) = self.peer_pools.get(pool).filter(|l| !l.is_busy()) else {
            return;
        };
        let Some(next) = lent.state.next(PeerPoolEvent::Drained) else {
            return;
        };
        self.announce(pool);
        if next == PeerPoolState::Closed {
            self.remove_peer_pool(pool);
        } else {
            self.peer_pools.change(pool, |lent| lent.state = next);
            self.request_flush(&[pool | RECEIVER_OWNED], OpenRequest::Release(pool));
        }
    }

    /// Removes a pool of the peer.
    pub(super) fn remove_peer_pool(&mut self, pool: u32) {
        self.peer_pools.remove(pool);
        self.transactions.drained(pool);
        self.event(Event::PoolClosed { pool });
        self.answer_recalls();
    }

    pub(super) fn answer_recalls(&mut self) {
        for context in self.transactions.take_answerable() {
            if let Err(violation) = self.compose_reply(context, Body::BufferPoolFlushReply) {
                self.count_violation(violation);
            }
        }
    }

    /// The peer has stopped using a pool of ours.
    pub(super) fn handle_stopped(&mut self, pool: u32) {
        if let Some(owned) = self.owned.get_mut(&pool) {
            owned.advance(OwnPoolEvent::Stopped);
        }
        self.settle_drained();
    }

    /// Frees the pools that the peer has stopped using and to which no packet is in flight.
    pub(super) fn settle_drained(&mut self) {
        let drained = |o: &&mut OwnPool| o.state() == OwnPoolState::Draining && o.missing() == 0;
        let mut freed = Vec::new();
        for owned in self.owned.values_mut().filter(drained) {
            owned.advance(OwnPoolEvent::Drained);
            freed.push(owned.pool().reference);
        }
        for pool in freed {
            if self.settings.arrangement == Arrangement::Sends {
                self.outputs.push_back(Output::Withdraw { pool });
            }
            self.event(Event::PoolFreed { pool });
            self.remove_if_finished(pool);
        }
    }

    fn remove_if_finished(&mut self, pool: u32) {
        if self.owned.get(&pool).is_some_and(OwnPool::is_finished) {
            let owned = self.owned.remove(&pool);
            self.owned_elements -= owned.map_or(0, |o| u64::from(o.pool().count));
        }
    }

    /// Entries of this many bytes that fit a message.
    pub(super) fn entries(&self, len: usize) -> usize {
        ((self.settings.frame as usize).saturating_sub(Envelope::LEN) / len).max(1)
    }
}
