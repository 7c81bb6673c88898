//! A buffer to work with: plain bytes for its owner, lent to a connection for the length of an operation.
//! It promises real slices, because whoever holds it is alone with it: an operation takes it away and gives it back.
//! It refuses peers; memory that they may reach is a [`Memory`](super::Memory).

use core::fmt;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use verbena_mem::Access;
use verbena_nic::Sge;

use super::Block;
use crate::device::Domain;
use crate::error::Error;

/// A registered buffer: a length of valid bytes, and room up to its capacity.
///
/// It is made by [`Device::buffer`](crate::Device::buffer) and serves any [`Connection`](crate::Connection) of that
/// device. Reads like a slice:
///
/// ```
/// let device = verbena::Device::open()?;
/// let mut buf = device.buffer(4096)?;
/// buf.fill_from(b"hello")?;
/// assert_eq!(&buf[..], b"hello");
/// buf[0] = b'H';
/// assert_eq!((buf.len(), buf.capacity()), (5, 4096));
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Buf {
    block: Block,
    len: usize,
}

impl Buf {
    pub(crate) fn new(domain: &Arc<Domain>, capacity: usize) -> Result<Buf, Error> {
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let block = Block::new(domain, capacity, access)?;
        Ok(Buf { block, len: 0 })
    }

    /// Bytes it has room for.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_eq!(device.buffer(100)?.capacity(), 100);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn capacity(&self) -> usize {
        self.block.len()
    }

    /// Makes so many bytes valid; those that never were are zero, or whatever was there before.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let mut buf = device.buffer(100)?;
    /// buf.set_len(3)?;
    /// assert_eq!(&buf[..], [0, 0, 0]);
    /// assert!(buf.set_len(101).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_len(&mut self, len: usize) -> Result<(), Error> {
        self.block.check(0, len)?;
        self.len = len;
        Ok(())
    }

    /// Becomes a copy of `bytes`.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let mut buf = device.buffer(100)?;
    /// buf.fill_from(b"abc")?;
    /// assert_eq!(buf.len(), 3);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn fill_from(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn sge(&self, len: usize) -> Sge {
        Sge {
            at: self.block.at(),
            // Lengths are checked against a message's before a request is made.
            len: u32::try_from(len).unwrap_or(u32::MAX),
            stag: self.block.stag(),
        }
    }

    pub(crate) fn is_in(&self, domain: &Arc<Domain>) -> bool {
        self.block.is_in(domain)
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: who holds the buffer is alone with it: peers have no right to it, no low-layer queue pair can name
        // it, and operations own it until they are complete.
        unsafe { self.block.slice(self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        // SAFETY: as above, and `&mut self` keeps other readers out.
        unsafe { self.block.slice_mut(len) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
