//! Address handles: the destinations of datagrams. A handle that is made from a work completion and its GRH has the sender's address.
//! A peer is named by a GID; a handle without a GRH (a LID) is `EINVAL`.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr};

use crate::abi::*;
use crate::caller::{arg_ref, handle};
use crate::context::{self, Context};
use crate::errno::{Errno, minus_one, number, pointer};
use crate::gids;
use crate::object::Object;
use crate::port::{PORT, address_of, gid_of};
use crate::uses::Use;
use crate::{log, pd};

/// The library's part of a handle.
pub(crate) struct AddressHandle {
    /// The device's address that the peer sees as the source.
    pub(crate) local: IpAddr,
    /// The destination.
    pub(crate) peer: IpAddr,
    _domain: Use,
}

type AhObject = Object<ibv_ah, AddressHandle>;

/// The library's part of the handle behind this pointer; `EINVAL` for null.
///
/// # Safety
/// `ah` is null or was created by this library, and is not destroyed while the result is used.
pub(crate) unsafe fn of<'a>(ah: *const ibv_ah) -> Result<&'a AddressHandle, Errno> {
    handle!(AhObject::of(ah)).ok_or(Errno::INVAL)
}

/// Creates an address handle.
///
/// # Safety
/// `pd` was created by this library; `attr` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    let (domain, attr) = (handle!(pd::of(pd)), arg_ref!(attr));
    pointer(domain.and_then(|domain| {
        let attr = attr.ok_or(Errno::INVAL)?;
        // SAFETY: `pd` is a domain of this library, since `pd::of` succeeded; its context stays open as long as the domain exists.
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
        let address = AddressHandle {
            local,
            peer: address_of(attr.grh.dgid),
            _domain: domain.uses.begin(),
        };
        let handle = 0;
        Ok(AhObject::allocate(
            ibv_ah {
                context,
                pd,
                handle,
            },
            address,
        ))
    }))
}

/// Destroys an address handle; requests that were posted with it are not affected.
///
/// # Safety
/// `ah` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    let own = handle!(of(ah));
    number(own.map(|_| {
        // SAFETY: `ah` came from `AhObject::allocate`, and the caller does not use it after this call.
        drop(unsafe { AhObject::take(ah) });
    }))
}

/// The attributes of a handle that leads to the sender of a datagram.
fn reply_attr(own: &Context, port: u8, wc: &ibv_wc, grh: &ibv_grh) -> Result<ibv_ah_attr, Errno> {
    if wc.wc_flags & IBV_WC_GRH == 0 || port != PORT {
        return Err(Errno::INVAL);
    }
    let (from, to) = source_and_destination(grh);
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

/// Source and destination of a header. An IPv4 header is in the last 20 of the 40 bytes; the bytes before it are undefined.
fn source_and_destination(grh: &ibv_grh) -> (IpAddr, IpAddr) {
    // SAFETY: `ibv_grh` is 40 bytes of integers without padding, so all of them are initialized.
    let bytes: [u8; 40] = unsafe { core::mem::transmute_copy(grh) };
    let v4 = &bytes[20..];
    if bytes[0] >> 4 != 6 && v4[0] == 0x45 {
        let at = |at: usize| Ipv4Addr::new(v4[at], v4[at + 1], v4[at + 2], v4[at + 3]).into();
        return (at(12), at(16));
    }
    (address_of(grh.sgid), address_of(grh.dgid))
}

/// Fills in the attributes of a handle that leads to the sender of a datagram.
///
/// # Safety
/// `context` is null or was opened by this library; the other pointers are null or valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    let own = handle!(context::of(context));
    minus_one(own.and_then(|own| {
        // SAFETY: the caller guarantees that `wc` and `grh` are null or valid for reads; `attr` is null or valid for reads and writes.
        let (Some(wc), Some(grh), Some(attr)) =
            (unsafe { (wc.as_ref(), grh.as_ref(), attr.as_mut()) })
        else {
            return Err(Errno::INVAL);
        };
        *attr = reply_attr(own, port, wc, grh)?;
        Ok(())
    }))
}

/// Creates a handle that leads to the sender of a datagram.
///
/// # Safety
/// `pd` is null or was created by this library; the other pointers are null or valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let mut attr = ibv_ah_attr::zeroed();
    // SAFETY: `pd` is not null where it is dereferenced; the caller guarantees the rest, and `attr` is a local.
    unsafe {
        if pd.is_null() || ibv_init_ah_from_wc((*pd).context, port, wc, grh, &raw mut attr) != 0 {
            return pointer(Err(Errno::INVAL));
        }
        ibv_create_ah(pd, &raw mut attr)
    }
}

#[cfg(test)]
mod tests;
