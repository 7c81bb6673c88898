//! Groups of datagram receivers, joined by address.
//! It promises that an identifier's queue pair hears the groups it joined, whichever was first. It refuses addresses that are no group.

use core::ffi::{c_int, c_void};
use core::net::IpAddr;

use libc::sockaddr;

use super::address::read;
use super::datagram;
use super::id::Id;
use super::link::{Given, Param};
use crate::abi::*;
use crate::errno::{Errno, minus_one};
use crate::home::home;
use crate::qp;

/// The queue pair that everybody in a group is.
const ALL: u32 = 0x00ff_ffff;

/// A group that an identifier joined.
pub(crate) struct Group {
    ip: IpAddr,
    /// It wants to hear what is sent there, too.
    hears: bool,
}

/// Joins a group.
///
/// # Safety
/// `id` was made here; `addr` is an address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program's word.
    minus_one(unsafe { join(id, addr, true, context) })
}

/// Joins a group as the program says.
///
/// # Safety
/// As of [`verbena_rdma_join_multicast`]; `attr` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    const PARTS: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    // SAFETY: the program's word.
    let attr = unsafe { attr.as_ref() };
    let known = attr.filter(|attr| attr.comp_mask == PARTS);
    minus_one(known.ok_or(Errno::INVAL).and_then(|attr| {
        let hears = match attr.join_flags {
            RDMA_MC_JOIN_FLAG_FULLMEMBER => true,
            RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => false,
            _ => return Err(Errno::INVAL),
        };
        // SAFETY: the program's word.
        unsafe { join(id, attr.addr, hears, context) }
    }))
}

/// # Safety
/// As of [`verbena_rdma_join_multicast`].
unsafe fn join(
    id: *mut rdma_cm_id,
    addr: *const sockaddr,
    hears: bool,
    context: *mut c_void,
) -> Result<(), Errno> {
    // SAFETY: the program's word.
    let (own, ip) = unsafe { (datagram::of(id)?, group(addr)?) };
    // SAFETY: the program's word: without a device there is nothing to join with.
    if unsafe { (*id).verbs.is_null() } {
        return Err(Errno::INVAL);
    }
    let source = {
        let mut inner = own.inner.lock();
        if inner.datagrams.groups.iter().any(|group| group.ip == ip) {
            return Err(Errno(libc::EADDRINUSE));
        }
        inner.datagrams.groups.push(Group { ip, hears });
        inner.source
    };
    // SAFETY: the program's word.
    let joined = unsafe { attach(id, ip, hears) };
    let way = joined.and_then(|()| datagram::way(&*home()?, source, ip));
    let (kind, status) = match way {
        Ok(_) => (RDMA_CM_EVENT_MULTICAST_JOIN, 0),
        Err(Errno(code)) => {
            own.forget_group(ip);
            (RDMA_CM_EVENT_MULTICAST_ERROR, -code)
        }
    };
    let param = Param::Group {
        ip,
        context: Given(context),
        address: way.unwrap_or(ibv_ah_attr::zeroed()),
        number: ALL,
        key: RDMA_UDP_QKEY,
    };
    own.link.tell(kind, status, param);
    // SAFETY: the program's word.
    unsafe { own.complete(id) }
}

/// # Safety
/// `addr` is null or an address.
unsafe fn group(addr: *const sockaddr) -> Result<IpAddr, Errno> {
    // SAFETY: the caller's word.
    let address = unsafe { read(addr)? }.ok_or(Errno::INVAL)?;
    let ip = address.ip().to_canonical();
    ip.is_multicast().then_some(ip).ok_or(Errno::INVAL)
}

/// The identifier's queue pair hears the group from now on, if there is one and it wants to.
///
/// # Safety
/// `id` was made here.
unsafe fn attach(id: *mut rdma_cm_id, ip: IpAddr, hears: bool) -> Result<(), Errno> {
    // SAFETY: the caller's word.
    let qp = unsafe { (*id).qp };
    if qp.is_null() || !hears {
        return Ok(());
    }
    // SAFETY: a queue pair that is there.
    unsafe { qp::of(qp)? }.join(ip)
}

/// A queue pair was made: it hears the groups that were joined before.
///
/// # Safety
/// `id` was made here and has a queue pair.
pub(super) unsafe fn attach_all(id: *mut rdma_cm_id, own: &Id) -> Result<(), Errno> {
    let inner = own.inner.lock();
    let mut groups = inner.datagrams.groups.iter();
    // SAFETY: the caller's word.
    groups.try_for_each(|group| unsafe { attach(id, group.ip, group.hears) })
}

impl Id {
    fn forget_group(&self, ip: IpAddr) -> Option<Group> {
        let groups = &mut self.inner.lock().datagrams.groups;
        let at = groups.iter().position(|group| group.ip == ip)?;
        Some(groups.swap_remove(at))
    }
}

/// Leaves a group.
///
/// # Safety
/// `id` was made here; `addr` is an address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_leave_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
) -> c_int {
    // SAFETY: the program's word.
    let known = unsafe { datagram::of(id).and_then(|own| Ok((own, group(addr)?))) };
    minus_one(known.and_then(|(own, ip)| {
        let group = own.forget_group(ip).ok_or(Errno(libc::EADDRNOTAVAIL))?;
        own.link.forget_group(ip);
        // SAFETY: the program's word.
        let qp = unsafe { (*id).qp };
        if qp.is_null() || !group.hears {
            return Ok(());
        }
        // SAFETY: a queue pair that is there. One that is not in the group any more was taken out of it by other means.
        unsafe { qp::of(qp)? }.leave(ip).or(Ok(()))
    }))
}
