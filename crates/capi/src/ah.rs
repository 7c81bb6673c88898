//! Address handles: where datagrams go.
//! It promises that a handle made of a received datagram leads back to its sender. It refuses addresses that are no GID.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr};

use crate::abi::*;
use crate::context::{self, Context};
use crate::errno::{Errno, minus_one, number, pointer};
use crate::gids;
use crate::object::Object;
use crate::port::{PORT, address_of, gid_of};
use crate::uses::Use;
use crate::{log, pd};

/// What is ours of a handle.
pub(crate) struct Address {
    /// The address of ours that the peer sees.
    pub(crate) local: IpAddr,
    /// Where it leads.
    pub(crate) peer: IpAddr,
    _domain: Use,
}

type Held = Object<ibv_ah, Address>;

/// What is ours of a handle that a program names.
///
/// # Safety
/// `ah` is null or was made here, and stays while the answer is used.
pub(crate) unsafe fn of<'a>(ah: *const ibv_ah) -> Result<&'a Address, Errno> {
    // SAFETY: the caller's word.
    unsafe { Held::of(ah) }.ok_or(Errno::INVAL)
}

/// Makes a handle.
///
/// # Safety
/// `pd` was made here; `attr` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the program's word.
    let (domain, attr) = unsafe { (pd::of(pd), attr.as_ref()) };
    pointer(domain.and_then(|domain| {
        let attr = attr.ok_or(Errno::INVAL)?;
        // SAFETY: a field that is written once; a domain's context is open.
        let (context, own) = unsafe { ((*pd).context, context::of((*pd).context)?) };
        if attr.is_global == 0 {
            log::warn(|| {
                "the program names a peer by a LID, and this port is Ethernet: tell it to use a GID (for example -g 0)".to_owned()
            });
            return Err(Errno::INVAL);
        }
        if attr.port_num != PORT {
            return Err(Errno::INVAL);
        }
        let local = own.address(attr.grh.sgid_index).ok_or(Errno::INVAL)?;
        let address = Address {
            local,
            peer: address_of(attr.grh.dgid),
            _domain: domain.uses.begin(),
        };
        let handle = 0;
        Ok(Held::give(
            ibv_ah {
                context,
                pd,
                handle,
            },
            address,
        ))
    }))
}

/// Destroys a handle; what was posted with it is on its way.
///
/// # Safety
/// `ah` was made here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { of(ah) };
    number(own.map(|_| {
        // SAFETY: the program's word.
        drop(unsafe { Held::take(ah) });
    }))
}

/// The way back to the sender of a datagram.
fn back(own: &Context, port: u8, wc: &ibv_wc, grh: &ibv_grh) -> Result<ibv_ah_attr, Errno> {
    if wc.wc_flags & IBV_WC_GRH == 0 || port != PORT {
        return Err(Errno::INVAL);
    }
    let (from, to) = ends(grh);
    let index = gids::index_of(own.addresses(), to);
    let index = index.or_else(|| to.is_multicast().then_some(0));
    let mut attr = ibv_ah_attr::zeroed();
    attr.grh.dgid = gid_of(from);
    attr.grh.sgid_index = index.ok_or(Errno::INVAL)? as u8;
    attr.grh.hop_limit = 64;
    attr.is_global = 1;
    attr.port_num = port;
    Ok(attr)
}

/// Whom a header names: one of version 4 stands in the second half of its place, behind bytes that mean nothing.
fn ends(grh: &ibv_grh) -> (IpAddr, IpAddr) {
    // SAFETY: 40 bytes, all of them read as they are.
    let bytes: [u8; 40] = unsafe { core::mem::transmute_copy(grh) };
    let v4 = &bytes[20..];
    if bytes[0] >> 4 != 6 && v4[0] == 0x45 {
        let at = |at: usize| Ipv4Addr::new(v4[at], v4[at + 1], v4[at + 2], v4[at + 3]).into();
        return (at(12), at(16));
    }
    (address_of(grh.sgid), address_of(grh.dgid))
}

/// Describes the way back to the sender of a datagram.
///
/// # Safety
/// `context` is open; the others are the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { context::of(context) };
    minus_one(own.and_then(|own| {
        // SAFETY: the program's word.
        let (Some(wc), Some(grh), Some(attr)) =
            (unsafe { (wc.as_ref(), grh.as_ref(), attr.as_mut()) })
        else {
            return Err(Errno::INVAL);
        };
        *attr = back(own, port, wc, grh)?;
        Ok(())
    }))
}

/// Makes a handle that leads back to the sender of a datagram.
///
/// # Safety
/// `pd` was made here; the others are the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let mut attr = ibv_ah_attr::zeroed();
    // SAFETY: the program's word.
    unsafe {
        if pd.is_null() || ibv_init_ah_from_wc((*pd).context, port, wc, grh, &raw mut attr) != 0 {
            return pointer(Err(Errno::INVAL));
        }
        ibv_create_ah(pd, &raw mut attr)
    }
}

#[cfg(test)]
mod tests;
