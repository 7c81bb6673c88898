//! Addresses and ways: binding an identifier, and finding where a peer is.
//! It promises that a program learns its own address and port before anything is sent. It refuses addresses that the host has not.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use libc::sockaddr;

use super::address::{read, towards};
use super::devices;
use super::id::{self, Id};
use super::link::Param;
use crate::abi::*;
use crate::context;
use crate::errno::{Errno, minus_one};
use crate::home::{config, home};
use crate::{log, port};
use verbena::Error;

/// How many ports of the system's choice are tried for one that is free for both families.
const CHOICES: usize = 64;

/// The port on the wire of a port that programs speak of (setting `cm_port_offset`).
pub(super) fn wire_port(port: u16) -> Result<u16, Errno> {
    let offset = config().map_or(0, |config| config.cm_port_offset);
    if port == 0 {
        return Ok(0);
    }
    port.checked_add(offset).ok_or(Errno(libc::EADDRNOTAVAIL))
}

/// The port that programs speak of, of one on the wire.
pub(super) fn spoken_port(port: u16) -> u16 {
    let offset = config().map_or(0, |config| config.cm_port_offset);
    port.saturating_sub(offset)
}

/// A port that could not be had. Linux says of a wildcard that conflicts with another address that it is not available; programs
/// compare with that.
pub(super) fn taken(kind: &str, at: SocketAddr, error: Error) -> Errno {
    let in_use = error.os_error() == Some(libc::EADDRINUSE);
    if in_use {
        log::warn(|| {
            format!(
                "{kind} port {} is taken by another program; the setting `cm_port_offset` moves RDMA's ports away (the same for both sides)",
                at.port()
            )
        });
    }
    match in_use && at.ip().is_unspecified() {
        true => Errno(libc::EADDRNOTAVAIL),
        false => Errno::from(error),
    }
}

/// Binds an identifier to an address of ours.
///
/// # Safety
/// `id` was made here; `addr` is an address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_bind_addr(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
) -> c_int {
    // SAFETY: the program's word.
    minus_one(unsafe { bind(id, addr) })
}

/// # Safety
/// As of [`verbena_rdma_bind_addr`].
pub(crate) unsafe fn bind(id: *mut rdma_cm_id, addr: *const sockaddr) -> Result<(), Errno> {
    // SAFETY: the program's word.
    let (own, at) = unsafe { (id::of(id)?, read(addr)?.ok_or(Errno::INVAL)?) };
    if own.inner.lock().bound.is_some() {
        return Err(Errno::INVAL);
    }
    // The adapter must be the one that identifiers share and stay: what is told of a connection goes where its listener is.
    let (context, _) = devices::common()?;
    // Also one that is not shown a device, because its address names none.
    // SAFETY: the common context is never closed.
    unsafe { context::of(context)? }
        .home
        .bind_identifier(&own.link)?;
    // SAFETY: the program's word.
    let (at, everywhere) = match unsafe { (*id).ps } {
        // Linux counts the loopback among the addresses that name no device, and libfabric tells from it that a name is
        // this machine's own: it then offers the addresses that others can call.
        RDMA_PS_TCP => (own.take_port(at)?, at.ip().is_loopback()),
        _ => (own.take_desk(at)?, false),
    };
    own.inner.lock().bound = Some(at);
    // SAFETY: the program's word.
    unsafe {
        own.place(id, Some(at), None);
        if !at.ip().is_unspecified() && !everywhere {
            own.open(id)?;
        }
    }
    Ok(())
}

impl Id {
    /// Takes a port for connections, so that it is known and nobody else's; returns the address with it.
    fn take_port(&self, at: SocketAddr) -> Result<SocketAddr, Errno> {
        let device = home()?.device.clone();
        let wire = SocketAddr::new(at.ip(), wire_port(at.port())?);
        let mut inner = self.inner.lock();
        let both = at.ip() == IpAddr::from([0; 16]) && !inner.options.family_only;
        let shared = inner.options.reuse_address;
        let berth = |at| {
            if shared {
                device.berth_shared(at)
            } else {
                device.berth(at)
            }
        };
        let mut left = CHOICES;
        loop {
            left -= 1;
            let first = berth(wire).map_err(|error| taken("TCP", wire, error))?;
            let port = first.local()?.port();
            let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            let second = match both.then(|| berth(v4)) {
                // A port of the system's choice is one that both families have free.
                Some(Err(_)) if wire.port() == 0 && left > 0 => continue,
                Some(Err(error)) if error.os_error() == Some(libc::EADDRINUSE) => {
                    return Err(taken("TCP", v4, error));
                }
                // A host without IPv4 has its IPv6 addresses all the same.
                Some(Err(_)) | None => None,
                Some(Ok(second)) => Some(second),
            };
            inner.berths.push(first);
            inner.berths.extend(second);
            return Ok(SocketAddr::new(at.ip(), spoken_port(port)));
        }
    }
}

/// Finds out where a peer is, and which address of ours leads there.
///
/// # Safety
/// `id` was made here; `src` is null or an address, `dst` an address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src: *mut sockaddr,
    dst: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the program's word.
    minus_one(unsafe { resolve_addr(id, src, dst) })
}

/// # Safety
/// As of [`verbena_rdma_resolve_addr`].
pub(crate) unsafe fn resolve_addr(
    id: *mut rdma_cm_id,
    src: *const sockaddr,
    dst: *const sockaddr,
) -> Result<(), Errno> {
    // SAFETY: the program's word.
    let (own, src, dst) = unsafe { (id::of(id)?, read(src)?, read(dst)?.ok_or(Errno::INVAL)?) };
    let bound = own.inner.lock().bound;
    let named = src.or(bound).filter(|at| !at.ip().is_unspecified());
    let found = match named {
        Some(named) => Ok(named),
        None => towards(dst).map(|ip| {
            let port = bound.or(src).map_or(0, |at| at.port());
            SocketAddr::new(ip, port)
        }),
    };
    match found {
        Ok(local) => {
            // SAFETY: the program's word.
            unsafe {
                own.place(id, Some(local), Some(dst));
                own.open(id)?;
            }
            own.link.tell(RDMA_CM_EVENT_ADDR_RESOLVED, 0, Param::NONE);
        }
        Err(Errno(code)) => own.link.tell(RDMA_CM_EVENT_ADDR_ERROR, -code, Param::NONE),
    }
    // SAFETY: the program's word.
    unsafe { own.complete(id) }
}

/// Finds the way to a peer whose address is known: IP has it.
///
/// # Safety
/// `id` was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_resolve_route(
    id: *mut rdma_cm_id,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the program's word.
    minus_one(unsafe { resolve_route(id) })
}

/// # Safety
/// As of [`verbena_rdma_resolve_route`].
pub(crate) unsafe fn resolve_route(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the program's word.
    let own = unsafe { id::of(id)? };
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
        // SAFETY: the program's word; the path lives as long as the identifier.
        unsafe {
            (*id).route.path_rec = &raw mut *path;
            (*id).route.num_paths = 1;
        }
        inner.path = Some(path);
    }
    own.link.tell(RDMA_CM_EVENT_ROUTE_RESOLVED, 0, Param::NONE);
    // SAFETY: the program's word.
    unsafe { own.complete(id) }
}
