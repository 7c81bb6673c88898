//! What C programs know: the layouts and constants of `infiniband/verbs.h`, `infiniband/verbs_api.h` and `rdma/rdma_cma.h`.
//! It promises the offsets of every release from rdma-core 33 on, checked when this is compiled and against the headers by a test.
//! It refuses functions, save `zeroed` for every struct: what is done with these is elsewhere.
//!
//! Names are those of C. A member that has no name there has one here, and says so; a Rust keyword is written `r#type`.
//! Structs that hold a lock cannot be copied; all others can. All-zero bytes are a value of every one of them.

mod address;
mod cm;
mod constants;
mod context;
mod device;
mod event;
mod layout;
mod memory;
mod pair;
mod queue;
mod raw;
mod work;

pub use address::*;
pub use cm::*;
pub use constants::*;
pub use context::*;
pub use device::*;
pub use event::*;
pub use layout::{Field, Layout};
pub use memory::*;
pub use pair::*;
pub use queue::*;
pub use raw::*;
pub use work::*;

/// Every struct of these files with its size and offsets, for a test that compares them with the headers.
pub const LAYOUTS: [&[Layout]; 10] = [
    address::LAYOUT,
    cm::LAYOUT,
    context::LAYOUT,
    device::LAYOUT,
    event::LAYOUT,
    memory::LAYOUT,
    pair::LAYOUT,
    queue::LAYOUT,
    raw::LAYOUT,
    work::LAYOUT,
];
