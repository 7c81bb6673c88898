//! Multicast: queue pairs for datagrams join groups.
//! It promises that whatever is sent to a group reaches its members. It refuses connected queue pairs.

use core::ffi::c_int;

use crate::abi::*;
use crate::errno::{Errno, number};
use crate::port::address_of;
use crate::qp;

/// Joins a group.
///
/// # Safety
/// `qp` was made here; `gid` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: the program's word.
    let (own, gid) = unsafe { (qp::of(qp), gid.as_ref()) };
    number(own.and_then(|own| own.join(address_of(*gid.ok_or(Errno::INVAL)?))))
}

/// Leaves a group.
///
/// # Safety
/// `qp` was made here; `gid` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: the program's word.
    let (own, gid) = unsafe { (qp::of(qp), gid.as_ref()) };
    number(own.and_then(|own| own.leave(address_of(*gid.ok_or(Errno::INVAL)?))))
}
