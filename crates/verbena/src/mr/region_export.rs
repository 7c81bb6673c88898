//! Memory that can be handed over to another process (V1): allocated as a shared mapping, exported and adopted.
//! STag and addresses stay the same after a handover, so that requests and handles of peers stay valid.
//! Private memory and one-touch memory cannot be handed over.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use verbena_mem::{Access, RegionExport};
use verbena_wire::Stag;

use super::{Block, Memory};
use crate::device::{Device, Domain};
use crate::error::Error;
use crate::pd::Pd;

impl Device {
    /// Like [`memory`](Device::memory), for memory that can be handed over to another process (V1). It is an anonymous file, so
    /// that a forked child shares it with its parent instead of having a copy.
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
        Memory::shared(&self.internal_domain, len, access)
    }
}

impl Pd {
    /// Allocates and registers memory that can be handed over to another process (V1). A forked child shares it with its parent.
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
        Ok(Memory::from_block(Block::shared(domain, len, access)?))
    }

    /// What another process needs to adopt it with this many windows, and its descriptor.
    pub(crate) fn export_region(
        &self,
        windows: u32,
    ) -> Result<(RegionExport, BorrowedFd<'_>), Error> {
        self.0.export_region(windows)
    }

    /// Its STag.
    pub(crate) fn stag(&self) -> Stag {
        self.0.stag()
    }

    /// Registers memory of another process in a domain of this one.
    pub(crate) fn adopt(
        domain: &Arc<Domain>,
        fd: OwnedFd,
        export: RegionExport,
    ) -> Result<Memory, Error> {
        Ok(Memory::from_block(Block::adopt(domain, fd, export)?))
    }
}

#[cfg(test)]
mod tests;
