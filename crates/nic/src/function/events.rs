//! Event queues and vectors of a function: its share of them, and the interrupts created from it (V1, E7).
//! A function never has more event queues than its share; vectors beyond it are shared (E10).

use std::sync::Arc;

use verbena_events::arrangement::Arrangement;
use verbena_events::interrupts::{Interrupts, Scheme};
use verbena_events::vector::Fire;
use verbena_sync::atomic::{AtomicU64, Ordering};

use super::{Function, Shares};
use crate::error::Error;
use crate::object::Object;

/// The function was removed, and gives out no claims any more.
const CLOSED: u64 = 1 << 63;

/// Event queues and vectors in use: one atomic word, because dropping a claim in a forked process must not wait for a lock.
#[derive(Debug, Default)]
pub(super) struct Claims(AtomicU64);

const fn pack(queues: u32, vectors: u32) -> u64 {
    (queues as u64) << 31 | vectors as u64
}

const fn unpack(word: u64) -> (u32, u32) {
    let word = word & !CLOSED;
    ((word >> 31) as u32, word as u32 & (u32::MAX >> 1))
}

impl Claims {
    /// Event queues and vectors in use.
    pub(super) fn used(&self) -> (u32, u32) {
        unpack(self.0.load(Ordering::Acquire))
    }

    /// Closes it if nothing is in use; otherwise returns false.
    pub(super) fn close(&self) -> bool {
        let closed = self
            .0
            .compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire);
        closed.is_ok()
    }

    /// Takes all of the event queues, and as many of the vectors as are left; returns how many vectors.
    fn take(
        self: &Arc<Self>,
        (queues, vectors): (u32, u32),
        most: &Shares,
    ) -> Result<(Claim, u32), Error> {
        let object = Object::EventQueue;
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if word & CLOSED != 0 {
                return Err(Error::FunctionRemoved { object });
            }
            let (queues_used, vectors_used) = unpack(word);
            if queues > most.event_queues.saturating_sub(queues_used) {
                let limit = most.event_queues;
                return Err(Error::Limit { object, limit });
            }
            let granted = vectors.min(most.vectors.saturating_sub(vectors_used));
            let claim = pack(queues, granted);
            match self.0.compare_exchange_weak(
                word,
                word + claim,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    let claims = self.clone();
                    let claim = Claim {
                        claims,
                        word: claim,
                    };
                    return Ok((claim, granted));
                }
                Err(now) => word = now,
            }
        }
    }
}

/// The part of a function's share that an [`Interrupts`] has, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    word: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.0.fetch_sub(self.word, Ordering::AcqRel);
    }
}

impl Function {
    /// The queues, maps and vectors of an arrangement, from the function's share: more event queues than that are an error,
    /// missing vectors are shared. Queues and vectors have numbers of this function only.
    pub fn create_interrupts(
        &self,
        arrangement: Arrangement,
        scheme: Scheme,
        processors: u16,
        fire: Box<dyn Fire>,
    ) -> Result<Interrupts, Error> {
        let mut interrupts = Interrupts::new(arrangement, scheme, processors, fire)?;
        let queues = u32::from(interrupts.queues());
        let vectors = u32::from(interrupts.vectors().requested());
        let shares = &self.attributes.shares;
        let (claim, granted) = self.claims.take((queues, vectors), shares)?;
        interrupts.set_claim(Box::new(claim), granted as u16);
        Ok(interrupts)
    }
}
