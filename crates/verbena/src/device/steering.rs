//! Steering of events by the addresses of their packets (E8): the hash key and the redirection table of a device, under traffic.
//! A call that fails changes nothing. Each packet is steered by one consistent key and table, as a receive-side scaling adapter does it.

use verbena_events::steering::{Redirection, SteeringRegister};
use verbena_events::toeplitz::Key;

use super::Device;
use crate::error::Error;

impl Device {
    /// Replaces the key of the hash over the addresses of packets; by default it is random, or that of the setting
    /// `interrupt_hash_key`.
    ///
    /// ```
    /// use verbena::events::HashKey;
    /// let device = verbena::Device::open()?;
    /// device.set_interrupt_hash_key(HashKey([0x6d; 40]))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_interrupt_hash_key(&self, key: Key) -> Result<(), Error> {
        Ok(self.inner().engine.set_hash_key(key)?)
    }

    /// Replaces the redirection table (setting `interrupt_table`): the low bits of the hash select one of these completion handlers, a
    /// power of two up to 256 of them. With `interrupt_routing = hash` completions are notified on that handler's processors, whichever
    /// handler they are for; channel events use the table with every routing. Fails if a handler is beyond
    /// [`handler_limit`](Device::handler_limit), or if the number of entries is not a power of two.
    ///
    /// ```
    /// use verbena::{Config, Device};
    /// let mut config = Config::default();
    /// config.set("handlers", "2")?;
    /// config.set("interrupt_routing", "hash")?;
    /// let device = Device::with(config)?;
    /// device.set_interrupt_table(&[0, 1, 1, 1])?;
    /// assert_eq!(device.interrupt_table().len(), 4);
    /// assert!(device.set_interrupt_table(&[0, 1, 2]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_interrupt_table(&self, handlers: &[u16]) -> Result<(), Error> {
        Ok(self.inner().engine.set_redirection_table(handlers)?)
    }

    /// The entries of the redirection table: processor (a column of the map in docs/events.md; that of handler N is 3 + N), channel and
    /// event queue.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.interrupt_table().len(), 1); // no packet is redirected
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn interrupt_table(&self) -> Vec<Redirection> {
        self.inner().engine.redirections()
    }

    /// Writes a register of the hash key, its mask, or the redirection table, as a driver of hardware does. Fails if there is no such
    /// register, or if the value names a processor or an event queue that does not exist.
    ///
    /// ```
    /// use verbena::events::{Redirection, SteeringRegister};
    /// let device = verbena::Device::open()?;
    /// let first = Redirection { processor: 3, channel: 9, queue: 3 };
    /// device.write_interrupt_register(SteeringRegister::Entry(0), first.pack())?;
    /// assert_eq!(device.interrupt_table(), [first]);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write_interrupt_register(
        &self,
        register: SteeringRegister,
        value: u32,
    ) -> Result<(), Error> {
        let engine = &self.inner().engine;
        Ok(engine.write_steering_register(register, value)?)
    }

    /// The value of a register of the hash key, its mask, or the redirection table.
    ///
    /// ```
    /// use verbena::events::SteeringRegister;
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.read_interrupt_register(SteeringRegister::Mask)?, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read_interrupt_register(&self, register: SteeringRegister) -> Result<u32, Error> {
        Ok(self.inner().engine.read_steering_register(register)?)
    }
}
