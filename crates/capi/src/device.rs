//! The list of devices: one, which is this process's adapter.
//! It promises that a device stays where it is for the life of the process, so that no pointer to it dangles.
//! It refuses to open anything: a program may list devices and go.

use core::ffi::{c_char, c_int};
use core::net::IpAddr;
use core::ptr;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use verbena::Config;
use verbena::low::Personality;

use crate::abi::*;
use crate::errno::{Errno, pointer};
use crate::home::{config, home};

/// Providers of others look behind the end of a device for marks of their own and must find none.
const TAIL: usize = 1024;

#[repr(C)]
struct Listed {
    device: ibv_device,
    tail: [u8; TAIL],
}

struct Address(*mut Listed);

// SAFETY: made once, then only read, here and by the program.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

static DEVICE: OnceLock<Address> = OnceLock::new();

/// The device; a forked child has the same one, at the same address.
pub(crate) fn device(config: &Config) -> *mut ibv_device {
    let make = || Address(Box::into_raw(Box::new(listed(config))));
    DEVICE.get_or_init(make).0.cast()
}

fn listed(config: &Config) -> Listed {
    let mut device = ibv_device::zeroed();
    (device.node_type, device.transport_type) = match config.personality {
        Personality::Roce => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        Personality::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
    };
    write(&mut device.name, &config.name);
    write(&mut device.dev_name, "uverbs0");
    write(&mut device.dev_path, "/sys/class/infiniband_verbs/uverbs0");
    write(
        &mut device.ibdev_path,
        &format!("/sys/class/infiniband/{}", config.name),
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

/// It is our device.
pub(crate) fn exported(device: *mut ibv_device) -> bool {
    let ours = DEVICE.get().map(|ours| ours.0.cast());
    ours == Some(device)
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
    if !num_devices.is_null() {
        // SAFETY: the program's word.
        unsafe { *num_devices = 1 };
    }
    Box::into_raw(Box::new([device(config), ptr::null_mut()])).cast()
}

/// Forgets a list of devices.
///
/// # Safety
/// `list` came from [`ibv_get_device_list`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if !list.is_null() {
        // SAFETY: the program's word: an array of two, made above.
        drop(unsafe { Box::from_raw(list.cast::<[*mut ibv_device; 2]>()) });
    }
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
pub extern "C" fn ibv_get_device_guid(_device: *mut ibv_device) -> u64 {
    guid()
}

/// The same on every day, and another on every host: a locally administered one made of the first address.
pub(crate) fn guid() -> u64 {
    let Ok(home) = home() else {
        return 0;
    };
    let first = home.device.addresses().ok().and_then(|all| all.first());
    let bytes: [u8; 8] = match first {
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
    let content = match attribute(&dir, &file) {
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

/// What the kernel would say in these files of our device.
fn attribute(dir: &str, file: &str) -> Option<String> {
    let config = config()?;
    let ours = format!("/sys/class/infiniband/{}", config.name);
    if dir.trim_end_matches('/') != ours {
        return None;
    }
    Some(match file {
        "board_id" => "VERBENA".to_owned(),
        "fw_ver" => env!("CARGO_PKG_VERSION").to_owned(),
        "hca_type" => "Verbena".to_owned(),
        "hw_rev" => "0".to_owned(),
        "node_desc" => config.name.clone(),
        "node_type" => match config.personality {
            Personality::Roce => "1: CA".to_owned(),
            Personality::Iwarp => "4: RNIC".to_owned(),
        },
        _ => return None,
    })
}
