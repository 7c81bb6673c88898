//! Protection domains. A domain in use by another object is not freed (`EBUSY`).
//! Parent domains and thread domains are not supported.

use core::ffi::c_int;

use verbena::Pd;

use crate::abi::*;
use crate::caller::handle;
use crate::context;
use crate::errno::{Errno, number, pointer};
use crate::object::Object;
use crate::uses::{Use, Uses};

/// The library's part of a domain.
pub(crate) struct Domain {
    pub(crate) pd: Pd,
    pub(crate) uses: Uses,
    _context: Use,
}

type PdObject = Object<ibv_pd, Domain>;

/// The library's part of the domain behind this pointer; `EINVAL` for null.
///
/// # Safety
/// `pd` is null or was created by this library, and is not destroyed while the result is used.
pub(crate) unsafe fn of<'a>(pd: *const ibv_pd) -> Result<&'a Domain, Errno> {
    handle!(PdObject::of(pd)).ok_or(Errno::INVAL)
}

/// Allocates a domain.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let own = handle!(context::of(context));
    pointer(own.and_then(|own| {
        let domain = Domain {
            pd: own.function.device.pd()?,
            uses: Uses::default(),
            _context: own.uses.begin(),
        };
        Ok(PdObject::allocate(ibv_pd { context, handle: 0 }, domain))
    }))
}

/// Frees a domain that no object uses.
///
/// # Safety
/// `pd` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let own = handle!(of(pd));
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        // SAFETY: `pd` came from `PdObject::allocate`, no object uses it, and the caller does not use it after this call.
        drop(unsafe { PdObject::take(pd) });
        Ok(())
    }))
}

/// Would import a domain of another process; not supported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_pd(_context: *mut ibv_context, _handle: u32) -> *mut ibv_pd {
    pointer(Err(Errno::NOSUPP))
}

/// Undoes [`ibv_import_pd`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {}
