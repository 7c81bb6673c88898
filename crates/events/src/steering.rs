//! Steering: from a packet's hash to a redirection entry, which names processor, channel and event queue (E8).
//! Key and entries may change under traffic; each packet is steered by one consistent set of them.

use verbena_sync::locks::RwLock;

use crate::eqe::CHANNELS;
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
}

/// The redirection table with its hash key.
#[derive(Debug)]
pub struct Steering {
    table: RwLock<Table>,
}

#[derive(Debug, Clone)]
struct Table {
    key: Key,
    entries: Vec<Redirection>,
}

impl Steering {
    /// A table of these entries, and a key. The mask of the hash follows from the number of entries.
    pub fn new(key: Key, entries: Vec<Redirection>) -> Result<Steering, SteeringError> {
        check(&entries)?;
        Ok(Steering {
            table: RwLock::new(Table { key, entries }),
        })
    }

    /// One entry: every packet goes to processor 0.
    pub(crate) fn all_to_processor_0() -> Steering {
        Steering {
            table: RwLock::new(Table {
                key: Key([0; KEY_LEN]),
                entries: vec![Redirection::default()],
            }),
        }
    }

    /// The redirection entry for a packet.
    pub fn steer(&self, tuple: Tuple) -> Redirection {
        let table = self.table.read();
        let mask = table.entries.len() - 1;
        table.entries[table.key.hash(tuple) as usize & mask]
    }

    /// The bits of the hash that select an entry.
    pub fn mask(&self) -> u32 {
        (self.table.read().entries.len() - 1) as u32
    }

    /// Replaces the key.
    pub fn set_key(&self, key: Key) {
        self.table.write().key = key;
    }

    /// Replaces the table.
    pub fn set_table(&self, entries: Vec<Redirection>) -> Result<(), SteeringError> {
        check(&entries)?;
        self.table.write().entries = entries;
        Ok(())
    }

    /// Replaces an entry; returns the old one.
    pub fn redirect(&self, entry: usize, to: Redirection) -> Result<Redirection, SteeringError> {
        check(&[to])?;
        let mut table = self.table.write();
        let entries = table.entries.len();
        match table.entries.get_mut(entry) {
            Some(slot) => Ok(core::mem::replace(slot, to)),
            None => Err(SteeringError::NoSuch { entry, entries }),
        }
    }

    /// The entries.
    pub fn entries(&self) -> Vec<Redirection> {
        self.table.read().entries.clone()
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
