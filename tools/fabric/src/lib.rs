//! A network of switches, routers and faulty links (M17) as a pure machine: Ethernet frames enter at the ports of hosts with a time, and
//! leave at the ports of hosts. There is no input or output, no clock and no thread, randomness comes from one seed, and the same calls
//! give the same frames. Everything that a frame's sender can grow has a named limit.
//!
//! Reading order: [`Frame`] → [`Faults`] and the direction of a link (`lane.rs`) → [`SwitchOptions`] (`switch.rs`, around the learning
//! switch of `verbena-lan`) → [`Prefix`] and `router.rs` → [`Fabric`], which connects them.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod fabric;
mod faults;
mod frame;
mod lane;
mod prefix;
mod rng;
mod router;
mod switch;
mod topology;

pub use fabric::{EndOptions, Fabric, LinkId, LinkOptions, Mirrored, Misuse, NodeId, PortRef};
pub use faults::{Faults, Ratio};
pub use frame::{Frame, Tag};
pub use lane::Counters;
pub use prefix::{ParsePrefixError, Prefix};
pub use router::{Hop, Route, RouterCounters};
pub use switch::{PortMode, SwitchCounters, SwitchOptions};
pub use verbena_lan::{Mac, Vnet};
