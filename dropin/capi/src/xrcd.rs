//! XRC domains. A file names a domain for all processes of a user: opening it again returns a handle of the same domain, with `O_CREAT` or
//! without. The adapter lives in the process, so messages for another process are relayed (docs/dropin.md).
//! A domain in use by a queue pair or a shared receive queue is not closed (`EBUSY`).

use core::ffi::c_int;
use std::sync::Arc;

use verbena::low::Xrcd;

use crate::abi::*;
use crate::caller::handle;
use crate::errno::{Errno, number};
use crate::object::Object;
use crate::uses::{Use, Uses};
use crate::xrc_domains::SharedDomain;

/// The library's part of a handle of a domain.
pub(crate) struct XrcDomain {
    shared: Arc<SharedDomain>,
    pub(crate) uses: Uses,
    _context: Use,
}

impl XrcDomain {
    pub(crate) fn xrcd(&self) -> &Xrcd {
        self.shared.xrcd()
    }

    pub(crate) fn shared(&self) -> &Arc<SharedDomain> {
        &self.shared
    }
}

type XrcdObject = Object<ibv_xrcd, XrcDomain>;

/// The library's part of the domain behind this pointer; `EINVAL` for null.
///
/// # Safety
/// `xrcd` is null or was created by this library, and is not closed while the result is used.
pub(crate) unsafe fn of<'a>(xrcd: *const ibv_xrcd) -> Result<&'a XrcDomain, Errno> {
    handle!(XrcdObject::of(xrcd)).ok_or(Errno::INVAL)
}

/// A handle of the domain, in this context.
pub(crate) fn allocate(
    context: *mut ibv_context,
    shared: Arc<SharedDomain>,
    used: Use,
) -> *mut ibv_xrcd {
    let domain = XrcDomain {
        shared,
        uses: Uses::default(),
        _context: used,
    };
    XrcdObject::allocate(ibv_xrcd { context }, domain)
}

/// Closes a handle of a domain; the domain ends with its last handle.
///
/// # Safety
/// `xrcd` was created by this library, and is not used after this call.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    let own = handle!(of(xrcd));
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        // SAFETY: `xrcd` came from `XrcdObject::allocate`, no object uses it, and the caller does not use it after this call.
        drop(unsafe { XrcdObject::take(xrcd) });
        Ok(())
    }))
}
