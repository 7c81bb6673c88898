//! Memory regions: memory that the program lends to the adapter, and within rights to peers.
//! It promises that memory which was deregistered is not touched any more. It refuses memory that is not mapped as its rights
//! need it, and the kinds that only a card with its own memory or a graphics driver has.

use core::ffi::{c_int, c_void};

use parking_lot::Mutex;
use verbena::{Access, Mr};

use crate::abi::*;
use crate::errno::{Errno, number, pointer};
use crate::object::Object;
use crate::pd::{self, Domain};
use crate::uses::Use;

/// What is ours of a region.
struct Region {
    /// Changed by registering it anew.
    inner: Mutex<Inner>,
}

struct Inner {
    /// Gone only while it is being changed, or after that has failed half-way.
    mr: Option<Mr>,
    /// As it was registered: what a change keeps unless it says otherwise.
    start: usize,
    len: usize,
    at: u64,
    access: c_int,
    _domain: Use,
}

type Held = Object<ibv_mr, Region>;

const KNOWN: c_int = (IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    // Hints that cost nothing to ignore: order is kept, and huge pages are pages.
    | IBV_ACCESS_HUGETLB) as c_int;

/// The rights that an access word of a program grants.
pub(crate) fn rights(flags: c_int) -> Result<Access, Errno> {
    let flags = flags & !(IBV_ACCESS_OPTIONAL_RANGE as c_int);
    if flags & (IBV_ACCESS_ON_DEMAND as c_int) != 0 {
        return Err(Errno::NOSUPP);
    }
    if flags & !KNOWN != 0 {
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
        // SAFETY: the caller's word.
        let mr = unsafe { Mr::register_at(&domain.pd, memory, len, first, access) };
        let mr = mr.map_err(unmapped)?;
        Ok(Inner {
            mr: Some(mr),
            start,
            len,
            at,
            access: flags,
            _domain: domain.uses.begin(),
        })
    }

    /// Changes the rights and nothing else.
    fn set_access(&mut self, flags: c_int) -> Result<(), Errno> {
        let (access, zero_based) = (rights(flags)?, IBV_ACCESS_ZERO_BASED as c_int);
        let mr = self.mr.as_mut().ok_or(Errno::INVAL)?;
        mr.set_access(access).map_err(unmapped)?;
        // Where its addresses begin is no right, and stays.
        self.access = (flags & !zero_based) | (self.access & zero_based);
        Ok(())
    }

    fn key(&self) -> u32 {
        self.mr.as_ref().map_or(0, |mr| mr.stag().get())
    }
}

/// The number of a registration that failed; memory that is not there has one of its own.
fn unmapped(error: verbena::Error) -> Errno {
    if error.is_unmapped() {
        Errno(libc::EFAULT)
    } else {
        Errno::from(error)
    }
}

/// # Safety
/// `pd` was made here; the memory stays mapped until the region is deregistered.
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> Result<*mut ibv_mr, Errno> {
    // SAFETY: the program's word.
    let domain = unsafe { pd::of(pd)? };
    // The kernel has no pages to pin then, and says so.
    if length == 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the program's word.
    let inner = unsafe { Inner::new(domain, addr as usize, length, iova, access)? };
    let key = inner.key();
    let mr = ibv_mr {
        // SAFETY: a field that is written once.
        context: unsafe { (*pd).context },
        pd,
        addr,
        length,
        handle: key >> 8,
        lkey: key,
        rkey: key,
    };
    Ok(Held::give(
        mr,
        Region {
            inner: Mutex::new(inner),
        },
    ))
}

/// Registers memory.
///
/// # Safety
/// `pd` was made here; the memory stays mapped until it is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program's word.
    pointer(unsafe { register(pd, addr, length, addr as u64, access) })
}

/// Registers memory under addresses of the program's choice.
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
    // SAFETY: the program's word.
    pointer(unsafe { register(pd, addr, length, iova, access) })
}

/// The same with rights that may be optional.
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
    // SAFETY: the program's word.
    pointer(unsafe { register(pd, addr, length, iova, access as c_int) })
}

/// Memory of a graphics driver: nobody here could reach it.
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

/// Memory of another process.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_mr(_pd: *mut ibv_pd, _handle: u32) -> *mut ibv_mr {
    pointer(Err(Errno::NOSUPP))
}

/// Lets go of memory of another process.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {}

/// Memory of the device: it has none.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_dm(_context: *mut ibv_context, _handle: u32) -> *mut ibv_dm {
    pointer(Err(Errno::NOSUPP))
}

/// Lets go of memory of the device.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_dm(_dm: *mut ibv_dm) {}

/// Deregisters memory: when this returns nobody touches it any more.
///
/// # Safety
/// `mr` was made here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { Held::of(mr) }.ok_or(Errno::INVAL);
    number(own.and_then(|own| {
        withdraw(&mut own.inner.lock())?;
        // SAFETY: the program's word.
        drop(unsafe { Held::take(mr) });
        Ok(())
    }))
}

/// Takes a registration away, unless windows are bound to it.
fn withdraw(inner: &mut Inner) -> Result<(), Errno> {
    let Some(mr) = inner.mr.take() else {
        return Ok(());
    };
    mr.deregister().map_err(|(mr, error)| {
        inner.mr = Some(mr);
        Errno::from(error)
    })
}

/// Registers memory anew: elsewhere, for another domain or with other rights. A change of rights alone keeps its keys, as
/// adapters do; any other gives it new ones.
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
    // SAFETY: the program's word.
    match unsafe { change(mr, flags as u32, pd, addr, length, access) } {
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
/// As of [`ibv_rereg_mr`].
unsafe fn change(
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
    // SAFETY: the program's word.
    let own = unsafe { Held::of(mr) }.ok_or(input(Errno::INVAL))?;
    // SAFETY: the program's word; a field that only this call writes.
    let domain_of = if changes(IBV_REREG_MR_CHANGE_PD) {
        pd
    } else {
        // SAFETY: as above.
        unsafe { (*mr).pd }
    };
    // SAFETY: the program's word.
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
    // The new one first: if it is refused, the old one stays as it was.
    // SAFETY: the program's word.
    let fresh = unsafe { Inner::new(domain, start, len, at, access) };
    let fresh = fresh.map_err(|errno| (errno, IBV_REREG_MR_ERR_CMD))?;
    withdraw(&mut inner).map_err(|errno| (errno, IBV_REREG_MR_ERR_CMD))?;
    *inner = fresh;
    let key = inner.key();
    // SAFETY: the program waits for this call to change them.
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
