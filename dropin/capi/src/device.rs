//! The list of devices: the functions of this process's adapter that do RDMA, with the names of its profile (V1, V2).
//! A device keeps its address as long as the process lives, so that no pointer to it dangles. Listing devices opens none.

use core::ffi::{c_char, c_int};
use core::net::IpAddr;
use core::ptr;
use std::sync::OnceLock;

use verbena::Config;
use verbena::low::Personality;

use crate::abi::*;
use crate::errno::{Errno, pointer};
use crate::function::{AdapterFunction, config, open_function};
use crate::profile;

/// Provider libraries of other adapters read behind the end of a device for a mark of their own; they find zeros.
const TAIL: usize = 1024;

#[repr(C)]
struct DeviceAllocation {
    device: ibv_device,
    tail: [u8; TAIL],
}

/// A device and the number of its function.
struct DevicePtr(usize, *mut DeviceAllocation);

// SAFETY: `devices` leaks the struct and never frees it, and no thread writes it after that.
unsafe impl Send for DevicePtr {}
// SAFETY: number and address are fixed, and the struct behind the address is read only.
unsafe impl Sync for DevicePtr {}

static DEVICES: OnceLock<Box<[DevicePtr]>> = OnceLock::new();

/// The devices, the physical function first; a forked child has the same ones, at the same addresses.
pub(crate) fn devices(config: &Config) -> impl Iterator<Item = *mut ibv_device> {
    let make = |(number, name): (usize, String)| {
        DevicePtr(
            number,
            Box::into_raw(Box::new(new_device(config, number, &name))),
        )
    };
    let all = DEVICES.get_or_init(|| profile::names(config).into_iter().map(make).collect());
    all.iter().map(|address| address.1.cast())
}

fn new_device(config: &Config, number: usize, name: &str) -> DeviceAllocation {
    let mut device = ibv_device::zeroed();
    (device.node_type, device.transport_type) = match config.personality {
        Personality::Roce => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        Personality::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
    };
    write(&mut device.name, name);
    write(&mut device.dev_name, &format!("uverbs{number}"));
    write(
        &mut device.dev_path,
        &format!("/sys/class/infiniband_verbs/uverbs{number}"),
    );
    write(
        &mut device.ibdev_path,
        &format!("/sys/class/infiniband/{name}"),
    );
    DeviceAllocation {
        device,
        tail: [0; TAIL],
    }
}

/// Writes a text and a terminating zero; what does not fit is cut off.
pub(crate) fn write(to: &mut [c_char], text: &str) {
    let room = to.len().saturating_sub(1);
    for (to, from) in to.iter_mut().zip(text.bytes().take(room)) {
        *to = from as c_char;
    }
}

/// The number of the function, if the device is one of this library.
pub(crate) fn number(device: *mut ibv_device) -> Option<usize> {
    let mut all = DEVICES.get()?.iter();
    let found = all.find(|ours| ours.1.cast() == device);
    found.map(|ours| ours.0)
}

/// Lists the devices. The list is freed by [`ibv_free_device_list`].
///
/// # Safety
/// `num_devices` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let Some(config) = config() else {
        return pointer(Err(Errno::INVAL));
    };
    let mut all: Vec<*mut ibv_device> = devices(config).collect();
    if !num_devices.is_null() {
        // SAFETY: the caller guarantees that `num_devices` is valid for writes.
        unsafe { *num_devices = all.len() as c_int };
    }
    // The null at the end tells `ibv_free_device_list` the length.
    all.push(ptr::null_mut());
    Box::into_raw(all.into_boxed_slice()).cast()
}

/// Frees a list of devices; the devices stay valid.
///
/// # Safety
/// `list` came from [`ibv_get_device_list`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if list.is_null() {
        return;
    }
    // SAFETY: the caller guarantees that `list` came from `ibv_get_device_list`, which ends it with a null pointer.
    let devices = (0..).take_while(|&at| unsafe { !(*list.add(at)).is_null() });
    let len = devices.count() + 1;
    // SAFETY: `list` came from `ibv_get_device_list`, a boxed slice of the devices and the null pointer; the caller does not use it after this call.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, len)) });
}

/// The name of a device.
///
/// # Safety
/// `device` is null or comes from the list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return ptr::null();
    }
    // SAFETY: `device` is not null, so the caller guarantees that it is a listed device; only the address of a field is taken.
    unsafe { (&raw const (*device).name).cast() }
}

/// The index of a device in the kernel's netlink interface: these devices have none.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}

/// The node GUID of a device, in network order.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    let function = number(device).and_then(|number| open_function(number).ok());
    function.map_or(0, |home| guid(&home))
}

/// See [`guid_of`].
pub(crate) fn guid(function: &AdapterFunction) -> u64 {
    guid_of(
        function.device.addresses().unwrap_or_default(),
        function.number,
    )
}

/// A locally administered GUID made of the first address, in network order: constant over time, different on every host and for every
/// function.
pub(crate) fn guid_of(addresses: &[IpAddr], number: usize) -> u64 {
    let mut bytes: [u8; 8] = match addresses.first() {
        Some(IpAddr::V4(ip)) => {
            let [a, b, c, d] = ip.octets();
            [0x02, b'v', b'b', 0xfe, a, b, c, d]
        }
        Some(IpAddr::V6(ip)) => {
            let all = ip.octets();
            core::array::from_fn(|at| all[at] ^ all[at + 8])
        }
        None => [0; 8],
    };
    bytes[3] ^= number as u8;
    u64::from_ne_bytes(bytes)
}
