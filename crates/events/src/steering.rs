//! Steering: from a packet's hash to a redirection entry, which names processor, channel and event queue (E8).
//! Key, mask and entries may change under traffic, as a whole or register by register; each packet is steered by one consistent set of them.

use verbena_sync::locks::RwLock;

use crate::eqe::CHANNELS;
use crate::message_map::{MAX_PROCESSORS, MAX_QUEUES};
use crate::toeplitz::{KEY_LEN, Key, Tuple};

/// Entries of the largest redirection table: 8 bits of the hash.
pub const MAX_REDIRECTIONS: usize = 256;

/// What an entry of the table names. The first scheme uses the processor only, the second all of it for channel events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Redirection {
    /// The processor that handles the event.
    pub processor: u16,
    /// The channel of a channel event.
    pub channel: u8,
    /// The event queue of a channel event.
    pub queue: u16,
}

/// Registers of the key: four bytes each.
pub const KEY_REGISTERS: u8 = (KEY_LEN / 4) as u8;

/// Where the fields of an entry's register begin, and where they end: 11 bits of processor, 5 of channel, 11 of event queue.
const CHANNEL_SHIFT: u32 = 11;
const QUEUE_SHIFT: u32 = 16;
const ENTRY_BITS: u32 = 27;
const _: () = assert!(MAX_PROCESSORS as u32 <= 1 << CHANNEL_SHIFT);
const _: () = assert!(CHANNELS as u32 <= 1 << (QUEUE_SHIFT - CHANNEL_SHIFT));
const _: () = assert!(MAX_QUEUES as u32 <= 1 << (ENTRY_BITS - QUEUE_SHIFT));

/// A register of 32 bits that steering is configured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SteeringRegister {
    /// Four bytes of the key, the first one in the highest bits; below [`KEY_REGISTERS`].
    Key(u8),
    /// The bits of the hash that select an entry: one less than a power of two.
    Mask,
    /// An entry of the table: bits 0 to 10 processor, 11 to 15 channel, 16 to 26 event queue.
    Entry(u8),
}

impl Redirection {
    /// The value of its register.
    pub const fn pack(self) -> u32 {
        (self.queue as u32) << QUEUE_SHIFT
            | (self.channel as u32) << CHANNEL_SHIFT
            | self.processor as u32
    }

    /// The entry in a register's value; an error if bits above the event queue are set.
    pub const fn unpack(value: u32) -> Result<Redirection, SteeringError> {
        if value >> ENTRY_BITS != 0 {
            return Err(SteeringError::EntryBits(value));
        }
        Ok(Redirection {
            processor: (value & ((1 << CHANNEL_SHIFT) - 1)) as u16,
            channel: (value >> CHANNEL_SHIFT) as u8 % CHANNELS,
            queue: (value >> QUEUE_SHIFT) as u16,
        })
    }
}

/// An invalid table or entry. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SteeringError {
    /// Tables have a power of two of entries.
    #[error("a redirection table has a power of two of entries up to {MAX_REDIRECTIONS}, not {0}")]
    Size(usize),
    /// No entry has this number.
    #[error("redirection entry {entry} does not exist; the table has {entries}")]
    NoSuch {
        /// The number.
        entry: usize,
        /// How many there are.
        entries: usize,
    },
    /// No channel has this number.
    #[error("channel {0} does not exist; there are {CHANNELS}")]
    Channel(u8),
    /// The mask selects no power of two of entries.
    #[error(
        "the mask of the hash is one less than a power of two up to {MAX_REDIRECTIONS}, not {0:#x}"
    )]
    Mask(u32),
    /// No register of the key has this number.
    #[error("key register {0} does not exist; there are {KEY_REGISTERS}")]
    KeyRegister(u8),
    /// Bits that no field has.
    #[error("the register of a redirection entry has {ENTRY_BITS} bits: {0:#x} has more")]
    EntryBits(u32),
}

/// The redirection table with its hash key.
#[derive(Debug)]
pub struct Steering {
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    key: Key,
    /// All entries, also those that the mask does not select.
    entries: Box<[Redirection; MAX_REDIRECTIONS]>,
    mask: u32,
}

impl Table {
    fn new(key: Key, entries: &[Redirection]) -> Table {
        let mut table = Table {
            key,
            entries: Box::new([Redirection::default(); MAX_REDIRECTIONS]),
            mask: 0,
        };
        table.set(entries);
        table
    }

    /// Replaces the entries that were checked.
    fn set(&mut self, entries: &[Redirection]) {
        self.entries[..entries.len()].copy_from_slice(entries);
        self.mask = entries.len() as u32 - 1;
    }

    /// The entries that the mask selects.
    fn selected(&self) -> &[Redirection] {
        &self.entries[..=self.mask as usize]
    }
}

impl Steering {
    /// A table of these entries, and a key. The mask of the hash follows from the number of entries.
    pub fn new(key: Key, entries: &[Redirection]) -> Result<Steering, SteeringError> {
        check(entries)?;
        Ok(Steering {
            table: RwLock::new(Table::new(key, entries)),
        })
    }

    /// One entry: every packet goes to processor 0.
    pub(crate) fn all_to_processor_0() -> Steering {
        let key = Key([0; KEY_LEN]);
        Steering {
            table: RwLock::new(Table::new(key, &[Redirection::default()])),
        }
    }

    /// The redirection entry for a packet.
    pub fn steer(&self, tuple: Tuple) -> Redirection {
        let table = self.table.read();
        table.entries[(table.key.hash(tuple) & table.mask) as usize]
    }

    /// The bits of the hash that select an entry.
    pub fn mask(&self) -> u32 {
        self.table.read().mask
    }

    /// Replaces the key.
    pub fn set_key(&self, key: Key) {
        self.table.write().key = key;
    }

    /// Replaces the table.
    pub fn set_table(&self, entries: &[Redirection]) -> Result<(), SteeringError> {
        check(entries)?;
        self.table.write().set(entries);
        Ok(())
    }

    /// Replaces an entry; returns the old one.
    pub fn redirect(&self, entry: usize, to: Redirection) -> Result<Redirection, SteeringError> {
        check(&[to])?;
        let mut table = self.table.write();
        let entries = table.selected().len();
        if entry >= entries {
            return Err(SteeringError::NoSuch { entry, entries });
        }
        Ok(core::mem::replace(&mut table.entries[entry], to))
    }

    /// The entries that the mask selects.
    pub fn entries(&self) -> Vec<Redirection> {
        self.table.read().selected().to_vec()
    }

    /// The value of a register.
    pub fn read_register(&self, register: SteeringRegister) -> Result<u32, SteeringError> {
        let table = self.table.read();
        Ok(match register {
            SteeringRegister::Key(at) => {
                let bytes = table.key.0.chunks_exact(4).nth(at.into());
                let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
                u32::from_be_bytes(bytes.ok_or(SteeringError::KeyRegister(at))?)
            }
            SteeringRegister::Mask => table.mask,
            SteeringRegister::Entry(at) => table.entries[usize::from(at)].pack(),
        })
    }

    /// Writes a register. Entries behind the mask can be written before the mask selects them.
    pub fn write_register(
        &self,
        register: SteeringRegister,
        value: u32,
    ) -> Result<(), SteeringError> {
        match register {
            SteeringRegister::Key(at) => {
                let mut table = self.table.write();
                let bytes = table.key.0.chunks_exact_mut(4).nth(at.into());
                let bytes = bytes.ok_or(SteeringError::KeyRegister(at))?;
                bytes.copy_from_slice(&value.to_be_bytes());
            }
            SteeringRegister::Mask => {
                let entries = u64::from(value) + 1;
                if !entries.is_power_of_two() || entries > MAX_REDIRECTIONS as u64 {
                    return Err(SteeringError::Mask(value));
                }
                self.table.write().mask = value;
            }
            SteeringRegister::Entry(at) => {
                let entry = Redirection::unpack(value)?;
                self.table.write().entries[usize::from(at)] = entry;
            }
        }
        Ok(())
    }
}

fn check(entries: &[Redirection]) -> Result<(), SteeringError> {
    if !entries.len().is_power_of_two() || entries.len() > MAX_REDIRECTIONS {
        return Err(SteeringError::Size(entries.len()));
    }
    let wrong = entries.iter().find(|entry| entry.channel >= CHANNELS);
    wrong.map_or(Ok(()), |entry| Err(SteeringError::Channel(entry.channel)))
}

#[cfg(test)]
mod tests;
