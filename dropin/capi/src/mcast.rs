//! Multicast groups of datagram queue pairs. Datagrams that are sent to a group are received by its members.
//! Connected queue pairs and addresses that are no multicast address are `EINVAL`.

use core::ffi::c_int;

use crate::abi::*;
use crate::caller::{arg_ref, handle};
use crate::errno::{Errno, number};
use crate::port::address_of;
use crate::qp;

/// Joins a group.
///
/// # Safety
/// `qp` was created by this library; `gid` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    let (own, gid) = (handle!(qp::of(qp)), arg_ref!(gid));
    number(own.and_then(|own| own.join(address_of(*gid.ok_or(Errno::INVAL)?))))
}

/// Leaves a group.
///
/// # Safety
/// `qp` was created by this library; `gid` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    let (own, gid) = (handle!(qp::of(qp)), arg_ref!(gid));
    number(own.and_then(|own| own.leave(address_of(*gid.ok_or(Errno::INVAL)?))))
}
