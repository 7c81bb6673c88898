//! The C faces of Verbena: what a program that was built for libibverbs or librdmacm calls, and finds in memory.
//! It promises the original's symbols, layouts, errors and waiting rules, so that such a program does not notice.
//! It refuses to be an adapter: every call is turned into one of the Rust face, and what that cannot do is refused.
//!
//! Reading order: [`abi`] (layouts and constants, byte by byte) → `object`, `uses` (what stands behind a pointer) → `errno`,
//! `log` → `home` (one adapter per process) → [`identity`], `device`, `context`, `port`, `query` → `mailbox`, `ear`, `channel` (events) →
//! `pd`, `mr`, `mw`, `ah` → `cq`, `srq`, `qp` → [`cm`] (rdma_cm) → `rsockets` → `stubs` (names that only fail).

#![allow(
    non_camel_case_types,
    reason = "types that C programs know keep the names they have there"
)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod abi;
mod ah;
mod channel;
pub mod cm;
mod context;
mod cq;
mod device;
mod ear;
mod errno;
mod fork;
mod gids;
mod home;
pub mod identity;
mod kernel;
mod log;
mod mailbox;
mod mcast;
mod mr;
mod mw;
mod object;
mod pd;
mod port;
mod qp;
mod query;
mod rsockets;
mod scatter;
mod srq;
mod stubs;
mod sysfs;
#[doc(hidden)]
pub mod testing;
mod uses;
pub mod verbs;
mod words;
