//! Shared parts of these test programs: network namespaces, and a bridge of a TAP and a LAN port.

#![allow(dead_code, unreachable_pub, reason = "every test program uses a part")]

pub mod bridge;
mod space;

pub use space::*;
