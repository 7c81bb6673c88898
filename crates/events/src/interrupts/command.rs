//! Commands of a driver: queues, the register, and the routing of events.
//! A failed command changes nothing and says why, and all of them work under traffic (E8, E11).

use super::*;
use crate::eq::{
    Doorbell, EqError, Indicator, Malformed, Memory, MemoryError, ResizeError, Settings,
};
use crate::message_map::{Duty, Route};
use crate::moderation::Moderation;
use crate::steering::{Redirection, SteeringError, SteeringRegister};
use crate::toeplitz::Key;

/// Why a command fails. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A queue or processor does not exist.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A vector does not exist.
    #[error(transparent)]
    Vector(#[from] VectorError),
    /// The queue rejects it.
    #[error("event queue {queue}: {why}")]
    Queue {
        /// Which.
        queue: u16,
        /// Why.
        why: EqError,
    },
    /// No queue has this size.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The redirection table rejects it.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// The value written to the register is invalid.
    #[error(transparent)]
    Register(#[from] Malformed),
}

impl Interrupts {
    /// Gives an undefined queue its memory. It is unarmed then.
    pub fn create(
        &self,
        queue: u16,
        memory: Memory,
        settings: Settings,
    ) -> Result<(), CommandError> {
        let slot = self.slot(queue)?;
        let reader = slot.queue.initialise(memory, settings);
        let reader = reader.map_err(|why| CommandError::Queue { queue, why })?;
        slot.next_poll.store(NEVER, Ordering::Relaxed);
        // The queue was never armed, so no thread serves it yet.
        slot.reader
            .lock_and_run(|place| *place = Some(reader), |_| ());
        Ok(())
    }

    /// Gives every queue contiguous memory for so many entries of 16 bytes, and arms it.
    pub fn create_all(
        &self,
        entries: usize,
        settings: Settings,
        now: Time,
    ) -> Result<(), CommandError> {
        let memory = || Memory::new(entries, crate::eqe::Form::Long);
        self.create_all_in(memory, settings, now)
    }

    /// Gives every queue memory of its own, which `memory` allocates, and arms it.
    pub fn create_all_in(
        &self,
        mut memory: impl FnMut() -> Result<Memory, MemoryError>,
        settings: Settings,
        now: Time,
    ) -> Result<(), CommandError> {
        for queue in 0..self.queues() {
            self.create(queue, memory()?, settings)?;
            self.arm(queue, now)?;
        }
        Ok(())
    }

    /// Takes a queue's memory away; returns how many events were not acknowledged. From now on an event for it shuts the adapter
    /// down (E2): route its events elsewhere first.
    pub fn destroy(&self, queue: u16) -> Result<usize, CommandError> {
        let done = self.slot(queue)?.queue.destroy();
        done.map_err(|why| CommandError::Queue { queue, why })
    }

    /// Continues a queue in memory of another size: one administrative command (E2, E3).
    pub fn resize(
        &self,
        queue: u16,
        entries: usize,
        now: Time,
    ) -> Result<Option<Time>, CommandError> {
        let out = match self.slot(queue)?.queue.resize(entries, now) {
            Ok(out) => out,
            Err(ResizeError::Memory(why)) => return Err(why.into()),
            Err(ResizeError::Queue(why)) => return Err(CommandError::Queue { queue, why }),
        };
        Ok(self.apply_outcome(queue, out, EARLIER, now))
    }

    /// Continues a queue in this memory: one administrative command (E2, E3).
    pub fn switch(
        &self,
        queue: u16,
        memory: Memory,
        now: Time,
    ) -> Result<Option<Time>, CommandError> {
        let out = self.slot(queue)?.queue.switch(memory, now);
        let out = out.map_err(|why| CommandError::Queue { queue, why })?;
        Ok(self.apply_outcome(queue, out, EARLIER, now))
    }

    /// The register that drivers write (E3): the only one needed to serve an interrupt. Returns when to call
    /// [`tick`](Interrupts::tick).
    pub fn write_register(&self, value: u64, now: Time) -> Result<Option<Time>, CommandError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.accept_write(value, now)
    }

    /// The effect of a register write, which the caller has counted.
    pub(super) fn accept_write(&self, value: u64, now: Time) -> Result<Option<Time>, CommandError> {
        let Doorbell { queue, armed, read } = Doorbell::unpack(value)?;
        let out = self.slot(queue)?.queue.write(armed, read, now);
        let out = out.map_err(|why| CommandError::Queue { queue, why })?;
        Ok(self.apply_outcome(queue, out, EARLIER, now))
    }

    /// The register that drivers could read: the write indicator of a queue, lazily updated (E5). Not needed for serving.
    pub fn read_register(&self, queue: u16) -> Result<u32, CommandError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(self.slot(queue)?.queue.write_indicator())
    }

    /// Arms a queue without moving its indicator.
    pub fn arm(&self, queue: u16, now: Time) -> Result<Option<Time>, CommandError> {
        self.write_doorbell(queue, true, now)
    }

    /// Unarms a queue without an interrupt (E2). The caller polls it or arms it again.
    pub fn unarm(&self, queue: u16, now: Time) -> Result<(), CommandError> {
        self.write_doorbell(queue, false, now).map(|_| ())
    }

    fn write_doorbell(
        &self,
        queue: u16,
        armed: bool,
        now: Time,
    ) -> Result<Option<Time>, CommandError> {
        let read = Indicator::Keep;
        self.write_register(Doorbell { queue, armed, read }.pack(), now)
    }

    /// Sets the moderation of a queue's signals (E6, the adapter's part). A signal held back by the old setting is due at once: call
    /// [`tick`](Interrupts::tick).
    pub fn moderate(&self, queue: u16, moderation: Moderation) -> Result<(), CommandError> {
        let done = self.slot(queue)?.queue.moderate(moderation);
        done.map_err(|why| CommandError::Queue { queue, why })
    }

    /// Sets when a queue's driver arms it (E6, the driver's part).
    pub fn set_arming(&self, queue: u16, arming: Arming) -> Result<(), CommandError> {
        let nanos = match arming {
            Arming::Now => 0,
            Arming::WhenIdle(gap) => saturating_nanos(gap).max(1),
        };
        self.slot(queue)?.arming.store(nanos, Ordering::Relaxed);
        Ok(())
    }

    /// Routes the events of a duty on a processor elsewhere (E9, E11); returns the old route.
    pub fn remap(&self, duty: Duty, processor: u16, to: Route) -> Result<Route, CommandError> {
        self.slot(to.queue)?;
        self.pending_queues(to.signal)?;
        Ok(self.map.set(duty, processor, to)?)
    }

    /// The route of events of a duty on a processor.
    pub fn route_of(&self, duty: Duty, processor: u16) -> Result<Route, CommandError> {
        Ok(self.map.route(duty, processor)?)
    }

    /// Sets the signal of a queue in the flat map (E8, scheme 2).
    pub fn revector(&self, queue: u16, signal: Signal) -> Result<(), CommandError> {
        self.pending_queues(signal)?;
        Ok(self.flat.set(queue, signal)?)
    }

    /// Replaces the secret key of the hash (E8).
    pub fn set_key(&self, key: Key) {
        self.steering.set_key(key);
    }

    /// Replaces the redirection table (E8).
    pub fn set_redirections(&self, entries: &[Redirection]) -> Result<(), CommandError> {
        entries
            .iter()
            .try_for_each(|entry| self.check_redirection(*entry))?;
        Ok(self.steering.set_table(entries)?)
    }

    /// Replaces a redirection entry; returns the old one (E8, E11).
    pub fn redirect(&self, entry: usize, to: Redirection) -> Result<Redirection, CommandError> {
        self.check_redirection(to)?;
        Ok(self.steering.redirect(entry, to)?)
    }

    /// The entries of the redirection table.
    pub fn redirections(&self) -> Vec<Redirection> {
        self.steering.entries()
    }

    /// Writes a register of the hash key, its mask or the redirection table (E8).
    pub fn write_steering_register(
        &self,
        register: SteeringRegister,
        value: u32,
    ) -> Result<(), CommandError> {
        if let SteeringRegister::Entry(_) = register {
            self.check_redirection(Redirection::unpack(value)?)?;
        }
        self.writes.fetch_add(1, Ordering::Relaxed);
        Ok(self.steering.write_register(register, value)?)
    }

    /// Reads a register of the hash key, its mask or the redirection table (E8). Serving interrupts reads none (E12).
    pub fn read_steering_register(&self, register: SteeringRegister) -> Result<u32, CommandError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(self.steering.read_register(register)?)
    }

    fn check_redirection(&self, entry: Redirection) -> Result<(), CommandError> {
        self.map.route(Duty::Tcp, entry.processor)?;
        self.slot(entry.queue)?;
        Ok(())
    }
}
