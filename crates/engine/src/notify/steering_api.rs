//! The engine's calls about steering (E8): the key of the hash over the addresses of packets, and the redirection table.
//! They take effect under traffic, and a call that fails changes nothing. Until a table is set, events are raised without addresses.

use verbena_events::eqe::CHANNELS;
use verbena_events::message_map::Duty;
use verbena_events::steering::{MAX_REDIRECTIONS, Redirection, SteeringRegister};
use verbena_events::toeplitz::{KEY_LEN, Key};
use verbena_sync::atomic::Ordering;

use crate::config::{Config, Routing};
use crate::engine::Engine;
use crate::error::{Error, InterruptError};
use crate::notify::handler::{HandlerId, column};
use crate::notify::pipeline::Notification;
use crate::sys;

impl Notification {
    /// The key and the table of the settings. Without a table and with the default routing, no packet is hashed.
    pub(crate) fn start_steering(&self, config: &Config) -> Result<(), Error> {
        if let Some(key) = config.interrupt_hash_key {
            self.set_hash_key(key);
        }
        match &config.interrupt_table {
            Some(table) => self.set_table(table),
            None if config.interrupt_routing == Routing::Processor => Ok(()),
            None => {
                let handlers = self.handlers.limit();
                let entries = handlers.next_power_of_two().min(MAX_REDIRECTIONS as u16);
                let table: Vec<u16> = (0..entries).map(|entry| entry % handlers).collect();
                self.set_table(&table)
            }
        }
    }

    fn set_hash_key(&self, key: Key) {
        self.has_hash_key.store(true, Ordering::Relaxed);
        self.interrupts.set_key(key);
    }

    /// A random key, if the hash has none.
    fn ensure_hash_key(&self) -> Result<(), Error> {
        if self.has_hash_key.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut key = [0; KEY_LEN];
        for bytes in key.chunks_exact_mut(8) {
            bytes.copy_from_slice(&sys::random_u64()?.to_ne_bytes());
        }
        // Another thread may have set one meanwhile.
        if !self.has_hash_key.swap(true, Ordering::Relaxed) {
            self.interrupts.set_key(Key(key));
        }
        Ok(())
    }

    /// Sets the redirection table: an entry is the column of a handler, its event queue for channel events, and a channel.
    fn set_table(&self, handlers: &[u16]) -> Result<(), Error> {
        let limit = self.handlers.limit();
        let entry = |(at, &handler): (usize, &u16)| {
            if handler >= limit {
                return Err(InterruptError::TableHandler { handler, limit });
            }
            let processor = column(HandlerId(handler));
            let queue = self.interrupts.route_of(Duty::Tcp, processor)?.queue;
            let channel = (at % usize::from(CHANNELS)) as u8;
            Ok(Redirection {
                processor,
                channel,
                queue,
            })
        };
        let entries = handlers.iter().enumerate().map(entry);
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        let set = self.interrupts.set_redirections(&entries);
        set.map_err(InterruptError::from)?;
        self.ensure_hash_key()?;
        self.steers.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Engine {
    /// Replaces the key of the hash.
    pub fn set_hash_key(&self, key: Key) -> Result<(), Error> {
        self.core.check()?;
        self.core.notification.set_hash_key(key);
        Ok(())
    }

    /// Replaces the redirection table by one with an entry for each of these handlers: a power of two of them.
    pub fn set_redirection_table(&self, handlers: &[u16]) -> Result<(), Error> {
        self.core.check()?;
        self.core.notification.set_table(handlers)
    }

    /// The entries of the redirection table.
    pub fn redirections(&self) -> Vec<Redirection> {
        self.core.notification.interrupts.redirections()
    }

    /// Writes a register of the hash key, its mask, or the redirection table.
    pub fn write_steering_register(
        &self,
        register: SteeringRegister,
        value: u32,
    ) -> Result<(), Error> {
        self.core.check()?;
        let notification = &self.core.notification;
        let written = notification
            .interrupts
            .write_steering_register(register, value);
        written.map_err(InterruptError::from)?;
        match register {
            SteeringRegister::Key(_) => notification.has_hash_key.store(true, Ordering::Relaxed),
            SteeringRegister::Mask | SteeringRegister::Entry(_) => {
                notification.ensure_hash_key()?;
                notification.steers.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The value of such a register.
    pub fn read_steering_register(&self, register: SteeringRegister) -> Result<u32, Error> {
        let interrupts = &self.core.notification.interrupts;
        let read = interrupts.read_steering_register(register);
        Ok(read.map_err(InterruptError::from)?)
    }
}
