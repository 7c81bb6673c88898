//! Memory of one side that the other writes by offset: `riomap` and its kin.
//! It promises that what was mapped before a byte was sent can be written by whoever has read that byte.
//! It refuses to tell the owner of a write: that is the program's to say, by a message behind it.

use verbena::{Memory, Mr, RemoteMemory};

use super::transfer::Aim;
use super::{Flow, Link};
use crate::error::Error;
use crate::word::Word;

/// Memory that can be mapped, registered in the socket's domain ([`Stream::pd`](crate::Stream::pd)).
#[derive(Debug)]
pub enum Mapped {
    /// The socket's own.
    Memory(Memory),
    /// Somebody else's.
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
    /// Where so many bytes at most go that are written at this offset, in one piece of the peer's memory.
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
    /// Tells the peer that it may write this memory, which begins at `key` for the program.
    /// Takes the registration out of `mr` if it succeeds.
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
        self.say_counted(Word::Map { offset, memory })?;
        mapped.extend(mr.take().map(|mr| (key, offset, mr)));
        Ok(())
    }

    /// Takes it back: the peer is told, and what it writes from now on breaks the connection.
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
        match self.say_counted(Word::Unmap { offset }) {
            // Nobody is there who could write.
            Ok(()) | Err(Error::Reset | Error::Pipe) => {}
            Err(error) => return Err(error),
        }
        let gone = mapped.swap_remove(at);
        drop(mapped);
        drop(gone);
        Ok(())
    }

    /// Writes as much as goes now.
    pub(crate) fn write_mapped(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        self.push(bytes, Aim::Mapped(offset))
    }

    /// Sends a word that takes one of the peer's receives for messages.
    fn say_counted(&self, word: Word) -> Result<(), Error> {
        let _one = self.writing.lock();
        let mut flow = self.hold();
        self.turn(&mut flow);
        self.check_sending(&flow)?;
        self.release(&mut flow);
        let room = flow.sends < self.options.sends;
        let (outgoing, _) = flow.peer.as_mut().ok_or(Error::WouldBlock)?;
        if !room || !outgoing.has_slot() {
            return Err(Error::WouldBlock);
        }
        outgoing.send_word();
        self.say(&mut flow, word);
        Ok(())
    }
}
