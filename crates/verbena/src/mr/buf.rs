//! A registered buffer of plain bytes that an operation owns while it is under way.
//! Its holder may take slices, because nothing else can access the bytes meanwhile. Peers have no rights to it; memory that they may
//! access is a [`Memory`](super::Memory).

use core::fmt;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use verbena_mem::Access;
use verbena_nic::Sge;

use super::Block;
use crate::device::{Device, Domain};
use crate::error::Error;

/// A registered buffer with a length of valid bytes and a capacity.
///
/// It is made by [`Device::buffer`](crate::Device::buffer) and can be used with any [`Connection`](crate::Connection) of that
/// device. It dereferences to a slice:
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

    /// Its capacity in bytes.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_eq!(device.buffer(100)?.capacity(), 100);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn capacity(&self) -> usize {
        self.block.len()
    }

    /// Sets the length. Bytes that become valid are zero, or what was there before. Fails with [`Error::OutOfBounds`] beyond the capacity.
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

    /// Sets length and contents to a copy of `bytes`. Fails with [`Error::OutOfBounds`] if they exceed the capacity.
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
            addr: self.block.request_addr(),
            // Lengths are checked against the longest message before a request is made.
            len: u32::try_from(len).unwrap_or(u32::MAX),
            stag: self.block.stag(),
        }
    }

    pub(crate) fn is_in(&self, domain: &Arc<Domain>) -> bool {
        self.block.is_in(domain)
    }
}

impl Device {
    /// Allocates and registers a buffer for operations on connections.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let mut buf = device.buffer(1 << 20)?;
    /// buf.fill_from(b"hello")?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn buffer(&self, capacity: usize) -> Result<Buf, Error> {
        Buf::new(&self.internal_domain, capacity)
    }

    /// Allocates a buffer and copies these bytes to it.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(&device.buffer_from(b"hello")?[..], b"hello");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn buffer_from(&self, bytes: &[u8]) -> Result<Buf, Error> {
        let mut buf = self.buffer(bytes.len())?;
        buf.fill_from(bytes)?;
        Ok(buf)
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: nothing writes the bytes while the program holds the `Buf`: peers have no rights to it, no queue pair of the low
        // layer can use its protection domain, and an operation takes the `Buf` by value and returns it when it has completed.
        unsafe { self.block.slice(self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        // SAFETY: neither peers nor requests access the bytes while the program holds the `Buf` (see `deref`), and `&mut self` excludes other slices of it.
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
