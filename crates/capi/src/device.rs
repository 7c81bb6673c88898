//! The list of devices: the functions of this process's adapter, by the names that its profile has for them (V1, V2).
//! It promises that a device stays where it is for the life of the process, so that no pointer to it dangles.
//! It refuses to open anything: a program may list devices and go.

use core::ffi::{c_char, c_int};
use core::net::IpAddr;
use core::ptr;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use verbena::Config;
use verbena::low::{DeviceProfile, Logical, Personality, Service};

use crate::abi::*;
use crate::errno::{Errno, pointer};
use crate::home::{Home, config, home_of};
use crate::sysfs;

/// Providers of others look behind the end of a device for marks of their own and must find none.
const TAIL: usize = 1024;

#[repr(C)]
struct Listed {
    device: ibv_device,
    tail: [u8; TAIL],
}

/// A device and the number of its function.
struct Address(usize, *mut Listed);

// SAFETY: made once, then only read, here and by the program.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

static DEVICES: OnceLock<Box<[Address]>> = OnceLock::new();

/// The devices, the physical function first; a forked child has the same ones, at the same addresses.
pub(crate) fn devices(config: &Config) -> impl Iterator<Item = *mut ibv_device> {
    let make = |(number, name): (usize, String)| {
        Address(
            number,
            Box::into_raw(Box::new(listed(config, number, &name))),
        )
    };
    let all = DEVICES.get_or_init(|| names(config).into_iter().map(make).collect());
    all.iter().map(|address| address.1.cast())
}

/// Functions of RDMA devices and what these are called; verbs know no others (V2).
pub(crate) fn names(config: &Config) -> Vec<(usize, String)> {
    let mut all = served(config);
    all.retain(|(_, device)| device.there().has(Service::Rdma));
    let name = |(number, device): (usize, Logical)| (number, device.name);
    all.into_iter().map(name).collect()
}

/// Devices of all functions; the physical one is 0.
pub(crate) fn served(config: &Config) -> Vec<(usize, Logical)> {
    // A profile that makes no sense was refused when the settings were read.
    let profile = config.device_profile().into_iter();
    let all = |profile: DeviceProfile| profile.served().cloned().collect::<Vec<_>>();
    profile.flat_map(all).enumerate().collect()
}

fn listed(config: &Config, number: usize, name: &str) -> Listed {
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
    Listed {
        device,
        tail: [0; TAIL],
    }
}

/// Writes a text and the zero that ends it; what does not fit is cut.
pub(crate) fn write(to: &mut [c_char], text: &str) {
    let room = to.len().saturating_sub(1);
    for (to, from) in to.iter_mut().zip(text.bytes().take(room)) {
        *to = from as c_char;
    }
}

/// The function of our device, if it is one.
pub(crate) fn number(device: *mut ibv_device) -> Option<usize> {
    let mut all = DEVICES.get()?.iter();
    let found = all.find(|ours| ours.1.cast() == device);
    found.map(|ours| ours.0)
}

/// Lists the devices.
///
/// # Safety
/// `num_devices` is null or the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let Some(config) = config() else {
        return pointer(Err(Errno::INVAL));
    };
    let mut all: Vec<*mut ibv_device> = devices(config).collect();
    if !num_devices.is_null() {
        // SAFETY: the program's word.
        unsafe { *num_devices = all.len() as c_int };
    }
    // The end, by which whoever forgets the list knows its length.
    all.push(ptr::null_mut());
    Box::into_raw(all.into_boxed_slice()).cast()
}

/// Forgets a list of devices.
///
/// # Safety
/// `list` came from [`ibv_get_device_list`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if list.is_null() {
        return;
    }
    // SAFETY: the program's word: made above, with a null at its end.
    let devices = (0..).take_while(|&at| unsafe { !(*list.add(at)).is_null() });
    let len = devices.count() + 1;
    // SAFETY: as above, a boxed slice of this length.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, len)) });
}

/// The name of a device.
///
/// # Safety
/// `device` comes from the list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return ptr::null();
    }
    // SAFETY: the program's word.
    unsafe { (&raw const (*device).name).cast() }
}

/// The number of a device among those of the kernel: it is none of them.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}

/// The unique name of a device, in network order.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    let home = number(device).and_then(|number| home_of(number).ok());
    home.map_or(0, |home| guid(&home))
}

/// See [`guid_of`].
pub(crate) fn guid(home: &Home) -> u64 {
    guid_of(home.device.addresses().unwrap_or_default(), home.number)
}

/// The same on every day, and another on every host and for every function: a locally administered one made of the first
/// address. In network order.
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

/// Where device attributes would be files.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads an attribute of a device that the kernel would have as a file; other files are read as they are. Returns the length, or -1.
///
/// # Safety
/// `dir` and `file` are texts, `buf` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the program's word.
    let (dir, file) = unsafe { (text(dir), text(file)) };
    let (Some(dir), Some(file)) = (dir, file) else {
        return failed(Errno::INVAL);
    };
    let content = match sysfs::read(&format!("{dir}/{file}")) {
        Some(content) => content.into_bytes(),
        None => match std::fs::read(format!("{dir}/{file}")) {
            Ok(content) => content,
            Err(error) => return failed(Errno(error.raw_os_error().unwrap_or(libc::EIO))),
        },
    };
    let line = content.strip_suffix(b"\n").unwrap_or(&content);
    let len = line.len().min(size.saturating_sub(1));
    if size > 0 {
        // SAFETY: the program's room, within its size.
        unsafe {
            ptr::copy_nonoverlapping(line.as_ptr(), buf.cast(), len);
            *buf.add(len) = 0;
        }
    }
    len as c_int
}

fn failed(errno: Errno) -> c_int {
    errno.set();
    -1
}

/// Reads an attribute of one of the kernel's devices: ours is none.
///
/// # Safety
/// As of a function that reads nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_ibdev_sysfs_file(
    _buf: *mut c_char,
    _size: usize,
    _device: *mut c_char,
) -> c_int {
    failed(Errno::NOSUPP)
}

/// # Safety
/// `at` is null or a text.
unsafe fn text(at: *const c_char) -> Option<String> {
    // SAFETY: the caller's word.
    let text = (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) })?;
    Some(CString::from(text).to_string_lossy().into_owned())
}
