//! Memory that can move to another process (V1): made so from the start, told of, and taken over.
//! It promises that what was told to peers and posted in requests stays true when the memory has moved.
//! It refuses to move memory that lies in this process alone, and what only this process can know of.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use verbena_mem::{Access, Estate};

use super::{Block, Memory};
use crate::device::{Device, Domain};
use crate::error::Error;
use crate::pd::Pd;

impl Device {
    /// Memory as [`memory`](Device::memory) gives it, which in addition can be handed to a successor process (V1). It lies in a
    /// file without a name, so that a forked child shares it with its parent instead of having a copy.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let device = Device::open()?;
    /// let memory = device.shared_memory(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// memory.write_at(0, b"to stay")?;
    /// # assert_eq!(memory.get::<[u8; 7]>(0)?, *b"to stay");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn shared_memory(&self, len: usize, access: Access) -> Result<Memory, Error> {
        Memory::shared(&self.hidden, len, access)
    }
}

impl Pd {
    /// Memory in this domain that can be handed to a successor process (V1). A forked child shares it with its parent.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let memory = Device::open()?.pd()?.shared_memory(4096, Access::LOCAL_WRITE)?;
    /// assert_eq!(memory.len(), 4096);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn shared_memory(&self, len: usize, access: Access) -> Result<Memory, Error> {
        Memory::shared(&self.0, len, access)
    }
}

impl Memory {
    fn shared(domain: &Arc<Domain>, len: usize, access: Access) -> Result<Memory, Error> {
        Ok(Memory(Arc::new(Block::shared(domain, len, access)?)))
    }

    /// What a successor needs to take it over, and the memory itself.
    pub(crate) fn estate(&self) -> Result<(Estate, BorrowedFd<'_>), Error> {
        self.0.estate()
    }

    /// Takes over what another process had, in a domain of ours.
    pub(crate) fn adopt(
        domain: &Arc<Domain>,
        fd: OwnedFd,
        estate: Estate,
    ) -> Result<Memory, Error> {
        Ok(Memory(Arc::new(Block::adopt(domain, fd, estate)?)))
    }
}

#[cfg(test)]
mod tests;
