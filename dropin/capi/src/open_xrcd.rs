//! Opening an XRC domain, by a file or without one (`ibv_open_xrcd`).
//! The targets that this process has in the domain of a file can be opened by other processes that have it.

use crate::abi::*;
use crate::caller::{arg_ref, handle};
use crate::errno::{Errno, pointer};
use crate::{context, qp, xrcd};

/// Opens or creates a domain.
///
/// # Safety
/// `context` is open; `attr` is null or valid during the call.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    let (own, attr) = (handle!(context::of(context)), arg_ref!(attr));
    pointer(own.and_then(|own| {
        let attr = attr.ok_or(Errno::INVAL)?;
        let needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        if attr.comp_mask & !needed != 0 {
            return Err(Errno::NOSUPP);
        }
        if attr.comp_mask != needed {
            return Err(Errno::INVAL);
        }
        let function = &own.function;
        let share = |domain: &_| qp::share_targets(function, domain);
        let shared = function
            .xrc_domains
            .open(&function.device, attr.fd, attr.oflags, share)?;
        Ok(xrcd::allocate(context, shared, own.uses.begin()))
    }))
}
