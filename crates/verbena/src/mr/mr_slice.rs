//! A part of memory, to send from and receive into without a copy.
//! The memory lives as long as an operation on the piece. Access is not exclusive: what the program or a peer writes meanwhile is
//! sent, or mixed with what is received.

use verbena_mem::Access;
use verbena_nic::Sge;

use super::Memory;
use crate::error::Error;

/// A part of a [`Memory`]; made by [`Memory::slice`], used by
/// [`Connection::send_from`](crate::Connection::send_from) and the related methods.
///
/// ```
/// # let device = verbena::Device::open()?;
/// let memory = device.memory(4096, verbena::Access::ALL)?;
/// let record = memory.slice(1024, 64)?;
/// assert_eq!(record.len(), 64);
/// assert!(memory.slice(4090, 7).is_err());
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MrSlice {
    memory: Memory,
    sge: Sge,
}

impl Memory {
    /// A part of it, for operations on connections. Fails with [`Error::OutOfBounds`] if it is out of bounds.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(4096, verbena::Access::ALL)?;
    /// let all = memory.slice(0, 4096)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn slice(&self, offset: usize, len: usize) -> Result<MrSlice, Error> {
        let sge = self.sge(offset, len)?;
        let memory = self.clone();
        Ok(MrSlice { memory, sge })
    }
}

impl MrSlice {
    /// Its length in bytes.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_eq!(device.memory(64, verbena::Access::ALL)?.slice(8, 16)?.len(), 16);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.sge.len as usize
    }

    /// Whether its length is zero.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert!(device.memory(64, verbena::Access::ALL)?.slice(64, 0)?.is_empty());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn sge(&self) -> Sge {
        self.sge
    }

    /// Fails unless local operations may write it.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        let (has, needs) = (self.memory.access(), Access::LOCAL_WRITE);
        let may = has.contains(needs);
        may.then_some(()).ok_or(Error::MissingAccess { has, needs })
    }
}
