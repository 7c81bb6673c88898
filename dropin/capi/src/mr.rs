//! Memory regions. When `ibv_dereg_mr` has returned, the adapter does not access the memory any more.
//! Registration checks that the memory is mapped with the rights that it needs (`EFAULT`), except for on-demand paging, where an access
//! faults pages in or fails. Regions of other processes are not supported.

mod advise;
mod dmabuf;

pub(crate) use advise::advise_mr;

use core::ffi::{c_int, c_void};

use parking_lot::Mutex;
use verbena::mr::Mr;
use verbena::{Access, Error};

use crate::abi::*;
use crate::caller::handle;
use crate::check::{self, RegionInfo};
use crate::errno::{Errno, number, pointer};
use crate::object::Object;
use crate::pd::Domain;
use crate::uses::Use;
use crate::{dm, pd};
use dmabuf::Dmabuf;

/// The library's part of a region.
struct Region {
    /// Replaced when it is registered anew.
    inner: Mutex<Inner>,
}

struct Inner {
    /// None only while it is being deregistered.
    mr: Option<Mr>,
    /// The parameters of the registration, which `ibv_rereg_mr` keeps unless it changes them.
    start: usize,
    len: usize,
    at: u64,
    access: c_int,
    /// Kept until the region is deregistered, which is before this is dropped.
    backing: Backing,
    _domain: Use,
}

/// The memory of a region.
enum Backing {
    /// The program's, which can be registered anew.
    Program,
    /// None.
    Null,
    /// Of the device.
    Device { _dm: Use },
    /// Of another device's driver.
    Dmabuf { _mapping: Dmabuf },
}

type MrObject = Object<ibv_mr, Region>;

const SUPPORTED_ACCESS: c_int = (IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_FLUSH_GLOBAL
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_ON_DEMAND
    // A hint without effect: memory in huge pages is registered as any other.
    | IBV_ACCESS_HUGETLB) as c_int;

/// What device memory and dmabufs can be registered for.
const DEVICE_ACCESS: c_int = (IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_FLUSH_GLOBAL
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_OPTIONAL_RANGE) as c_int;

/// The access rights of an `access` argument.
pub(crate) fn rights(flags: c_int) -> Result<Access, Errno> {
    let flags = flags & !(IBV_ACCESS_OPTIONAL_RANGE as c_int);
    // docs/decisions.md: memory is not made persistent.
    if flags & (IBV_ACCESS_FLUSH_PERSISTENT as c_int) != 0 {
        return Err(Errno::NOSUPP);
    }
    if flags & !SUPPORTED_ACCESS != 0 {
        return Err(Errno::INVAL);
    }
    let mut access = Access::LOCAL_READ;
    for (bit, right) in [
        (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (IBV_ACCESS_FLUSH_GLOBAL, Access::REMOTE_FLUSH),
        (IBV_ACCESS_MW_BIND, Access::BIND),
    ] {
        if flags & (bit as c_int) != 0 {
            access = access | right;
        }
    }
    Ok(access)
}

impl Inner {
    /// # Safety
    /// The memory stays mapped until the region is deregistered.
    unsafe fn new(
        domain: &Domain,
        start: usize,
        len: usize,
        at: u64,
        flags: c_int,
    ) -> Result<Inner, Errno> {
        let access = rights(flags)?;
        let zero_based = flags & (IBV_ACCESS_ZERO_BASED as c_int) != 0;
        let first = if zero_based { 0 } else { at };
        let memory = start as *mut u8;
        let on_demand = flags & (IBV_ACCESS_ON_DEMAND as c_int) != 0;
        let mr = if on_demand && start == 0 && len == usize::MAX {
            if zero_based || at != 0 {
                return Err(Errno::INVAL);
            }
            // SAFETY: the caller accepts that requests access any of its memory, as the flag and the range say.
            unsafe { Mr::register_address_space(&domain.pd, access) }
        } else if on_demand {
            start.checked_add(len).ok_or(Errno::INVAL)?;
            // SAFETY: the caller accepts that requests access what is mapped in this range at that time.
            unsafe { Mr::register_on_demand(&domain.pd, memory, len, first, access) }
        } else {
            // SAFETY: the caller guarantees that `len` bytes at `start` stay mapped until the region is deregistered.
            unsafe { Mr::register_at(&domain.pd, memory, len, first, access) }
        };
        let mr = mr.map_err(registration_error)?;
        Ok(Inner {
            mr: Some(mr),
            start,
            len,
            at,
            access: flags,
            backing: Backing::Program,
            _domain: domain.uses.begin(),
        })
    }

    /// The region as the program sees it, at the address that it knows.
    ///
    /// # Safety
    /// `pd` was created by this library, and is not destroyed during the call.
    unsafe fn into_object(self, pd: *mut ibv_pd, addr: *mut c_void) -> *mut ibv_mr {
        let key = self.key();
        let mr = ibv_mr {
            // SAFETY: `pd` is a domain of this library; its context is written once, when the domain is allocated.
            context: unsafe { (*pd).context },
            pd,
            addr,
            length: self.len,
            handle: key >> 8,
            lkey: key,
            rkey: key,
        };
        let info = check::checker().map(|_| self.info());
        let inner = Mutex::new(self);
        let object = MrObject::allocate(mr, Region { inner });
        if let Some((checker, info)) = check::checker().zip(info) {
            checker.registered(object as usize, info);
        }
        object
    }

    /// Changes the access rights and nothing else.
    fn set_access(&mut self, flags: c_int) -> Result<(), Errno> {
        // These are about addresses and pages, not rights, and are not changed.
        const KEPT: c_int = (IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND) as c_int;
        let access = rights(flags)?;
        let mr = self.mr.as_mut().ok_or(Errno::INVAL)?;
        mr.set_access(access).map_err(registration_error)?;
        self.access = (flags & !KEPT) | (self.access & KEPT);
        Ok(())
    }

    /// What `verbena check` has to know of it.
    fn info(&self) -> RegionInfo {
        let in_memory = matches!(self.backing, Backing::Program) && self.at == self.start as u64;
        let whole = self.start == 0 && self.len == usize::MAX;
        RegionInfo {
            key: self.key(),
            start: self.start,
            len: self.len,
            access: self.access as u32,
            stays_mapped: in_memory && !whole,
        }
    }

    fn key(&self) -> u32 {
        self.mr.as_ref().map_or(0, |mr| mr.stag().get())
    }
}

/// The error number of a failed registration: `EFAULT` for memory that is not mapped.
fn registration_error(error: Error) -> Errno {
    match error {
        Error::FaultsNotCaught => Errno::NOSUPP,
        error if error.is_unmapped() => Errno(libc::EFAULT),
        error => Errno::from(error),
    }
}

/// # Safety
/// `pd` was created by this library; the memory stays mapped until the region is deregistered.
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> Result<*mut ibv_mr, Errno> {
    let domain = handle!(pd::of(pd))?;
    // As the kernel, which has no page to pin then.
    if length == 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller guarantees that `length` bytes at `addr` stay mapped until the region is deregistered.
    let inner = unsafe { Inner::new(domain, addr as usize, length, iova, access)? };
    // SAFETY: `pd` is not null, since `pd::of` succeeded.
    Ok(unsafe { inner.into_object(pd, addr) })
}

/// Registers a part of the device's memory, zero-based.
///
/// # Safety
/// `pd` and `dm` are null or were created by this library.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    let (domain, memory) = (handle!(pd::of(pd)), handle!(dm::of(dm)));
    pointer(domain.and_then(|domain| {
        let (memory, access) = (memory?, access as c_int);
        let zero_based = access & (IBV_ACCESS_ZERO_BASED as c_int) != 0;
        let start = memory.range(offset, length).ok_or(Errno::INVAL)?;
        if length == 0 || !zero_based || access & !DEVICE_ACCESS != 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: device memory with a region, whose use begins here, is not freed.
        let mut inner = unsafe { Inner::new(domain, start as usize, length, 0, access)? };
        inner.backing = Backing::Device {
            _dm: memory.uses.begin(),
        };
        // SAFETY: `pd` is not null, since `pd::of` succeeded.
        Ok(unsafe { inner.into_object(pd, core::ptr::null_mut()) })
    }))
}

/// A region without memory: requests read zeros from it, and what they write is discarded.
///
/// # Safety
/// `pd` is null or was created by this library.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    let domain = handle!(pd::of(pd));
    pointer(domain.and_then(|domain| {
        let inner = Inner {
            mr: Some(Mr::null(&domain.pd)?),
            start: 0,
            len: usize::MAX,
            at: 0,
            access: IBV_ACCESS_LOCAL_WRITE as c_int,
            backing: Backing::Null,
            _domain: domain.uses.begin(),
        };
        // SAFETY: `pd` is not null, since `pd::of` succeeded.
        Ok(unsafe { inner.into_object(pd, core::ptr::null_mut()) })
    }))
}

/// Registers memory.
///
/// # Safety
/// `pd` was created by this library; the memory stays mapped until it is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller guarantees that `pd` is a domain of this library, and that the memory stays mapped.
    pointer(unsafe { register(pd, addr, length, addr as u64, access) })
}

/// Registers memory under addresses that begin at `iova`.
///
/// # Safety
/// As [`ibv_reg_mr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller guarantees that `pd` is a domain of this library, and that `length` bytes at `addr` stay mapped until the region is deregistered.
    pointer(unsafe { register(pd, addr, length, iova, access) })
}

/// The same, for access flags some of which are optional.
///
/// # Safety
/// As [`ibv_reg_mr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: `register` requires of `pd` and of `length` bytes at `addr` what this function does.
    pointer(unsafe { register(pd, addr, length, iova, access as c_int) })
}

/// Registers memory of another device's driver, if processes can map it; the region's addresses begin at `iova`.
///
/// # Safety
/// `pd` is null or was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let domain = handle!(pd::of(pd));
    pointer(domain.and_then(|domain| {
        const WRITES: c_int =
            (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) as c_int;
        // The descriptor first: programs find out by a wrong one whether dmabufs are supported.
        let mapping = Dmabuf::map(fd, offset, length, access & WRITES != 0)?;
        if access & !DEVICE_ACCESS != 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: the mapping is kept by the region, and unmapped after it is deregistered.
        let mut inner = unsafe { Inner::new(domain, mapping.start(), length, iova, access)? };
        inner.backing = Backing::Dmabuf { _mapping: mapping };
        // SAFETY: `pd` is not null, since `pd::of` succeeded.
        Ok(unsafe { inner.into_object(pd, iova as *mut c_void) })
    }))
}

/// Would import a region of another process; not supported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_mr(_pd: *mut ibv_pd, _handle: u32) -> *mut ibv_mr {
    pointer(Err(Errno::NOSUPP))
}

/// Undoes [`ibv_import_mr`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {}

/// Would import memory of the device that another process has allocated; not supported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_dm(_context: *mut ibv_context, _handle: u32) -> *mut ibv_dm {
    pointer(Err(Errno::NOSUPP))
}

/// Undoes [`ibv_import_dm`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_dm(_dm: *mut ibv_dm) {}

/// Deregisters memory: when this has returned, the adapter does not access it any more. `EBUSY` while windows are bound to it.
///
/// # Safety
/// `mr` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    let own = handle!(MrObject::of(mr)).ok_or(Errno::INVAL);
    number(own.and_then(|own| {
        deregister(&mut own.inner.lock())?;
        if let Some(checker) = check::checker() {
            checker.deregistered(mr as usize);
        }
        // SAFETY: `mr` came from `MrObject::allocate`, and the caller does not use it after this call.
        drop(unsafe { MrObject::take(mr) });
        Ok(())
    }))
}

/// Deregisters the region; fails while windows are bound to it, and then it stays.
fn deregister(inner: &mut Inner) -> Result<(), Errno> {
    let Some(mr) = inner.mr.take() else {
        return Ok(());
    };
    mr.deregister().map_err(|(mr, error)| {
        inner.mr = Some(mr);
        Errno::from(error)
    })
}

/// Changes address, domain or access rights of a region. A change of rights alone keeps its keys, as on adapters; any other change gives it
/// new keys.
///
/// # Safety
/// As [`ibv_reg_mr`], for the new memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: `reregister` requires of `mr`, `pd` and the memory at `addr` what this function does.
    match unsafe { reregister(mr, flags as u32, pd, addr, length, access) } {
        Ok(()) => 0,
        Err((errno, code)) => {
            errno.set();
            code
        }
    }
}

const ALL_CHANGES: u32 =
    IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;

/// # Safety
/// As for [`ibv_rereg_mr`].
unsafe fn reregister(
    mr: *mut ibv_mr,
    flags: u32,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Result<(), (Errno, c_int)> {
    let input = |errno| (errno, IBV_REREG_MR_ERR_INPUT);
    let changes = |what| flags & what != 0;
    let on_demand = access & (IBV_ACCESS_ON_DEMAND as c_int) != 0;
    let nowhere = (addr.is_null() && !on_demand) || length == 0;
    if flags == 0
        || flags & !ALL_CHANGES != 0
        || (changes(IBV_REREG_MR_CHANGE_TRANSLATION) && nowhere)
        || (!changes(IBV_REREG_MR_CHANGE_ACCESS) && access != 0)
    {
        return Err(input(Errno::INVAL));
    }
    let own = handle!(MrObject::of(mr)).ok_or(input(Errno::INVAL))?;
    // `pd` of the region is written only by this call.
    let domain_of = if changes(IBV_REREG_MR_CHANGE_PD) {
        pd
    } else {
        // SAFETY: `mr` is valid, since `MrObject::of` returned its part.
        unsafe { (*mr).pd }
    };
    // SAFETY: `pd` of the caller or of the region is null or a domain of this library.
    let domain = unsafe { pd::of(domain_of) }.map_err(input)?;
    let mut inner = own.inner.lock();
    match inner.backing {
        Backing::Program => {}
        Backing::Device { .. } | Backing::Dmabuf { .. } if flags == IBV_REREG_MR_CHANGE_ACCESS => {
            if access & !DEVICE_ACCESS != 0 {
                return Err(input(Errno::INVAL));
            }
        }
        Backing::Null | Backing::Device { .. } | Backing::Dmabuf { .. } => {
            return Err(input(Errno::NOSUPP));
        }
    }
    let (start, len, at) = if changes(IBV_REREG_MR_CHANGE_TRANSLATION) {
        (addr as usize, length, addr as u64)
    } else {
        (inner.start, inner.len, inner.at)
    };
    let access = if changes(IBV_REREG_MR_CHANGE_ACCESS) {
        access
    } else {
        inner.access
    };
    if flags == IBV_REREG_MR_CHANGE_ACCESS {
        let changed = inner.set_access(access);
        if let Some(checker) = check::checker().filter(|_| changed.is_ok()) {
            checker.access_changed(mr as usize, inner.access as u32);
        }
        return changed.map_err(|errno| (errno, IBV_REREG_MR_ERR_CMD));
    }
    // The new registration first: if it fails, the old one stays as it was.
    // SAFETY: the caller guarantees that the memory, old or new, stays mapped until the region is deregistered.
    let fresh = unsafe { Inner::new(domain, start, len, at, access) };
    let fresh = fresh.map_err(|errno| (errno, IBV_REREG_MR_ERR_CMD))?;
    deregister(&mut inner).map_err(|errno| (errno, IBV_REREG_MR_ERR_CMD))?;
    *inner = fresh;
    let key = inner.key();
    if let Some(checker) = check::checker() {
        checker.deregistered(mr as usize);
        checker.registered(mr as usize, inner.info());
    }
    // SAFETY: `mr` is valid, and the program does not access these fields while this call runs.
    unsafe {
        (*mr).pd = domain_of;
        (*mr).addr = start as *mut c_void;
        (*mr).length = len;
        (*mr).handle = key >> 8;
        (*mr).lkey = key;
        (*mr).rkey = key;
    }
    Ok(())
}
