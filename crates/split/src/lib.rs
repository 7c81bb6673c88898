//! The split network driver (P8, P9): a host's network interface whose card sits in another machine, the I/O unit.
//! It promises that one layer of messages runs over every carrier, that a peer's death is noticed and survived, and that no
//! memory is freed which a peer may still write to. It refuses to run threads of its own: a driver is one loop.
//!
//! Reading order: [`carrier`] (what a connection runs on) → [`hello`] and [`service`] (what both sides say) → [`link`] (a
//! connection).

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod carrier;
pub mod hello;
pub mod link;
pub mod service;
mod slots;
