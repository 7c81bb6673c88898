//! Multicast groups of identifiers. The queue pair of an identifier receives from the groups it has joined, whether it was created
//! before or after the join. Addresses that are no multicast address are `EINVAL`.

use core::ffi::{c_int, c_void};
use core::net::IpAddr;

use libc::sockaddr;

use super::address::read;
use super::datagram;
use super::id::Id;
use super::link::{Param, UserContext};
use super::sidr_state::Group;
use crate::abi::*;
use crate::caller::{arg_ref, handle, this_id};
use crate::errno::{Errno, minus_one};
use crate::function::first_function;
use crate::qp;

/// The queue pair number of multicast datagrams.
const MULTICAST_QPN: u32 = 0x00ff_ffff;

/// Joins a group.
///
/// # Safety
/// `id` was created by this library; `addr` is null or points to a socket address of the family that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `join` requires of `id` and `addr` what this function does.
    minus_one(unsafe { join(id, addr, true, context) })
}

/// Joins a group, as a full member or for sending only.
///
/// # Safety
/// As for [`verbena_rdma_join_multicast`]; `attr` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    const SUPPORTED_MASK: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    let attr = arg_ref!(attr);
    let known = attr.filter(|attr| attr.comp_mask == SUPPORTED_MASK);
    minus_one(known.ok_or(Errno::INVAL).and_then(|attr| {
        let receives = match attr.join_flags {
            RDMA_MC_JOIN_FLAG_FULLMEMBER => true,
            RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => false,
            _ => return Err(Errno::INVAL),
        };
        // SAFETY: the caller guarantees that `id` is null or was created by this library, and that `attr.addr` is null or a socket address.
        unsafe { join(id, attr.addr, receives, context) }
    }))
}

/// # Safety
/// As for [`verbena_rdma_join_multicast`].
unsafe fn join(
    id: *mut rdma_cm_id,
    addr: *const sockaddr,
    receives: bool,
    context: *mut c_void,
) -> Result<(), Errno> {
    let own = handle!(datagram::of(id))?;
    // SAFETY: the caller guarantees that `addr` is null or points to a socket address of the family that it names.
    let ip = unsafe { group(addr)? };
    // SAFETY: `id` is valid, since `datagram::of` succeeded. Without a device there is nothing to join with.
    if unsafe { (*id).verbs.is_null() } {
        return Err(Errno::INVAL);
    }
    let source = {
        let mut inner = own.inner.lock();
        if inner.datagrams.groups.iter().any(|group| group.ip == ip) {
            return Err(Errno(libc::EADDRINUSE));
        }
        inner.datagrams.groups.push(Group { ip, receives });
        inner.source
    };
    let joined = this_id!(attach(id, ip, receives));
    let way = joined.and_then(|()| datagram::ah_attr(&*first_function()?, source, ip));
    let (kind, status) = match way {
        Ok(_) => (RDMA_CM_EVENT_MULTICAST_JOIN, 0),
        Err(Errno(code)) => {
            own.remove_group(ip);
            (RDMA_CM_EVENT_MULTICAST_ERROR, -code)
        }
    };
    let param = Param::Group {
        ip,
        context: UserContext(context),
        address: way.unwrap_or(ibv_ah_attr::zeroed()),
        number: MULTICAST_QPN,
        key: RDMA_UDP_QKEY,
    };
    own.link.report(kind, status, param);
    this_id!(own.complete(id))
}

/// # Safety
/// `addr` is null or points to a socket address of the family that it names.
unsafe fn group(addr: *const sockaddr) -> Result<IpAddr, Errno> {
    // SAFETY: the caller guarantees that `addr` is null or points to a socket address of the family that it names.
    let address = unsafe { read(addr)? }.ok_or(Errno::INVAL)?;
    let ip = address.ip().to_canonical();
    ip.is_multicast().then_some(ip).ok_or(Errno::INVAL)
}

/// Attaches the identifier's queue pair to the group, if there is one and `hears` is set.
///
/// # Safety
/// `id` was created by this library.
unsafe fn attach(id: *mut rdma_cm_id, ip: IpAddr, receives: bool) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `id` exists.
    let qp = unsafe { (*id).qp };
    if qp.is_null() || !receives {
        return Ok(());
    }
    // SAFETY: `qp` was created by this library, and the program does not destroy the queue pair of `id` while it joins a group.
    unsafe { qp::of(qp)? }.join(ip)
}

/// A queue pair was created: attaches it to the groups that were joined before.
///
/// # Safety
/// `id` was created by this library and has a queue pair.
pub(super) unsafe fn attach_all(id: *mut rdma_cm_id, own: &Id) -> Result<(), Errno> {
    let inner = own.inner.lock();
    let mut groups = inner.datagrams.groups.iter();
    groups.try_for_each(|group| this_id!(attach(id, group.ip, group.receives)))
}

impl Id {
    fn remove_group(&self, ip: IpAddr) -> Option<Group> {
        let groups = &mut self.inner.lock().datagrams.groups;
        let at = groups.iter().position(|group| group.ip == ip)?;
        Some(groups.swap_remove(at))
    }
}

/// Leaves a group.
///
/// # Safety
/// `id` was created by this library; `addr` is null or points to a socket address of the family that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_leave_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
) -> c_int {
    let own = handle!(datagram::of(id));
    // SAFETY: the caller guarantees that `addr` is null or points to a socket address of the family that it names.
    let known = own.and_then(|own| Ok((own, unsafe { group(addr)? })));
    minus_one(known.and_then(|(own, ip)| {
        let group = own.remove_group(ip).ok_or(Errno(libc::EADDRNOTAVAIL))?;
        own.link.remove_group_events(ip);
        // SAFETY: `id` is valid, since `datagram::of` succeeded.
        let qp = unsafe { (*id).qp };
        if qp.is_null() || !group.receives {
            return Ok(());
        }
        // It may have been detached by other means, which is no error.
        // SAFETY: `qp` was created by this library, and the program does not destroy the queue pair of `id` during this call.
        unsafe { qp::of(qp)? }.leave(ip).or(Ok(()))
    }))
}
