//! The sysfs files of the devices, which programs read by themselves: rendered as a real directory tree that the preloaded shim
//! (`dropin/shim`) redirects paths below `/sys` to (docs/dropin.md).
//! The tree has the layout of a PCI adapter's, with relative links, so that `..`, `readlink` and `realpath` lead where they lead there.
//! Counters are those of the calling process's adapter; in the tree they are zero, and the shim asks for their value on open.

mod counters;
mod store;
mod tree;

use core::ffi::{c_char, c_int};
use core::net::IpAddr;
use core::ptr;
use std::ffi::{CStr, CString};

use verbena::unstable::{device_addresses, interface_name};

use crate::errno::Errno;
use crate::function::{config, running};
use crate::port::LinkState;
use crate::{device, profile};
use tree::{Tree, TreeDevice, link_file};

/// Where the kernel has such files.
const SYS: &str = "/sys/";

/// The tree of this process's devices; none if its settings are wrong.
fn current() -> Option<Tree> {
    let config = config()?;
    let addresses = device_addresses(&config.device).ok()?.unwrap_or_default();
    let interface = |ip: &IpAddr| interface_name(*ip).ok().flatten();
    let each = |(number, name): (usize, String)| TreeDevice {
        guid: device::guid_of(&addresses, number),
        number,
        name,
        personality: config.personality,
        addresses: addresses.clone(),
        interfaces: addresses.iter().map(interface).collect(),
        link: LinkState::of(&addresses),
    };
    let devices: Vec<TreeDevice> = profile::names(config).into_iter().map(each).collect();
    let mut tree = Tree::of(&devices);
    tree.add_kernel_entries(SYS.as_ref());
    Some(tree)
}

/// The content of a file below `/sys/class/infiniband*` or `/sys/devices/verbena`, by its path; none if it is not one of these devices.
pub(crate) fn read(path: &str) -> Option<String> {
    let path = path.strip_prefix(SYS)?;
    if let Some(value) = live(path) {
        return Some(value);
    }
    current()?.file(path).map(str::to_owned)
}

/// The content of a file that changes: of a counter, or of the state of a port; none if it is neither.
fn live(path: &str) -> Option<String> {
    counter(path).or_else(|| link(path))
}

/// The content of `state` or `phys_state` of a port, by its path below `/sys` or below the tree.
fn link(path: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/')?;
    let ours = matches!(name, "state" | "phys_state") && folder.ends_with("/ports/1");
    let device = counters::device(path).filter(|_| ours)?;
    let config = config()?;
    let mut names = profile::names(config).into_iter();
    names.find(|(_, name)| name == device)?;
    let addresses = device_addresses(&config.device).ok()?.unwrap_or_default();
    Some(link_file(name, LinkState::of(&addresses)))
}

/// The value of a counter's file, by its path below `/sys` or below the tree; none if it is no counter.
fn counter(path: &str) -> Option<String> {
    let name = counters::name(path)?;
    let device = counters::device(path)?;
    let number = profile::names(config()?)
        .into_iter()
        .find_map(|(number, name)| (name == device).then_some(number))?;
    let function = running(number);
    let counted = function
        .as_ref()
        .and_then(|home| home.device.counters().ok());
    let (refused, dropped) = function.map_or_else(Default::default, |home| {
        let device = &home.device;
        (device.access_list().refused(), device.datagram_drops())
    });
    counters::value(name, &counted.unwrap_or_default(), (refused, &dropped))
}

/// Copies a text and the zero that ends it; false if there is no room.
///
/// # Safety
/// `to` has room for `len` bytes.
unsafe fn copy(text: &[u8], to: *mut c_char, len: usize) -> bool {
    if text.len() >= len {
        return false;
    }
    // SAFETY: the caller guarantees `len` bytes at `to`, which is more than the text.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
        *to.add(text.len()) = 0;
    }
    true
}

/// For the shim: writes the path of the directory that stands for `/sys`, rendered if it was not; returns 0 or an error number.
///
/// # Safety
/// `to` has room for `len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbena_sysfs_root(to: *mut c_char, len: usize) -> c_int {
    let Some(tree) = current() else {
        return libc::EINVAL;
    };
    let root = match store::directory(&tree) {
        Ok(root) => root,
        Err(error) => {
            crate::log::warn(|| format!("cannot prepare the directory for sysfs files: {error}"));
            return error.raw_os_error().unwrap_or(libc::EIO);
        }
    };
    // SAFETY: the caller guarantees room for `len` bytes at `to`.
    match unsafe { copy(root.as_os_str().as_encoded_bytes(), to, len) } {
        true => 0,
        false => libc::ENAMETOOLONG,
    }
}

/// For the shim: writes the current content of the file of a counter or of a port's state; returns its length, or -1 if the path is neither.
///
/// # Safety
/// `path` is a C string, `to` has room for `len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbena_sysfs_counter(
    path: *const c_char,
    to: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: the caller guarantees a C string at `path`.
    let path = unsafe { CStr::from_ptr(path) }.to_str();
    let Some(value) = path.ok().and_then(live) else {
        return -1;
    };
    // SAFETY: the caller guarantees room for `len` bytes at `to`.
    match unsafe { copy(value.as_bytes(), to, len) } {
        true => value.len() as c_int,
        false => -1,
    }
}

/// The root of sysfs.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads a sysfs attribute of a device; files that are not of these devices are read from the file system. Returns the length, or -1.
///
/// # Safety
/// `dir` and `file` are C strings, `buf` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller guarantees that `dir` and `file` are null or C strings.
    let (dir, file) = unsafe { (text(dir), text(file)) };
    let (Some(dir), Some(file)) = (dir, file) else {
        return failed(Errno::INVAL);
    };
    let content = match read(&format!("{dir}/{file}")) {
        Some(content) => content.into_bytes(),
        None => match std::fs::read(format!("{dir}/{file}")) {
            Ok(content) => content,
            Err(error) => return failed(Errno(error.raw_os_error().unwrap_or(libc::EIO))),
        },
    };
    let line = content.strip_suffix(b"\n").unwrap_or(&content);
    let len = line.len().min(size.saturating_sub(1));
    if size > 0 {
        // SAFETY: the caller guarantees `size` bytes at `buf`; `len` is at least one less.
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

/// Would read an attribute of a kernel device; not supported.
///
/// # Safety
/// No requirements: the arguments are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_ibdev_sysfs_file(
    _buf: *mut c_char,
    _size: usize,
    _device: *mut c_char,
) -> c_int {
    failed(Errno::NOSUPP)
}

/// # Safety
/// `at` is null or a C string.
unsafe fn text(at: *const c_char) -> Option<String> {
    // SAFETY: `at` is not null, so the caller guarantees a C string.
    let text = (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) })?;
    Some(CString::from(text).to_string_lossy().into_owned())
}
