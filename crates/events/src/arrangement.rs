//! Arrangements: how many event queues and vectors there are, and which duties and processors share one, by name (E9).
//! Each arrangement yields a complete map for any number of processors; together they are all combinations listed in docs/events.md
//! and the rest of the grid. Vectors that the host did not grant are shared later.

use crate::message_map::{Duty, FLAT_VECTORS, FlatMap, MapError, MessageMap, Route};
use crate::vector::Signal;

/// How duties and processors share queues or vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Spread {
    /// There is none: the legacy line.
    None,
    /// One for all.
    One,
    /// One per processor.
    PerProcessor,
    /// One per duty.
    PerDuty,
    /// One per duty and processor.
    PerBoth,
    /// So many per processor, over which its duties are distributed.
    Several(u16),
    /// One for so many queues in a row.
    Grouped(u16),
}

impl Spread {
    /// How many there are.
    fn count(self, processors: u16, queues: u16) -> u16 {
        let duties = Duty::ALL.len() as u16;
        match self {
            Spread::None => 0,
            Spread::One => 1,
            Spread::PerProcessor => processors,
            Spread::PerDuty => duties,
            Spread::PerBoth => duties * processors,
            Spread::Several(each) => each.max(1) * processors,
            Spread::Grouped(each) => queues.div_ceil(each.max(1)),
        }
    }

    /// Which one.
    fn pick(self, duty: Duty, processor: u16, processors: u16, queue: u16) -> Option<u16> {
        let row = duty as u16;
        Some(match self {
            Spread::None => return None,
            Spread::One => 0,
            Spread::PerProcessor => processor,
            Spread::PerDuty => row,
            Spread::PerBoth => row * processors + processor,
            Spread::Several(each) => processor * each.max(1) + row % each.max(1),
            Spread::Grouped(each) => queue / each.max(1),
        })
    }
}

macro_rules! arrangements {
    ($($(#[$doc:meta])+ $name:ident = $queues:expr, $vectors:expr;)+) => {
        /// A named arrangement of event queues and vectors.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Arrangement {
            $($(#[$doc])+ $name,)+
        }

        impl Arrangement {
            /// All of them.
            pub const ALL: &[Arrangement] = &[$(Arrangement::$name,)+];

            /// How queues and how vectors are shared.
            pub const fn spreads(self) -> (Spread, Spread) {
                match self {
                    $(Arrangement::$name => ($queues, $vectors),)+
                }
            }
        }
    };
}

arrangements! {
    /// One queue, the line. (\[0049\])
    OneQueueLine = Spread::One, Spread::None;
    /// One queue per processor, the line. (\[0049\])
    ProcessorQueuesLine = Spread::PerProcessor, Spread::None;
    /// One queue per duty, the line. (\[0049\])
    DutyQueuesLine = Spread::PerDuty, Spread::None;
    /// One queue per duty and processor, the line. (\[0049\])
    AllQueuesLine = Spread::PerBoth, Spread::None;
    /// One queue, one vector. (\[0050\])
    OneQueueOneVector = Spread::One, Spread::One;
    /// One queue, one vector per processor: several vectors for one queue. (\[0050\])
    OneQueueProcessorVectors = Spread::One, Spread::PerProcessor;
    /// One queue, one vector per duty.
    OneQueueDutyVectors = Spread::One, Spread::PerDuty;
    /// One queue, one vector per duty and processor.
    OneQueueAllVectors = Spread::One, Spread::PerBoth;
    /// One queue per processor, one vector. (\[0050\])
    ProcessorQueuesOneVector = Spread::PerProcessor, Spread::One;
    /// One queue and one vector per processor. (\[0050\])
    ProcessorQueuesProcessorVectors = Spread::PerProcessor, Spread::PerProcessor;
    /// One queue per processor, one vector per duty.
    ProcessorQueuesDutyVectors = Spread::PerProcessor, Spread::PerDuty;
    /// One queue and several vectors per processor: one for each duty. (\[0051\])
    ProcessorQueuesAllVectors = Spread::PerProcessor, Spread::PerBoth;
    /// Several queues and several vectors per processor, of which either may be shared. (\[0051\])
    SeveralQueuesSeveralVectors = Spread::Several(2), Spread::Several(3);
    /// One vector for several queues. (\[0051\])
    AllQueuesGroupedVectors = Spread::PerBoth, Spread::Grouped(4);
    /// One queue per duty, one vector. (\[0052\])
    DutyQueuesOneVector = Spread::PerDuty, Spread::One;
    /// One queue per duty, one vector per processor. (\[0052\])
    DutyQueuesProcessorVectors = Spread::PerDuty, Spread::PerProcessor;
    /// One queue and one vector per duty. (\[0052\])
    DutyQueuesDutyVectors = Spread::PerDuty, Spread::PerDuty;
    /// One queue per duty, one vector per duty and processor.
    DutyQueuesAllVectors = Spread::PerDuty, Spread::PerBoth;
    /// One queue per duty and processor, one vector. (\[0052\])
    AllQueuesOneVector = Spread::PerBoth, Spread::One;
    /// One queue per duty and processor, one vector per processor. (\[0052\])
    AllQueuesProcessorVectors = Spread::PerBoth, Spread::PerProcessor;
    /// One queue per duty and processor, one vector per duty. (\[0052\])
    AllQueuesDutyVectors = Spread::PerBoth, Spread::PerDuty;
    /// One queue and one vector per duty and processor. (\[0052\])
    AllQueuesAllVectors = Spread::PerBoth, Spread::PerBoth;
}

impl Arrangement {
    /// Queues needed.
    pub fn queues(self, processors: u16) -> u16 {
        self.spreads().0.count(processors, 0)
    }

    /// Vectors requested.
    pub fn vectors(self, processors: u16) -> u16 {
        self.spreads().1.count(processors, self.queues(processors))
    }

    /// Where the events of a duty on a processor go.
    pub fn route(self, duty: Duty, processor: u16, processors: u16) -> Route {
        let (queues, vectors) = self.spreads();
        let queue = queues.pick(duty, processor, processors, 0).unwrap_or(0);
        let vector = vectors.pick(duty, processor, processors, queue);
        Route {
            queue,
            signal: vector.map_or(Signal::Line, Signal::Vector),
        }
    }

    /// The map.
    pub fn map(self, processors: u16) -> Result<MessageMap, MapError> {
        MessageMap::new(processors, |duty, processor| {
            self.route(duty, processor, processors)
        })
    }

    /// The flat map: each queue with the first vector that the map has for it, modulo the 32 vectors that five bits can name.
    pub fn flat(self, processors: u16) -> Result<FlatMap, MapError> {
        let flat = FlatMap::new(self.queues(processors))?;
        for processor in (0..processors).rev() {
            for duty in Duty::ALL.into_iter().rev() {
                let Route { queue, signal } = self.route(duty, processor, processors);
                let signal = match signal {
                    Signal::Vector(vector) => Signal::Vector(vector % FLAT_VECTORS),
                    Signal::Line => Signal::Line,
                };
                flat.set(queue, signal)?;
            }
        }
        Ok(flat)
    }
}

#[cfg(test)]
mod tests;
