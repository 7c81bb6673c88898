//! The connection manager: the functions that librdmacm exports and that library forwards to here (docs/dropin.md).
//! Events and their order are those of the original; connections are started with plain MPA in both personalities, so that the peer can be
//! any iWARP adapter. Addresses are IP addresses and ports; InfiniBand's own addressing is not supported.
//!
//! Reading order: `timewait`, `link` (what an identifier and its events share) → `channel` → `options`, `sidr_state`, `id` → `address` (sockaddr), `resolve` →
//! `listen`, `conn_param`, `connect`, `datagram`, `multicast` → `qp`, `attributes` → `endpoint`, `addrinfo`, `set_option`, `devices`, `strings`.

mod address;
mod addrinfo;
mod attributes;
pub mod calls;
mod channel;
mod conn_param;
mod connect;
mod datagram;
mod devices;
mod endpoint;
mod id;
mod link;
mod listen;
mod multicast;
mod options;
mod qp;
mod resolve;
mod set_option;
mod sidr_state;
mod strings;
mod timewait;

pub(crate) use link::{Link, Param};
pub(crate) use timewait::Timewait;
