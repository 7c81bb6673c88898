//! Vectors: the interrupts an adapter asked for, those it was granted, and how each is delivered (E10).
//! With fewer vectors than asked for several share one and no signal is lost; more than asked for stay unused. Threads are not known
//! here: they belong to the implementation of [`Fire`].

use verbena_sync::primitives::{AtomicU32, Ordering};

/// Vectors that an adapter can ask for.
pub const MAX_VECTORS: u16 = 2048;

/// How an adapter interrupts: by message, or by the one shared line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// The legacy line.
    Line,
    /// A message with this vector.
    Vector(u16),
}

impl Signal {
    pub(crate) const fn pack(self) -> u32 {
        match self {
            Signal::Line => 0,
            Signal::Vector(vector) => vector as u32 + 1,
        }
    }

    pub(crate) const fn unpack(word: u32) -> Signal {
        match word {
            0 => Signal::Line,
            word => Signal::Vector((word - 1) as u16),
        }
    }
}

/// How a signal reaches its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The handler runs on the thread that fires, after all locks are released (MSI-like).
    Inline,
    /// The handler runs on the thread of this processor (MSI-X-like).
    Pinned(u16),
    /// Everything over the one legacy line.
    Line,
}

/// Why an adapter stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Shutdown {
    /// An event was to be written to a queue that is undefined (E2).
    #[error("an event was raised for event queue {queue}, which is undefined")]
    Undefined {
        /// The queue.
        queue: u16,
    },
    /// A queue had no room and its backlog was full (E2).
    #[error(
        "event queue {queue} was full and {kept} events were kept beside it, which is the limit"
    )]
    Overflow {
        /// The queue.
        queue: u16,
        /// Events in the backlog.
        kept: usize,
    },
}

/// Receives signals. Called without any lock of the adapter held; may call back into it.
pub trait Fire: Send + Sync {
    /// An interrupt. Its handler calls [`Interrupts::service`](crate::interrupts::Interrupts::service) for the same signal; additional
    /// calls are harmless, missing ones are not. Serving a busy queue fires again at its end: an implementation that serves inline must
    /// record that and serve in a loop, so that the stack does not grow.
    fn fire(&self, signal: Signal, delivery: Delivery);

    /// Out of band: an event queue has no room, and events go to its backlog. Resize or switch it.
    fn overflow(&self, queue: u16);

    /// Out of band: the adapter is down. Called once.
    fn shutdown(&self, why: Shutdown);
}

/// Invalid vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VectorError {
    /// Too many.
    #[error("an adapter asks for up to {MAX_VECTORS} vectors, not {0}")]
    TooMany(u16),
    /// No vector has this number.
    #[error("vector {vector} does not exist; {requested} were asked for")]
    NoSuch {
        /// The number.
        vector: u16,
        /// How many there are.
        requested: u16,
    },
}

/// The vectors of an adapter.
#[derive(Debug)]
pub struct Vectors {
    /// How each is delivered.
    deliveries: Box<[AtomicU32]>,
    granted: AtomicU32,
    /// Most vectors that are granted: the share of their function (V1).
    max_granted: u16,
}

impl Vectors {
    /// `asked` vectors, all granted and delivered inline.
    pub fn new(asked: u16) -> Result<Vectors, VectorError> {
        if asked > MAX_VECTORS {
            return Err(VectorError::TooMany(asked));
        }
        let inline = |_| AtomicU32::new(pack(Delivery::Inline));
        Ok(Vectors {
            deliveries: (0..asked).map(inline).collect(),
            granted: AtomicU32::new(u32::from(asked)),
            max_granted: u16::MAX,
        })
    }

    /// Vectors asked for.
    pub fn requested(&self) -> u16 {
        self.deliveries.len() as u16
    }

    /// Vectors that can be used: those granted, but no more than asked for.
    pub fn usable(&self) -> u16 {
        let granted = self.granted.load(Ordering::Relaxed);
        granted.min(u32::from(self.requested())) as u16
    }

    /// Sets how many are granted: if fewer than asked for they are shared, more stay unused, none means the legacy line.
    pub fn grant(&self, granted: u16) {
        let granted = granted.min(self.max_granted);
        self.granted.store(u32::from(granted), Ordering::Relaxed);
    }

    /// Limits how many are ever granted.
    pub(crate) fn limit(&mut self, most: u16) {
        self.max_granted = most;
        self.grant(self.usable());
    }

    /// Sets how signals of a vector are delivered.
    pub fn deliver(&self, vector: u16, delivery: Delivery) -> Result<(), VectorError> {
        self.check(vector)?;
        self.deliveries[usize::from(vector)].store(pack(delivery), Ordering::Relaxed);
        Ok(())
    }

    /// How signals of a vector are delivered, if there is such a vector.
    pub fn delivery(&self, vector: u16) -> Option<Delivery> {
        let word = self.deliveries.get(usize::from(vector))?;
        Some(unpack(word.load(Ordering::Relaxed)))
    }

    /// Checks that the vector exists.
    pub fn check(&self, vector: u16) -> Result<(), VectorError> {
        let asked = self.requested();
        if vector < asked {
            Ok(())
        } else {
            Err(VectorError::NoSuch {
                vector,
                requested: asked,
            })
        }
    }

    /// The signal that is given after sharing, and its delivery.
    pub(crate) fn resolve(&self, signal: Signal) -> (Signal, Delivery) {
        let usable = self.usable();
        match signal {
            Signal::Vector(vector) if usable > 0 => {
                // Fewer than asked for: several share one, and its handler serves all their queues.
                let vector = vector % usable;
                let delivery = &self.deliveries[usize::from(vector)];
                let delivery = unpack(delivery.load(Ordering::Relaxed));
                match delivery {
                    Delivery::Line => (Signal::Line, Delivery::Line),
                    _ => (Signal::Vector(vector), delivery),
                }
            }
            _ => (Signal::Line, Delivery::Line),
        }
    }
}

const fn pack(delivery: Delivery) -> u32 {
    match delivery {
        Delivery::Inline => 0,
        Delivery::Line => 1,
        Delivery::Pinned(processor) => processor as u32 + 2,
    }
}

const fn unpack(word: u32) -> Delivery {
    match word {
        0 => Delivery::Inline,
        1 => Delivery::Line,
        word => Delivery::Pinned((word - 2) as u16),
    }
}

#[cfg(test)]
mod tests;
