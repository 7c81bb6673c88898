//! Binding of identifiers, and resolution of addresses and routes. A program knows its own address and port before anything is sent.
//! Addresses that the host does not have cannot be bound.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use libc::sockaddr;
use verbena::Error;

use super::address::{local_addr_for, program_port, read, wire_port};
use super::devices;
use super::id::{self, Id};
use super::link::Param;
use crate::abi::*;
use crate::caller::{handle, this_id};
use crate::context;
use crate::errno::{Errno, minus_one};
use crate::function::first_function;
use crate::{log, port};

/// How many ports that the system chooses are tried until one is free for both families.
const MAX_PORT_TRIES: usize = 64;

/// The error of a port that could not be bound. For a wildcard address that conflicts with another one, Linux's RDMA CM returns
/// `EADDRNOTAVAIL`, which programs compare with.
pub(super) fn bind_error(kind: &str, at: SocketAddr, error: Error) -> Errno {
    let in_use = error.os_error() == Some(libc::EADDRINUSE);
    if in_use {
        log::warn(|| {
            format!(
                "{kind} port {} is in use by another program; set `cm_port_offset` (to the same value on both sides) to use other ports",
                at.port()
            )
        });
    }
    match in_use && at.ip().is_unspecified() {
        true => Errno(libc::EADDRNOTAVAIL),
        false => Errno::from(error),
    }
}

/// Binds an identifier to a local address.
///
/// # Safety
/// `id` was created by this library; `addr` is null or points to a socket address of the family that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_bind_addr(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
) -> c_int {
    // SAFETY: `bind` requires of `id` and `addr` what this function does.
    minus_one(unsafe { bind(id, addr) })
}

/// # Safety
/// As for [`verbena_rdma_bind_addr`].
pub(crate) unsafe fn bind(id: *mut rdma_cm_id, addr: *const sockaddr) -> Result<(), Errno> {
    let own = handle!(id::of(id))?;
    // SAFETY: the caller guarantees that `addr` is null or points to a socket address of the family that it names.
    let at = unsafe { read(addr)? }.ok_or(Errno::INVAL)?;
    if own.inner.lock().bound.is_some() {
        return Err(Errno::INVAL);
    }
    // The adapter must be the one that identifiers share, and stay: events of a connection go where its listener's go.
    let (context, _) = devices::shared_context()?;
    // Also an identifier that gets no device because its address names none.
    // SAFETY: `context` is the one that all identifiers share, which is never closed.
    unsafe { context::of(context)? }
        .function
        .register_identifier(&own.link)?;
    // SAFETY: `id` is valid, since `id::of` succeeded.
    let (at, everywhere) = match unsafe { (*id).ps } {
        // On Linux the loopback address names no device, and libfabric concludes from it that a name is this host's: it then offers the addresses
        // that other hosts can connect to.
        RDMA_PS_TCP => (own.bind_port(at)?, at.ip().is_loopback()),
        _ => (own.bind_sidr_port(at)?, false),
    };
    own.inner.lock().bound = Some(at);
    this_id!(own.store_addresses(id, Some(at), None));
    if !at.ip().is_unspecified() && !everywhere {
        this_id!(own.open(id))?;
    }
    Ok(())
}

impl Id {
    /// Binds a TCP port, which is then known and reserved; returns the address with it.
    fn bind_port(&self, at: SocketAddr) -> Result<SocketAddr, Errno> {
        let device = first_function()?.device.clone();
        let wire = SocketAddr::new(at.ip(), wire_port(at.port())?);
        let mut inner = self.inner.lock();
        let both = at.ip() == IpAddr::from([0; 16]) && !inner.options.family_only;
        let shared = inner.options.reuse_address;
        let bind_listener = |at| {
            if shared {
                device.bind_reuse_addr(at)
            } else {
                device.bind(at)
            }
        };
        let mut left = MAX_PORT_TRIES;
        loop {
            left -= 1;
            let first = bind_listener(wire).map_err(|error| bind_error("TCP", wire, error))?;
            let port = first.local_addr()?.port();
            let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            let second = match both.then(|| bind_listener(v4)) {
                // A port that the system chooses must be free for both families.
                Some(Err(_)) if wire.port() == 0 && left > 0 => continue,
                Some(Err(error)) if error.os_error() == Some(libc::EADDRINUSE) => {
                    return Err(bind_error("TCP", v4, error));
                }
                // On a host without IPv4, only IPv6 is bound.
                Some(Err(_)) | None => None,
                Some(Ok(second)) => Some(second),
            };
            inner.bound_listeners.push(first);
            inner.bound_listeners.extend(second);
            return Ok(SocketAddr::new(at.ip(), program_port(port)));
        }
    }
}

/// Resolves the address of a peer, and the local address from which it is reached.
///
/// # Safety
/// `id` was created by this library; `src` and `dst` are null or point to socket addresses of the families that they name.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src: *mut sockaddr,
    dst: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: `resolve_addr` requires of `id`, `src` and `dst` what this function does.
    minus_one(unsafe { resolve_addr(id, src, dst) })
}

/// # Safety
/// As for [`verbena_rdma_resolve_addr`].
pub(crate) unsafe fn resolve_addr(
    id: *mut rdma_cm_id,
    src: *const sockaddr,
    dst: *const sockaddr,
) -> Result<(), Errno> {
    let own = handle!(id::of(id))?;
    // SAFETY: the caller guarantees that `src` and `dst` are null or point to socket addresses of the families that they name.
    let (src, dst) = unsafe { (read(src)?, read(dst)?.ok_or(Errno::INVAL)?) };
    let bound = own.inner.lock().bound;
    let named = src.or(bound).filter(|at| !at.ip().is_unspecified());
    let found = match named {
        Some(named) => Ok(named),
        None => local_addr_for(dst).map(|ip| {
            let port = bound.or(src).map_or(0, |at| at.port());
            SocketAddr::new(ip, port)
        }),
    };
    match found {
        Ok(local) => {
            this_id!(own.store_addresses(id, Some(local), Some(dst)));
            this_id!(own.open(id))?;
            own.link.report(RDMA_CM_EVENT_ADDR_RESOLVED, 0, Param::NONE);
        }
        Err(Errno(code)) => own
            .link
            .report(RDMA_CM_EVENT_ADDR_ERROR, -code, Param::NONE),
    }
    this_id!(own.complete(id))
}

/// Resolves the route to a peer whose address is resolved: IP has it, so a path record is filled in.
///
/// # Safety
/// `id` was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_resolve_route(
    id: *mut rdma_cm_id,
    _timeout_ms: c_int,
) -> c_int {
    minus_one(handle!(resolve_route(id)))
}

/// # Safety
/// As for [`verbena_rdma_resolve_route`].
pub(crate) unsafe fn resolve_route(id: *mut rdma_cm_id) -> Result<(), Errno> {
    let own = handle!(id::of(id))?;
    {
        let mut inner = own.inner.lock();
        let (Some(peer), Some(local)) = (inner.peer, inner.source) else {
            return Err(Errno::INVAL);
        };
        let mut path = Box::new(ibv_sa_path_rec {
            dgid: port::gid_of(peer.ip()),
            sgid: port::gid_of(local),
            hop_limit: 64,
            reversible: 1,
            numb_path: 1,
            pkey: u16::MAX,
            mtu_selector: 2,
            mtu: IBV_MTU_4096 as u8,
            ..ibv_sa_path_rec::zeroed()
        });
        // SAFETY: `id` is valid, since `id::of` succeeded; the path is stored in the identifier's own part and freed with it.
        unsafe {
            (*id).route.path_rec = &raw mut *path;
            (*id).route.num_paths = 1;
        }
        inner.path = Some(path);
    }
    own.link
        .report(RDMA_CM_EVENT_ROUTE_RESOLVED, 0, Param::NONE);
    this_id!(own.complete(id))
}
