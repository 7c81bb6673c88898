//! Memory of one side that the other writes by offset (`riomap`). What was mapped before a byte was sent can be written by a peer that
//! has read that byte. The owner is not notified of writes: the program sends a message after them.

use verbena::mr::Mr;
use verbena::{Memory, RemoteMemory};

use super::transfer::WriteTarget;
use super::{Flow, Link};
use crate::control_message::ControlMessage;
use crate::error::Error;

/// Memory that can be mapped, registered in the socket's protection domain ([`Stream::pd`](crate::Stream::pd)).
#[derive(Debug)]
pub enum Mapped {
    /// Allocated by Verbena.
    Memory(Memory),
    /// The program's own.
    Mr(Mr),
}

impl Mapped {
    fn remote(&self) -> RemoteMemory {
        match self {
            Mapped::Memory(memory) => memory.remote(),
            Mapped::Mr(mr) => mr.remote(),
        }
    }
}

impl From<Memory> for Mapped {
    fn from(memory: Memory) -> Mapped {
        Mapped::Memory(memory)
    }
}

impl From<Mr> for Mapped {
    fn from(mr: Mr) -> Mapped {
        Mapped::Mr(mr)
    }
}

impl Flow {
    /// The contiguous memory of the peer for a write of at most `most` bytes at this offset, and its length.
    pub(super) fn mapped(&self, offset: u64, most: usize) -> Result<(usize, RemoteMemory), Error> {
        let found = self.maps.iter().find_map(|(start, memory)| {
            let inside = offset.checked_sub(*start)?;
            (inside < memory.len()).then_some((inside, memory))
        });
        let (inside, memory) = found.ok_or(Error::Unmapped { offset })?;
        let len = (memory.len() - inside).min(most as u64);
        Ok((len as usize, memory.slice(inside, len)?))
    }
}

impl Link {
    /// Maps memory, which begins at `key` for the program, and tells the peer. Takes the registration out of `mr` if it succeeds.
    pub(crate) fn map(
        &self,
        key: usize,
        mr: &mut Option<Mapped>,
        offset: u64,
    ) -> Result<(), Error> {
        let mut mapped = self.mapped.lock();
        let limit = self.options.maps;
        if mapped.len() >= limit {
            let what = "pieces of memory mapped for the peer (RDMA_IOMAPSIZE)";
            return Err(Error::Full { what, limit });
        }
        if mapped.iter().any(|(_, at, _)| *at == offset) {
            return Err(Error::Invalid("something is mapped at this offset already"));
        }
        let Some(memory) = mr.as_ref().map(Mapped::remote) else {
            return Ok(());
        };
        self.send_counted_control(ControlMessage::Map { offset, memory })?;
        mapped.extend(mr.take().map(|mr| (key, offset, mr)));
        Ok(())
    }

    /// Ends a mapping: the peer is told, and a later write by it breaks the connection.
    pub(crate) fn unmap(&self, key: usize, len: usize) -> Result<(), Error> {
        let mut mapped = self.mapped.lock();
        let same =
            |(at, _, mr): &(usize, u64, Mapped)| *at == key && mr.remote().len() == len as u64;
        let Some(at) = mapped.iter().position(same) else {
            return Err(Error::Invalid(
                "nothing of this address and length is mapped",
            ));
        };
        let (_, offset, _) = mapped[at];
        match self.send_counted_control(ControlMessage::Unmap { offset }) {
            // The peer is gone and cannot write.
            Ok(()) | Err(Error::Reset | Error::Pipe) => {}
            Err(error) => return Err(error),
        }
        let gone = mapped.swap_remove(at);
        drop(mapped);
        drop(gone);
        Ok(())
    }

    /// Writes as much as possible now.
    pub(crate) fn write_mapped(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        self.push(bytes, WriteTarget::Mapped(offset))
    }

    /// Sends a word that consumes one of the peer's receives for messages.
    fn send_counted_control(&self, word: ControlMessage) -> Result<(), Error> {
        let _one = self.writing.lock();
        let mut flow = self.lock_flow();
        self.turn(&mut flow);
        self.check_sending(&flow)?;
        self.flush_tail(&mut flow);
        let room = flow.sends < self.options.sends;
        let (outgoing, _) = flow.peer.as_mut().ok_or(Error::WouldBlock)?;
        if !room || !outgoing.has_slot() {
            return Err(Error::WouldBlock);
        }
        outgoing.send_control();
        self.send_control(&mut flow, word);
        Ok(())
    }
}
