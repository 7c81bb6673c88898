//! Memory windows. A window of type 1 can be used by every queue pair of its domain, one of type 2 (B) by the queue pair that bound it.
//! Binding and invalidating are requests of a queue pair and take effect in the order of its send queue.

use core::ffi::c_int;

use verbena::Access;
use verbena::low::{SendOp, Stag};
use verbena::mr::{Window, WindowType};

use crate::abi::*;
use crate::caller::{arg_ref, handle};
use crate::errno::{Errno, number, pointer};
use crate::object::Object;
use crate::uses::Use;
use crate::{mr, pd, qp};

/// The library's part of a window.
struct MemoryWindow {
    window: Window,
    kind: u32,
    _domain: Use,
}

type MwObject = Object<ibv_mw, MemoryWindow>;

/// Allocates a window.
///
/// # Safety
/// `pd` was created by this library.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    let own = handle!(pd::of(pd));
    pointer(own.and_then(|domain| {
        let ty = match kind {
            IBV_MW_TYPE_1 => WindowType::One,
            IBV_MW_TYPE_2 => WindowType::TwoB,
            _ => return Err(Errno::INVAL),
        };
        let window = domain.pd.window(ty)?;
        let key = window.stag().get();
        let mw = ibv_mw {
            // SAFETY: `pd` is not null, since `pd::of` succeeded; its context is written once, when the domain is allocated.
            context: unsafe { (*pd).context },
            pd,
            rkey: key,
            handle: key >> 8,
            r#type: kind,
        };
        let opening = MemoryWindow {
            window,
            kind,
            _domain: domain.uses.begin(),
        };
        Ok(MwObject::allocate(mw, opening))
    }))
}

/// Frees a window; its key is invalid from then on.
///
/// # Safety
/// `mw` was created by this library, and is not used after this call.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    if handle!(MwObject::of(mw)).is_none() {
        return number(Err(Errno::INVAL));
    }
    // SAFETY: `mw` came from `MwObject::allocate`, and the caller does not use it after this call.
    drop(unsafe { MwObject::take(mw) });
    0
}

/// The access rights that a window grants.
fn rights_of(info: &ibv_mw_bind_info) -> Result<Access, Errno> {
    if info.mw_access_flags & (IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND) != 0 {
        return Err(Errno::NOSUPP);
    }
    let peers =
        Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::REMOTE_FLUSH;
    Ok(mr::rights(info.mw_access_flags as c_int)? & peers)
}

/// The request that binds a window of type 2 under this key.
///
/// # Safety
/// `mw` and the region of `info` were created by this library.
pub(crate) unsafe fn bind_request(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<SendOp, Errno> {
    let own = handle!(MwObject::of(mw)).ok_or(Errno::INVAL)?;
    if own.kind != IBV_MW_TYPE_2 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller guarantees that the region of `info` is null or was created by this library.
    unsafe { own.bind(Stag::new(rkey), info) }
}

impl MemoryWindow {
    /// # Safety
    /// The region of `info` is null or was created by this library.
    unsafe fn bind(&self, window: Stag, info: &ibv_mw_bind_info) -> Result<SendOp, Errno> {
        let access = rights_of(info)?;
        // SAFETY: the caller guarantees that `info.mr` is null or a region of this library, which is not deregistered during the call.
        let region = unsafe { info.mr.as_ref() }.map(|mr| Stag::new(mr.lkey));
        // Without a region, it can only be unbound.
        let region = match region {
            Some(region) => region,
            None if info.length == 0 => window,
            None => return Err(Errno::INVAL),
        };
        Ok(self
            .window
            .bind_stag(window, region, info.addr, info.length, access))
    }
}

/// Binds a window of type 1, or unbinds it if the length is 0: posts a request to the queue pair.
///
/// # Safety
/// `qp`, `mw` and the region of `bind` were created by this library; `bind` is null or valid for reads.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    let own = handle!(MwObject::of(mw)).ok_or(Errno::INVAL);
    number(own.and_then(|own| {
        let bind = arg_ref!(bind).ok_or(Errno::INVAL)?;
        if own.kind != IBV_MW_TYPE_1 {
            return Err(Errno::INVAL);
        }
        let wr = ibv_send_wr {
            wr_id: bind.wr_id,
            send_flags: bind.send_flags,
            ..ibv_send_wr::zeroed()
        };
        // SAFETY: `mw` is valid; the key is changed only by this call, and the program does not bind a window on two threads at once.
        let now = Stag::new(unsafe { (*mw).rkey });
        // SAFETY: the caller guarantees that the region of `bind` is null or was created by this library.
        let op = unsafe { own.bind(now, &bind.bind_info)? };
        // SAFETY: the caller guarantees that `qp` was created by this library.
        unsafe { qp::post_op(qp, &wr, op)? };
        if bind.bind_info.length > 0 {
            // The adapter gives the window the next key when it executes the request.
            let next = Stag::from_parts(now.index(), now.key().wrapping_add(1)).unwrap_or(now);
            // SAFETY: `mw` is not null, since `MwObject::of` returned its part; the program reads the key after this call, and not meanwhile.
            unsafe { (*mw).rkey = next.get() };
        }
        Ok(())
    }))
}
