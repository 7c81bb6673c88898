//! Memory regions. When `ibv_dereg_mr` has returned, the adapter does not access the memory any more.
//! Registration checks that the memory is mapped with the rights that it needs (`EFAULT`). On-demand paging, device memory, dmabufs and
//! regions of other processes are not supported.

use core::ffi::{c_int, c_void};

use parking_lot::Mutex;
use verbena::{Access, Mr};

use crate::abi::*;
use crate::caller::handle;
use crate::errno::{Errno, number, pointer};
use crate::object::Object;
use crate::pd::{self, Domain};
use crate::uses::Use;

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
    _domain: Use,
}

type MrObject = Object<ibv_mr, Region>;

const SUPPORTED_ACCESS: c_int = (IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    // A hint without effect: memory in huge pages is registered as any other.
    | IBV_ACCESS_HUGETLB) as c_int;

/// The access rights of an `access` argument.
pub(crate) fn rights(flags: c_int) -> Result<Access, Errno> {
    let flags = flags & !(IBV_ACCESS_OPTIONAL_RANGE as c_int);
    if flags & (IBV_ACCESS_ON_DEMAND as c_int) != 0 {
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
        // SAFETY: the caller guarantees that `len` bytes at `start` stay mapped until the region is deregistered.
        let mr = unsafe { Mr::register_at(&domain.pd, memory, len, first, access) };
        let mr = mr.map_err(registration_error)?;
        Ok(Inner {
            mr: Some(mr),
            start,
            len,
            at,
            access: flags,
            _domain: domain.uses.begin(),
        })
    }

    /// Changes the access rights and nothing else.
    fn set_access(&mut self, flags: c_int) -> Result<(), Errno> {
        let (access, zero_based) = (rights(flags)?, IBV_ACCESS_ZERO_BASED as c_int);
        let mr = self.mr.as_mut().ok_or(Errno::INVAL)?;
        mr.set_access(access).map_err(registration_error)?;
        // `IBV_ACCESS_ZERO_BASED` is about addresses, not rights, and is not changed.
        self.access = (flags & !zero_based) | (self.access & zero_based);
        Ok(())
    }

    fn key(&self) -> u32 {
        self.mr.as_ref().map_or(0, |mr| mr.stag().get())
    }
}

/// The error number of a failed registration: `EFAULT` for memory that is not mapped.
fn registration_error(error: verbena::Error) -> Errno {
    if error.is_unmapped() {
        Errno(libc::EFAULT)
    } else {
        Errno::from(error)
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
    let key = inner.key();
    let mr = ibv_mr {
        // SAFETY: `pd` is not null, since `pd::of` succeeded; its context is written once, when the domain is allocated.
        context: unsafe { (*pd).context },
        pd,
        addr,
        length,
        handle: key >> 8,
        lkey: key,
        rkey: key,
    };
    Ok(MrObject::allocate(
        mr,
        Region {
            inner: Mutex::new(inner),
        },
    ))
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

/// Would register memory of another device's driver; not supported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    pointer(Err(Errno::NOSUPP))
}

/// Would import a region of another process; not supported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_mr(_pd: *mut ibv_pd, _handle: u32) -> *mut ibv_mr {
    pointer(Err(Errno::NOSUPP))
}

/// Undoes [`ibv_import_mr`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {}

/// Would import memory of the device, which has none; not supported.
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
    let nowhere = addr.is_null() || length == 0;
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
        return inner
            .set_access(access)
            .map_err(|errno| (errno, IBV_REREG_MR_ERR_CMD));
    }
    // The new registration first: if it fails, the old one stays as it was.
    // SAFETY: the caller guarantees that the memory, old or new, stays mapped until the region is deregistered.
    let fresh = unsafe { Inner::new(domain, start, len, at, access) };
    let fresh = fresh.map_err(|errno| (errno, IBV_REREG_MR_ERR_CMD))?;
    deregister(&mut inner).map_err(|errno| (errno, IBV_REREG_MR_ERR_CMD))?;
    *inner = fresh;
    let key = inner.key();
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
