//! Memory shared with peers: the program copies in and out, at any time.
//! The memory lives as long as any handle of it. Words can be accessed atomically with respect to atomics of peers. There are no
//! slices of it, because a peer with write access may write at any time.

use core::fmt;
use core::ops::Deref;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use verbena_engine::ControlQueue;
use verbena_mem::Access;
use verbena_nic::{Sge, wr};
use verbena_wire::To;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Block;
use super::bytes::Bytes;
use crate::device::{Device, Domain};
use crate::error::Error;
use crate::pd::Pd;
use crate::registering::Registering;
use crate::remote::{RemoteMemory, RemoteValue};

/// Registered memory that peers may access within its rights. Clones are handles of the same memory.
///
/// ```
/// use verbena::{Access, Device};
/// let device = Device::open()?;
/// let memory = device.memory(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// memory.write_at(8, b"for all to read")?;
/// // 24 bytes to send to the peers that may read it.
/// let handle = memory.remote().to_bytes();
/// # assert_eq!(handle.len(), 24);
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Clone)]
pub struct Memory(pub(super) Arc<MemoryBlock>);

/// A registered block, whose bytes other blocks may share (M5).
pub(super) struct MemoryBlock {
    block: Block,
    /// The bytes, once they are shared: the last block frees them.
    shared: OnceLock<Arc<Bytes>>,
}

impl Deref for MemoryBlock {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.block
    }
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        if let Some(bytes) = self.shared.take() {
            self.block.end_shared(bytes);
        }
    }
}

impl Memory {
    pub(super) fn from_block(block: Block) -> Memory {
        let shared = OnceLock::new();
        Memory(Arc::new(MemoryBlock { block, shared }))
    }

    pub(crate) fn new(domain: &Arc<Domain>, len: usize, access: Access) -> Result<Memory, Error> {
        Ok(Memory::from_block(Block::new(domain, len, access)?))
    }

    pub(crate) fn one_touch(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
    ) -> Result<Memory, Error> {
        Ok(Memory::from_block(Block::one_touch(domain, len, access)?))
    }

    pub(crate) fn new_async(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
    ) -> Result<(Memory, Registering), Error> {
        let (block, registering) = Block::new_async(domain, len, access, None)?;
        Ok((Memory::from_block(block), registering))
    }

    /// Memory whose registration is a request of a control queue pair, with this id.
    pub(crate) fn new_queued(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
        control: (&ControlQueue, u64),
    ) -> Result<(Memory, Registering), Error> {
        let (block, registering) = Block::new_async(domain, len, access, Some(control))?;
        Ok((Memory::from_block(block), registering))
    }

    /// Handles of it besides this one.
    pub(crate) fn other_handles(&self) -> u32 {
        u32::try_from(Arc::strong_count(&self.0) - 1).unwrap_or(u32::MAX)
    }

    /// Registers the same memory once more on the same translation entries, with a domain and rights of its own (M5). Both handles name
    /// the same bytes; each has its own STag, which ends with its last handle and leaves the other one valid.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let device = Device::open()?;
    /// let (owner, reader) = (device.pd()?, device.pd()?);
    /// let memory = owner.memory(4096, Access::LOCAL_WRITE)?;
    /// let view = memory.share(&reader, Access::REMOTE_READ)?;
    /// memory.write_at(0, b"one copy")?;
    /// assert_eq!(view.get::<[u8; 8]>(0)?, *b"one copy");
    /// assert_ne!(view.remote().remote_addr().stag, memory.remote().remote_addr().stag);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn share(&self, pd: &Pd, access: Access) -> Result<Memory, Error> {
        Ok(self.with_shared_bytes(self.0.share(&pd.0, access)?))
    }

    /// The same as a request of a control queue pair, with this id.
    pub(crate) fn share_queued(
        &self,
        domain: &Arc<Domain>,
        access: Access,
        control: (&ControlQueue, u64),
    ) -> Result<(Memory, Registering), Error> {
        let (block, registering) = self.0.share_queued(domain, access, control)?;
        Ok((self.with_shared_bytes(block), registering))
    }

    fn with_shared_bytes(&self, block: Block) -> Memory {
        let bytes = self.0.shared.get_or_init(|| Arc::new(self.0.bytes()));
        let shared = OnceLock::from(bytes.clone());
        Memory(Arc::new(MemoryBlock { block, shared }))
    }

    pub(crate) fn is_in(&self, domain: &Arc<Domain>) -> bool {
        self.0.is_in(domain)
    }

    /// Both are handles of the same registration.
    pub(super) fn is_same(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The range lies inside it.
    pub(super) fn check(&self, offset: usize, len: usize) -> Result<(), Error> {
        self.0.check(offset, len)
    }

    /// The location of the byte at `offset` in this process; the caller has checked the bounds.
    pub(super) fn pointer(&self, offset: usize) -> *mut u8 {
        self.0.start().as_ptr().wrapping_add(offset)
    }

    /// Its access rights.
    ///
    /// ```
    /// # use verbena::{Access, Device};
    /// # let device = Device::open()?;
    /// assert_eq!(device.memory(100, Access::LOCAL_WRITE)?.access(), Access::LOCAL_WRITE);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn access(&self) -> Access {
        self.0.access()
    }

    /// Its length in bytes.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_eq!(device.memory(100, verbena::Access::ALL)?.len(), 100);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether its length is zero.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert!(!device.memory(100, verbena::Access::ALL)?.is_empty());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `bytes` to `offset`. Fails with [`Error::OutOfBounds`] if they do not fit.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(100, verbena::Access::ALL)?;
    /// memory.write_at(90, b"fits")?;
    /// assert!(memory.write_at(97, b"does not").is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.0.write(offset, bytes)
    }

    /// Copies from `offset`, as much as `into` holds. A copy concurrent with a peer's write may be partly old and partly new.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(100, verbena::Access::ALL)?;
    /// memory.write_at(0, b"bytes")?;
    /// let mut copy = [0; 5];
    /// memory.read_at(0, &mut copy)?;
    /// assert_eq!(&copy, b"bytes");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        self.0.read(offset, into)
    }

    /// Reads from a descriptor (a file, a socket, a network interface) into `head` and, once that is full, into `len` bytes at
    /// `offset`: one system call (`readv`) without a further copy. Returns the total number of bytes read.
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(100, verbena::Access::ALL)?;
    /// let (reader, mut writer) = std::io::pipe().unwrap();
    /// std::io::Write::write_all(&mut writer, b"head, body").unwrap();
    /// let mut head = [0; 6];
    /// let read = memory.read_from(reader.as_fd(), &mut head, 10, 90)?.unwrap();
    /// assert_eq!((read, &head), (10, b"head, "));
    /// assert_eq!(&memory.get::<[u8; 4]>(10)?, b"body");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read_from(
        &self,
        fd: BorrowedFd<'_>,
        head: &mut [u8],
        offset: usize,
        len: usize,
    ) -> Result<io::Result<usize>, Error> {
        self.0.read_from(fd, head, (offset, len))
    }

    /// Writes `head` and then `len` bytes from `offset` to a descriptor: one system call (`writev`) without a further copy.
    /// Returns the total number of bytes written. Bytes that a peer writes meanwhile may be partly old and partly new.
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(100, verbena::Access::ALL)?;
    /// memory.write_at(10, b"body")?;
    /// let (mut reader, writer) = std::io::pipe().unwrap();
    /// assert_eq!(memory.write_to(writer.as_fd(), b"head, ", 10, 4)?.unwrap(), 10);
    /// assert!(memory.write_to(writer.as_fd(), b"", 99, 2).is_err());
    /// let mut got = [0; 10];
    /// std::io::Read::read_exact(&mut reader, &mut got).unwrap();
    /// assert_eq!(&got, b"head, body");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write_to(
        &self,
        fd: BorrowedFd<'_>,
        head: &[u8],
        offset: usize,
        len: usize,
    ) -> Result<io::Result<usize>, Error> {
        self.0.write_to(fd, head, (offset, len))
    }

    /// Copies a value to `offset`.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(100, verbena::Access::ALL)?;
    /// memory.put(8, &[1_u32, 2, 3])?;
    /// assert_eq!(memory.get::<[u32; 3]>(8)?, [1, 2, 3]);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn put<T: IntoBytes + Immutable>(&self, offset: usize, value: &T) -> Result<(), Error> {
        self.write_at(offset, value.as_bytes())
    }

    /// Copies a value from `offset`.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(100, verbena::Access::ALL)?;
    /// assert_eq!(memory.get::<u16>(98)?, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn get<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T, Error> {
        let mut value = T::new_zeroed();
        self.read_at(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Loads the word at `offset` atomically. Fails with [`Error::Unaligned`] unless the offset is a multiple of 8.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// assert_eq!(memory.load(8)?, 0);
    /// assert!(memory.load(4).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn load(&self, offset: usize) -> Result<u64, Error> {
        self.0.with_atomic(offset, AtomicU64::load)
    }

    /// Stores a word atomically. Fails like [`load`](Memory::load).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// memory.store(8, 7)?;
    /// assert_eq!(memory.load(8)?, 7);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn store(&self, offset: usize, value: u64) -> Result<(), Error> {
        self.0
            .with_atomic(offset, |word, order| word.store(value, order))
    }

    /// Adds to a word, atomically also with respect to atomics of peers; returns the previous value. Fails like [`load`](Memory::load).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// assert_eq!(memory.fetch_add(0, 3)?, 0);
    /// assert_eq!(memory.load(0)?, 3);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Error> {
        self.0
            .with_atomic(offset, |word, order| word.fetch_add(add, order))
    }

    /// The handle of the whole memory, for peers.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// assert_eq!(memory.remote().len(), 64);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn remote(&self) -> RemoteMemory {
        let len = self.0.len() as u64;
        RemoteMemory::new(self.0.request_addr(), len, self.0.stag(), self.0.access())
    }

    /// The handle of one value in it, for peers.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// let counter: verbena::RemoteValue<u64> = memory.remote_value(8)?;
    /// # assert!(memory.remote_value::<u64>(60).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn remote_value<T>(&self, offset: usize) -> Result<RemoteValue<T>, Error> {
        self.remote().value(offset as u64)
    }

    /// A scatter/gather element of it, for a request of the low layer. Fails if it is out of bounds.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.pd()?.memory(64, verbena::Access::ALL)?;
    /// assert_eq!(memory.sge(8, 4)?.len, 4);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn sge(&self, offset: usize, len: usize) -> Result<Sge, Error> {
        self.0.check(offset, len)?;
        let fits = u32::try_from(len).map_err(|_| Error::TooLong {
            len: len as u64,
            limit: u64::from(u32::MAX),
        });
        Ok(Sge {
            addr: self.0.request_addr() + offset as u64,
            len: fits?,
            stag: self.0.stag(),
        })
    }

    /// The STag and address of `offset`, as in a peer's request of the low layer.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.pd()?.memory(64, verbena::Access::ALL)?;
    /// let place: verbena::low::RemoteAddr = memory.remote_addr(8)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn remote_addr(&self, offset: usize) -> Result<wr::RemoteAddr, Error> {
        self.0.check(offset, 0)?;
        Ok(wr::RemoteAddr {
            stag: self.0.stag(),
            to: To::new(self.0.request_addr() + offset as u64),
        })
    }
}

impl Device {
    /// Allocates memory and registers it with these rights, for the peers of connections.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let device = Device::open()?;
    /// let memory = device.memory(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn memory(&self, len: usize, access: Access) -> Result<Memory, Error> {
        Memory::new(&self.internal_domain, len, access)
    }

    /// Like [`memory`](Device::memory), registered in the background: the handle can be given to peers at once; accesses wait (V5).
    ///
    /// ```
    /// verbena::Device::open()?.memory_async(1 << 20, verbena::Access::ALL)?.1.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn memory_async(&self, len: usize, access: Access) -> Result<(Memory, Registering), Error> {
        Memory::new_async(&self.internal_domain, len, access)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("stag", &self.0.stag())
            .field("len", &self.len())
            .field("access", &self.0.access())
            .finish()
    }
}
