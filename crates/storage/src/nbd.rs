//! A disk as a network block device: clients such as `qemu-img`, `nbdcopy` and the kernel use it over a local socket.
//! It promises one loop for several clients, their requests pipelined to the disk's depth, bounded memory whatever they send,
//! and that no client ends it for the others.
//! It refuses what NBD leaves to others: passwords, encryption, and addresses that other machines can reach.
//!
//! Reading order: `codec` (the bytes) → `handshake` (before the first request) → `door` (where clients come in) → `job` (a request
//! on its way through the disk) → `client` (one client) → [`Export`] (all of them, and the disk).

mod client;
mod codec;
mod door;
mod handshake;
mod job;
mod outbox;
mod server;
mod slots;
mod stage;

use std::time::Duration;

use verbena::access::AccessList;

use crate::blocks::{Blocks, Geometry};
use crate::error::Error;
use crate::stop::Stop;
use codec::{Errno, transmission};
use door::Door;
pub use door::Place;
use handshake::Facts;
use job::{Job, Kind, MAX_REQUEST};
use server::Server;

pub use handshake::MAX_NAME;

/// What clients use best.
const PREFERRED: u32 = 4096;

const _: () = assert!(MAX_REQUEST as usize <= slots::TOTAL);

/// How the disk appears.
#[derive(Debug, Clone)]
pub struct Options {
    /// What clients may ask for; the empty name always works.
    pub name: String,
    /// Refuses writes, even if the disk does not.
    pub read_only: bool,
    /// A client that has stopped in the middle of a request, or takes no answers, is hung up on after so long; one that has nothing under
    /// way, if another waits for its place.
    pub idle: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: String::new(),
            read_only: false,
            idle: Duration::from_secs(60),
        }
    }
}

/// What was done for clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients that came.
    pub clients: u64,
    /// Requests that came.
    pub requests: u64,
    /// Requests that made no sense, or were not allowed.
    pub refused: u64,
    /// Requests that the disk failed.
    pub failed: u64,
    /// Bytes of reads that succeeded.
    pub read: u64,
    /// Bytes of writes that succeeded.
    pub written: u64,
    /// Bytes of writes that were copied once, since they came along with something else.
    pub copied: u64,
}

impl Counts {
    fn count(&mut self, job: &Job, outcome: Result<(), Errno>) {
        match (outcome, job.kind) {
            (Err(_), _) => self.failed += 1,
            (Ok(()), Kind::Read) => self.read += u64::from(job.len),
            (Ok(()), Kind::Write { .. }) => self.written += u64::from(job.len),
            (Ok(()), _) => {}
        }
    }
}

/// A place where clients find a disk.
#[derive(Debug)]
pub struct Export {
    door: Door,
    options: Options,
}

impl Export {
    /// Opens the door; clients wait until [`serve`](Export::serve).
    pub fn bind(place: &Place, options: Options) -> Result<Export, Error> {
        if options.name.len() > MAX_NAME {
            let len = options.name.len();
            let what = format!("the export's name has {len} bytes, at most {MAX_NAME} fit");
            return Err(Error::Setting(what));
        }
        let door = Door::open(place)?;
        Ok(Export { door, options })
    }

    /// Refuses clients of sources that these lists refuse; those that come by a Unix socket are none of them.
    pub fn set_access(&mut self, access: AccessList) {
        self.door.set_access(access);
    }

    /// Where it is; a port that the system chose is known now.
    pub fn place(&self) -> Result<Place, Error> {
        self.door.place()
    }

    /// The address for NBD's own programs.
    pub fn uri(&self) -> Result<String, Error> {
        Ok(match self.place()? {
            Place::Unix(path) => {
                let path = std::path::absolute(&path).unwrap_or(path);
                format!("nbd+unix:///?socket={}", path.display())
            }
            Place::Tcp(address) => format!("nbd://{address}"),
        })
    }

    /// Serves clients until the flag is pulled or the disk is lost, and then flushes it. What it says about clients goes to `say`.
    /// The socket is gone afterwards.
    pub fn serve<B: Blocks>(
        self,
        blocks: &mut B,
        stop: &Stop,
        say: &mut dyn FnMut(&str),
    ) -> Result<Counts, Error> {
        let mut server = Server::new(&self, blocks, stop)?;
        let ended = server.run(stop, say);
        ended.map(|()| server.into_counts())
    }

    fn facts(&self, geometry: &Geometry) -> Facts {
        use transmission as flag;
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA;
        flags |= match geometry.read_only {
            true => flag::READ_ONLY,
            false => flag::SEND_WRITE_ZEROES,
        };
        if geometry.can_unmap && !geometry.read_only {
            flags |= flag::SEND_TRIM;
        }
        let block = geometry.block_size;
        Facts {
            name: self.options.name.clone(),
            bytes: geometry.bytes(),
            flags,
            sizes: [block, block.max(PREFERRED), MAX_REQUEST],
            chunk_flags: flag::SEND_DF,
        }
    }
}

#[cfg(test)]
mod tests;
