//! Which paths are those of the adapter's sysfs files, and their replacements: the same path below the directory of `resolve`.
//! Repeated slashes and `.` are recognized in the components that are compared. `..` is left to the kernel: the links in the directory
//! lead where the kernel's own would.

use core::ffi::c_char;

use crate::{Buffer, resolve};

/// Classes of RDMA devices.
const CLASSES: &[&[u8]] = &[b"infiniband", b"infiniband_verbs", b"infiniband_mad"];

/// The part of a path behind `/sys/`, if it is one of the adapter's files.
fn below_sys(path: &[u8]) -> Option<&[u8]> {
    let path = component(path.strip_prefix(b"/")?, b"sys")?;
    let decided = match component(path, b"class") {
        Some(rest) => CLASSES.iter().any(|class| component(rest, class).is_some()),
        None => component(component(path, b"devices")?, b"verbena").is_some(),
    };
    decided.then(|| trimmed(path))
}

/// What follows a first component of this name; none if it has another name.
fn component<'a>(path: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = trimmed(path).strip_prefix(name)?;
    (rest.is_empty() || rest.starts_with(b"/")).then(|| trimmed(rest))
}

/// Without leading slashes and `.` components.
fn trimmed(mut path: &[u8]) -> &[u8] {
    loop {
        path = match path {
            [b'/', rest @ ..] => rest,
            [b'.', b'/', ..] | [b'.'] => &path[1..],
            _ => return path,
        };
    }
}

/// The replacement of a path; none if it is not one of the adapter's files, or there is no directory for it.
pub(crate) fn replacement(path: &[u8], buffer: &mut Buffer) -> Option<*const c_char> {
    let rest = below_sys(path)?;
    let root = resolve::root()?;
    // SAFETY: every byte of the part that is returned is written below; no byte is read before that.
    let buffer: &mut [u8] = unsafe { &mut *buffer.as_mut_ptr() };
    let len = root.len() + 1 + rest.len();
    // A path that is too long is not replaced.
    let text = buffer.get_mut(..=len)?;
    let (before, behind) = text.split_at_mut(root.len());
    before.copy_from_slice(root);
    let (slash, behind) = behind.split_first_mut()?;
    *slash = b'/';
    let (end, behind) = behind.split_last_mut()?;
    behind.copy_from_slice(rest);
    *end = 0;
    Some(text.as_ptr().cast())
}

/// Whether the content of the file changes: a counter of a port, or its state.
pub(crate) fn changes(path: &[u8]) -> bool {
    let mut parts = path.rsplit(|byte| *byte == b'/');
    let name = parts.next();
    match parts.next() {
        Some(b"counters" | b"hw_counters") => true,
        // `ports/1/state`
        Some(_) => matches!(name, Some(b"state" | b"phys_state")) && parts.next() == Some(b"ports"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_adapters_files_are_replaced() {
        for (path, rest) in [
            ("/sys/class/infiniband", "class/infiniband"),
            ("/sys/class/infiniband/", "class/infiniband/"),
            ("//sys//class/./infiniband/a", "class/./infiniband/a"),
            (
                "/./sys/class/infiniband_verbs/a",
                "class/infiniband_verbs/a",
            ),
            ("/sys/class/infiniband/../net", "class/infiniband/../net"),
            ("/sys/devices/verbena/verbena0", "devices/verbena/verbena0"),
        ] {
            assert_eq!(below_sys(path.as_bytes()), Some(rest.as_bytes()), "{path}");
        }
        for path in [
            "",
            "/",
            "/sys",
            "/sys/class",
            "/sys/class/net/infiniband",
            "/sys/class/infiniband2",
            "/sys/devices/verbena2",
            "sys/class/infiniband",
            "/sysclass/infiniband",
            "/sys/.class/infiniband",
        ] {
            assert_eq!(below_sys(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn counters_and_state_change() {
        assert!(changes(b"/a/ports/1/counters/port_rcv_data"));
        assert!(changes(b"/a/ports/1/hw_counters/sent_pkts"));
        assert!(!changes(b"/a/ports/1/counters"));
        assert!(changes(b"/a/ports/1/state"));
        assert!(changes(b"/a/ports/1/phys_state"));
        assert!(!changes(b"/a/ports/1/rate"));
        assert!(!changes(b"/a/state"));
        assert!(!changes(b""));
    }
}
