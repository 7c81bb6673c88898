//! A disk as a network block device (NBD): clients such as `qemu-img`, `nbdcopy` and the kernel use it over a local socket. One loop serves
//! several clients, with requests pipelined up to the disk's depth and bounded memory; an error of one client does not affect the others.
//! There is no authentication and no encryption, so addresses that other hosts can reach are rejected.
//!
//! Reading order: `codec` (the encoding) → `handshake` (negotiation) → `acceptor` (the listener) → `job` (a request in progress) → `client`
//! (one connection) → [`Export`] (all connections, and the disk).

mod acceptor;
mod client;
mod codec;
mod handshake;
mod job;
mod outbox;
mod server;
mod slots;
mod stage;

use core::fmt;
use std::time::Duration;

use verbena::unstable::access::AccessList;

use crate::blocks::{Blocks, Geometry};
use crate::error::Error;
use crate::stop::Stop;
use acceptor::Acceptor;
pub use acceptor::ExportAddr;
use codec::{Errno, transmission};
use handshake::ExportInfo;
use job::{Job, Kind, MAX_REQUEST};
use server::Server;

pub use handshake::MAX_NAME;

/// Preferred block size.
const PREFERRED: u32 = 4096;

const _: () = assert!(MAX_REQUEST as usize <= slots::TOTAL);

/// Options of an export.
#[derive(Debug, Clone)]
pub struct Options {
    /// The export name; the empty name is accepted as well.
    pub name: String,
    /// Rejects writes, even if the disk is writable.
    pub read_only: bool,
    /// A client that stops within a request, or does not read replies, is disconnected after this time; so is one without outstanding requests
    /// if another waits for a connection.
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

/// Counters of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients accepted.
    pub clients: u64,
    /// Requests received.
    pub requests: u64,
    /// Requests that were invalid or not permitted.
    pub refused: u64,
    /// Requests that the disk failed.
    pub failed: u64,
    /// Bytes of reads that succeeded.
    pub read: u64,
    /// Bytes of writes that succeeded.
    pub written: u64,
    /// Bytes of writes that were copied, because they were read together with something else.
    pub copied: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} clients, {} requests ({} refused, {} failed), {} bytes read and {} written",
            self.clients, self.requests, self.refused, self.failed, self.read, self.written
        )
    }
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

/// A listening export.
#[derive(Debug)]
pub struct Export {
    acceptor: Acceptor,
    options: Options,
}

impl Export {
    /// Starts listening; clients are accepted in [`serve`](Export::serve).
    pub fn bind(place: &ExportAddr, options: Options) -> Result<Export, Error> {
        if options.name.len() > MAX_NAME {
            let len = options.name.len();
            let what = format!("the export's name has {len} bytes, at most {MAX_NAME} fit");
            return Err(Error::Setting(what));
        }
        let listener = Acceptor::open(place)?;
        Ok(Export {
            acceptor: listener,
            options,
        })
    }

    /// Rejects TCP clients whose source address these lists reject. Clients of a Unix socket are not affected.
    pub fn set_access(&mut self, access: AccessList) {
        self.acceptor.set_access(access);
    }

    /// Its address, with the port that the system has chosen.
    pub fn local_addr(&self) -> Result<ExportAddr, Error> {
        self.acceptor.local_addr()
    }

    /// The NBD URI.
    pub fn uri(&self) -> Result<String, Error> {
        Ok(match self.local_addr()? {
            ExportAddr::Unix(path) => {
                let path = std::path::absolute(&path).unwrap_or(path);
                format!("nbd+unix:///?socket={}", path.display())
            }
            ExportAddr::Tcp(address) => format!("nbd://{address}"),
        })
    }

    /// Serves clients until `stop` is set or the disk is lost, and then flushes the disk. Messages about clients go to `say`. The socket is
    /// removed afterwards.
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

    fn export_info(&self, geometry: &Geometry) -> ExportInfo {
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
        ExportInfo {
            name: self.options.name.clone(),
            bytes: geometry.bytes(),
            flags,
            sizes: [block, block.max(PREFERRED), MAX_REQUEST],
            structured_flags: flag::SEND_DF,
        }
    }
}

#[cfg(test)]
mod tests;
