//! One logical unit of a target as a disk: a session, and requests that become SCSI commands. Geometry and limits are those that the unit
//! reports, and a request ends with the unit's status. Units that are not direct access block devices are rejected.

mod identify;

pub use identify::Identity;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use verbena::{Device, Memory};
use verbena_iscsi::Direction;
use verbena_storage_wire::iscsi::Lun;
use verbena_storage_wire::scsi::{Cdb, UnmapList, UnmapRange};

use crate::address::Address;
use crate::blocks::{Blocks, BufferRef, Done, Extent, Geometry, Request};
use crate::error::Error;
use crate::session::{Command, Ended, MemorySource, Options, Session};

/// Bytes of an UNMAP parameter list with one block descriptor.
const RANGE: usize = 24;

/// A disk of a target.
#[derive(Debug)]
pub struct Unit {
    session: Session,
    lun: Lun,
    identity: Identity,
    geometry: Geometry,
    /// A block of zeros.
    zeros: Memory,
    /// UNMAP parameter lists, one for each request that may be outstanding.
    lists: Memory,
    /// Free lists, and the request ids of the others.
    free: Vec<usize>,
    taken: Vec<(u64, usize)>,
    ended: Vec<Ended>,
}

impl Unit {
    /// Logs in at a target and identifies one of its units.
    pub fn open(device: &Device, address: &Address, options: Options) -> Result<Unit, Error> {
        let number = address.lun.ok_or_else(|| {
            Error::Setting("an address with a LUN is needed, such as …/1".to_owned())
        })?;
        let session = Session::open(device, address, options)?;
        Unit::of(session, number)
    }

    /// Identifies a unit of a session.
    pub fn of(mut session: Session, number: u16) -> Result<Unit, Error> {
        let lun = Lun::new(number)
            .ok_or_else(|| Error::Setting(format!("{number} is not a LUN (0 to 16383)")))?;
        let (identity, mut geometry) = identify::identify(&mut session, lun)?;
        if let Some(longest) = session.max_data() {
            // At least one block; a single block that exceeds the session's limit is rejected when it is requested.
            geometry.maximal = geometry.maximal.min(longest).max(geometry.block_size);
        }
        let depth = session.depth();
        Ok(Unit {
            zeros: session.memory(geometry.block_size as usize)?,
            lists: session.memory(depth * RANGE)?,
            free: (0..depth).rev().collect(),
            taken: Vec::new(),
            ended: Vec::new(),
            session,
            lun,
            identity,
            geometry,
        })
    }

    /// Its INQUIRY data.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its session.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Its LUN.
    pub fn lun(&self) -> Lun {
        self.lun
    }

    /// Brings all completed writes to stable storage, and waits.
    pub fn flush(&mut self) -> Result<(), Error> {
        let command = self.command(0, Request::Flush)?;
        let outcome = self.session.run(command)?;
        outcome.into_result().map_err(|failure| Error::Failed {
            what: "a flush",
            at: 0,
            failure,
        })
    }

    /// Cancels a request; false if it is not outstanding. It completes in [`poll`](Blocks::poll): with the unit's result if that came first,
    /// otherwise with [`Failure::Cancelled`](crate::Failure::Cancelled), and then it may have been executed.
    pub fn cancel(&mut self, id: u64) -> bool {
        self.session.cancel(id)
    }

    /// The source of memory for its requests.
    pub(crate) fn memory_source(&self) -> MemorySource {
        self.session.memory_source()
    }

    /// Logs out.
    pub fn close(self) -> Result<(), Error> {
        self.session.close()
    }

    fn command(&mut self, id: u64, request: Request) -> Result<Command, Error> {
        let plain = |cdb| Command::plain(self.lun, self.identity.device, cdb);
        let bytes = |at: Extent| at.blocks.saturating_mul(self.geometry.block_size);
        Ok(match request {
            Request::Read { at, into } => Command {
                direction: Direction::Read,
                len: bytes(at),
                buffer: Some(into),
                ..plain(Cdb::read(at.lba, at.blocks))
            },
            Request::Write { at, from, fua } => Command {
                direction: Direction::Write,
                len: bytes(at),
                buffer: Some(from),
                ..plain(Cdb::write(at.lba, at.blocks, fua))
            },
            Request::Flush => plain(Cdb::synchronize_cache10(0, 0)),
            Request::Zero(at) => Command {
                direction: Direction::Write,
                len: self.geometry.block_size,
                buffer: Some(BufferRef::new(&self.zeros, 0)),
                ..plain(Cdb::write_same16(at.lba, at.blocks, false))
            },
            Request::Unmap(at) => self.unmap(id, at)?,
        })
    }

    fn unmap(&mut self, id: u64, at: Extent) -> Result<Command, Error> {
        let depth = self.session.depth();
        let slot = self.free.pop().ok_or(Error::Full { depth })?;
        self.taken.push((id, slot));
        let ranges = [UnmapRange {
            lba: at.lba,
            blocks: at.blocks,
        }];
        let mut list = Vec::with_capacity(RANGE);
        UnmapList::new(&ranges)
            .map_err(|why| Error::Target(why.to_string()))?
            .emit(&mut list);
        self.lists.write_at(slot * RANGE, &list)?;
        let cdb = Cdb::unmap(list.len() as u16);
        Ok(Command {
            direction: Direction::Write,
            len: list.len() as u32,
            buffer: Some(BufferRef::new(&self.lists, slot * RANGE)),
            ..Command::plain(self.lun, self.identity.device, cdb)
        })
    }

    fn release_list(&mut self, id: u64) {
        if let Some(at) = self.taken.iter().position(|(of, _)| *of == id) {
            let (_, slot) = self.taken.swap_remove(at);
            self.free.push(slot);
        }
    }
}

impl Blocks for Unit {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn memory(&mut self, len: usize) -> Result<Memory, Error> {
        self.session.memory(len)
    }

    fn submit(&mut self, id: u64, request: Request) -> Result<(), Error> {
        let command = self.command(id, request)?;
        let started = self.session.start(id, command);
        if started.is_err() {
            self.release_list(id);
        }
        started
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), Error> {
        let mut ended = core::mem::take(&mut self.ended);
        self.session.poll(&mut ended);
        for one in ended.drain(..) {
            self.release_list(one.id);
            done.push(Done {
                id: one.id,
                result: one.outcome.into_result(),
            });
        }
        self.ended = ended;
        Ok(())
    }

    fn wait(&mut self, beside: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<(), Error> {
        self.session.wait(beside, timeout)
    }

    fn arm(&mut self) -> Result<Option<BorrowedFd<'_>>, Error> {
        Ok(self.session.arm())
    }

    fn depth(&self) -> usize {
        self.session.depth()
    }
}
