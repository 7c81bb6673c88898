//! The files of the drop-in libraries, by name. A folder with all of [`NEEDED`] is complete.

pub(super) const LIBIBVERBS: &str = "libibverbs.so.1";
pub(super) const LIBRDMACM: &str = "librdmacm.so.1";
pub(super) const SHIM: &str = "libverbena-uverbs.so";
pub(super) const SOCKETS: &str = "libverbena-rsocket.so";
pub(super) const AUDIT: &str = "libverbena-audit.so";
/// The files of a complete folder.
pub(super) const NEEDED: [&str; 5] = [LIBIBVERBS, LIBRDMACM, SHIM, SOCKETS, AUDIT];
