//! The connection manager: librdmacm's functions, which that library only forwards (docs/dropin.md).
//! It promises the original's events, in its order, and plain MPA on the wire in both personalities, so that any iWARP peer can be
//! at the other end. It refuses InfiniBand's own addressing: there are IP addresses and ports.
//!
//! Reading order: `link` (what an identifier and its events share), `timewait` → `channel` → `id` → `address` (sockaddr), `resolve` →
//! `listen`, `asked`, `connect`, `datagram`, `multicast` → `qp`, `attributes` → `endpoint`, `addrinfo`, `options`, `devices`, `words`.

mod address;
mod addrinfo;
mod asked;
mod attributes;
pub mod calls;
mod channel;
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
mod timewait;
mod words;

pub(crate) use link::{Link, Param};
pub(crate) use timewait::Timewait;
