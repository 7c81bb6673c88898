//! The C API of Verbena: the functions and structs of libibverbs and librdmacm, for programs that were built for these.
//! Symbols, layouts, error numbers and blocking behaviour are those of the originals. Each call is translated into calls of the Rust API;
//! operations that it does not have fail with `EOPNOTSUPP`.
//!
//! Reading order: [`abi`] (layouts and constants) → `object`, `allocator`, `uses` (what is behind a pointer) → `caller` (what programs guarantee about pointers) → `errno`,
//! `log` → `function` (one adapter per process) → [`identity`], `device`, `context`, `port`, `query` → `mailbox`, `async_event`, `channel` (events) →
//! `pd`, `dm`, `mr`, `mw`, `ah` → `cq`, `srq`, `qp` → [`cm`] (rdma_cm) → `rsockets` → `check` (`verbena check`) → `stubs` (functions that only fail).

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
mod allocator;
mod async_event;
mod caller;
mod channel;
mod check;
pub mod cm;
mod context;
mod cq;
mod device;
mod dm;
mod errno;
mod fork;
mod function;
mod gids;
pub mod identity;
mod kernel;
mod log;
mod mailbox;
mod mcast;
mod mr;
mod mw;
mod object;
mod open_device;
mod open_xrcd;
mod pd;
mod port;
mod profile;
mod qp;
mod qp_table;
mod query;
mod rsockets;
mod scatter;
mod srq;
mod strings;
mod stubs;
mod sysfs;
#[doc(hidden)]
pub mod testing;
mod uses;
pub mod verbs;
mod xrc_domains;
mod xrcd;
