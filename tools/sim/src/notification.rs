//! Simulations of notification: completion queues, event queues, maps and vectors of one adapter, and drivers that serve them.
//! Every arming with a later completion causes exactly one notification, in the order of its queue, whatever is moved, resized, held
//! or granted meanwhile. The same seed gives the same run. There are no connections.

use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use verbena_events::arrangement::Arrangement;
use verbena_events::eq::{EventQueue, Settings};
use verbena_events::eqe::{Cause, Eqe};
use verbena_events::interrupts::{At, Interrupts, Origin, Scheme};
use verbena_events::message_map::{Duty, Route};
use verbena_events::moderation::{Arming, Hold, Moderation};
use verbena_events::vector::{Delivery, Fire, Shutdown, Signal};
use verbena_nic::{Arm, Cq, Event, Outbox, Raise, Status, Wc};
use verbena_stream::Time;

use crate::rng::Rng;
use crate::run::RunCounters;

/// Processors of the adapter's maps.
const PROCESSORS: u16 = 3;
/// Completion queues.
const QUEUES: usize = 6;
/// Steps before all queues are served.
const STEPS: u64 = 400;
/// Rounds in which everything left must be delivered.
const LAST_ROUNDS: u64 = 300;

/// A run that failed a check.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The error.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, why } = self;
        writeln!(
            f,
            "seed {seed} failed in the notification simulation: {why}"
        )?;
        write!(f, "reproduce: verbena-sim --adapters --seed {seed}")
    }
}

/// Signals that were not served yet.
#[derive(Clone, Default)]
struct SignalQueue(Arc<Mutex<SignalState>>);

#[derive(Default)]
struct SignalState {
    signals: Vec<Signal>,
    full: Vec<u16>,
    down: bool,
}

impl SignalQueue {
    fn with<R>(&self, work: impl FnOnce(&mut SignalState) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Fire for SignalQueue {
    fn fire(&self, signal: Signal, _: Delivery) {
        self.with(|given| given.signals.push(signal));
    }

    fn overflow(&self, queue: u16) {
        self.with(|given| given.full.push(queue));
    }

    fn shutdown(&self, _: Shutdown) {
        self.with(|given| given.down = true);
    }
}

/// One completion queue and the notifications of its consumer.
struct Consumer {
    cq: Cq,
    /// Entries pushed so far; they are numbered.
    pushed: u64,
    /// Entries polled so far.
    polled: u64,
    /// Notifications raised and not delivered yet.
    expected: u64,
    delivered: u64,
}

struct World {
    rng: Rng,
    interrupts: Interrupts,
    signal_queue: SignalQueue,
    consumers: Vec<Consumer>,
    clock: u64,
    why: Option<String>,
    disturbances: u64,
}

/// Events of a push, to be raised when no lock is held.
#[derive(Default)]
struct Raised(Mutex<Vec<Event>>);

impl Raise for Raised {
    fn raise(&self, event: Event) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
    }
}

impl World {
    fn new(seed: u64) -> Result<World, String> {
        let mut rng = Rng::new(seed);
        let arrangement = rng.pick(Arrangement::ALL);
        let scheme = rng.pick(&[Scheme::ByProcessor, Scheme::ByQueue]);
        let board = SignalQueue::default();
        let fire = Box::new(board.clone());
        let interrupts = Interrupts::new(arrangement, scheme, PROCESSORS, fire);
        let interrupts = interrupts.map_err(|e| e.to_string())?;
        let (entries, settings) = (rng.len(1, 6), Settings::default());
        let created = interrupts.create_all(entries, settings, Time::ZERO);
        created.map_err(|e| e.to_string())?;
        let consumer = |number| {
            Cq::new(number, 1 << 12).map(|cq| Consumer {
                cq,
                pushed: 0,
                polled: 0,
                expected: 0,
                delivered: 0,
            })
        };
        let consumers = (0..QUEUES as u32).map(consumer).collect::<Result<_, _>>();
        Ok(World {
            rng,
            interrupts,
            signal_queue: board,
            consumers: consumers.map_err(|e| e.to_string())?,
            clock: 0,
            why: None,
            disturbances: 0,
        })
    }

    fn fail(&mut self, why: String) {
        self.why.get_or_insert(why);
    }

    /// Pushes an entry, and expects a notification if the queue was armed for it.
    fn complete(&mut self, now: Time) {
        let at = self.rng.below(QUEUES as u64) as usize;
        let consumer = &mut self.consumers[at];
        let wc = Wc {
            id: consumer.pushed,
            solicited: self.rng.below(4) == 0,
            status: if self.rng.below(8) == 0 {
                Status::WrFlushErr
            } else {
                Status::Success
            },
            ..Wc::default()
        };
        consumer.pushed += 1;
        let (mut out, raised) = (Outbox::new(), Raised::default());
        consumer.cq.push(wc, &mut out);
        out.flush(&raised);
        let events = raised
            .0
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        consumer.expected += events.len() as u64;
        let processor = self.rng.below(PROCESSORS.into()) as u16;
        let duty = self.rng.pick(&[Duty::Rdma, Duty::RdmaTx, Duty::RdmaRx]);
        for event in events {
            let origin = Origin::new(At::Processor(processor)).with_duty(duty);
            if let Err(error) = self.interrupts.raise(Cause::Rdma(event), origin, now) {
                self.fail(format!("an event was refused: {error}"));
            }
        }
    }

    /// Notifies a consumer: it polls all entries, and may arm again.
    fn notify(consumers: &mut [Consumer], rng: &mut Rng, entry: Eqe, why: &mut Option<String>) {
        let Ok(Cause::Rdma(Event::Completion { cq, .. })) = entry.cause() else {
            return;
        };
        let consumer = &mut consumers[cq as usize];
        consumer.delivered += 1;
        match consumer.expected.checked_sub(1) {
            Some(left) => consumer.expected = left,
            None => drop(why.get_or_insert(format!("queue {cq} got a second event"))),
        }
        let mut some = [Wc::default(); 8];
        let polled = consumer.cq.poll(&mut some);
        for wc in &some[..polled] {
            // N7: the entries announced are there, in order.
            if wc.id != consumer.polled {
                let expected = consumer.polled;
                why.get_or_insert(format!("queue {cq}: entry {} instead of {expected}", wc.id));
            }
            consumer.polled += 1;
        }
        if rng.below(3) > 0 {
            consumer.cq.arm(rng.pick(&[Arm::Next, Arm::Solicited]));
        }
    }

    fn serve(&mut self, signal: Signal, now: Time) {
        let World {
            rng,
            interrupts,
            consumers,
            why,
            ..
        } = self;
        let tell = |_, entry| World::notify(consumers, rng, entry, why);
        if let Err(error) = interrupts.service(signal, now, tell) {
            self.fail(format!("a signal cannot be served: {error}"));
        }
    }

    /// Serves timers that were requested, and queues that were reported full.
    fn tick(&mut self, now: Time) {
        let World {
            rng,
            interrupts,
            consumers,
            why,
            signal_queue: board,
            ..
        } = self;
        let _ = interrupts.tick(now);
        let tell = |_, entry| World::notify(consumers, rng, entry, why);
        let _ = interrupts.poll(now, tell);
        for queue in board.with(|given| core::mem::take(&mut given.full)) {
            // Fails while the reader is behind earlier resizes; the events are kept meanwhile.
            let room = interrupts.queue(queue).map(EventQueue::room);
            if let Ok(Ok((entries, _))) = room {
                let _ = interrupts.resize(queue, entries * 2, now);
            }
        }
    }

    /// One random action of a driver or an administrator.
    fn disturb(&mut self, now: Time) {
        self.disturbances += 1;
        let rng = &mut self.rng;
        let queue = rng.below(self.interrupts.queues().into()) as u16;
        let processor = rng.below(PROCESSORS.into()) as u16;
        let asked = self.interrupts.vectors().requested();
        let signal = match rng.below(u64::from(asked) + 1) as u16 {
            0 => Signal::Line,
            n => Signal::Vector(n - 1),
        };
        let delay = Duration::from_nanos(rng.range(1, 60));
        let refused = match rng.below(7) {
            // Fails when the reader is too far behind, which is allowed.
            0 => self
                .interrupts
                .resize(queue, rng.len(1, 12), now)
                .map(drop)
                .err()
                .and(None),
            1 => {
                let route = Route { queue, signal };
                self.interrupts.remap(Duty::Rdma, processor, route).err()
            }
            2 => self.interrupts.arm(queue, now).err(),
            3 => {
                let unarmed = self.interrupts.unarm(queue, now);
                unarmed.and_then(|()| self.interrupts.arm(queue, now)).err()
            }
            4 => {
                let hold = Hold::new(rng.range(2, 8) as u32, delay);
                let fixed = hold.map_or(Moderation::Off, Moderation::Fixed);
                let choice = rng.pick(&[Moderation::Off, fixed, Moderation::Adaptive]);
                self.interrupts.moderate(queue, choice).err()
            }
            5 => {
                let choice = rng.pick(&[Arming::Now, Arming::WhenIdle(delay)]);
                self.interrupts.set_arming(queue, choice).err()
            }
            _ => {
                self.interrupts.vectors().grant(rng.below(8) as u16);
                None
            }
        };
        if let Some(error) = refused {
            self.fail(format!("a valid command was refused: {error}"));
        }
    }

    fn step(&mut self) {
        self.clock += self.rng.below(25);
        let now = Time::from_nanos(self.clock);
        match self.rng.below(12) {
            0..5 => self.complete(now),
            5 | 6 => {
                let at = self.rng.below(QUEUES as u64) as usize;
                let arm = self.rng.pick(&[Arm::Next, Arm::Solicited]);
                self.consumers[at].cq.arm(arm);
            }
            7 | 8 => {
                let at = self.rng.draw() as usize;
                let signal = self.signal_queue.with(|given| match given.signals.len() {
                    // A spurious signal.
                    0 => Signal::Line,
                    n => given.signals.swap_remove(at % n),
                });
                self.serve(signal, now);
            }
            9 => self.disturb(now),
            _ => self.tick(now),
        }
    }

    fn run(mut self) -> Result<RunCounters, String> {
        for _ in 0..STEPS {
            self.step();
        }
        // Only signals and requested timers deliver the rest: queues are not read otherwise.
        for _ in 0..LAST_ROUNDS {
            self.clock += 200_000;
            let now = Time::from_nanos(self.clock);
            self.tick(now);
            for signal in self
                .signal_queue
                .with(|given| core::mem::take(&mut given.signals))
            {
                self.serve(signal, now);
            }
        }
        if self.signal_queue.with(|given| given.down) {
            self.fail("the adapter went down".to_owned());
        }
        let missing: u64 = self.consumers.iter().map(|c| c.expected).sum();
        if missing > 0 {
            self.fail(format!("{missing} notifications were lost"));
        }
        let mut tally = RunCounters::default();
        let delivered = self.consumers.iter().map(|c| c.delivered).sum();
        tally.events.insert("notifications", delivered);
        tally.events.insert("disturbances", self.disturbances);
        self.why.map_or(Ok(tally), Err)
    }
}

/// Runs the simulation of a seed and checks the outcome.
pub fn run(seed: u64) -> Result<RunCounters, Box<Failure>> {
    let played = World::new(seed).and_then(World::run);
    played.map_err(|why| Box::new(Failure { seed, why }))
}

#[cfg(test)]
mod tests;
