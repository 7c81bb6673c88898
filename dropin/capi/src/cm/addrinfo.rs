//! `rdma_getaddrinfo`: names and services resolved to addresses by the system's resolver. The first address that it returns is used.
//! Routes are not resolved here; IP has them.

use core::ffi::{c_char, c_int};
use core::net::SocketAddr;
use core::ptr;

use libc::{addrinfo, freeaddrinfo, getaddrinfo, sockaddr, socklen_t};

use super::address::{len, local_addr_for, read, storage};
use crate::abi::*;
use crate::caller::arg_ref;
use crate::errno::{Errno, minus_one};

/// Resolves addresses.
///
/// # Safety
/// `node` and `service` are null or C strings; `hints` is null or valid with its addresses; `res` is valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    let hints = arg_ref!(hints);
    if node.is_null() && service.is_null() && hints.is_none() {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: the caller guarantees that `node` and `service` are null or C strings, and that the addresses in `hints` are null or valid.
    let found = unsafe { find(node, service, hints) };
    match found {
        Ok(found) => {
            // SAFETY: the caller guarantees that `res` is valid for writes.
            unsafe { *res = found };
            0
        }
        Err(code) => code,
    }
}

/// # Safety
/// As for [`verbena_rdma_getaddrinfo`].
unsafe fn find(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<*mut rdma_addrinfo, c_int> {
    let mut info = Info::new(hints);
    let refused = |errno: Errno| {
        errno.set();
        -1
    };
    if !node.is_null() || !service.is_null() {
        // SAFETY: the caller guarantees that `node` and `service` are null or C strings.
        let address = unsafe { resolve(node, service, hints, info.flags)? };
        if info.flags & RAI_PASSIVE != 0 {
            info.src = Some(address);
        } else {
            info.dst = Some(address);
        }
    }
    if let Some(hints) = hints {
        // SAFETY: the caller guarantees that `hints.ai_src_addr` is null or points to a socket address of the family that it names.
        let named = unsafe { read(hints.ai_src_addr) }.map_err(refused)?;
        if info.src.is_none() {
            info.src = named;
        }
        if info.dst.is_none() {
            // SAFETY: the caller guarantees that `hints.ai_dst_addr` is null or points to a socket address of the family that it names.
            info.dst = unsafe { read(hints.ai_dst_addr) }.map_err(refused)?;
        }
    }
    let wants_source = info.src.is_none() && info.flags & (RAI_PASSIVE | RAI_NOROUTE) == 0;
    if let Some(dst) = info.dst.filter(|_| wants_source) {
        info.src = local_addr_for(dst).ok().map(|ip| SocketAddr::new(ip, 0));
    }
    Ok(info.into_raw())
}

/// The first address that the system's resolver returns; its error code if there is none.
///
/// # Safety
/// As for [`verbena_rdma_getaddrinfo`].
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    flags: u32,
) -> Result<SocketAddr, c_int> {
    // SAFETY: `addrinfo` is a C structure of integers and pointers, for which zeros are valid.
    let mut asked: addrinfo = unsafe { core::mem::zeroed() };
    let family = hints.filter(|_| flags & RAI_FAMILY != 0);
    asked.ai_family = family.map_or(libc::AF_UNSPEC, |hints| hints.ai_family);
    let datagrams = hints.is_some_and(|h| h.ai_port_space as u32 == RDMA_PS_UDP);
    asked.ai_socktype = if datagrams {
        libc::SOCK_DGRAM
    } else {
        libc::SOCK_STREAM
    };
    if flags & RAI_PASSIVE != 0 {
        asked.ai_flags |= libc::AI_PASSIVE;
    }
    if flags & RAI_NUMERICHOST != 0 {
        asked.ai_flags |= libc::AI_NUMERICHOST;
    }
    let mut found: *mut addrinfo = ptr::null_mut();
    // SAFETY: the caller guarantees that `node` and `service` are null or C strings; `asked` and `found` are locals.
    let code = unsafe { getaddrinfo(node, service, &raw const asked, &raw mut found) };
    if code != 0 {
        return Err(code);
    }
    // SAFETY: `found` is a list that `getaddrinfo` returned and that is not freed yet.
    let mut at = unsafe { found.as_ref() };
    let mut address = None;
    while let Some(one) = at.filter(|_| address.is_none()) {
        // SAFETY: entries and addresses of the list are valid until `freeaddrinfo`.
        unsafe {
            address = read(one.ai_addr).ok().flatten();
            at = one.ai_next.as_ref();
        }
    }
    // SAFETY: `found` came from `getaddrinfo`; no reference into the list is used after this.
    unsafe { freeaddrinfo(found) };
    address.ok_or(libc::EAI_NONAME)
}

/// The fields of a result.
struct Info {
    flags: u32,
    qp_type: c_int,
    ps: c_int,
    src: Option<SocketAddr>,
    dst: Option<SocketAddr>,
}

impl Info {
    fn new(hints: Option<&rdma_addrinfo>) -> Info {
        let ps = hints.map_or(0, |hints| hints.ai_port_space);
        let asked = hints.map_or(0, |hints| hints.ai_qp_type);
        let datagrams = ps as u32 == RDMA_PS_UDP || (ps == 0 && asked as u32 == IBV_QPT_UD);
        let (usual_ps, usual_type) = if datagrams {
            (RDMA_PS_UDP, IBV_QPT_UD)
        } else {
            (RDMA_PS_TCP, IBV_QPT_RC)
        };
        Info {
            flags: hints.map_or(0, |hints| hints.ai_flags as u32),
            qp_type: if asked == 0 {
                usual_type as c_int
            } else {
                asked
            },
            ps: if ps == 0 { usual_ps as c_int } else { ps },
            src: None,
            dst: None,
        }
    }

    fn into_raw(self) -> *mut rdma_addrinfo {
        let family = match self.src.or(self.dst) {
            Some(SocketAddr::V6(_)) => libc::AF_INET6,
            Some(SocketAddr::V4(_)) => libc::AF_INET,
            None => 0,
        };
        let (src, src_len) = allocate_sockaddr(self.src);
        let (dst, dst_len) = allocate_sockaddr(self.dst);
        Box::into_raw(Box::new(rdma_addrinfo {
            ai_flags: self.flags as c_int,
            ai_family: family,
            ai_qp_type: self.qp_type,
            ai_port_space: self.ps,
            ai_src_len: src_len,
            ai_dst_len: dst_len,
            ai_src_addr: src,
            ai_dst_addr: dst,
            ..rdma_addrinfo::zeroed()
        }))
    }
}

/// An address on the heap that is freed with the result.
fn allocate_sockaddr(address: Option<SocketAddr>) -> (*mut sockaddr, socklen_t) {
    match address {
        Some(address) => {
            let place = Box::into_raw(Box::new(storage(address)));
            (place.cast(), len(address) as socklen_t)
        }
        None => (ptr::null_mut(), 0),
    }
}

/// Frees a result.
///
/// # Safety
/// `res` came from [`verbena_rdma_getaddrinfo`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_freeaddrinfo(mut res: *mut rdma_addrinfo) {
    while !res.is_null() {
        // SAFETY: `res` came from `Info::into_raw`, which boxed it and its addresses; the caller does not use them after this call.
        unsafe {
            let info = Box::from_raw(res);
            for address in [info.ai_src_addr, info.ai_dst_addr] {
                if !address.is_null() {
                    drop(Box::from_raw(address.cast::<libc::sockaddr_storage>()));
                }
            }
            res = info.ai_next;
        }
    }
}
