//! Registration of memory that the program allocated.
//! It is deregistered when the [`Mr`] is dropped, and no access takes place after that. That the memory stays mapped until then is the
//! caller's obligation, which is why registering is `unsafe`.

use std::sync::Arc;

use verbena_engine::ControlQueue as EngineControlQueue;
use verbena_mem::att::Page;
use verbena_mem::{Access, Att, PageSize, Region, catches_faults};
use verbena_nic::Sge;
use verbena_wire::{Stag, To};

use super::Memory;
use crate::control::ControlQueue;
use crate::device::Domain;
use crate::error::Error;
use crate::pd::Pd;
use crate::registering::Registering;
use crate::remote::RemoteMemory;

/// A registration of memory that the program allocated: a mapping, a static, a buffer of another library.
///
/// Registering is the one operation of this crate that the compiler cannot check:
///
/// ```
/// use verbena::mr::Mr;
/// use verbena::{Access, Device};
/// let device = Device::open()?;
/// let pd = device.pd()?;
/// let bytes = Box::leak(vec![0_u8; 64].into_boxed_slice());
/// // SAFETY: leaked, so it is never freed, and `bytes` is not used from here on.
/// let mr = unsafe { Mr::register(&pd, bytes.as_mut_ptr(), bytes.len(), Access::LOCAL_READ) }?;
/// assert_eq!(mr.sge(8, 4)?.len, 4);
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug)]
pub struct Mr {
    domain: Arc<Domain>,
    stag: Stag,
    access: Access,
    at: u64,
    len: usize,
    /// Memory of the adapter that it gives access to, freed after the registration.
    held: Vec<Memory>,
}

/// Pages begin on a page boundary of the host.
const PAGE: u64 = 4096;

impl Mr {
    /// Registers `len` bytes at `start`. Fails if they are not mapped as `access` needs it, or a limit is reached.
    ///
    /// # Safety
    /// The memory stays mapped until the registration is dropped, and no Rust reference to it is used
    /// meanwhile: the adapter and, within the rights, peers read and write it at any time.
    ///
    /// ```
    /// use verbena::mr::Mr;
    /// use verbena::{Access, Device};
    /// let pd = Device::open()?.pd()?;
    /// let mut bytes = vec![0_u8; 64];
    /// // SAFETY: dropped before the vector, which is not accessed meanwhile.
    /// let mr = unsafe { Mr::register(&pd, bytes.as_mut_ptr(), 64, Access::LOCAL_READ) }?;
    /// drop(mr);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub unsafe fn register(
        pd: &Pd,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Mr, Error> {
        // SAFETY: `register_at` requires of the `len` bytes at `start` what this function does.
        unsafe { Mr::register_at(pd, start, len, start as u64, access) }
    }

    /// Registers `len` bytes at `start` with addresses that begin at `at`, in requests and for peers; 0 makes the region
    /// zero-based.
    ///
    /// # Safety
    /// As for [`register`](Mr::register).
    ///
    /// ```
    /// use verbena::mr::Mr;
    /// use verbena::{Access, Device};
    /// let pd = Device::open()?.pd()?;
    /// let bytes = Box::leak(vec![0_u8; 64].into_boxed_slice());
    /// // SAFETY: `bytes` is leaked, so it stays mapped, and the example does not access it while peers may.
    /// let mr = unsafe { Mr::register_at(&pd, bytes.as_mut_ptr(), 64, 0, Access::ALL) }?;
    /// assert_eq!(mr.sge(8, 4)?.addr, 8);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub unsafe fn register_at(
        pd: &Pd,
        start: *mut u8,
        len: usize,
        at: u64,
        access: Access,
    ) -> Result<Mr, Error> {
        // SAFETY: the caller keeps the memory mapped until this registration is dropped, as the contract of this function says.
        unsafe { Mr::register_att(pd, Att::direct(start, len as u64), (at, len), access) }
    }

    /// Registers `len` bytes at `start` without a check of what is mapped there, with addresses that begin at `at` (on-demand paging): an
    /// access faults its pages in, and fails if they are not mapped so at that time. Memory may be mapped and unmapped there as long as the
    /// registration lives. Fails with [`Error::FaultsNotCaught`] where such an access would end the process.
    ///
    /// # Safety
    /// Requests and, within the rights, peers read and write whatever is mapped in this range at that time: no Rust reference to the bytes
    /// that they access is used meanwhile.
    ///
    /// ```
    /// use verbena::mr::Mr;
    /// use verbena::{Access, Device};
    /// let pd = Device::open()?.pd()?;
    /// // Reserved addresses: a gibibyte for which the system has no memory yet.
    /// let start = core::ptr::without_provenance_mut(1 << 40);
    /// // SAFETY: nothing is mapped there, and the example posts no request.
    /// let mr = unsafe { Mr::register_on_demand(&pd, start, 1 << 30, 0, Access::ALL) }?;
    /// assert_eq!(mr.remote().len(), 1 << 30);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub unsafe fn register_on_demand(
        pd: &Pd,
        start: *mut u8,
        len: usize,
        at: u64,
        access: Access,
    ) -> Result<Mr, Error> {
        if !catches_faults() {
            return Err(Error::FaultsNotCaught);
        }
        // SAFETY: the caller accepts that whatever is mapped in the range is accessed; that it stays mapped is not required, since faults are caught.
        unsafe { Mr::register_att(pd, Att::on_demand(start, len as u64), (at, len), access) }
    }

    /// Registers all addresses of the process on demand (implicit on-demand paging): requests and, within the rights, peers can access
    /// whatever is mapped, by its address.
    ///
    /// # Safety
    /// As for [`register_on_demand`](Mr::register_on_demand), for every address of the process: memory of its allocator, of its stacks and of
    /// the adapter is in the range.
    ///
    /// ```
    /// use verbena::mr::Mr;
    /// use verbena::{Access, Device};
    /// let pd = Device::open()?.pd()?;
    /// // SAFETY: for local reads only, and the example posts no request.
    /// let mr = unsafe { Mr::register_address_space(&pd, Access::LOCAL_READ) }?;
    /// let bytes = [1_u8; 8];
    /// assert_eq!(mr.sge(bytes.as_ptr() as usize, 8)?.addr, bytes.as_ptr() as u64);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub unsafe fn register_address_space(pd: &Pd, access: Access) -> Result<Mr, Error> {
        if !catches_faults() {
            return Err(Error::FaultsNotCaught);
        }
        // SAFETY: the caller accepts that whatever is mapped is accessed, as the contract of this function says; faults are caught.
        unsafe { Mr::register_att(pd, Att::address_space(), (0, usize::MAX), access) }
    }

    /// A region without memory, for parts of messages that are of no interest (`ibv_alloc_null_mr`): at any address, requests read zeros
    /// from it, and what they write is discarded. Peers cannot access it.
    ///
    /// ```
    /// let pd = verbena::Device::open()?.pd()?;
    /// let null = verbena::mr::Mr::null(&pd)?;
    /// assert_eq!(null.sge(0, 4096)?.len, 4096);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn null(pd: &Pd) -> Result<Mr, Error> {
        let att = Att::null().map_err(verbena_nic::Error::from)?;
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        // SAFETY: the pages of the null translation are never unmapped, and no reference to them exists.
        unsafe { Mr::register_att(pd, att, (0, usize::MAX), access) }
    }

    /// # Safety
    /// The memory of `att` is mapped until the registration is dropped unless it is on demand, and no reference to it is used meanwhile.
    unsafe fn register_att(
        pd: &Pd,
        att: Att,
        (at, len): (u64, usize),
        access: Access,
    ) -> Result<Mr, Error> {
        let region = Region {
            att,
            start: To::new(at),
            pd: pd.0.pd,
            access,
            one_touch: false,
        };
        let function = pd.0.function()?;
        // SAFETY: the caller guarantees it for the memory of `att`, as the contract of this function says.
        let stag = function.register_with(pd.0.pd, |tpt| unsafe { tpt.register(region) })?;
        Ok(Mr::from_parts(pd, stag, access, (at, len)))
    }

    /// Registers `len` bytes at `start` in the background, in the order of such calls (V5); see [`Pd::memory_async`] for work that
    /// uses the memory before. If the memory is not mapped by then, [`Registering`] reports the error.
    ///
    /// # Safety
    /// As for [`register`](Mr::register), from now on.
    ///
    /// ```
    /// use verbena::mr::Mr;
    /// use verbena::{Access, Device};
    /// let pd = Device::open()?.pd()?;
    /// let bytes = Box::leak(vec![0_u8; 1 << 20].into_boxed_slice());
    /// // SAFETY: `bytes` is leaked, so it stays mapped from now on, also if the registration is dropped before it completes.
    /// let later = unsafe { Mr::register_async(&pd, bytes.as_mut_ptr(), 1 << 20, Access::ALL) };
    /// let (mr, registering) = later?;
    /// let told_to_a_peer = mr.remote();
    /// registering.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub unsafe fn register_async(
        pd: &Pd,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<(Mr, Registering), Error> {
        // SAFETY: the caller keeps the memory mapped from now on.
        unsafe { Mr::register_pending(pd, (start, len), access, None) }
    }

    /// # Safety
    /// As for [`register`](Mr::register), from now on.
    unsafe fn register_pending(
        pd: &Pd,
        (start, len): (*mut u8, usize),
        access: Access,
        control: Option<(&EngineControlQueue, u64)>,
    ) -> Result<(Mr, Registering), Error> {
        let region = region(pd, start, len, access);
        // SAFETY: the caller keeps the memory mapped from now on; a registration that is dropped before removes the reserved entry first.
        let begun = Registering::begin(&pd.0, control, |tpt| unsafe { tpt.reserve(region.into()) });
        let (stag, registering) = begun?;
        Ok((
            Mr::from_parts(pd, stag, access, (start as u64, len)),
            registering,
        ))
    }

    /// Registers `len` bytes scattered over pages of one size (M3), with addresses that begin at 0; the first byte lies `first_offset`
    /// bytes into the first page. Fails if a page does not begin on a boundary of 4 KiB, if the bytes do not fit the pages, or if they
    /// are not mapped as `access` needs it.
    ///
    /// # Safety
    /// As for [`register`](Mr::register), for every byte that lies in the range.
    ///
    /// ```
    /// use verbena::mr::{Mr, PageSize};
    /// use verbena::{Access, Device};
    /// #[repr(align(4096))]
    /// struct Pages([u8; 8192]);
    /// let pd = Device::open()?.pd()?;
    /// let pages = Box::leak(Box::new(Pages([0; 8192]))).0.as_mut_ptr();
    /// // The second page first.
    /// let list = [pages.wrapping_add(4096), pages];
    /// // SAFETY: the pages are leaked, so they stay mapped, and the example does not access them any more.
    /// let mr = unsafe { Mr::register_pages(&pd, PageSize::K4, &list, 100, 8000, Access::ALL) }?;
    /// assert_eq!(mr.remote().len(), 8000);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub unsafe fn register_pages(
        pd: &Pd,
        size: PageSize,
        pages: &[*mut u8],
        first_offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Mr, Error> {
        let align = PAGE;
        let starts = pages.iter().map(|page| *page as u64);
        if let Some(at) = starts.into_iter().find(|at| !at.is_multiple_of(align)) {
            return Err(Error::Unaligned { at, align });
        }
        let list: Vec<Page> = pages.iter().map(|page| Page::at(*page)).collect();
        let att = Att::paged(size, &list, first_offset as u64, len as u64);
        let region = Region {
            att: att.map_err(verbena_nic::Error::from)?,
            start: To::new(0),
            pd: pd.0.pd,
            access,
            one_touch: false,
        };
        let function = pd.0.function()?;
        // SAFETY: the caller keeps the pages mapped until this registration is dropped, as the contract of this function says.
        let stag = function.register_with(pd.0.pd, |tpt| unsafe { tpt.register(region) })?;
        Ok(Mr::from_parts(pd, stag, access, (0, len)))
    }

    /// Registers the same memory once more on the same translation entries, with a domain and rights of its own (M5). Dropping one of
    /// them leaves the other one valid.
    ///
    /// # Safety
    /// As for [`register`](Mr::register), until the new registration is dropped, too.
    ///
    /// ```
    /// use verbena::mr::Mr;
    /// use verbena::{Access, Device};
    /// let device = Device::open()?;
    /// let (owner, reader) = (device.pd()?, device.pd()?);
    /// let bytes = Box::leak(vec![0_u8; 64].into_boxed_slice());
    /// // SAFETY: `bytes` is leaked, so it stays mapped for both registrations; only peers access it.
    /// let mr = unsafe { Mr::register(&owner, bytes.as_mut_ptr(), 64, Access::LOCAL_WRITE) }?;
    /// // SAFETY: `bytes` stays mapped for this second registration, too, since it is leaked.
    /// let view = unsafe { mr.share(&reader, Access::REMOTE_READ) }?;
    /// drop(mr);
    /// assert_eq!(view.remote().access(), Access::REMOTE_READ);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub unsafe fn share(&self, pd: &Pd, access: Access) -> Result<Mr, Error> {
        if !Arc::ptr_eq(&self.domain.device, &pd.0.device) {
            return Err(Error::Foreign);
        }
        let (start, function) = (To::new(self.at), pd.0.function()?);
        let stag = function.register_shared(self.stag, start, pd.0.pd, access)?;
        let mut mr = Mr::from_parts(pd, stag, access, (self.at, self.len));
        mr.held.clone_from(&self.held);
        Ok(mr)
    }

    fn from_parts(pd: &Pd, stag: Stag, access: Access, (at, len): (u64, usize)) -> Mr {
        Mr {
            domain: pd.0.clone(),
            stag,
            access,
            at,
            len,
            held: Vec::new(),
        }
    }

    /// A scatter/gather element of it, for a request. Fails if it is out of bounds.
    ///
    /// ```
    /// # use verbena::mr::Mr;
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// # let bytes = Box::leak(vec![0_u8; 64].into_boxed_slice());
    /// // SAFETY: `bytes` is leaked, so it stays mapped; it is registered for local reads only.
    /// let mr = unsafe { Mr::register(&pd, bytes.as_mut_ptr(), 64, Access::LOCAL_READ) }?;
    /// assert!(mr.sge(60, 5).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn sge(&self, offset: usize, len: usize) -> Result<Sge, Error> {
        self.remote().slice(offset as u64, len as u64)?;
        let fits = u32::try_from(len).map_err(|_| Error::TooLong {
            len: len as u64,
            limit: u64::from(u32::MAX),
        });
        Ok(Sge {
            addr: self.at + offset as u64,
            len: fits?,
            stag: self.stag,
        })
    }

    /// The handle for peers.
    ///
    /// ```
    /// # use verbena::mr::Mr;
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// # let bytes = Box::leak(vec![0_u8; 64].into_boxed_slice());
    /// // SAFETY: `bytes` is leaked, so it stays mapped, and it is not written while peers read it.
    /// let mr = unsafe { Mr::register(&pd, bytes.as_mut_ptr(), 64, Access::REMOTE_READ) }?;
    /// assert_eq!(mr.remote().len(), 64);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory::new(self.at, self.len as u64, self.stag, self.access)
    }
}

impl Mr {
    /// Its STag.
    ///
    /// ```
    /// # use verbena::mr::Mr;
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// # let bytes = Box::leak(vec![0_u8; 64].into_boxed_slice());
    /// // SAFETY: `bytes` is leaked and never accessed again by the example itself.
    /// let mr = unsafe { Mr::register(&pd, bytes.as_mut_ptr(), 64, Access::ALL) }?;
    /// assert_eq!(mr.sge(0, 1)?.stag, mr.stag());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// Replaces its access rights and keeps its STag. Fails while windows are bound to it.
    ///
    /// ```
    /// # use verbena::mr::Mr;
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// # let bytes = Box::leak(vec![0_u8; 64].into_boxed_slice());
    /// // SAFETY: `bytes` is leaked, so it stays mapped whatever the rights are; only peers access it.
    /// let mut mr = unsafe { Mr::register(&pd, bytes.as_mut_ptr(), 64, Access::ALL) }?;
    /// let before = mr.stag();
    /// mr.set_access(Access::REMOTE_READ)?;
    /// assert_eq!(mr.stag(), before);
    /// assert_eq!(mr.remote().access(), Access::REMOTE_READ);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_access(&mut self, access: Access) -> Result<(), Error> {
        self.domain.function()?.change_access(self.stag, access)?;
        self.access = access;
        Ok(())
    }

    /// Deregisters it now. Fails, and returns it, while windows are bound to it; dropping it deallocates them as well.
    ///
    /// ```
    /// # use verbena::mr::Mr;
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// # let bytes = Box::leak(vec![0_u8; 64].into_boxed_slice());
    /// // SAFETY: `bytes` is leaked, so it stays mapped until and after `deregister`.
    /// let mr = unsafe { Mr::register(&pd, bytes.as_mut_ptr(), 64, Access::ALL) }?;
    /// mr.deregister().map_err(|(_, error)| error)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn deregister(self) -> Result<(), (Mr, Error)> {
        let refused = match self.domain.function() {
            Ok(function) => function.deregister(self.stag).map_err(Error::from),
            Err(error) => Err(error),
        };
        // If it succeeded, `drop` deregisters again and finds no entry.
        refused.map_err(|error| (self, error))
    }
}

impl Pd {
    /// Registers `len` bytes scattered over pages of one size (M3), with addresses that begin at 0: in requests and for peers they
    /// are one range. A page is named by memory of this domain and the offset of its first byte, a multiple of 4096; the first byte
    /// lies `first_offset` bytes into the first page, and the last page may be used in part. The registration keeps the memory.
    ///
    /// ```
    /// use verbena::mr::PageSize;
    /// use verbena::{Access, Device};
    /// let pd = Device::open()?.pd()?;
    /// let memory = pd.memory(4 * 65536, Access::LOCAL_WRITE)?;
    /// let pages = [(&memory, 3 * 65536), (&memory, 0), (&memory, 65536)];
    /// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    /// let mr = pd.register_pages(PageSize::K64, &pages, 1000, 150_000, rights)?;
    /// assert_eq!(mr.remote().len(), 150_000);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn register_pages(
        &self,
        size: PageSize,
        pages: &[(&Memory, usize)],
        first_offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Mr, Error> {
        let (mut list, mut held) = (Vec::with_capacity(pages.len()), Vec::<Memory>::new());
        for (memory, offset) in pages {
            if !memory.is_in(&self.0) {
                return Err(Error::Foreign);
            }
            memory.check(*offset, size.bytes() as usize)?;
            list.push(memory.pointer(*offset));
            if !held.iter().any(|known| known.is_same(memory)) {
                held.push((*memory).clone());
            }
        }
        // SAFETY: every page lies in a `Memory`, which stays mapped while `held` has a handle of it and is never accessed through
        // references; `Mr` is deregistered in `drop`, before its fields are dropped.
        let mut mr = unsafe { Mr::register_pages(self, size, &list, first_offset, len, access) }?;
        mr.held = held;
        Ok(mr)
    }
}

impl ControlQueue {
    /// Queues the registration of memory that the program allocated. It can be used at once, as with [`Mr::register_async`]: work that needs it
    /// waits until the request was executed.
    ///
    /// # Safety
    /// As for [`Mr::register`], from now on.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let device = Device::open()?;
    /// let (pd, control) = (device.pd()?, device.control_queue(4)?);
    /// let bytes = Box::leak(vec![0_u8; 1 << 20].into_boxed_slice());
    /// // SAFETY: `bytes` is leaked, so it stays mapped from now on, also if the control queue pair ends before the request is executed.
    /// let queued = unsafe { control.register_mr(1, &pd, bytes.as_mut_ptr(), 1 << 20, Access::ALL) };
    /// let (mr, registering) = queued?;
    /// registering.wait()?;
    /// control.deregister_mr(2, mr).map_err(|(_, error)| error)?.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub unsafe fn register_mr(
        &self,
        id: u64,
        pd: &Pd,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<(Mr, Registering), Error> {
        let control = self.queue_for(pd, id)?;
        // SAFETY: the caller keeps the memory mapped from now on, as the contract of this function says.
        unsafe { Mr::register_pending(pd, (start, len), access, Some(control)) }
    }
}

fn region(pd: &Pd, start: *mut u8, len: usize, access: Access) -> Region {
    Region {
        att: Att::direct(start, len as u64),
        start: To::new(start as u64),
        pd: pd.0.pd,
        access,
        one_touch: false,
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // Returns when no access is under way, through windows bound to it included. It fails only if the entry does not exist:
        // deregistered before, or registration in the background failed.
        if let Ok(function) = self.domain.function() {
            let _ = function.deregister_with_windows(self.stag);
        }
    }
}

#[cfg(test)]
mod tests;
