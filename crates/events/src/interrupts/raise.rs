//! Raising an event: finding its queue and signal, writing the entry, firing (E7, E8).
//! It allocates only when a queue is full (the backlog), holds only short locks, and fires without any. An event that can neither be
//! written nor kept shuts the adapter down.

use super::*;
use crate::eq::{EqError, Outcome};
use crate::eqe::{CHANNELS, Cause, Class, Eqe};
use crate::event::Event;
use crate::message_map::{Duty, Route};
use crate::toeplitz::Tuple;

/// Where an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Unspecified: it bypasses the hash, and the defaults apply.
    Unspecified,
    /// From a packet: its addresses are hashed.
    Packet(Tuple),
    /// For this processor.
    Processor(u16),
    /// For this event queue, for example that of the completion queue.
    Queue(u16),
}

/// Where an event comes from, and which part of the adapter it concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The place.
    pub at: At,
    /// The part; by default it follows from the class.
    pub duty: Option<Duty>,
    /// A second object for the entry: the connection or work queue.
    pub context: u32,
}

impl Origin {
    /// Unspecified.
    pub const UNSPECIFIED: Origin = Origin::new(At::Unspecified);

    /// At this place.
    pub const fn new(at: At) -> Origin {
        Origin {
            at,
            duty: None,
            context: 0,
        }
    }

    /// From this part of the adapter.
    pub const fn with_duty(self, duty: Duty) -> Origin {
        let duty = Some(duty);
        Origin { duty, ..self }
    }
}

/// Result of raising an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a signal that is held back needs a timer"]
pub struct Raised {
    /// The queue it was written to.
    pub queue: u16,
    /// Call [`Interrupts::tick`] at this time.
    pub due: Option<Time>,
}

/// An event that was not raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RaiseError {
    /// The adapter is down.
    #[error("the adapter is down: {0}")]
    Down(Shutdown),
    /// The queue or processor does not exist. Nothing has changed.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The number does not fit the entries of the queue. Nothing has changed.
    #[error(
        "number {number} does not fit the entries of event queue {queue}, which have four bytes"
    )]
    NumberTooLarge {
        /// The number.
        number: u32,
        /// The queue.
        queue: u16,
    },
    /// No such channel. Nothing has changed.
    #[error("channel {0} does not exist; there are {CHANNELS}")]
    Channel(u8),
}

impl Interrupts {
    /// Raises an event: writes it, and fires if its queue says so. The caller holds no lock of the adapter.
    pub fn raise(&self, cause: Cause, origin: Origin, now: Time) -> Result<Raised, RaiseError> {
        if let Some(why) = self.down.get() {
            return Err(RaiseError::Down(*why));
        }
        let (route, cause) = self.route(cause, origin)?;
        let queue = route.queue;
        let eqe = Eqe::new(cause).with_context(origin.context);
        match self.slot(queue)?.queue.post(eqe, route.signal, now) {
            Ok(out) => Ok(Raised {
                queue,
                due: self.apply_outcome(queue, out, eqe.code(), now),
            }),
            Err(EqError::NumberTooLarge(number)) => {
                Err(RaiseError::NumberTooLarge { number, queue })
            }
            Err(EqError::Lost { kept }) => self.shut_down(Shutdown::Overflow { queue, kept }),
            Err(_) => self.shut_down(Shutdown::Undefined { queue }),
        }
    }

    /// Queue and signal for an event, and the event, in which the channel may have been replaced.
    fn route(&self, cause: Cause, origin: Origin) -> Result<(Route, Cause), RaiseError> {
        let class = cause.class();
        let duty = origin.duty.unwrap_or(match class {
            Class::Rdma => Duty::Rdma,
            Class::Channel => Duty::Tcp,
            Class::Global => Duty::Mac,
            Class::Management => Duty::Management,
        });
        if let Cause::Channel { channel, .. } = cause
            && channel >= CHANNELS
        {
            return Err(RaiseError::Channel(channel));
        }
        let of_queue = |queue| -> Result<Route, MapError> {
            let signal = self.flat.signal(queue)?;
            Ok(Route { queue, signal })
        };
        // E7: a fixed queue and a fixed vector in every arrangement.
        if matches!(class, Class::Global | Class::Management) {
            let route = Route {
                queue: GLOBAL_QUEUE,
                signal: GLOBAL_SIGNAL,
            };
            return Ok((route, cause));
        }
        let route = match (origin.at, self.scheme, class) {
            (At::Queue(queue), ..) => of_queue(queue)?,
            (At::Packet(tuple), Scheme::ByProcessor, _) => {
                let to = self.steering.steer(tuple);
                self.map.route(duty, to.processor)?
            }
            // E8, scheme 2: the entry names channel and queue; RDMA does not use it.
            (At::Packet(tuple), Scheme::ByQueue, Class::Channel) => {
                let to = self.steering.steer(tuple);
                let cause = match cause {
                    Cause::Channel { what, count, .. } => Cause::Channel {
                        channel: to.channel,
                        what,
                        count,
                    },
                    other => other,
                };
                return Ok((of_queue(to.queue)?, cause));
            }
            (At::Processor(processor), ..) => self.route_at(duty, processor)?,
            (At::Unspecified, ..) | (At::Packet(_), Scheme::ByQueue, _) => match cause {
                // Completions name their queue; one that does not goes to the default of its duty.
                Cause::Rdma(Event::Completion { .. }) => self.map.route(duty, 0)?,
                _ if class == Class::Rdma => of_queue(RDMA_QUEUE.min(self.queues() - 1))?,
                _ => of_queue(GLOBAL_QUEUE)?,
            },
        };
        Ok((route, cause))
    }

    /// Queue and signal for an event of a duty on a processor, by the scheme.
    fn route_at(&self, duty: Duty, processor: u16) -> Result<Route, MapError> {
        let route = self.map.route(duty, processor)?;
        Ok(match self.scheme {
            Scheme::ByProcessor => route,
            Scheme::ByQueue => Route {
                signal: self.flat.signal(route.queue)?,
                ..route
            },
        })
    }

    /// The queue of events of a duty on a processor, and the signal that is fired for them now: missing vectors are shared (E10).
    pub fn effective_route(&self, duty: Duty, processor: u16) -> Result<Route, MapError> {
        let Route { queue, signal } = self.route_at(duty, processor)?;
        let (signal, _) = self.vectors.resolve(signal);
        Ok(Route { queue, signal })
    }

    /// The routes of events that name neither processor nor queue (E7): global ones, and those of RDMA, with the signals as fired now.
    pub fn default_routes(&self) -> Result<[Route; 2], MapError> {
        let rdma = RDMA_QUEUE.min(self.queues() - 1);
        let resolve = |queue, signal| Route {
            queue,
            signal: self.vectors.resolve(signal).0,
        };
        Ok([
            resolve(GLOBAL_QUEUE, GLOBAL_SIGNAL),
            resolve(rdma, self.flat.signal(rdma)?),
        ])
    }

    /// Carries out what a queue's step asks for; `code` is that of the event which was written, if one was. No lock is held. Returns when to
    /// call `tick`.
    pub(super) fn apply_outcome(
        &self,
        queue: u16,
        out: Outcome,
        code: u8,
        now: Time,
    ) -> Option<Time> {
        if let Some(signal) = out.signal {
            let (signal, delivery) = self.vectors.resolve(signal);
            if let Ok(message) = self.pending_queues(signal) {
                message.set(queue);
                message.code.store(code.into(), Ordering::Relaxed);
                message.interrupts.fetch_add(1, Ordering::Relaxed);
                self.fire.fire(signal, delivery);
            }
        }
        if !out.overflow {
            return out.due;
        }
        // E2: out of band, and as an event of queue 0. If queue 0 is the full one, only out of band.
        self.fire.overflow(queue);
        let told = (queue != GLOBAL_QUEUE)
            .then(|| self.raise(Cause::Overflow { queue }, Origin::UNSPECIFIED, now));
        let due = told.and_then(Result::ok).and_then(|raised| raised.due);
        earlier(out.due, due)
    }

    fn shut_down(&self, why: Shutdown) -> Result<Raised, RaiseError> {
        if self.down.set(why).is_ok() {
            self.fire.shutdown(why);
        }
        Err(RaiseError::Down(self.down.get().copied().unwrap_or(why)))
    }
}
