//! Memory windows: rights for peers that requests grant and take back.
//! It promises what the adapter does: type 1 for every queue pair of its domain, type 2 (B) for the one that bound it.
//! It refuses to bind at once: a queue pair carries the request out in its turn.

use core::ffi::c_int;

use verbena::low::{SendOp, Stag, WindowType};
use verbena::{Access, Window};

use crate::abi::*;
use crate::errno::{Errno, number, pointer};
use crate::object::Object;
use crate::uses::Use;
use crate::{mr, pd, qp};

/// What is ours of a window.
struct Opening {
    window: Window,
    kind: u32,
    _domain: Use,
}

type Held = Object<ibv_mw, Opening>;

/// Makes a window.
///
/// # Safety
/// `pd` was made here.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    // SAFETY: the program's word.
    let own = unsafe { pd::of(pd) };
    pointer(own.and_then(|domain| {
        let ty = match kind {
            IBV_MW_TYPE_1 => WindowType::One,
            IBV_MW_TYPE_2 => WindowType::TwoB,
            _ => return Err(Errno::INVAL),
        };
        let window = domain.pd.window(ty)?;
        let key = window.stag().get();
        let mw = ibv_mw {
            // SAFETY: a field that is written once.
            context: unsafe { (*pd).context },
            pd,
            rkey: key,
            handle: key >> 8,
            r#type: kind,
        };
        let opening = Opening {
            window,
            kind,
            _domain: domain.uses.begin(),
        };
        Ok(Held::give(mw, opening))
    }))
}

/// Frees a window; peers that were told of it have nothing any more.
///
/// # Safety
/// `mw` was made here, and the program does not use it any more.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the program's word.
    if unsafe { Held::of(mw) }.is_none() {
        return number(Err(Errno::INVAL));
    }
    // SAFETY: as above.
    drop(unsafe { Held::take(mw) });
    0
}

/// The rights that a window grants.
fn rights_of(info: &ibv_mw_bind_info) -> Result<Access, Errno> {
    if info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
        return Err(Errno::NOSUPP);
    }
    let peers = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    Ok(mr::rights(info.mw_access_flags as c_int)? & peers)
}

/// The request that binds a window of type 2 under this key.
///
/// # Safety
/// `mw` and the region of `info` were made here.
pub(crate) unsafe fn request(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<SendOp, Errno> {
    // SAFETY: the program's word.
    let own = unsafe { Held::of(mw) }.ok_or(Errno::INVAL)?;
    if own.kind != IBV_MW_TYPE_2 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the program's word.
    unsafe { own.bind(Stag::new(rkey), info) }
}

impl Opening {
    /// # Safety
    /// The region of `info` was made here.
    unsafe fn bind(&self, window: Stag, info: &ibv_mw_bind_info) -> Result<SendOp, Errno> {
        let access = rights_of(info)?;
        // SAFETY: the caller's word.
        let region = unsafe { info.mr.as_ref() }.map(|mr| Stag::new(mr.lkey));
        // Without a region it can only be taken back.
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

/// Binds a window of type 1, or takes it back with no length: a request of the queue pair's.
///
/// # Safety
/// All were made here.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { Held::of(mw) }.ok_or(Errno::INVAL);
    number(own.and_then(|own| {
        // SAFETY: the program's word.
        let bind = unsafe { bind.as_ref() }.ok_or(Errno::INVAL)?;
        if own.kind != IBV_MW_TYPE_1 {
            return Err(Errno::INVAL);
        }
        let wr = ibv_send_wr {
            wr_id: bind.wr_id,
            send_flags: bind.send_flags,
            ..ibv_send_wr::zeroed()
        };
        // SAFETY: the program's word; only this call and the program's thread that is in it change the key.
        let now = Stag::new(unsafe { (*mw).rkey });
        // SAFETY: the program's word.
        let op = unsafe { own.bind(now, &bind.bind_info)? };
        // SAFETY: the program's word.
        unsafe { qp::post_op(qp, &wr, op)? };
        if bind.bind_info.length > 0 {
            // The adapter gives it the next key when the request's turn comes.
            let next = Stag::from_parts(now.index(), now.key().wrapping_add(1)).unwrap_or(now);
            // SAFETY: the program waits for this call to change it.
            unsafe { (*mw).rkey = next.get() };
        }
        Ok(())
    }))
}
