//! The message-vector maps: duty and processor to event queue and signal, and the flat one from queue to signal (E8, E9).
//! Each cell is one atomic, so it changes in one step under traffic. Whether the queues exist is checked by the caller.

use verbena_sync::primitives::{AtomicU32, Ordering};

use crate::vector::Signal;

/// Processors that a map can have columns for.
pub const MAX_PROCESSORS: u16 = 2048;
/// Event queues that a function can have.
pub const MAX_QUEUES: u16 = 2048;
/// Vectors that the flat map can name: 5 bits.
pub const FLAT_VECTORS: u16 = 32;

/// The part of the adapter that an event comes from: a row of the map. (Not called "function", which is a share of the adapter.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Duty {
    /// Managing the adapter.
    Management,
    /// RDMA, if the direction does not matter.
    Rdma,
    /// Plain TCP and channels.
    Tcp,
    /// The link.
    Mac,
    /// RDMA, completions of sends: a part of `Rdma`.
    RdmaTx,
    /// RDMA, completions of receives: a part of `Rdma`.
    RdmaRx,
}

impl Duty {
    /// All of them, in the order of the rows.
    pub const ALL: [Duty; 6] = [
        Duty::Management,
        Duty::Rdma,
        Duty::Tcp,
        Duty::Mac,
        Duty::RdmaTx,
        Duty::RdmaRx,
    ];
}

/// The queue that an event is written to, and how its driver is signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Route {
    /// The event queue.
    pub queue: u16,
    /// The signal.
    pub signal: Signal,
}

impl Route {
    const fn pack(self) -> u32 {
        (self.queue as u32) << 16 | self.signal.pack()
    }

    const fn unpack(word: u32) -> Route {
        Route {
            queue: (word >> 16) as u16,
            signal: Signal::unpack(word & 0xffff),
        }
    }
}

/// A cell that does not exist, or cannot hold the value. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// No column for this processor.
    #[error("processor {processor} does not exist; the map has {processors}")]
    Processor {
        /// The number.
        processor: u16,
        /// How many there are.
        processors: u16,
    },
    /// The number of processors is out of range.
    #[error("a map has 1 to {MAX_PROCESSORS} processors, not {0}")]
    Processors(u16),
    /// No event queue has this number.
    #[error("event queue {queue} does not exist; there are {queues}")]
    Queue {
        /// The number.
        queue: u16,
        /// How many there are.
        queues: u16,
    },
    /// The number of event queues is out of range.
    #[error("an adapter has 1 to {MAX_QUEUES} event queues, not {0}")]
    Queues(u16),
    /// The flat map has five bits for the vector.
    #[error("vector {0} does not fit the flat map: it names {FLAT_VECTORS} vectors")]
    Flat(u16),
}

/// Duty × processor → event queue and signal.
#[derive(Debug)]
pub struct MessageMap {
    processors: u16,
    cells: Box<[AtomicU32]>,
}

impl MessageMap {
    /// A map with these cells.
    pub fn new(
        processors: u16,
        mut route: impl FnMut(Duty, u16) -> Route,
    ) -> Result<MessageMap, MapError> {
        if !(1..=MAX_PROCESSORS).contains(&processors) {
            return Err(MapError::Processors(processors));
        }
        let mut cells = Vec::with_capacity(Duty::ALL.len() * usize::from(processors));
        for duty in Duty::ALL {
            for processor in 0..processors {
                cells.push(AtomicU32::new(route(duty, processor).pack()));
            }
        }
        Ok(MessageMap {
            processors,
            cells: cells.into(),
        })
    }

    /// Columns.
    pub fn processors(&self) -> u16 {
        self.processors
    }

    fn cell(&self, duty: Duty, processor: u16) -> Result<&AtomicU32, MapError> {
        let processors = self.processors;
        if processor >= processors {
            return Err(MapError::Processor {
                processor,
                processors,
            });
        }
        let row = duty as usize * usize::from(processors);
        Ok(&self.cells[row + usize::from(processor)])
    }

    /// The content of a cell.
    pub fn route(&self, duty: Duty, processor: u16) -> Result<Route, MapError> {
        let cell = self.cell(duty, processor)?;
        Ok(Route::unpack(cell.load(Ordering::Relaxed)))
    }

    /// Replaces the content of a cell, atomically; returns the old one.
    pub fn set(&self, duty: Duty, processor: u16, route: Route) -> Result<Route, MapError> {
        let cell = self.cell(duty, processor)?;
        Ok(Route::unpack(cell.swap(route.pack(), Ordering::Relaxed)))
    }
}

/// Event queue → legacy bit and vector of five bits.
#[derive(Debug)]
pub struct FlatMap {
    /// Bit 5 is the legacy bit.
    cells: Box<[AtomicU32]>,
}

const LEGACY: u32 = 1 << 5;

impl FlatMap {
    /// All queues on the legacy line.
    pub fn new(queues: u16) -> Result<FlatMap, MapError> {
        if !(1..=MAX_QUEUES).contains(&queues) {
            return Err(MapError::Queues(queues));
        }
        let legacy = |_| AtomicU32::new(LEGACY);
        Ok(FlatMap {
            cells: (0..queues).map(legacy).collect(),
        })
    }

    /// Queues.
    pub fn queues(&self) -> u16 {
        self.cells.len() as u16
    }

    fn cell(&self, queue: u16) -> Result<&AtomicU32, MapError> {
        let queues = self.queues();
        let cell = self.cells.get(usize::from(queue));
        cell.ok_or(MapError::Queue { queue, queues })
    }

    /// The signal of a queue.
    pub fn signal(&self, queue: u16) -> Result<Signal, MapError> {
        let word = self.cell(queue)?.load(Ordering::Relaxed);
        Ok(if word & LEGACY != 0 {
            Signal::Line
        } else {
            Signal::Vector(word as u16)
        })
    }

    /// Replaces the signal of a queue, atomically.
    pub fn set(&self, queue: u16, signal: Signal) -> Result<(), MapError> {
        let word = match signal {
            Signal::Line => LEGACY,
            Signal::Vector(vector) if vector < FLAT_VECTORS => u32::from(vector),
            Signal::Vector(vector) => return Err(MapError::Flat(vector)),
        };
        self.cell(queue)?.store(word, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
