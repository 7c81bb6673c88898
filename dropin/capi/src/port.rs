//! The one port of the device: its state, and its GID table (`gids`).
//! An index below the table's length is answered, an empty entry with a zero GID or `ENODATA`, as the original's calls do.
//! Other ports and other partition keys than the default one are `EINVAL`.

use core::ffi::{c_int, c_uint, c_void};
use core::net::{IpAddr, Ipv6Addr};
use core::ptr;

use verbena::low::{Mtu, Personality};
use verbena::unstable::{Wire, interface_mtu, interface_of, is_link_up};

use crate::abi::*;
use crate::caller::handle;
use crate::context::{self, Context};
use crate::errno::{Errno, minus_one, number};
use crate::gids;
pub(crate) use crate::identity::PORT;

/// GIDs are IP addresses, as on RoCE ports.
pub(crate) const CAPABILITIES: u32 = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
/// The default partition, full member.
const PKEY: u16 = 0xffff;
/// The size of `ibv_port_attr` in the oldest release; later ones added fields.
const COMPAT_LEN: usize = 48;

impl Context {
    /// The addresses of the port; peers know them as GIDs.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        // They were determined when the device was opened.
        self.function.device.addresses().unwrap_or_default()
    }

    /// The address at an index of the GID table; none if the entry is empty.
    pub(crate) fn address(&self, index: u8) -> Option<IpAddr> {
        gids::at(self.addresses(), index.into())
    }

    /// `EINVAL` for an index outside the table, `ENODATA` for an empty entry.
    fn entry_address(&self, port: u32, index: u32) -> Result<IpAddr, Errno> {
        let all = self.addresses();
        let index = index as usize;
        if port != u32::from(PORT) || index >= gids::len(all) {
            return Err(Errno::INVAL);
        }
        gids::at(all, index).ok_or(Errno::NODATA)
    }

    /// The zero GID for an empty entry.
    fn gid(&self, port: u32, index: u32) -> Result<ibv_gid, Errno> {
        match self.entry_address(port, index) {
            Ok(address) => Ok(gid_of(address)),
            Err(Errno::NODATA) => Ok(ibv_gid { raw: [0; 16] }),
            Err(error) => Err(error),
        }
    }

    fn entry(&self, port: u32, index: u32) -> Result<ibv_gid_entry, Errno> {
        let address = self.entry_address(port, index)?;
        Ok(ibv_gid_entry {
            gid: gid_of(address),
            gid_index: index,
            port_num: port,
            gid_type: match self.function.personality() {
                Personality::Roce => IBV_GID_TYPE_ROCE_V2,
                Personality::Iwarp => IBV_GID_TYPE_IB,
            },
            // An address that was configured and is not, or no longer, assigned has no interface.
            ndev_ifindex: interface_of(address).ok().flatten().unwrap_or(0),
        })
    }

    /// The largest path MTU that the interfaces allow, if packets carry messages; a stream of bytes has no such limit.
    fn active_mtu(&self) -> u32 {
        /// Bytes of a packet beside its payload, at most: IPv6, UDP, BTH, the longest extension headers and ICRC.
        const HEADERS: u32 = 40 + 8 + 12 + 28 + 4;
        if self.function.device.config().wire != Wire::Roce {
            return IBV_MTU_4096;
        }
        let mtus = self
            .addresses()
            .iter()
            .filter_map(|ip| interface_mtu(*ip).ok()?);
        let least = mtus.min().unwrap_or(1500);
        let fits = Mtu::largest_within(least.saturating_sub(HEADERS));
        fits.unwrap_or(Mtu::B256).code().into()
    }

    fn port_attr(&self) -> ibv_port_attr {
        let attributes = self.function.device.attributes();
        // If the interfaces cannot be queried, programs are not kept from trying.
        let state = LinkState::new(self.function.device.is_link_up().unwrap_or(true));
        ibv_port_attr {
            state: state.port,
            max_mtu: IBV_MTU_4096,
            active_mtu: self.active_mtu(),
            gid_tbl_len: gids::len(self.addresses()) as c_int,
            port_cap_flags: CAPABILITIES,
            max_msg_sz: attributes.message.min(1 << 31),
            pkey_tbl_len: 1,
            max_vl_num: 1,
            active_width: 2,
            active_speed: 32,
            phys_state: state.physical,
            link_layer: IBV_LINK_LAYER_ETHERNET as u8,
            ..ibv_port_attr::zeroed()
        }
    }
}

/// The state of the link of some addresses, in the numbers of the InfiniBand specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkState {
    pub(crate) port: u32,
    pub(crate) physical: u8,
}

impl LinkState {
    /// As the kernel has them for RoCE: a port without a carrier is down and disabled.
    pub(crate) fn of(addresses: &[IpAddr]) -> LinkState {
        // If the interfaces cannot be queried, programs are not kept from trying.
        LinkState::new(is_link_up(addresses).unwrap_or(true))
    }

    fn new(is_up: bool) -> LinkState {
        match is_up {
            true => LinkState {
                port: IBV_PORT_ACTIVE,
                physical: 5,
            },
            false => LinkState {
                port: IBV_PORT_DOWN,
                physical: 3,
            },
        }
    }
}

/// An address as a GID: 16 bytes, IPv4 addresses mapped.
pub(crate) fn gid_of(address: IpAddr) -> ibv_gid {
    let raw = match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    ibv_gid { raw }
}

/// The IP address of a GID.
pub(crate) fn address_of(gid: ibv_gid) -> IpAddr {
    // SAFETY: all members of the union are 16 bytes of integers, for which any bytes are valid.
    let raw = unsafe { gid.raw };
    IpAddr::V6(Ipv6Addr::from(raw)).to_canonical()
}

/// Copies as much of a struct as fits into the program's; the rest of a larger one is zeroed.
///
/// # Safety
/// `to` has room for `len` bytes.
pub(crate) unsafe fn copy_truncated<T>(from: &T, to: *mut T, len: usize) {
    let known = len.min(size_of::<T>());
    // SAFETY: the caller guarantees `len` bytes at `to`; no more than the size of `T` is read from `from`.
    unsafe {
        ptr::write_bytes(to.cast::<u8>(), 0, len);
        ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to.cast(), known);
    }
}

/// The function that the headers call for [`ibv_query_port`], with the size of their struct.
///
/// # Safety
/// `context` is open; `attr` has room for `len` bytes.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    let own = handle!(context::of(context));
    number(own.and_then(|own| {
        if port != PORT || attr.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller guarantees room for `len` bytes at `attr`.
        unsafe { copy_truncated(&own.port_attr(), attr, len) };
        Ok(())
    }))
}

/// The attributes of a port.
///
/// # Safety
/// `context` is open; `attr` is null or has room for the oldest form of the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller guarantees room for `COMPAT_LEN` bytes at `attr`.
    unsafe { query_port(context, port, attr, COMPAT_LEN) }
}

/// A GID of a port.
///
/// # Safety
/// `context` is open; `gid` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let own = handle!(context::of(context));
    let found = own.and_then(|own| own.gid(port.into(), index as u32));
    minus_one(found.map(|found| {
        // SAFETY: the caller guarantees that `gid` is valid for writes.
        unsafe { *gid = found };
    }))
}

/// A GID of a port with its type and interface.
///
/// # Safety
/// `context` is open; `entry` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    let own = handle!(context::of(context));
    number(own.and_then(|own| {
        if flags != 0 {
            return Err(Errno::NOSUPP);
        }
        // SAFETY: the caller guarantees room for `size` bytes at `entry`.
        unsafe { copy_truncated(&own.entry(port, index)?, entry, size) };
        Ok(())
    }))
}

/// All entries of the GID table that are in use; returns how many, or a negative error number.
///
/// # Safety
/// `context` is open; `entries` has room for `max` entries of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    let Ok(own) = handle!(context::of(context)) else {
        return -(libc::EINVAL as isize);
    };
    let count = gids::used(own.addresses());
    if flags != 0 {
        return -(libc::EOPNOTSUPP as isize);
    }
    if max < count {
        return -(libc::EINVAL as isize);
    }
    for index in 0..count {
        let Ok(entry) = own.entry(PORT.into(), index as u32) else {
            break;
        };
        // SAFETY: `index` is below `max`, and the caller guarantees room for `max` entries of `size` bytes.
        unsafe { copy_truncated(&entry, entries.byte_add(index * size), size) };
    }
    count as isize
}

/// The type of a GID, as the kernel's sysfs files name it.
///
/// # Safety
/// `context` is open; `kind` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut u32,
) -> c_int {
    let own = handle!(context::of(context));
    minus_one(own.and_then(|own| {
        // The original answers RoCE v1 for an empty entry.
        let empty = match own.entry_address(port.into(), index) {
            Err(Errno::NODATA) => true,
            other => other.map(|_| false)?,
        };
        let named = match own.function.personality() {
            Personality::Roce if !empty => IBV_GID_TYPE_SYSFS_ROCE_V2,
            _ => IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
        };
        // SAFETY: the caller guarantees that `kind` is valid for writes.
        unsafe { *kind = named };
        Ok(())
    }))
}

/// A partition key: the table has the default one only.
///
/// # Safety
/// `context` is open; `pkey` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    let known = handle!(context::of(context)).is_ok() && port == PORT && index == 0;
    minus_one(known.then_some(()).ok_or(Errno::INVAL).map(|()| {
        // SAFETY: the caller guarantees that `pkey` is valid for writes.
        unsafe { *pkey = PKEY };
    }))
}

/// The index of a partition key, which is in network order.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    if port == PORT && u16::from_be(pkey) == PKEY {
        return 0;
    }
    Errno::INVAL.set();
    -1
}

/// The link-layer address of a GID. It is zero: datagrams are sent through the system's sockets, which resolve it.
///
/// # Safety
/// `mac` is null or has room for six bytes, `vlan` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    _attr: *mut c_void,
    mac: *mut u8,
    vlan: *mut u16,
) -> c_int {
    // SAFETY: both are checked for null; the caller guarantees room for six bytes at `mac`, and that `vlan` is valid for writes.
    unsafe {
        if !mac.is_null() {
            ptr::write_bytes(mac, 0, 6);
        }
        if !vlan.is_null() {
            *vlan = 0xffff;
        }
    }
    0
}
