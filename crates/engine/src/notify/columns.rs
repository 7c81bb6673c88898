//! The columns of the message-vector map as the engine uses them: which event queue and vector each handler has, and which it shares (N5, E9).
//! It is computed once, when the event queues exist: neither the map nor the number of vectors changes afterwards.

use verbena_events::interrupts::Interrupts;
use verbena_events::message_map::{Duty, MapError, Route};
use verbena_events::vector::Signal;

use crate::notify::handler::{HandlerId, handler_of_column};

/// What a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    /// The event queue.
    pub(crate) queue: u16,
    /// No other column uses the event queue.
    pub(crate) own_queue: bool,
    /// The vector, if no other column uses it or the event queue: its signals can be served by the handler's threads.
    pub(crate) own_vector: Option<u16>,
}

/// All columns.
#[derive(Debug)]
pub(crate) struct Columns {
    all: Box<[Column]>,
    /// The handler of each vector that has one.
    handlers: Box<[Option<HandlerId>]>,
}

impl Columns {
    pub(crate) fn new(interrupts: &Interrupts) -> Result<Columns, MapError> {
        let route = |column| interrupts.effective_route(Duty::Rdma, column);
        let routes: Vec<Route> = (0..interrupts.processors())
            .map(route)
            .collect::<Result<_, _>>()?;
        let mut queues = vec![0u32; usize::from(interrupts.queues())];
        let mut vectors = vec![0u32; usize::from(interrupts.vectors().requested())];
        // Columns 0 and 1 stand for global events and those of RDMA, whose routes are fixed (E7).
        let users = interrupts.default_routes()?;
        for Route { queue, signal } in users.iter().chain(routes.iter().skip(users.len())) {
            queues[usize::from(*queue)] += 1;
            if let Signal::Vector(vector) = signal {
                vectors[usize::from(*vector)] += 1;
            }
        }
        let mut handlers = vec![None; vectors.len()];
        let all = (0..)
            .zip(&routes)
            .map(|(column, &Route { queue, signal })| {
                let own_queue = queues[usize::from(queue)] == 1;
                let own_vector = match signal {
                    Signal::Vector(vector) if own_queue && vectors[usize::from(vector)] == 1 => {
                        Some(vector)
                    }
                    Signal::Vector(_) | Signal::Line => None,
                };
                if let Some(vector) = own_vector {
                    handlers[usize::from(vector)] = handler_of_column(column);
                }
                Column {
                    queue,
                    own_queue,
                    own_vector,
                }
            });
        Ok(Columns {
            all: all.collect(),
            handlers: handlers.into(),
        })
    }

    /// What a column has.
    pub(crate) fn get(&self, column: u16) -> Column {
        self.all[usize::from(column)]
    }

    /// The handler whose own vector this is.
    pub(crate) fn handler_of_vector(&self, vector: u16) -> Option<HandlerId> {
        *self.handlers.get(usize::from(vector))?
    }
}

#[cfg(test)]
mod tests;
