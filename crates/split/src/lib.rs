//! The split network driver (P8, P9): a host's network interface whose card sits in another machine, the I/O unit.
//! It promises that one layer of messages runs over every carrier, that a peer's death is noticed and survived, and that no
//! memory is freed which a peer may still write to. It refuses to run threads of its own, but for drivers with
//! several queues: a queue is one loop.
//!
//! Reading order: [`carrier`] (what a connection runs on) → [`hello`], [`welcome`] and [`service`] (what both sides say) → [`link`] (a
//! connection) → [`host`] and [`mod@unit`] (the two drivers) → [`lane`] and [`lanes`] (their queues) → [`status`] and [`stop`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod awake;
pub mod carrier;
mod claim;
pub mod hello;
pub mod host;
mod journal;
pub mod lane;
pub mod lanes;
pub mod link;
pub mod service;
mod sleep;
mod slots;
pub mod status;
pub mod stop;
pub mod unit;
mod vigil;
pub mod welcome;

pub use journal::Journal;
pub use verbena_lan as lan;
pub use verbena_push::Arrangement;

/// A number that nobody can guess; zeros if the system has none, which a connection survives.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}
