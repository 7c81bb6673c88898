//! Handles of a peer's memory, exchanged as bytes in messages or private data.
//! Bounds, rights and alignment are checked here, before anything is sent. The peer checks again, and may have deregistered the memory
//! meanwhile.

use core::fmt;
use core::marker::PhantomData;

use verbena_mem::Access;
use verbena_nic::wr;
use verbena_wire::{Stag, To};

use crate::error::Error;

/// A range of a peer's memory.
///
/// A program makes one from its own [`Memory`](crate::Memory), sends its 24 bytes, and the peer uses it:
///
/// ```
/// use verbena::{Access, Device, RemoteMemory};
/// let device = Device::open()?;
/// let memory = device.memory(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// let sent: [u8; 24] = memory.remote().to_bytes();
///
/// let remote = RemoteMemory::from_bytes(&sent)?;
/// let record = remote.slice(1024, 64)?;
/// assert_eq!(record.len(), 64);
/// assert!(record.slice(60, 8).is_err(), "it would leave the record");
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteMemory {
    at: u64,
    len: u64,
    stag: Stag,
    access: Access,
}

/// Version of the handle format.
const VERSION: u8 = 1;
const REMOTE_RIGHTS: [Access; 4] = [
    Access::REMOTE_READ,
    Access::REMOTE_WRITE,
    Access::REMOTE_ATOMIC,
    Access::REMOTE_FLUSH,
];

/// All remote access rights.
pub(crate) fn remote_rights() -> Access {
    REMOTE_RIGHTS
        .into_iter()
        .fold(Access::NONE, |all, one| all | one)
}

impl RemoteMemory {
    /// Length of an encoded handle.
    ///
    /// ```
    /// assert_eq!(verbena::RemoteMemory::BYTES, 24);
    /// ```
    pub const BYTES: usize = 24;

    pub(crate) fn new(at: u64, len: u64, stag: Stag, access: Access) -> RemoteMemory {
        RemoteMemory {
            at,
            len,
            stag,
            access: access & remote_rights(),
        }
    }

    /// Length of the memory in bytes.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let memory = device.memory(64, verbena::Access::ALL)?;
    /// assert_eq!(memory.remote().len(), 64);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether its length is zero.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let memory = device.memory(64, verbena::Access::ALL)?;
    /// assert!(memory.remote().slice(64, 0)?.is_empty());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The remote access rights that it grants.
    ///
    /// ```
    /// # use verbena::Access;
    /// # let device = verbena::Device::open()?;
    /// let memory = device.memory(64, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    /// assert_eq!(memory.remote().access(), Access::REMOTE_READ);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn access(&self) -> Access {
        self.access
    }

    /// A part of it. Fails with [`Error::OutOfBounds`] if it is out of bounds.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let memory = device.memory(64, verbena::Access::ALL)?;
    /// assert_eq!(memory.remote().slice(32, 32)?.len(), 32);
    /// assert!(memory.remote().slice(32, 33).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn slice(&self, offset: u64, len: u64) -> Result<RemoteMemory, Error> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        let limit = self.len;
        let bounds = Error::OutOfBounds { offset, len, limit };
        let part = RemoteMemory {
            at: self.at.wrapping_add(offset),
            len,
            ..*self
        };
        fits.then_some(part).ok_or(bounds)
    }

    /// The handle of one value in it. Fails if it is out of bounds; the alignment is checked by atomics only.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let memory = device.memory(64, verbena::Access::ALL)?;
    /// let word: verbena::RemoteValue<u64> = memory.remote().value(8)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn value<T>(&self, offset: u64) -> Result<RemoteValue<T>, Error> {
        let memory = self.slice(offset, size_of::<T>() as u64)?;
        let of = PhantomData;
        Ok(RemoteValue { memory, marker: of })
    }

    /// Encodes it, for a message or private data: address, length, STag (big-endian), rights, version, two zeros.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let memory = device.memory(64, verbena::Access::ALL)?;
    /// let bytes = memory.remote().to_bytes();
    /// assert_eq!(verbena::RemoteMemory::from_bytes(&bytes)?, memory.remote());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn to_bytes(&self) -> [u8; RemoteMemory::BYTES] {
        let mut bytes = [0; RemoteMemory::BYTES];
        bytes[..8].copy_from_slice(&self.at.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.stag.get().to_be_bytes());
        bytes[20] = self.access.bits();
        bytes[21] = VERSION;
        bytes
    }

    /// Decodes it from the first 24 bytes of a message or of private data. Fails with [`Error::InvalidHandle`] if they are invalid.
    ///
    /// ```
    /// let error = verbena::RemoteMemory::from_bytes(b"short").unwrap_err();
    /// assert_eq!(error.fault(), verbena::Fault::Peer);
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Result<RemoteMemory, Error> {
        let got = bytes.len();
        let wrong = |why| Error::InvalidHandle { got, why };
        let Some((head, _)) = bytes.split_first_chunk::<{ RemoteMemory::BYTES }>() else {
            return Err(wrong("a handle has 24"));
        };
        let number = |from: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&head[from..from + 8]);
            u64::from_be_bytes(word)
        };
        let (at, len, rest) = (number(0), number(8), number(16));
        let [_, _, _, _, rights, form, 0, 0] = rest.to_be_bytes() else {
            return Err(wrong("its last bytes are not zero"));
        };
        let access = REMOTE_RIGHTS
            .into_iter()
            .filter(|one| rights & one.bits() != 0)
            .fold(Access::NONE, |all, one| all | one);
        match () {
            () if form != VERSION => Err(wrong("its version is unknown")),
            () if access.bits() != rights => Err(wrong("its access rights are not remote rights")),
            () if at.checked_add(len).is_none() => Err(wrong("its range wraps")),
            () => Ok(RemoteMemory {
                at,
                len,
                stag: Stag::new((rest >> 32) as u32),
                access,
            }),
        }
    }

    /// Its STag and address, as in a request of the low layer.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let memory = device.memory(64, verbena::Access::ALL)?;
    /// assert_eq!(memory.remote().remote_addr(), memory.remote_addr(0)?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn remote_addr(&self) -> wr::RemoteAddr {
        wr::RemoteAddr {
            stag: self.stag,
            to: To::new(self.at),
        }
    }

    /// Fails unless `len` bytes of it may be accessed with these rights.
    pub(crate) fn check(&self, len: usize, needs: Access) -> Result<(), Error> {
        self.slice(0, len as u64)?;
        let has = self.access;
        let granted = has.contains(needs);
        granted
            .then_some(())
            .ok_or(Error::MissingAccess { has, needs })
    }
}

/// One value in a peer's memory.
///
/// ```
/// use verbena::{Access, Device, RemoteMemory, RemoteValue};
/// let device = Device::open()?;
/// let memory = device.memory(64, Access::ALL)?;
/// let counter: RemoteValue<u64> = memory.remote_value(16)?;
/// let sent = counter.memory().to_bytes();
/// let received: RemoteValue<u64> = RemoteMemory::from_bytes(&sent)?.value(0)?;
/// assert_eq!(received, counter);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct RemoteValue<T> {
    memory: RemoteMemory,
    marker: PhantomData<fn() -> T>,
}

impl<T> RemoteValue<T> {
    /// Its location.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let memory = device.memory(64, verbena::Access::ALL)?;
    /// let value: verbena::RemoteValue<[u32; 4]> = memory.remote_value(0)?;
    /// assert_eq!(value.memory().len(), 16);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn memory(&self) -> RemoteMemory {
        self.memory
    }
}

impl RemoteValue<u64> {
    /// Fails unless it is aligned and grants this right.
    pub(crate) fn check_atomic(&self, needs: Access) -> Result<(), Error> {
        self.memory.check(8, needs)?;
        let at = self.memory.at;
        let aligned = at.is_multiple_of(8);
        let unaligned = Error::Unaligned { at, align: 8 };
        aligned.then_some(()).ok_or(unaligned)
    }
}

impl<T> Clone for RemoteValue<T> {
    fn clone(&self) -> RemoteValue<T> {
        *self
    }
}

impl<T> Copy for RemoteValue<T> {}

impl<T> PartialEq for RemoteValue<T> {
    fn eq(&self, other: &RemoteValue<T>) -> bool {
        self.memory == other.memory
    }
}

impl<T> Eq for RemoteValue<T> {}

impl<T> fmt::Debug for RemoteValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteValue").field(&self.memory).finish()
    }
}
