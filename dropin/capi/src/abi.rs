//! The layouts and constants of `infiniband/verbs.h`, `infiniband/verbs_api.h` and `rdma/rdma_cma.h`.
//! Offsets are those of every release from rdma-core 33 on: asserted at compile time, and compared with the headers by a test.
//! There are no functions here but `zeroed` of each struct.
//!
//! Names are those of C. A member without a name in C has one here, and its comment says so; a Rust keyword is written `r#type`.
//! Structs that hold a lock cannot be copied; all others can. All-zero bytes are a valid value of each.

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

/// Every struct of these modules with its size and offsets, for a test that compares them with the headers.
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
