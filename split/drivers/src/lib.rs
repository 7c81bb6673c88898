//! The split network driver (P8, P9): a host's network interface whose card is in another machine, the I/O unit. The same messages run
//! over every carrier; a dead peer is detected by timeout, and the host connects again. Memory that a peer may still write to is not freed.
//! Each queue is one loop on one thread; [`lanes`] starts the threads of drivers with several queues.
//!
//! Reading order: [`carrier`] (what a connection runs on) → [`channel_kinds`], [`hello`], [`welcome`] and [`service`] (the messages) → [`link`] (a
//! connection) → [`host`] and [`mod@unit`] (the two drivers) → [`disk`] and [`remote_disk`] (a disk instead of the LAN) → [`lane`] and [`lanes`] (their queues) → [`status`] and [`stop`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod busy_poll;
mod capped_timer;
pub mod carrier;
pub mod channel_kinds;
mod claim;
pub mod disk;
pub mod hello;
pub mod host;
mod journal;
pub mod lane;
pub mod lanes;
pub mod link;
pub mod remote_disk;
mod request_channels;
pub mod service;
mod sleep;
mod slots;
pub mod status;
pub mod stop;
pub mod unit;
pub mod welcome;

pub use journal::Journal;
pub use verbena_lan as lan;
pub use verbena_push::{Arrangement, IndicationMode};

/// An unpredictable number; 0 if `getrandom` fails, with which a connection still works.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}
