//! A protection domain of the low layer, in which memory, windows and shared queues are created.
//! Objects keep their domain alive, and queue pairs of other domains cannot access them. Connections of the high layer have their own
//! domain, which is not accessible here.

use std::sync::Arc;

use verbena_mem::{Access, MemAccess, Policy, WindowType};
use verbena_nic::Sge;

use crate::device::{Device, Domain};
use crate::error::Error;
use crate::mr::{FastRegMr, Memory, Window};
use crate::registering::Registering;
use crate::setters::setters;

/// Options of a protection domain, for [`Device::pd_with`].
///
/// ```
/// use verbena::low::PdOptions;
/// use verbena::mr::RemoteAccess;
/// let options = PdOptions::default().remote_access(Some(RemoteAccess::WindowsOnly));
/// assert_ne!(options, PdOptions::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PdOptions {
    /// What peers may access (M7): windows and regions, or windows only. By default as the setting `remote_access` of the device.
    pub remote_access: Option<Policy>,
}

setters! { PdOptions:
    ; remote_access: Policy,
}

/// A protection domain of the low layer: its memory can be used by its own queue pairs only.
///
/// ```
/// use verbena::{Access, Device};
/// let pd = Device::open()?.pd()?;
/// let memory = pd.memory(4096, Access::ALL)?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pd(pub(crate) Arc<Domain>);

impl Device {
    /// Allocates a protection domain for the low layer.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let pd = device.pd()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn pd(&self) -> Result<Pd, Error> {
        self.pd_with(PdOptions::default())
    }

    /// Allocates a protection domain with options of its own. Where peers may name windows only, they cannot access a region by its own
    /// key, whatever its rights; the program binds windows to it (docs/memory.md).
    ///
    /// ```
    /// use verbena::low::PdOptions;
    /// use verbena::mr::RemoteAccess;
    /// let device = verbena::Device::open()?;
    /// let remote_access = Some(RemoteAccess::WindowsOnly);
    /// let pd = device.pd_with(PdOptions::default().remote_access(remote_access))?;
    /// assert_eq!(pd.remote_access(), RemoteAccess::WindowsOnly);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn pd_with(&self, options: PdOptions) -> Result<Pd, Error> {
        let default = self.config().remote_access;
        let policy = options.remote_access.unwrap_or(default);
        Ok(Pd(Domain::with_policy(self.inner().clone(), policy)?))
    }
}

/// What [`Pd::prefetch`] does with the pages of registered memory (`ibv_advise_mr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// Faults them in for reading.
    Read,
    /// Faults them in for writing, which needs the right of local writes.
    Write,
    /// Nothing: only the ranges and rights are checked.
    None,
}

impl Pd {
    /// Faults pages of registered memory in, so that the first access does not have to. Fails with [`Error::Refused`] at the first element
    /// that a request of this domain could not use, or that is not mapped; the elements before it have been prefetched.
    ///
    /// ```
    /// use verbena::low::Prefetch;
    /// use verbena::mr::Refusal;
    /// use verbena::{Access, Device, Error};
    /// let pd = Device::open()?.pd()?;
    /// let memory = pd.memory(1 << 20, Access::LOCAL_READ)?;
    /// pd.prefetch(&[memory.sge(0, 1 << 20)?], Prefetch::Read)?;
    /// let refused = pd.prefetch(&[memory.sge(0, 8)?], Prefetch::Write);
    /// assert!(matches!(refused, Err(Error::Refused(Refusal::Right { .. }))));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn prefetch(&self, list: &[Sge], pages: Prefetch) -> Result<(), Error> {
        let function = self.0.function()?;
        let needs = match pages {
            Prefetch::Write => Access::LOCAL_WRITE,
            Prefetch::Read | Prefetch::None => Access::LOCAL_READ,
        };
        for sge in list {
            let access = MemAccess {
                stag: sge.stag,
                at: sge.addr,
                len: sge.len.into(),
                pd: self.0.pd,
                qp: 0,
                needs,
            };
            function.tpt().prefetch(&access, pages != Prefetch::None)?;
        }
        Ok(())
    }

    /// What peers may access in this domain (M7).
    ///
    /// ```
    /// use verbena::mr::RemoteAccess;
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.pd()?.remote_access(), RemoteAccess::Verbs);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn remote_access(&self) -> Policy {
        self.0.device.engine.function().tpt().policy_of(self.0.pd)
    }

    /// Allocates and registers memory in this domain.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let memory = Device::open()?.pd()?.memory(4096, Access::LOCAL_WRITE)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn memory(&self, len: usize, access: Access) -> Result<Memory, Error> {
        Memory::new(&self.0, len, access)
    }

    /// Allocates memory in this domain that is registered in the background, in the order of such calls (V5). It can be used at
    /// once: requests that need it wait until it is registered, peers that access it wait up to five seconds, and
    /// other work is not delayed. If the registration fails, so does the work that waited. [`Registering`] has a complete example.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let (memory, registering) = Device::open()?.pd()?.memory_async(1 << 20, Access::ALL)?;
    /// registering.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn memory_async(&self, len: usize, access: Access) -> Result<(Memory, Registering), Error> {
        Memory::new_async(&self.0, len, access)
    }

    /// Allocates memory whose registration is invalidated by the first message of a peer that ends in it, be it a Write, a read that is
    /// served or an atomic, without notice to the peer (M9). The program can still copy in and out afterwards.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let memory = Device::open()?.pd()?.one_touch_memory(4096, Access::ALL)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn one_touch_memory(&self, len: usize, access: Access) -> Result<Memory, Error> {
        Memory::one_touch(&self.0, len, access)
    }

    /// Allocates an STag for registration by work request (M4), with a capacity of `pages`. [`FastRegMr`] has a complete example.
    ///
    /// ```
    /// let tag = verbena::Device::open()?.pd()?.fast_reg_mr(16)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn fast_reg_mr(&self, pages: u32) -> Result<FastRegMr, Error> {
        FastRegMr::new(self, pages)
    }

    /// Allocates a memory window in this domain, not bound yet.
    ///
    /// ```
    /// use verbena::mr::WindowType;
    /// let window = verbena::Device::open()?.pd()?.window(WindowType::TwoB)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn window(&self, ty: WindowType) -> Result<Window, Error> {
        Window::new(self, ty)
    }
}
